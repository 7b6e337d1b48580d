/* Paged attention on the CPU: out = softmax(scale · q·k) · v over keys and values that lie in blocks.

   One primitive does everything. An item is a set of query rows and a range of key positions behind one block table:

     a decode token      one row,     its own blocks
     a prompt chunk      many rows,   its own blocks, each row sees the keys up to its own position
     a prefix group      many rows,   the blocks they share (cascade attention, arXiv 2402.05099)

   Items stand in passes. A row may be in one item of each pass; its running maximum, sum and weighted values (online
   softmax, arXiv 1805.02867) go on from pass to pass, so that the shared prefix and the row's own keys are merged
   exactly. The query heads that share a KV head are rows of the same product (grouped-query attention).

   A product of few rows is bound by reading the cache: it reads each key once, in place (narrow). One of many rows is
   bound by arithmetic: its query vectors are transposed once, and a tile of keys is multiplied as a matrix (wide).

   Compiled for one HEAD_DIM and VALUE_DIM. The cache is [num_blocks, num_kv_heads, block_size, dim]. */
#include <stdlib.h>

#include "vector.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#define VALUE_DIM 64
#endif

#define NUM_KEYS 64 /* keys of a wide tile */
#define PANEL (3 * LANES)
#define PADDED(dim) ROUND_UP(dim, LANES)
#define NUM_COLUMNS (2 * PANEL) /* query vectors of a wide unit */
#define MAX_NARROW 8
#define NARROW_KEYS 16
#define FETCH_AHEAD NARROW_KEYS

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

/* ---- many rows: a tile of keys times a panel of query vectors ---- */

/* A panel holds query vectors as columns, so that the scores of one key stand side by side: maxima and sums of all
   columns are found at once, and keys and values are taken as they lie in the cache, each number times a whole line. */
typedef struct {
    _Alignas(64) float q[PADDED(HEAD_DIM)][PANEL], acc[PADDED(VALUE_DIM)][PANEL], maximum[PANEL], sum[PANEL];
    _Alignas(64) int32_t position[PANEL], lowest[PANEL]; /* the last and the first key that a column sees */
    Vector vectors[PANEL];
    int num_columns;
    int begin, end;           /* keys that some column sees */
    int all_begin, all_end;   /* keys that every column sees */
} Panel;

typedef struct {
    const float *keys[NUM_KEYS], *values[NUM_KEYS];
    int first, num; /* the position of keys[0]; how many there are */
} Tile;

/* to[width][height] = from[height][width]; both multiples of LANES. */
static void transpose_all(const float *from, int height, int width, float *to) {
    for (int i = 0; i < height; i += LANES)
        for (int j = 0; j < width; j += LANES) transpose(from + i * width + j, width, to + j * height + i, height);
}

static void open_panel(const Step *s, const Unit *u, int index, int num_columns, Panel *p) {
    _Alignas(64) float q[PANEL][PADDED(HEAD_DIM)], acc[PANEL][PADDED(VALUE_DIM)];
    memset(p, 0, sizeof(*p));
    memset(q, 0, sizeof(q));
    memset(acc, 0, sizeof(acc));
    p->num_columns = num_columns;
    p->begin = p->all_end = u->item->kv_end;
    for (int c = 0; c < num_columns; c++) {
        const Vector v = p->vectors[c] = vector_of(s, u, index + c);
        for (int i = 0; i < HEAD_DIM; i++) q[c][i] = v.query[i] * v.scale;
        memcpy(acc[c], v.out, sizeof(float) * VALUE_DIM);
        p->maximum[c] = *v.maximum;
        p->sum[c] = *v.sum;
        const int first = first_visible(s, v.position), end = v.position + 1;
        p->position[c] = v.position;
        p->lowest[c] = first;
        p->begin = first < p->begin ? first : p->begin;
        p->end = end > p->end ? end : p->end;
        p->all_begin = first > p->all_begin ? first : p->all_begin;
        p->all_end = end < p->all_end ? end : p->all_end;
    }
    p->end = p->end < u->item->kv_end ? p->end : u->item->kv_end;
    transpose_all(q[0], PANEL, PADDED(HEAD_DIM), p->q[0]);
    transpose_all(acc[0], PANEL, PADDED(VALUE_DIM), p->acc[0]);
}

static void close_panel(const Panel *p) {
    _Alignas(64) float acc[PANEL][PADDED(VALUE_DIM)];
    transpose_all(p->acc[0], PADDED(VALUE_DIM), PANEL, acc[0]);
    for (int c = 0; c < p->num_columns; c++) {
        const Vector v = p->vectors[c];
        memcpy(v.out, acc[c], sizeof(float) * VALUE_DIM);
        *v.maximum = p->maximum[c];
        *v.sum = p->sum[c];
    }
}

/* scores[k] = keys[k] · q for TILE_ROWS keys and all columns. */
INLINE void multiply_keys(const float *const *keys, const float (*q)[PANEL], float (*scores)[PANEL], const int vecs) {
    vec total[TILE_ROWS][3] = {0};
    for (int d = 0; d < HEAD_DIM; d++)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int n = 0; n < vecs; n++) total[r][n] += keys[r][d] * load(q[d] + n * LANES);
    for (int r = 0; r < TILE_ROWS; r++)
        for (int n = 0; n < vecs; n++) store(scores[r] + n * LANES, total[r][n]);
}

