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

/* A row-major weight [n, k], rows contiguous. dtype F32, F16, BF16, or I8 with one float32 scale per row: w = q *
 * scale. */
typedef struct tri_weight {
  const void *data;
  const float *scale; /* [n]; I8 only */
  tri_dtype dtype;
  int n, k;
} tri_weight;

/* An activation matrix: element (i, j) is data[i * ld + j], float32. Backends with narrow_activations take matrices of
 * F16 and BF16, too, where elements of that type lie at data: as the inputs of a GEMM whose weights have the same
 * type or are I8 or F32, as its output if it does not accumulate, as the outputs of norm, attention and head_linear, as
 * both of glu, as gate_rows' matrix, as both of moe_experts, as the matrix of qkv_rope_append and the queries of
 * attention. */
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
 * seq_start[s] .. seq_start[s+1]-1; its last token's key is key number context_len[s]-1. Rows are in sequence order. */
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
  const int32_t *logit_rows;  /* [num_logits] rows of the batch whose logits are wanted */
  const struct tri_attention_split *cuts; /* [num_cuts] how the backend that has bound it cuts its attention */
  int num_cuts;
  uint64_t cuts_key; /* the same in steps whose launches do not differ by that */
  bool is_even;      /* contexts are cut as if each had max_context keys: ranks that know no more plan alike */
} tri_batch;
/* Returns the block numbers of sequence s, where the arrays can be read. */
static inline const int32_t *tri_batch_blocks(const tri_batch *b, int s) { return b->block_table + b->block_start[s]; }

#endif
