/* Paged attention on the CPU: out = softmax(scale · q·k) · v over keys and values that lie in blocks.

   One primitive does everything. An item is a set of query rows and a range of key positions behind one block table:

     a decode token      one row,     its own blocks
     a prompt chunk      many rows,   its own blocks, each row sees the keys up to its own position
     a prefix group      many rows,   the blocks they share (cascade attention, arXiv 2402.05099)

   Items stand in passes. A row may be in one item of each pass; its running maximum, sum and weighted values (online
   softmax, arXiv 1805.02867) go on from pass to pass, so that the shared prefix and the row's own keys are merged
   exactly. The query heads that share a KV head are rows of the same product (grouped-query attention).

   A product of few rows is bound by reading the cache: it reads each key once, in place (narrow). One of many rows is
   bound by arithmetic: a tile of keys is transposed into the first-level cache and multiplied as a matrix (wide).

   Compiled for one HEAD_DIM and VALUE_DIM. The cache is [num_blocks, num_kv_heads, block_size, dim]. */
#include <stdlib.h>

#include "vector.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#define VALUE_DIM 64
#endif

#define NUM_KEYS 64 /* keys of a wide tile */
#define NUM_ROWS 96 /* query vectors of a wide tile; a multiple of 6 and 12 */
#define MAX_NARROW 8
#define NARROW_KEYS 16
#define FETCH_AHEAD NARROW_KEYS
#define VALUE_PAD ROUND_UP(VALUE_DIM, LANES)

typedef struct {
    int32_t row_begin, row_end; /* in rows */
    int32_t table_begin;        /* in tables: the block that holds position kv_begin, a multiple of block_size */
    int32_t kv_begin, kv_end;
} Item;

typedef struct {
    const float *query; /* row i at query + i · query_stride: num_heads · HEAD_DIM values */
    int64_t query_stride;
    const float *keys, *values;
    float *out;             /* [num_rows, num_heads, VALUE_DIM] */
    float *maxima, *sums;   /* [num_rows, num_heads] */
    const int32_t *positions; /* [num_rows] */
    const int32_t *rows;
    const int32_t *tables;
    const Item *items;
    const int32_t *pass_begins; /* [num_passes + 1], in items */
    const float *sinks;         /* [num_heads] or NULL */
    const float *head_scales;   /* [num_heads] or NULL: multiplies scale */
    int32_t num_passes, num_rows, num_heads, num_kv_heads, block_size, window;
    float scale, softcap;
} Step;

typedef struct {
    const Item *item;
    int32_t kv_head, begin, end; /* query vectors: (row, head of the group) counted through */
} Unit;

/* Where the state of one query vector lies. */
typedef struct {
    const float *query;
    float *out, *maximum, *sum;
    float scale;
    int32_t position;
} Vector;

INLINE Vector vector_of(const Step *s, const Unit *u, int index) {
    const int group = s->num_heads / s->num_kv_heads;
    const int32_t row = s->rows[u->item->row_begin + index / group];
    const int head = u->kv_head * group + index % group;
    const int64_t at = (int64_t)row * s->num_heads + head;
    return (Vector){s->query + row * s->query_stride + head * HEAD_DIM, s->out + at * VALUE_DIM, s->maxima + at,
                    s->sums + at, s->head_scales ? s->scale * s->head_scales[head] : s->scale, s->positions[row]};
}

INLINE int64_t block_offset(const Step *s, const Unit *u, int position, int dim) {
    const int32_t block = s->tables[u->item->table_begin + (position - u->item->kv_begin) / s->block_size];
    const int64_t line = ((int64_t)block * s->num_kv_heads + u->kv_head) * s->block_size;
    return (line + position % s->block_size) * dim;
}

INLINE int first_visible(const Step *s, int position) {
    return s->window && position >= s->window ? position - s->window + 1 : 0;
}

/* Scores of num keys from position first on: soft cap, and -inf where the query vector must not look. */
static void limit_scores(const Step *s, float *scores, int first, int num, int position) {
    if (s->softcap > 0)
        for (int k = 0; k < num; k++) scores[k] = s->softcap * tanhf(scores[k] / s->softcap);
    const int lowest = first_visible(s, position);
    for (int k = 0; k < num && first + k < lowest; k++) scores[k] = -INFINITY;
    for (int k = position + 1 - first < 0 ? 0 : position + 1 - first; k < num; k++) scores[k] = -INFINITY;
}

/* Online softmax over one tile: the scores of a query vector become weights; its sum and its weighted values so far
   shrink if the maximum grows. */
