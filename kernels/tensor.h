/* SPDX-License-Identifier: Apache-2.0 */
/* The data of kernels: weights, activations, the KV cache of a layer, and the token batch of a step.
 *
 * Matrices are row-major. A weight is [n, k] (out features, in features). T tokens, S sequences. Nothing here owns what
 * it points to. */
#ifndef TRI_KERNELS_TENSOR_H
#define TRI_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/kinds.h"

/* Which elements of a weight share a scale: blocks of rows x cols, cut from the left and from the top of a matrix that
 * the weight may be a part of. All 0: each row has one scale. */
typedef struct tri_groups {
  int rows;     /* of a block; 0: one */
  int cols;     /* of a block; 0: the whole row */
  int skip_row; /* row and column, inside its block, of the weight's first element */
  int skip_col;
} tri_groups;
/* Rows and columns of the table of scales of an [n, k] weight. */
static inline int tri_groups_down(tri_groups g, int n) {
  return g.rows > 1 ? (int)(((int64_t)g.skip_row + n + g.rows - 1) / g.rows) : n;
}
static inline int tri_groups_across(tri_groups g, int k) {
  return g.cols ? (int)(((int64_t)g.skip_col + k + g.cols - 1) / g.cols) : 1;
}

/* Returns whether the groups are rows, or blocks that tensor cores multiply step by step: 128 columns, which a weight
 * begins at whole 16 bytes of. All that is published is so. */
static inline bool tri_groups_are_wide(tri_groups g) {
  return g.cols ? g.cols == 128 && g.skip_col % 16 == 0 : g.rows <= 1;
}

/* A row-major weight [n, k], rows contiguous: numbers of F32, F16 or BF16, or elements of I8 or F8_E4M3 that become
 * numbers when their group's scale multiplies them. dtype and groups together are the weight's form. F8_E4M3 has no
 * codes of NaN: the loader refuses them. */
typedef struct tri_weight {
  const void *data;
  const float *scale; /* [tri_groups_down, tri_groups_across]; NULL: the elements are the numbers */
  tri_dtype dtype;    /* of the elements */
  int n, k;
  tri_groups groups;
} tri_weight;

static inline size_t tri_weight_num_scales(const tri_weight *w) {
  return w->scale ? (size_t)tri_groups_down(w->groups, w->n) * (size_t)tri_groups_across(w->groups, w->k) : 0;
}
/* Returns the scales of a row's groups. */
static inline const float *tri_weight_scales(const tri_weight *w, size_t row) {
  size_t group = w->groups.rows > 1 ? (row + (size_t)w->groups.skip_row) / (size_t)w->groups.rows : row;
  return w->scale + group * (size_t)tri_groups_across(w->groups, w->k);
}
/* Returns how many columns from `col` on, of at most n, have the scale number *group of their row. */
static inline int tri_weight_group(const tri_weight *w, int col, int n, int *group) {
  int cols = w->groups.cols, at = col + w->groups.skip_col;
  *group = cols ? at / cols : 0;
  return cols && cols - at % cols < n ? cols - at % cols : n;
}
/* Returns whether a row's elements have more than one scale. */
static inline bool tri_weight_is_blocked(const tri_weight *w) { return w->scale && w->groups.cols != 0; }
/* Returns the rows first .. first + n - 1 of a weight. */
static inline tri_weight tri_weight_rows(const tri_weight *w, size_t first, int n) {
  tri_weight part = *w;
  part.data = (const char *)w->data + first * (size_t)w->k * tri_dtype_size(w->dtype);
  part.n = n;
  if (!w->scale) return part;
  part.scale = tri_weight_scales(w, first);
  if (w->groups.rows > 1) part.groups.skip_row = (int)((first + (size_t)w->groups.skip_row) % (size_t)w->groups.rows);
  return part;
}

/* An activation matrix: element (i, j) is data[i * ld + j], float32. Backends with narrow_activations take matrices of
 * F16 and BF16, too, where elements of that type lie at data: as the inputs of a GEMM whose weights have the same
 * type or are I8, F8_E4M3 or F32, as its output if it does not accumulate, as norm's delta, as the outputs of norm
 * and attention, as both of glu, head_linear and moe_experts, as gate_rows' matrix, as the matrix of qkv_rope_append,
 * as the queries of attention and as those of mla_append, before and after. */
typedef struct tri_mat {
  float *data;
  int rows, cols;
  int ld;
  tri_dtype dtype;
} tri_mat;
static inline float *tri_mat_row(const tri_mat *m, int i) { return m->data + (size_t)i * (size_t)m->ld; }

/* Keys and values of one layer: [block][kv_head][token in block][head_dim], the same layout for both. With v_dim > 0
 * there are only keys, and the first v_dim elements of a key are its value (a latent cache, see tri_mla_append_args); v
 * is not looked at. */
typedef struct tri_kv_layer {
  void *k, *v;
  tri_dtype dtype; /* F32, F16, BF16 */
  int num_blocks, num_kv_heads, block_size, head_dim;
  int v_dim; /* 0: values are on their own, as long as keys */
} tri_kv_layer;
static inline void *tri_kv_values(const tri_kv_layer *kv) { return kv->v_dim ? kv->k : kv->v; }
static inline int tri_kv_value_dim(const tri_kv_layer *kv) { return kv->v_dim ? kv->v_dim : kv->head_dim; }

/* The flattened token batch of one step, at fixed addresses for the life of an engine. Sequence s owns the tokens
 * seq_start[s] .. seq_start[s+1]-1; its last token's key is key number context_len[s]-1. Rows are in sequence order.
 *
 * Sequences share only blocks that are full, be it by a token of this step: so where each has one token, the keys of
 * the step that it sees are its own, and those that are the last of their block. */
typedef struct tri_batch {
  int num_tokens, num_seqs, num_logits;
  int max_context;            /* max of context_len, so that plan can size things without reading the array */
  int max_query;              /* max tokens of one sequence in this step */
  int num_single;             /* sequences that have one token in this step */
  const uint32_t *token_ids;  /* [T] */
  const int32_t *positions;   /* [T] */
  const int32_t *types;       /* [T] of tokens: 0, or 1 from the second text of a pair on */
  const int32_t *rope_len;    /* [T] the sequence length that length-dependent rotary scalings use for this token */
  const int64_t *kv_slot;     /* [T] block * block_size + offset in block where this token's K and V go */
  const int32_t *seq_start;   /* [S + 1] */
  const int32_t *context_len; /* [S] keys visible to the last token of the sequence */
  const int32_t *block_start; /* [S + 1] where a sequence's block numbers begin in block_table */
  const int32_t *block_table; /* [block_start[S]] those of the KV blocks that hold its keys */
  const int32_t
      *logit_rows; /* [num_logits] rows of the batch whose logits are wanted; of encoders the last of each sequence */
  const struct tri_attention_split *cuts; /* [num_cuts] how the backend that has bound it cuts its attention */
  int num_cuts;
  uint64_t cuts_key; /* the same in steps whose launches do not differ by that */
  bool is_even;      /* contexts are cut as if each had max_context keys: ranks that know no more plan alike */
  bool is_chunk;     /* one of several of its step, whose others write keys that it may read */
} tri_batch;
/* Returns the block numbers of sequence s, where the arrays can be read. */
static inline const int32_t *tri_batch_blocks(const tri_batch *b, int s) { return b->block_table + b->block_start[s]; }

#endif
