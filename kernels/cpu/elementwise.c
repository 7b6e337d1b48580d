/* What stands between the matrix products of a decoder layer, each as one pass over its rows. */
#include "vector.h"

/* Rows are short: below this many values a second thread costs more than it does. */
#define MIN_PARALLEL 16384

static void normalise(const float *x, const float *weight, float eps, float *out, int64_t n) {
    vec squares = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) squares += load(x + i) * load(x + i);
    float total = sum(squares);
    for (; i < n; i++) total += x[i] * x[i];
    const float factor = 1.0f / sqrtf(total / n + eps);
    for (i = 0; i < n; i++) out[i] = weight[i] * (x[i] * factor);
}

/* out = weight · x / sqrt(mean(x²) + eps), row by row: RMSNorm, arXiv 1910.07467. */
void rms_norm(const float *x, const float *weight, float eps, float *out, int64_t num_rows, int64_t n) {
#pragma omp parallel for schedule(static) if (num_rows * n > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) normalise(x + row * n, weight, eps, out + row * n, n);
}

/* residual += x; out = rms_norm(residual). */
void add_rms_norm(const float *x, float *residual, const float *weight, float eps, float *out, int64_t num_rows,
                  int64_t n) {
#pragma omp parallel for schedule(static) if (num_rows * n > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) {
        float *sums = residual + row * n;
        for (int64_t i = 0; i < n; i++) sums[i] += x[row * n + i];
        normalise(sums, weight, eps, out + row * n, n);
    }
}

/* out = silu(gate) · up for gate_up = [gate | up], row by row: SwiGLU, arXiv 2002.05202. */
void swiglu(const float *gate_up, float *out, int64_t num_rows, int64_t n) {
#pragma omp parallel for schedule(static) if (num_rows * n > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *gate = gate_up + row * 2 * n, *up = gate + n;
        float *to = out + row * n;
        int64_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            const vec g = load(gate + i);
            store(to + i, g / (exp_vec(-larger(g, splat(-88.0f))) + 1.0f) * load(up + i));
        }
        for (; i < n; i++) to[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

/* One head of one token: dim values of the cache. */
static int64_t cache_offset(int64_t slot, int64_t head, int64_t num_kv_heads, int64_t block_size, int64_t dim) {
    return ((slot / block_size * num_kv_heads + head) * block_size + slot % block_size) * dim;
}

static void rotate(float *x, const float *cosine, const float *sine, int64_t rotary_dim) {
    const int64_t half = rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i + half] + a * sine[i + half];
    }
}

/* Rotary embedding (arXiv 2104.09864, halves rotated) of the queries and keys in qkv = [q | k | v], in place; keys and
   values are then written to their slots of the cache [num_blocks, num_kv_heads, block_size, dim]. */
void rotate_and_write_kv(float *qkv, const float *cosine, const float *sine, float *k_cache, float *v_cache,
                         const int64_t *slots, int64_t num_rows, int64_t num_heads, int64_t num_kv_heads, int64_t dim,
                         int64_t rotary_dim, int64_t block_size) {
    const int64_t width = (num_heads + 2 * num_kv_heads) * dim;
#pragma omp parallel for schedule(static) if (num_rows * width > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) {
        float *q = qkv + row * width, *k = q + num_heads * dim, *v = k + num_kv_heads * dim;
        if (row + 2 < num_rows) /* where the cache is written it was last used a step ago */
            for (int64_t head = 0; head < num_kv_heads; head++) {
                const int64_t at = cache_offset(slots[row + 2], head, num_kv_heads, block_size, dim);
                for (int64_t i = 0; i < dim; i += 16) {
                    __builtin_prefetch(k_cache + at + i, 1);
                    __builtin_prefetch(v_cache + at + i, 1);
                }
            }
        for (int64_t head = 0; head < num_heads + num_kv_heads; head++)
            rotate(q + head * dim, cosine + row * rotary_dim, sine + row * rotary_dim, rotary_dim);
        for (int64_t head = 0; head < num_kv_heads; head++) {
            const int64_t at = cache_offset(slots[row], head, num_kv_heads, block_size, dim);
            memcpy(k_cache + at, k + head * dim, sizeof(float) * dim);
            memcpy(v_cache + at, v + head * dim, sizeof(float) * dim);
        }
    }
}