/* acc[i] = acc[i] · shrink + Σ_k values[k][i] · weights[k] for num_rows dimensions i from begin on, and all columns. */
INLINE void multiply_values(const Tile *t, const float (*weights)[PANEL], const float *shrink, float (*acc)[PANEL],
                            int begin, const int num_rows, const int vecs) {
    vec total[TILE_ROWS][3];
    for (int r = 0; r < num_rows; r++)
        for (int n = 0; n < vecs; n++) total[r][n] = load(acc[begin + r] + n * LANES) * load(shrink + n * LANES);
    for (int k = 0; k < t->num; k++)
        for (int r = 0; r < num_rows; r++)
            for (int n = 0; n < vecs; n++) total[r][n] += t->values[k][begin + r] * load(weights[k] + n * LANES);
    for (int r = 0; r < num_rows; r++)
        for (int n = 0; n < vecs; n++) store(acc[begin + r] + n * LANES, total[r][n]);
}

static void limit_columns(const Step *s, const Panel *p, const Tile *t, float (*scores)[PANEL]) {
    for (int k = 0; k < t->num; k++) {
        if (s->softcap > 0)
            for (int c = 0; c < PANEL; c++) scores[k][c] = s->softcap * tanhf(scores[k][c] / s->softcap);
        for (int c = 0; c < PANEL; c++)
            if (t->first + k > p->position[c] || t->first + k < p->lowest[c]) scores[k][c] = -INFINITY;
    }
}

/* Online softmax: scores become weights; shrink is what the sums so far are to be multiplied by. */
INLINE void weigh_columns(Panel *p, const Tile *t, float (*scores)[PANEL], float *shrink, const int vecs) {
    vec top[3], base[3], part[3] = {0};
    for (int n = 0; n < vecs; n++) top[n] = load(p->maximum + n * LANES);
    for (int k = 0; k < t->num; k++)
        for (int n = 0; n < vecs; n++) top[n] = larger(top[n], load(scores[k] + n * LANES));
    for (int n = 0; n < vecs; n++) base[n] = larger(top[n], splat(-1e30f)); /* -inf - -inf is no number */
    for (int k = 0; k < t->num; k++)
        for (int n = 0; n < vecs; n++) {
            const vec weight = exp_vec(load(scores[k] + n * LANES) - base[n]);
            store(scores[k] + n * LANES, weight);
            part[n] += weight;
        }
    for (int n = 0; n < vecs; n++) {
        const vec factor = exp_vec(load(p->maximum + n * LANES) - base[n]);
        store(p->maximum + n * LANES, top[n]);
        store(p->sum + n * LANES, load(p->sum + n * LANES) * factor + part[n]);
        store(shrink + n * LANES, factor);
    }
}

INLINE void attend_tile(const Step *s, Panel *p, const Tile *t, const int vecs) {
    _Alignas(64) float scores[NUM_KEYS][PANEL], shrink[PANEL];
    for (int k = 0; k < t->num; k += TILE_ROWS) multiply_keys(t->keys + k, p->q, scores + k, vecs);
    if (s->softcap > 0 || t->first < p->all_begin || t->first + t->num > p->all_end) limit_columns(s, p, t, scores);
    weigh_columns(p, t, scores, shrink, vecs);
    int i = 0;
    for (; i + TILE_ROWS <= VALUE_DIM; i += TILE_ROWS) multiply_values(t, scores, shrink, p->acc, i, TILE_ROWS, vecs);
    if (VALUE_DIM % TILE_ROWS) multiply_values(t, scores, shrink, p->acc, i, VALUE_DIM % TILE_ROWS, vecs);
}

/* The keys from position first on, up to end. Rows beyond the last stand for it: they are multiplied and not used. */
static void find_tile(const Step *s, const Unit *u, int first, int end, Tile *t) {
    t->first = first;
    t->num = end - first < NUM_KEYS ? end - first : NUM_KEYS;
    for (int k = 0; k < ROUND_UP(t->num, TILE_ROWS); k++) {
        const int position = first + (k < t->num ? k : t->num - 1);
        t->keys[k] = s->keys + block_offset(s, u, position, HEAD_DIM);
        t->values[k] = s->values + block_offset(s, u, position, VALUE_DIM);
    }
}

static void attend_wide(const Step *s, const Unit *u) {
    Panel panels[NUM_COLUMNS / PANEL];
    Tile tile;
    int num_panels = 0, begin = u->item->kv_end, end = 0;
    for (int index = u->begin; index < u->end; index += PANEL, num_panels++) {
        Panel *p = panels + num_panels;
        open_panel(s, u, index, u->end - index < PANEL ? u->end - index : PANEL, p);
        begin = p->begin < begin ? p->begin : begin;
        end = p->end > end ? p->end : end;
    }
    for (int first = begin > u->item->kv_begin ? begin : u->item->kv_begin; first < end; first += NUM_KEYS) {
        find_tile(s, u, first, end, &tile);
        for (Panel *p = panels; p < panels + num_panels; p++) {
            if (first >= p->end) continue;
            switch (ROUND_UP(p->num_columns, LANES) / LANES) {
            case 1: attend_tile(s, p, &tile, 1); break;
            case 2: attend_tile(s, p, &tile, 2); break;
            default: attend_tile(s, p, &tile, 3);
            }
        }
    }
    for (int i = 0; i < num_panels; i++) close_panel(panels + i);
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

/* Cut the items of a pass into units of at most NUM_COLUMNS query vectors of one KV head. Returns their number. */
static int make_units(const Step *s, int pass, Unit *units) {
    const int group = s->num_heads / s->num_kv_heads;
    int num = 0;
    for (int i = s->pass_begins[pass]; i < s->pass_begins[pass + 1]; i++) {
        const int num_vectors = (s->items[i].row_end - s->items[i].row_begin) * group;
        const int num_tiles = ROUND_UP(num_vectors, NUM_COLUMNS) / NUM_COLUMNS;
        const int size = ROUND_UP(ROUND_UP(num_vectors, num_tiles) / num_tiles, LANES); /* all about equal */
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
#pragma omp parallel for schedule(dynamic, num < 256 ? 1 : 4)
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
