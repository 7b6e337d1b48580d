/* The largest product of each row, found by products in bfloat16 and decided by those in float32.

   An approximate product differs from the exact one by at most

       |x·w − x̃·w̃| ≤ |x|·|w − w̃| + |x − x̃|·|w̃|        (Cauchy–Schwarz, each |·| a length)

   and by its rounding to bfloat16. So the largest one lies among those whose upper bound reaches the highest of all lower
   bounds: two or three of a vocabulary. Only these are multiplied in float32. */
#include "vector.h"

/* Half a unit in the last of the 8 places that bfloat16 has, relative to the rounded product. */
#define ROUNDING (0x1p-8f * 1.01f)

typedef struct {
    const uint16_t *approximate; /* [num_rows, num_tokens] bfloat16 */
    const float *x, *weight;     /* [num_rows, depth], [num_tokens, depth] */
    const float *x_norms, *x_errors;         /* [num_rows]: |x| and |x − x̃| */
    const float *weight_errors, *weight_norms; /* [num_tokens]: |w − w̃| with what summing may lose, and |w̃| */
    int64_t num_rows, num_tokens, depth;
    int64_t *token_ids; /* [num_rows]: of equal ones the first; 0 if no product is a number */
} Screen;

INLINE float widened(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

INLINE float error_of(const Screen *s, int64_t row, int64_t token, float product) {
    return s->x_norms[row] * s->weight_errors[token] + s->x_errors[row] * s->weight_norms[token] +
           fabsf(product) * ROUNDING;
}

static float highest_lower_bound(const Screen *s, int64_t row) {
    const uint16_t *products = s->approximate + row * s->num_tokens;
    float lanes[LANES], most = -INFINITY;
    for (int i = 0; i < LANES; i++) lanes[i] = -INFINITY;
    int64_t token = 0;
    for (; token + LANES <= s->num_tokens; token += LANES)
        for (int i = 0; i < LANES; i++) {
            const float product = widened(products[token + i]);
            const float bound = product - error_of(s, row, token + i, product);
            lanes[i] = bound > lanes[i] ? bound : lanes[i];
        }
    for (; token < s->num_tokens; token++) {
        const float product = widened(products[token]), bound = product - error_of(s, row, token, product);
        most = bound > most ? bound : most;
    }
    for (int i = 0; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static float exact_product(const Screen *s, int64_t row, int64_t token) {
    const float *x = s->x + row * s->depth, *w = s->weight + token * s->depth;
    vec total = {0};
    int64_t i = 0;
    for (; i + LANES <= s->depth; i += LANES) total += load(x + i) * load(w + i);
    float result = sum(total);
    for (; i < s->depth; i++) result += x[i] * w[i];
    return result;
}

/* Candidates are rare: a stretch of tokens without any is passed over at the speed of memory. */
static int64_t largest_token(const Screen *s, int64_t row, float bound) {
    enum { STRETCH = 4 * LANES };
    const uint16_t *products = s->approximate + row * s->num_tokens;
    float most = -INFINITY;
    int64_t best = 0;
    for (int64_t begin = 0; begin < s->num_tokens; begin += STRETCH) {
        const int num = s->num_tokens - begin < STRETCH ? s->num_tokens - begin : STRETCH;
        int num_candidates = 0;
        for (int i = 0; i < num; i++) {
            const float product = widened(products[begin + i]);
            num_candidates += product + error_of(s, row, begin + i, product) >= bound;
        }
        for (int i = 0; num_candidates && i < num; i++) {
            const float product = widened(products[begin + i]);
            if (!(product + error_of(s, row, begin + i, product) >= bound)) continue;
            const float exact = exact_product(s, row, begin + i);
            if (exact > most) most = exact, best = begin + i;
        }
    }
    return best;
}

void largest_products(const Screen *s) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t row = 0; row < s->num_rows; row++)
        s->token_ids[row] = largest_token(s, row, highest_lower_bound(s, row));
}
