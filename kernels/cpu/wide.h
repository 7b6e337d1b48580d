/* Many query vectors: a tile of keys times a panel of them, as matrices. */
#include "step.h"

#define NUM_KEYS 64 /* keys of a tile */
#define PANEL (3 * LANES)
#define NUM_COLUMNS (2 * PANEL) /* query vectors of a unit */
#define PADDED(dim) ROUND_UP(dim, LANES)

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
            for (int c = 0; c < p->num_columns; c++) scores[k][c] = s->softcap * tanhf(scores[k][c] / s->softcap);
        for (int c = 0; c < p->num_columns; c++)
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
