/* Few query vectors: keys and values are read where they lie, each once. */
#include "step.h"

#define MAX_NARROW 8 /* query vectors */
#define NARROW_KEYS 16
#define FETCH_AHEAD NARROW_KEYS

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
