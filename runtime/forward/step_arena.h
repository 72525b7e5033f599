/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass's buffers, placed in one block of memory, the arena, so that those which never hold something at the
 * same time share memory.
 *
 * It is planned once, at start, for the largest step (max_num_batched_tokens): a walk over the step's ops records what
 * each reads and writes (runtime/forward/walk.h), from which follows which buffers hold something at the same time, and
 * Algorithm 1 of TurboTransformers (Fang et al., PPoPP 2021), in one chunk, places them. A smaller step uses the front
 * of each buffer: addresses are the same for every shape, as recorded steps need, and a step plans and allocates
 * nothing. */
#ifndef TRI_RUNTIME_FORWARD_STEP_ARENA_H
#define TRI_RUNTIME_FORWARD_STEP_ARENA_H

#include "kernels/backend.h"
#include "runtime/model/layout.h"
#include "runtime/step/batch.h"

/* Activations of one step, matrices of [T, columns] but where something else is said. A buffer that no op of the model
 * touches has no memory: its data is NULL. */
#define TRI_BUFFER_LIST(X)                                                                                             \
  X(x) /* residual stream; one copy for each micro-batch, whose last transfer to the next stage may be under way; */   \
  /* its rows are followed by those of the inputs of layers (layer_inputs.c) */                                        \
  X(h)   /* normed input of a product, or the stream in the type of products */                                        \
  X(qkv) /* queries, keys and values; of latent attention the queries, of cross-attention its keys and values */       \
  X(attn)                                                                                                              \
  X(wide_attn)   /* [T, heads * head_dim] of values that are shorter than that: the same with zeros after each */      \
  X(narrow_attn) /* [num_logits, columns of attn] of the last layer: see tri_walk_narrow */                            \
  X(delta)       /* what attention adds; of a parallel residual what both branches add */                              \
  X(mlp_delta)   /* what the MLP adds */                                                                               \
  X(up)                                                                                                                \
  X(act)                                                                                                               \
  X(embed)         /* [T, embed_size] where the embedding is projected */                                              \
  X(layer_embed)   /* [T, layers * width] of a model whose layers have inputs of their own: rows of their table, */    \
  X(layer_project) /* the embedding's projection, */                                                                   \
  X(input_act)     /* [T, width] and a layer's input times its gate */                                                 \
  X(qkv_a)    /* latent attention: latents of queries, where they have one, and of keys and values, the shared key; */ \
  X(q_a)      /* the first of these normed, */                                                                         \
  X(absorbed) /* queries in the latent's space, */                                                                     \
  X(latent)   /* results there */                                                                                      \
  X(router)   /* [T, num_experts] */                                                                                   \
  X(router_rows) /* what the router reads, where it has a norm of its own, */                                          \
  X(routed_rows) /* and what the experts read then */                                                                  \
  X(experts)     /* [T, top_k] of int32_t */                                                                           \
  X(expert_weights)                                                                                                    \
  X(map_first)  /* [1, experts of the shard + 1] of int32_t, as the next two: see tri_expert_map */                    \
  X(map_choice) /* [T, top_k] */                                                                                       \
  X(map_row)    /* [T, top_k] */                                                                                       \
  X(hot_first)  /* the same three of the experts that are on the device in addition to a host that has all of them */  \
  X(hot_choice)                                                                                                        \
  X(hot_row)                                                                                                           \
  X(host_delta)  /* what that host's experts add, where the device's write to mlp_delta or delta */                    \
  X(shared_gate) /* [T, 1] */                                                                                          \
  X(head_gate)   /* [T, heads]: what heads' results are gated with */                                                  \
  /* of several data-parallel ranks, see tri_all2all_rows: T is then the map's and these, dp * tri_exchanged_rows */   \
  X(all2all_x)       /* [T, hidden] rows that have come */                                                             \
  X(all2all_experts) /* [T, top_k] of int32_t: where they want to go */                                                \
  X(all2all_weights) /* [T, top_k] */                                                                                  \
  X(all2all_y)       /* [T, hidden] what this rank's experts make of them */                                           \
  X(cos)                                                                                                               \
  X(sin)                                                                                                               \
  X(local_cos) /* the same of LOCAL layers, where they have a table of their own */                                    \
  X(local_sin)                                                                                                         \
  X(q_scale)        /* [T, 1] what queries are multiplied with, where they are */                                      \
  X(square_sums)    /* [2, T] of queries and of keys that are normed over all heads */                                 \
  X(rows)           /* [num_logits, hidden] states whose logits are wanted, and inputs of the last layer */            \
  X(narrow_rows)    /* the same projected to embed_size */                                                             \
  X(local_logits)   /* [num_logits, this rank's part of the vocabulary] */                                             \
  X(logits)         /* sampling rank of several: [num_logits, vocab_size], where rows are brought together */          \
  X(part)           /* sampling rank of several: another rank's part on arrival */                                     \
  X(candidates)     /* [max_num_seqs, TRI_SAMPLE_CANDIDATES] of tri_sample_candidate: this rank's, */                  \
  X(all_candidates) /* those of all ranks of the tensor group */                                                       \
  X(chosen)         /* encoders: [S, hidden] what the pooler reads */                                                  \
  X(pooled)         /* encoders: [S, hidden] */                                                                        \
  X(dense1)         /* encoders: [S, width] what the first of a folder's Dense modules makes of it, */                 \
  X(dense2)         /* and the second one */                                                                           \
  X(scores)         /* encoders: [S, num_labels], of a classifier of tokens [T, num_labels] */