INLINE void weigh(float *scores, const int num_keys, float *maximum, float *total, float *acc, const int width) {
    vec top = load(scores);
    for (int k = LANES; k < num_keys; k += LANES) top = larger(top, load(scores + k));
    const float now = largest(top);
    if (now > *maximum) {
        const float shrink = *maximum == -INFINITY ? 0 : expf(*maximum - now);
        *total *= shrink;
        for (int i = 0; i < width; i += LANES) store(acc + i, load(acc + i) * shrink);
        *maximum = now;
    }
    vec part = {0};
    for (int k = 0; k < num_keys; k += LANES) {
        const vec weight = *maximum == -INFINITY ? (vec){0} : exp_vec(load(scores + k) - *maximum);
        store(scores + k, weight);
        part += weight;
    }
    *total += sum(part);
}

/* ---- few rows: keys and values where they lie ---- */

/* Whole vectors and whole tiles only; keys of a block that are not written yet are read and hidden. */
#define IS_WHOLE (HEAD_DIM % LANES == 0 && VALUE_DIM % LANES == 0)
#define KEY_VECS (HEAD_DIM / LANES)

/* q · key for LANES keys. */
INLINE vec score_keys(const float *q, const float *key) {
    vec total[LANES];
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++) total[k] = load(q) * load(key + k * HEAD_DIM);
#pragma GCC unroll 16
    for (int i = 1; i < KEY_VECS; i++)
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++) total[k] += load(q + i * LANES) * load(key + k * HEAD_DIM + i * LANES);
    return sums(total);
}

INLINE void add_values(const int num_rows, const float *weights, const float *value, float *acc, const int num_keys) {
    for (int i = 0; i < VALUE_DIM; i += LANES) {
        vec total[MAX_NARROW];
        for (int r = 0; r < num_rows; r++) total[r] = load(acc + r * VALUE_DIM + i);
#pragma GCC unroll 16
        for (int k = 0; k < num_keys; k++) {
            const vec v = load(value + k * VALUE_DIM + i);
            for (int r = 0; r < num_rows; r++) total[r] += weights[r * NARROW_KEYS + k] * v;
        }
        for (int r = 0; r < num_rows; r++) store(acc + r * VALUE_DIM + i, total[r]);
    }
}

/* Ask for a tile that is needed soon, into the second-level cache: 16 to 23 GB/s of 35 where the first level, whose
   misses are few at a time, gave 13 to 14. Two tiles ahead, and all KV heads of a block in one go, were both slower. */
INLINE void fetch(const Step *s, const Unit *u, int position) {
    if (position >= u->item->kv_end) return;
    const float *key = s->keys + block_offset(s, u, position, HEAD_DIM);
    const float *value = s->values + block_offset(s, u, position, VALUE_DIM);
    for (int i = 0; i < NARROW_KEYS * HEAD_DIM; i += 16) __builtin_prefetch(key + i, 0, 2);
    for (int i = 0; i < NARROW_KEYS * VALUE_DIM; i += 16) __builtin_prefetch(value + i, 0, 2);
}

INLINE void attend_narrow(const Step *s, const Unit *u, const int num_rows) {
    float q[MAX_NARROW * HEAD_DIM], acc[MAX_NARROW * VALUE_DIM], scores[MAX_NARROW * NARROW_KEYS];
    float maximum[MAX_NARROW], total[MAX_NARROW];
    Vector vectors[MAX_NARROW];
    int lowest = u->item->kv_end;
    for (int r = 0; r < num_rows; r++) {
        const Vector v = vectors[r] = vector_of(s, u, u->begin + r);
        for (int i = 0; i < HEAD_DIM; i++) q[r * HEAD_DIM + i] = v.query[i] * v.scale;
        memcpy(acc + r * VALUE_DIM, v.out, sizeof(float) * VALUE_DIM);
        maximum[r] = *v.maximum;
        total[r] = *v.sum;
        const int visible = first_visible(s, v.position);
        lowest = visible < lowest ? visible : lowest;
    }
    int first = u->item->kv_begin;
    if (lowest > first) first += (lowest - first) / NARROW_KEYS * NARROW_KEYS;
    for (; first < u->item->kv_end; first += NARROW_KEYS) {
        const float *key = s->keys + block_offset(s, u, first, HEAD_DIM);
        const float *value = s->values + block_offset(s, u, first, VALUE_DIM);
        fetch(s, u, first + FETCH_AHEAD);
        for (int r = 0; r < num_rows; r++)
            for (int k = 0; k < NARROW_KEYS; k += LANES)
                store(scores + r * NARROW_KEYS + k, score_keys(q + r * HEAD_DIM, key + k * HEAD_DIM));
        for (int r = 0; r < num_rows; r++) {
            limit_scores(s, scores + r * NARROW_KEYS, first, NARROW_KEYS, vectors[r].position);
            weigh(scores + r * NARROW_KEYS, NARROW_KEYS, maximum + r, total + r, acc + r * VALUE_DIM, VALUE_DIM);
        }
        if (first + NARROW_KEYS <= u->item->kv_end)
            add_values(num_rows, scores, value, acc, NARROW_KEYS);
        else /* what another request left in the rest of the block may be NaN, and 0 · NaN is too */
            add_values(num_rows, scores, value, acc, u->item->kv_end - first);
    }
    for (int r = 0; r < num_rows; r++) {
        memcpy(vectors[r].out, acc + r * VALUE_DIM, sizeof(float) * VALUE_DIM);
        *vectors[r].maximum = maximum[r];
        *vectors[r].sum = total[r];
    }
}

