/* Inside of the forward pass: what it keeps, and the arguments of its ops. Plan and launch of an op build their
 * arguments with the same function, so they cannot differ but for what a block reads: where a norm leaves a copy of the
 * stream in 16 bits, that is launched with, and the stream, which needs more workspace, is planned with. */
#ifndef TRI_RUNTIME_FORWARD_FORWARD_STATE_H
#define TRI_RUNTIME_FORWARD_FORWARD_STATE_H

#include "runtime/forward/step_arena.h"
#include "runtime/forward/forward.h"

/* One plan per op and shape; all layers share them. */
typedef struct tri_plans {
  tri_op_plan embed, embed_norm, positions, project_in, norm, settle, qkv, q_norm, k_norm, q_squares, k_squares, append,
      attention;
  tri_op_plan o, up, down, gather, final_norm, project_out, head, cap, rope, copy;
  tri_op_plan q_a, q_a_norm, q_b, kv_a, absorb, mla_append, expand;
  tri_op_plan first_rows, mean_rows, pooler, classifier;
  tri_op_plan cross_kv, cross_append, cross_q, cross_attention, cross_o;
  tri_op_plan router, route, experts, shared_up, shared_gate, shared_gated, shared_down;
} tri_plans;

struct tri_forward {
  tri_forward_config cfg;
  tri_buffers buf;
  tri_plans plan;
  /* tables in the backend's memory */
  int32_t *kv_head_of; /* [q_heads.count] */
  int heads_per_kv;    /* 0: not the same for all */
  float *slopes;       /* [q_heads.count] ALiBi's, else NULL */
  float *bias;         /* [q_heads.count, bias_len] by position, else NULL */
  int bias_len, bias_offset;
  float *inv_freq, *inv_freq_long; /* [rotary_dim / 2] */
  struct tri_table {
    void *p;
    size_t bytes;
  } tables[8];
  int num_tables;
  tri_batch bound, bound_cross; /* the step's batch where the ops read it */
  const tri_batch *cross;       /* the step's queries against the sources of an encoder-decoder */
  tri_range counted_kv; /* local KV heads that no lower rank has too: each is counted once in a sum over the ranks */
  int dense_layer, sparse_layer; /* a layer of this shard with one MLP, one with experts; -1: it has none */
  int num_tokens;                /* of the step under way */
  bool copied;                   /* h has the stream in the type of products */
  tri_comm_req *sends;           /* [lanes] */
  void *memory;
  size_t bytes;
  size_t reserved;
};

/* block.c: layers first .. last - 1 of this shard. On entry x plus *pending (which may be empty) is the residual
 * stream, and on return. */
tri_status tri_forward_blocks(tri_forward *f, const tri_batch *b, int first, int last, tri_mat x, tri_mat *pending);
void tri_forward_norm_stream(tri_forward *f, const tri_op_plan *plan, tri_norm_args a);
/* latent.c: attention over compressed keys and values, from a branch's input to f->buf.attn. */
tri_status tri_latent_plan(tri_forward *f, const tri_batch *b);
tri_status tri_latent_plan_attention(tri_forward *f, const tri_batch *b);
void tri_latent_run(tri_forward *f, const tri_batch *b, int layer, const tri_weight *w, tri_mat in);
/* cross.c: attention to the encoder's states, from a branch's input to f->buf.delta. */
tri_status tri_cross_plan(tri_forward *f, int tokens);
tri_status tri_cross_plan_attention(tri_forward *f);
void tri_cross_run(tri_forward *f, int layer, const tri_weight *w, tri_mat in);
/* encoder.c: from the final states to what is pooled and to a classifier's logits. */
bool tri_is_encoding_rank(const tri_model_config *c, const tri_shard *s);
tri_status tri_encoder_plan(tri_forward *f, const tri_batch *b, tri_mat x);
void tri_encoder_run(tri_forward *f, const tri_batch *b, tri_mat x);
/* Where that leaves what. */
tri_encoded tri_encoder_ends(const tri_forward *f, const tri_batch *b, tri_mat x);
/* forward_plan.c: chooses the kernels of a step's shapes and makes room for their workspace. */
tri_status tri_forward_plan(tri_forward *f, const tri_batch *b, int lane);
/* Makes room for the largest workspace of all plans. */
tri_status tri_forward_reserve(tri_forward *f);
/* forward_products.c: the products of a step of so many tokens that go through linear and gated_linear, layer by layer,
 * as it launches them; the head's where that many rows of logits can be wanted. An encoder's small ends are left out.
 * out has room for tri_forward_products_most; returns how many they are. */
