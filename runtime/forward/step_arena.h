/* The forward pass's buffers, placed by their lives in one block of memory, the arena.
 *
 * It is planned once, at start, for the largest step (max_num_batched_tokens), with TurboTransformers' Algorithm 1
 * (runtime/forward/activation_plan.h): buffers that never hold something at the same time share memory. Every layer
 * uses the same buffers, so the lives of one block and of the step's two ends are those of all (step_arena.c has the
 * table). A smaller step uses the front of each buffer: addresses are the same for every shape, as recorded steps need,
 * and a step plans and allocates nothing. */
#ifndef TRI_RUNTIME_FORWARD_STEP_ARENA_H
#define TRI_RUNTIME_FORWARD_STEP_ARENA_H

#include "kernels/backend.h"
#include "runtime/step/batch.h"
#include "runtime/model/layout.h"

/* Activations of one step. x has a copy per lane, since a lane's last transfer to the next stage may still be under way
 * while another lane computes. What a model does not use has data NULL and its columns. */
typedef struct tri_buffers {
  tri_mat *x; /* [lanes] residual stream, [T, hidden] */
  tri_mat h;  /* normed input of a product */
  tri_mat qkv, attn, up, act;
  tri_mat delta;                       /* what attention adds */
  tri_mat mlp_delta;                   /* what the MLP adds: of a parallel residual it is delta */
  tri_mat embed;                       /* [T, embed_size] where the embedding is projected */
  tri_mat q_a, kv_a, absorbed, latent; /* latent attention */
  tri_mat router;                      /* [T, num_experts] */
  int32_t *experts;                    /* [T, top_k] */
  float *expert_weights, *shared_gate; /* [T, top_k], [T] */
  float *cos, *sin;
  float *square_sums;   /* [2 T] of q and of k, where they are normed over all heads */
  tri_mat rows;         /* the hidden states whose logits are wanted */
  tri_mat narrow_rows;  /* the same projected to embed_size */
  tri_mat local_logits; /* this rank's part of the vocabulary */
  tri_mat logits;       /* sampling rank: the whole vocabulary, where rows are brought together */
  tri_mat chosen;       /* encoders: [S, hidden] what the pooler reads */
  tri_mat pooled, scores;
  float *part; /* sampling rank: another rank's part on arrival */
  /* What rows are drawn from without bringing them together: this rank's part of it and that of every rank of the
   * tensor group, [max_num_seqs, TRI_SAMPLE_CANDIDATES] each at most. */
  tri_sample_candidate *candidates, *all_candidates;
} tri_buffers;

typedef enum tri_buffer_id {
  TRI_BUF_X,
  TRI_BUF_H,
  TRI_BUF_QKV,
  TRI_BUF_ATTN,
  TRI_BUF_DELTA,
  TRI_BUF_MLP_DELTA,
  TRI_BUF_UP,
  TRI_BUF_ACT,
  TRI_BUF_EMBED,
  TRI_BUF_Q_A,
  TRI_BUF_KV_A,
  TRI_BUF_ABSORBED,
  TRI_BUF_LATENT,
  TRI_BUF_ROUTER,
  TRI_BUF_EXPERTS,
  TRI_BUF_EXPERT_WEIGHTS,
  TRI_BUF_SHARED_GATE,
  TRI_BUF_COS,
  TRI_BUF_SIN,
  TRI_BUF_SQUARE_SUMS,
  TRI_BUF_ROWS,
  TRI_BUF_NARROW_ROWS,
  TRI_BUF_LOCAL_LOGITS,
  TRI_BUF_LOGITS,
  TRI_BUF_PART,
  TRI_BUF_CANDIDATES,
  TRI_BUF_ALL_CANDIDATES,
  TRI_BUF_CHOSEN,
  TRI_BUF_POOLED,
  TRI_BUF_SCORES,
  TRI_NUM_BUFFERS
} tri_buffer_id;

typedef struct tri_step_arena_buffer {
  int rows, cols;
  tri_dtype type;
  int copies;      /* one behind the other, `stride` bytes apart: the stream has one per lane */
  int first, last; /* operators of step_arena.c's line: the first that writes it and the last that reads it */
  size_t stride;   /* bytes of a copy, rounded up to the alignment; 0: the model does not use it */
  size_t offset;   /* bytes into the arena */
} tri_step_arena_buffer;

typedef struct tri_step_arena {
  tri_step_arena_buffer buffers[TRI_NUM_BUFFERS];
  size_t bytes; /* of the arena */
  size_t apart; /* bytes that the buffers would take side by side */
} tri_step_arena;

typedef struct tri_step_arena_config {
  const tri_model_config *model;
  const tri_shard *shard;
  const tri_limits *limits;
  int num_lanes;
  tri_dtype products; /* of what goes straight into products: see tri_step_arena_type */
} tri_step_arena_config;

/* The type of what goes straight into products: the weights' (tri_weight_map.products) where the backend takes it
 * (`narrow`: its narrow_activations) and nothing else reads it, otherwise float32. */
tri_dtype tri_step_arena_type(const tri_model_config *c, bool narrow, tri_dtype products);

/* TRI_OVERFLOW: sizes that no memory has. TRI_NO_MEMORY: none to plan with. Allocates nothing that stays. */
tri_status tri_step_arena_plan(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err);

/* Points the buffers into memory of arena->bytes, aligned as the backend's is; out->x has room for the lanes. */
void tri_step_arena_bind(const tri_step_arena *a, char *memory, tri_buffers *out);

#endif