/* ---- many rows: tiles as matrices ---- */

/* c[GEMM_ROWS, 2 · LANES] (+)= a[GEMM_ROWS, depth] · b[depth, 2 · LANES] */
INLINE void multiply_tile(const float *a, int lda, const float *b, int ldb, float *c, int ldc, int depth,
                          const int num_vecs, const int adds) {
    vec total[GEMM_ROWS][2];
    for (int r = 0; r < GEMM_ROWS; r++)
        for (int n = 0; n < num_vecs; n++) total[r][n] = adds ? load(c + r * ldc + n * LANES) : (vec){0};
    for (int d = 0; d < depth; d++) {
        vec line[2];
        for (int n = 0; n < num_vecs; n++) line[n] = load(b + d * ldb + n * LANES);
        for (int r = 0; r < GEMM_ROWS; r++)
            for (int n = 0; n < num_vecs; n++) total[r][n] += a[r * lda + d] * line[n];
    }
    for (int r = 0; r < GEMM_ROWS; r++)
        for (int n = 0; n < num_vecs; n++) store(c + r * ldc + n * LANES, total[r][n]);
}

INLINE void multiply(int num_rows, const float *a, int lda, const float *b, int ldb, float *c, int ldc, int depth,
                     const int width, const int adds) {
    for (int n = 0; n < width; n += 2 * LANES)
        for (int r = 0; r < num_rows; r += GEMM_ROWS) {
            if (n + LANES < width)
                multiply_tile(a + r * lda, lda, b + n, ldb, c + r * ldc + n, ldc, depth, 2, adds);
            else
                multiply_tile(a + r * lda, lda, b + n, ldb, c + r * ldc + n, ldc, depth, 1, adds);
        }
}

static void attend_wide(const Step *s, const Unit *u) {
    float q[NUM_ROWS * HEAD_DIM], acc[NUM_ROWS * VALUE_PAD], scores[NUM_ROWS * NUM_KEYS];
    float key[HEAD_DIM * NUM_KEYS], value[NUM_KEYS * VALUE_PAD];
    Vector vectors[NUM_ROWS];
    const int num = u->end - u->begin;
    const int padded = ROUND_UP(num, GEMM_ROWS);
    int lowest = u->item->kv_end, highest = 0, all_below = u->item->kv_end, all_above = 0;
    memset(acc, 0, sizeof(float) * padded * VALUE_PAD);
    memset(q + num * HEAD_DIM, 0, sizeof(float) * (padded - num) * HEAD_DIM);
    memset(scores, 0, sizeof(float) * padded * NUM_KEYS);
    memset(value, 0, sizeof(value));
    memset(key, 0, sizeof(key));
    for (int r = 0; r < num; r++) {
        const Vector v = vectors[r] = vector_of(s, u, u->begin + r);
        for (int i = 0; i < HEAD_DIM; i++) q[r * HEAD_DIM + i] = v.query[i] * v.scale;
        memcpy(acc + r * VALUE_PAD, v.out, sizeof(float) * VALUE_DIM);
        const int visible = first_visible(s, v.position), end = v.position + 1;
        lowest = visible < lowest ? visible : lowest;
        all_above = visible > all_above ? visible : all_above;
        highest = end > highest ? end : highest;
        all_below = end < all_below ? end : all_below;
    }
    const int kv_end = highest < u->item->kv_end ? highest : u->item->kv_end;
    int first = u->item->kv_begin;
    if (lowest > first) first += (lowest - first) / s->block_size * s->block_size;
    for (; first < kv_end; first += NUM_KEYS) {
        const int num_keys = kv_end - first < NUM_KEYS ? kv_end - first : NUM_KEYS;
        for (int k = 0; k < num_keys;) {
            int run = s->block_size - (first + k) % s->block_size;
            run = run < num_keys - k ? run : num_keys - k;
            const float *from = s->keys + block_offset(s, u, first + k, HEAD_DIM);
            int j = 0;
            for (; HEAD_DIM % LANES == 0 && j + LANES <= run; j += LANES)
                for (int d = 0; d < HEAD_DIM; d += LANES)
                    transpose(from + j * HEAD_DIM + d, HEAD_DIM, key + d * NUM_KEYS + k + j, NUM_KEYS);
            for (; j < run; j++)
                for (int d = 0; d < HEAD_DIM; d++) key[d * NUM_KEYS + k + j] = from[j * HEAD_DIM + d];
            from = s->values + block_offset(s, u, first + k, VALUE_DIM);
            for (j = 0; j < run; j++)
                memcpy(value + (k + j) * VALUE_PAD, from + j * VALUE_DIM, sizeof(float) * VALUE_DIM);
            k += run;
        }
        multiply(padded, q, HEAD_DIM, key, NUM_KEYS, scores, NUM_KEYS, HEAD_DIM, NUM_KEYS, 0);
        const int is_limited = s->softcap > 0 || first + num_keys > all_below || first < all_above;
        for (int r = 0; r < num; r++) {
            float *p = scores + r * NUM_KEYS;
            if (is_limited) limit_scores(s, p, first, num_keys, vectors[r].position);
            for (int k = num_keys; k < NUM_KEYS; k++) p[k] = -INFINITY;
            weigh(p, NUM_KEYS, vectors[r].maximum, vectors[r].sum, acc + r * VALUE_PAD, VALUE_PAD);
        }
        multiply(padded, scores, NUM_KEYS, value, VALUE_PAD, acc, VALUE_PAD, NUM_KEYS, VALUE_PAD, 1);
    }
    for (int r = 0; r < num; r++) memcpy(vectors[r].out, acc + r * VALUE_PAD, sizeof(float) * VALUE_DIM);
}