int tri_forward_products_most(const tri_forward *f);
int tri_forward_products(const tri_forward *f, int tokens, tri_tune_product *out);
/* Whom this step is to be shown to: NULL, nobody. */
static inline const tri_observer *tri_observer_of(const tri_forward *f) {
  const tri_observer *o = &f->cfg.observer;
  return (o->hidden || o->logits || o->encoded) && (!o->looks || *o->looks) ? o : NULL;
}
/* Sum of m over the tensor group. */
static inline tri_status tri_forward_sum(tri_forward *f, tri_mat m) {
  tri_comm *c = f->cfg.tensor;
  return c->ops->all_reduce(c, m.data, (size_t)m.rows * (size_t)m.cols);
}

/* ---- views ---- */

static inline tri_mat tri_rows(tri_mat m, int rows) {
  m.rows = rows;
  return m;
}
static inline tri_mat tri_columns(tri_mat m, int from, int n) {
  m.data += from;
  m.cols = n;
  return m;
}
static const tri_mat tri_no_mat;
static const tri_weight tri_no_weight;

/* ---- arguments (forward_plan.c) ---- */

tri_norm_args tri_norm_of(const tri_forward *f, tri_mat x, tri_mat delta, const tri_weight *w, const tri_weight *bias,
                          tri_mat out);
tri_linear_args tri_linear_of(const tri_forward *f, tri_mat x, const tri_weight *w, const tri_weight *bias, tri_act act,
                              bool accumulate, tri_mat out);
tri_embed_args tri_embed_of(const tri_forward *f, const tri_batch *b, int lane);
bool tri_adds_positions_late(const tri_model_config *c); /* behind the projection */
tri_linear_args tri_project_in_of(const tri_forward *f, tri_mat embedded, tri_mat x);
tri_embed_args tri_positions_of(const tri_forward *f, const tri_batch *b, int lane); /* behind the projection */
tri_rope_angles_args tri_rope_of(const tri_forward *f, const tri_batch *b);
/* The queries or keys of the step, and their norm over all heads of all ranks. */
tri_mat tri_queries_of(const tri_forward *f, int t);
tri_mat tri_keys_of(const tri_forward *f, int t);
tri_norm_args tri_whole_norm_of(const tri_forward *f, tri_mat x, const tri_weight *w, const float *sums, int64_t whole);
tri_qkv_rope_append_args tri_append_of(const tri_forward *f, const tri_batch *b, int layer);
tri_attention_args tri_attention_of(const tri_forward *f, const tri_batch *b, int layer);
tri_glu_args tri_glu_of(const tri_forward *f, int t, int units);
/* A gated or plain MLP of `units` local units: its first and second product. */
tri_linear_args tri_up_of(const tri_forward *f, tri_mat in, const tri_weight *w, const tri_weight *bias, int units);
tri_linear_args tri_down_of(const tri_forward *f, int t, const tri_weight *w, const tri_weight *bias, int units,
                            bool accumulate);
tri_linear_args tri_router_of(const tri_forward *f, const tri_weight *w, tri_mat in);
tri_linear_args tri_shared_gate_of(const tri_forward *f, const tri_weight *w, tri_mat in);
tri_moe_route_args tri_route_of(const tri_forward *f, const tri_weight *w, int t);
tri_moe_experts_args tri_experts_of(const tri_forward *f, const tri_weight *w, tri_mat in);

static inline bool tri_has_rope(const tri_model_config *c) { return c->position == TRI_POS_ROPE; }

#endif
