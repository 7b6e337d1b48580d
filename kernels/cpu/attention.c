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

#include "narrow.h"
#include "wide.h"

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