static void attend_unit(const Step *s, const Unit *u) {
    const int num = u->end - u->begin;
    if (!IS_WHOLE || s->block_size % NARROW_KEYS != 0 || num > MAX_NARROW) return attend_wide(s, u);
    switch (num) { /* the number as a constant: the sums of all rows then stay in registers */
    case 1: return attend_narrow(s, u, 1);
    case 2: return attend_narrow(s, u, 2);
    case 3: return attend_narrow(s, u, 3);
    case 4: return attend_narrow(s, u, 4);
    case 5: return attend_narrow(s, u, 5);
    case 6: return attend_narrow(s, u, 6);
    case 7: return attend_narrow(s, u, 7);
    default: return attend_narrow(s, u, 8);
    }
}

/* Cut the items of a pass into units of at most NUM_ROWS query vectors of one KV head. Returns their number. */
static int make_units(const Step *s, int pass, Unit *units) {
    const int group = s->num_heads / s->num_kv_heads;
    int num = 0;
    for (int i = s->pass_begins[pass]; i < s->pass_begins[pass + 1]; i++) {
        const int num_vectors = (s->items[i].row_end - s->items[i].row_begin) * group;
        const int num_tiles = ROUND_UP(num_vectors, NUM_ROWS) / NUM_ROWS;
        const int size = ROUND_UP(ROUND_UP(num_vectors, num_tiles) / num_tiles, GEMM_ROWS); /* all about equal */
        for (int begin = 0; begin < num_vectors; begin += size)
            for (int head = 0; head < s->num_kv_heads; head++, num++)
                if (units) {
                    const int end = begin + size < num_vectors ? begin + size : num_vectors;
                    units[num] = (Unit){s->items + i, head, begin, end};
                }
    }
    return num;
}

/* Returns 0, or -1 if there is no memory. */
int attend(const Step *s) {
    int most = 0;
    for (int pass = 0; pass < s->num_passes; pass++) {
        const int num = make_units(s, pass, NULL);
        most = num > most ? num : most;
    }
    Unit *units = malloc(sizeof(Unit) * (most ? most : 1));
    if (!units) return -1;
    const int64_t num_states = (int64_t)s->num_rows * s->num_heads;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < num_states; i++) {
        s->maxima[i] = s->sinks ? s->sinks[i % s->num_heads] : -INFINITY;
        s->sums[i] = s->sinks ? 1 : 0;
        memset(s->out + i * VALUE_DIM, 0, sizeof(float) * VALUE_DIM);
    }
    for (int pass = 0; pass < s->num_passes; pass++) {
        const int num = make_units(s, pass, units);
#pragma omp parallel for schedule(dynamic, 4)
        for (int i = 0; i < num; i++) {
            if (i + 1 < num) fetch(s, units + i + 1, units[i + 1].item->kv_begin);
            attend_unit(s, units + i);
        }
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < num_states; i++)
        for (int d = 0; d < VALUE_DIM; d++) s->out[i * VALUE_DIM + d] /= s->sums[i];
    free(units);
    return 0;
}
