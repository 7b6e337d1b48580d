/* Rows of floats to rows of bytes and back: the formula is in int8_rows.py. */
#include "vector.h"

#define MIN_PARALLEL 16384
#define LEVELS 127

static float largest_product(const float *x, const float *factors, int64_t n) {
    vec most = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec y = load(x + i) * load(factors + i);
        most = larger(most, larger(y, -y));
    }
    float result = largest(most);
    for (; i < n; i++) result = fmaxf(result, fabsf(x[i] * factors[i]));
    return result;
}

/* values = round(x · factors / scale) + LEVELS + 1; adding the half and cutting off rounds, as no sum is negative. */
void quantize_rows(const float *x, const float *factors, uint8_t *values, float *scales, int64_t num_rows, int64_t n) {
#pragma omp parallel for schedule(static) if (num_rows * n > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) {
        const float *from = x + row * n, most = largest_product(from, factors, n);
        const float scale = most > 0 ? most / LEVELS : 1.0f, inverse = 1.0f / scale, middle = LEVELS + 1.5f;
        uint8_t *to = values + row * n;
        for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)(int32_t)(from[i] * factors[i] * inverse + middle);
        scales[row] = scale;
    }
}

/* out = out · scales + bias; bias may be NULL. */
void scale_rows(float *out, const float *scales, const float *bias, int64_t num_rows, int64_t n) {
#pragma omp parallel for schedule(static) if (num_rows * n > MIN_PARALLEL)
    for (int64_t row = 0; row < num_rows; row++) {
        float *to = out + row * n;
        const float scale = scales[row];
        if (bias)
            for (int64_t i = 0; i < n; i++) to[i] = to[i] * scale + bias[i];
        else
            for (int64_t i = 0; i < n; i++) to[i] *= scale;
    }
}
