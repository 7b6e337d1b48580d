/* The nouns of attention: the step, its items, and where their numbers lie. Compiled for one HEAD_DIM and VALUE_DIM. */
#pragma once

#include "vector.h"

#ifndef HEAD_DIM
#define HEAD_DIM 64
#define VALUE_DIM 64
#endif

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
