/* SIMD as GCC and Clang spell it for every chip: one vector of LANES floats, loads and stores of any alignment. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#define TILE_ROWS 8 /* 3 · 8 of 32 registers hold sums */
#else
#define LANES 8
#define TILE_ROWS 4 /* 3 · 4 of 16 registers hold sums */
#endif

#define INLINE static inline __attribute__((always_inline))
#define ROUND_UP(n, step) (((n) + (step) - 1) / (step) * (step))

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE vec load(const float *p) { return *(const vec *)p; }
INLINE void store(float *p, vec v) { *(vec *)p = v; }
INLINE vec splat(float x) { return x - (vec){0}; }

INLINE vec larger(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_max_ps((__m512)a, (__m512)b); /* a comparison and a choice otherwise, of twice the latency */
#else
    const ivec is_larger = a > b;
    return (vec)(((ivec)a & is_larger) | ((ivec)b & ~is_larger));
#endif
}

/* Two vectors become one: each pair of their lanes (or of their quarters) is added up. */
#if LANES == 16
#define UNPACK_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define UNPACK_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PAIRS_LOW 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define PAIRS_HIGH 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define QUARTERS_EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define QUARTERS_ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#else
#define UNPACK_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define UNPACK_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define PAIRS_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define PAIRS_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#define QUARTERS_EVEN 0, 1, 2, 3, 8, 9, 10, 11
#define QUARTERS_ODD 4, 5, 6, 7, 12, 13, 14, 15
#endif
#if LANES == 16
#define MERGE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define MERGE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
#define MERGE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define MERGE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#endif

/* to[d · to_stride + k] = from[k · from_stride + d] for LANES rows and columns: a perfect shuffle of the two halves of
   all elements, log2(LANES) times. */
INLINE void transpose(const float *from, int from_stride, float *to, int to_stride) {
    vec v[LANES], w[LANES];
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++) v[k] = load(from + k * from_stride);
#pragma GCC unroll 4
    for (int stage = 1; stage < LANES; stage *= 2) {
#pragma GCC unroll 8
        for (int k = 0; k < LANES / 2; k++) {
            w[2 * k] = __builtin_shufflevector(v[k], v[k + LANES / 2], MERGE_LOW);
            w[2 * k + 1] = __builtin_shufflevector(v[k], v[k + LANES / 2], MERGE_HIGH);
        }
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++) v[k] = w[k];
    }
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++) store(to + k * to_stride, v[k]);
}

#define FOLD(a, b, first, second) (__builtin_shufflevector(a, b, first) + __builtin_shufflevector(a, b, second))

/* Lane k of the result is the sum of all lanes of v[k], for the LANES vectors of v, which are used up. */
INLINE vec sums(vec *v) {
    for (int k = 0; k < LANES; k += 2) v[k / 2] = FOLD(v[k], v[k + 1], UNPACK_LOW, UNPACK_HIGH);
    for (int k = 0; k < LANES / 2; k += 2) v[k / 2] = FOLD(v[k], v[k + 1], PAIRS_LOW, PAIRS_HIGH);
    for (int num = LANES / 4; num > 1; num /= 2)
        for (int k = 0; k < num; k += 2) v[k / 2] = FOLD(v[k], v[k + 1], QUARTERS_EVEN, QUARTERS_ODD);
    return v[0];
}

INLINE float sum(vec v) {
    v = FOLD(v, v, UNPACK_LOW, UNPACK_HIGH);
    v = FOLD(v, v, PAIRS_LOW, PAIRS_HIGH);
    for (int num = LANES / 4; num > 1; num /= 2) v = FOLD(v, v, QUARTERS_EVEN, QUARTERS_ODD);
    return v[0];
}

#define LARGER_OF(v, first, second) larger(__builtin_shufflevector(v, v, first), __builtin_shufflevector(v, v, second))

INLINE float largest(vec v) {
    v = LARGER_OF(v, UNPACK_LOW, UNPACK_HIGH);
    v = LARGER_OF(v, PAIRS_LOW, PAIRS_HIGH);
    for (int num = LANES / 4; num > 1; num /= 2) v = LARGER_OF(v, QUARTERS_EVEN, QUARTERS_ODD);
    return v[0];
}

/* e^x for x ≤ 88 to about 2 units in the last place; 0 below -87. x = n·ln 2 + r, a polynomial in r, then 2^n by
   adding to the exponent's bits (Cephes, expf). */
INLINE vec exp_vec(vec x) {
    const ivec is_zero = x < splat(-87.0f);
    x = larger(x, splat(-87.0f));
    const vec magic = splat(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number */
    const vec shifted = x * 1.44269504f + magic;
    const vec n = shifted - magic;
    const vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const ivec scaled = (ivec)p + (((ivec)shifted - (ivec)magic) << 23);
    return (vec)(scaled & ~is_zero);
}