typedef enum tri_buffer_id {
#define X(name) TRI_BUF_##name,
  TRI_BUFFER_LIST(X)
#undef X
      TRI_NUM_BUFFERS
} tri_buffer_id;

typedef struct tri_buffers {
#define X(name) tri_mat name;
  TRI_BUFFER_LIST(X)
#undef X
  size_t micro_batch_stride; /* bytes from one micro-batch's x to the next */
} tri_buffers;

typedef uint64_t tri_buffer_set; /* bits are tri_buffer_ids */
_Static_assert(TRI_NUM_BUFFERS <= 64, "a set has 64 bits");

typedef struct tri_step_arena_buffer {
  int rows, cols;
  tri_dtype type;
  int copies;               /* one after the other, `stride` bytes apart: x has one for each micro-batch */
  size_t stride;            /* bytes of a copy, rounded up to the alignment; 0: the model does not use it */
  size_t offset;            /* bytes into the arena */
  tri_buffer_set conflicts; /* buffers that ever hold something at the same time */
} tri_step_arena_buffer;

/* Returns the columns of the rows that follow those of the stream: inputs of all layers, and one part before them. */
static inline int64_t tri_layer_inputs_width(const tri_model_config *c) {
  return c->embed.layer_width ? (c->num_layers + 1) * c->embed.layer_width : 0;
}

/* Returns the bytes of all copies of a buffer. */
static inline size_t tri_step_arena_bytes(const tri_step_arena_buffer *b) { return b->stride * (size_t)b->copies; }

typedef struct tri_step_arena {
  tri_step_arena_buffer buffers[TRI_NUM_BUFFERS];
  size_t bytes; /* of the arena */
  size_t apart; /* bytes that the buffers would take side by side */
  size_t floor; /* bytes that hold something at the busiest op: no placement takes less */
} tri_step_arena;

typedef struct tri_step_arena_config {
  const tri_model_config *model;
  const tri_shard *shard;
  const tri_limits *limits;
  int num_micro_batches;
  tri_dtype gemms; /* of what goes straight into products: see tri_step_arena_type */
  bool all_logits; /* a record is of steps whose tokens all have logits, which no layer narrows (tri_walk_narrow) */
} tri_step_arena_config;

/* Rows of a data-parallel rank that one exchange takes at most: more go in several. */
enum { TRI_EXCHANGED_ROWS = 1024 };
static inline int tri_exchanged_rows(const tri_limits *l) {
  int most = l->all2all_rows ? l->all2all_rows : TRI_EXCHANGED_ROWS;
  return l->max_num_batched_tokens < most ? l->max_num_batched_tokens : most;
}

/* The type of what goes straight into products: the weights' (tri_weight_map.products) where the backend takes it
 * (`narrow`: its narrow_activations) and nothing else reads it, otherwise float32. */
tri_dtype tri_step_arena_type(const tri_model_config *c, bool narrow, tri_dtype gemms);

/* TRI_OVERFLOW: sizes that no memory has. TRI_NO_MEMORY: none to plan with. Allocates nothing that stays. */
tri_status tri_step_arena_plan(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err);

/* Fills in the sizes of all buffers of the largest step, side by side and whether the model uses them or not.
 * TRI_OVERFLOW: sizes that no memory has. */
tri_status tri_step_arena_size(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err);

/* Points the buffers into memory of arena->bytes, aligned as the backend's is. */
void tri_step_arena_bind(const tri_step_arena *a, char *memory, tri_buffers *out);

/* ---- what a step reads and writes ---- */

/* An op: the buffers that it reads, and those that it writes. What is written and not read holds a new value. */
typedef struct tri_step_event {
  tri_buffer_set reads, writes;
} tri_step_event;

typedef struct tri_step_record {
  const tri_step_arena *apart; /* the buffers side by side from `memory` on */
  const char *memory;
  tri_step_event *events;
  int count;
  size_t capacity;
  tri_buffer_set results; /* read by others when all ops are launched */
} tri_step_record;

/* Records the ops of the largest step over buffers side by side: *apart, which the record points to, at addresses that
 * must not be followed. TRI_OVERFLOW, TRI_NO_MEMORY as tri_step_arena_plan. */
tri_status tri_step_record_make(const tri_step_arena_config *config, tri_step_arena *apart, tri_step_record *out,
                                tri_error *err);
void tri_step_record_free(tri_step_record *r);
tri_status tri_step_record_add(tri_step_record *r, tri_step_event e);
/* The buffer that an address lies in, as a set; *whole: at its first byte. Neither a buffer's: the empty set, whole. */
tri_buffer_set tri_step_record_find(const tri_step_record *r, const void *at, bool *whole);
/* Fills live[count + 1] with the buffers that hold something before each op, and after the last one: what is read
 * there or later and not written anew before. */
void tri_step_record_live(const tri_step_record *r, tri_buffer_set *live);

#endif
