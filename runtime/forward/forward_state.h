/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the forward pass: what it keeps, and the arguments of its ops.
 *
 * tri_X_of makes the arguments of op X from the walk; a function tri_walk_X emits ops. Neither keeps anything from one
 * step to the next but plans: what a step needs is in the batch, the buffers and the cache. */
#ifndef TRI_RUNTIME_FORWARD_FORWARD_STATE_H
#define TRI_RUNTIME_FORWARD_FORWARD_STATE_H

#include "kernels/host_experts.h"
#include "runtime/forward/step_arena.h"
#include "runtime/forward/forward.h"
#include "runtime/forward/walk.h"

enum { TRI_FORWARD_PLANS = 512, TRI_LAYER_CLASSES = 512, TRI_FORWARD_TABLES = 8, TRI_FORWARD_ATTENTIONS = 4 };

struct tri_forward {
  tri_forward_config cfg;
  tri_buffers buf;
  /* The plans of the step under way, in the order of its ops: the entrance, a layer of each class, the end. */
  tri_op_plan *plans; /* [max_plans] */
  int max_plans;
  int num_plans, end_plans; /* end_plans: number of the first one after the layers */
  int *class_plans;         /* [num_forms, TRI_LAYER_CLASSES] number of the first one of a layer of that class, or -1 */
  int *layer_forms; /* [layers] of the shard: those whose weights have the same types and groups have the same */
  int num_forms;
  /* tables in the backend's memory */
  float *slopes; /* [q_heads.count] ALiBi's, else NULL */
  float *bias;   /* [q_heads.count, bias_len] by position, else NULL */
  int bias_len, bias_offset;
  float *inv_freq, *inv_freq_long; /* [rotary_dim / 2] */
  float *ones; /* gains of norms without one, and weights of experts whose input is weighted; NULL: neither is there */
  float *layer_scales;     /* [layers] of the shard, on the host: factors of the stream after each; or NULL */
  float *local_inv_freq;   /* the same of LOCAL layers, where they have a table of their own, else NULL */
  tri_expert_tally *tally; /* [layers, slots] of the shard, of a model with experts, else NULL */
  int32_t *slots;          /* [layers, experts, 1 + most_copies], see tri_moe_route_args; NULL: linear */
  int most_copies;
  /* on the host, where experts move: a layer's table on its way, and a tally of nothing */
  int32_t *placed;
  tri_expert_tally *no_rows;
  struct tri_table {
    void *p;
    size_t bytes;
  } tables[TRI_FORWARD_TABLES];
  int num_tables;
  tri_host_experts *host_experts;                        /* of the layers whose experts lie there; NULL: none do */
  tri_hot_experts *hot;                                  /* of these experts those on the device, too; NULL: none are */
  tri_attention_args attentions[TRI_FORWARD_ATTENTIONS]; /* those of its layers, one of each kind */
  int num_attentions;
  size_t gemm;                      /* elements of a layer's product, in the mean */
  bool plans_alike;                 /* those of all ranks of the tensor group change with the same steps */
  tri_batch bound, bound_cross;     /* the step's batch where the ops read it */
  tri_batch chunks[TRI_MAX_CHUNKS]; /* of a step in several, the same of each */
  int num_chunks;
  tri_batch narrow;       /* the step's, of the rows whose logits are wanted */
  const tri_batch *cross; /* the step's queries against the sources of an encoder-decoder */
  tri_comm_req *sends;    /* [micro-batches] */
  /* of several data-parallel ranks: rows of each in the step, and in the exchange at hand */
  int32_t shard_rows[TRI_MAX_DP_RANKS], exchanged[TRI_MAX_DP_RANKS];
  void *memory;
  size_t bytes;
  size_t reserved, side_reserved; /* bytes of workspaces */
};

/* network.c: emits the ops of a step, from the batch's tokens, or from w->x where they come from the stage before, to
 * what this stage leaves. */
void tri_walk_step(tri_walk *w);
/* Records the ops of the largest step over these buffers; nothing else of a forward pass need exist. */
tri_status tri_forward_record(const tri_step_arena_config *config, const tri_buffers *buffers, tri_step_record *r);
/* Lists the products of a step of so many tokens that go through linear, gated_linear and gated_mlp, layer by layer, as
 * it launches them; the head's where that many rows of logits can be wanted. out has room for all of them, or is NULL.
 * Returns how many they are. */
int tri_forward_gemms(tri_forward *f, int tokens, tri_tune_gemm *out);
/* Returns whether steps go through the layers in chunks, be it a single one: what buffers share memory follows from
 * that.
 */
static inline bool tri_is_chunked(const tri_forward *f) {
  return tri_limits_chunk(&f->cfg.limits) < f->cfg.limits.max_num_batched_tokens;
}
/* Turns the walk to a chunk of its step, and back to all of it. Of a step in one chunk nothing changes. */
void tri_walk_enter_chunk(tri_walk *w, int chunk);
void tri_walk_leave_chunks(tri_walk *w);
/* Turns the walk to the rows whose logits are wanted, after attention in the last layer: a prompt is computed for the
 * keys and values that it leaves in the cache, and for the logits of its last token, so that no other row is read from
 * there on. Returns these rows of what attention has made; in any other layer all of them, and changes nothing. */
tri_mat tri_walk_narrow(tri_walk *w, const tri_layer *y, tri_mat attended);
/* layer.c: all layers of this shard. */
void tri_walk_layers(tri_walk *w);
/* mlp.c: a layer's MLP, and its experts with the shared one, from a branch's input to tri_mlp_delta_of. Experts with
 * norms of their own leave in `pending` what the one for every token gives. */
void tri_walk_mlp(tri_walk *w, const tri_layer *y, tri_mat in);
void tri_walk_experts(tri_walk *w, const tri_layer *y, tri_mat in);
/* Makes what experts on the host go through, for the most rows that a layer's ops have. */
tri_status tri_forward_make_host_experts(tri_forward *f, tri_error *err);
/* Puts what is pending into the stream; or into these rows of it, and writes their norm. */
void tri_walk_settle(tri_walk *w);
void tri_walk_add_pending(tri_walk *w, tri_mat x, const tri_weight *gain, const tri_weight *bias, tri_mat out);
/* A norm whose result is the stream, which is float32, and what a product reads: that gets a copy in its own type. */
void tri_walk_norm_stream(tri_walk *w, tri_norm_args a);
/* latent.c: attention over compressed keys and values, from a branch's input to buf.attn. */
void tri_walk_latent(tri_walk *w, const tri_layer *y, tri_mat in);
/* layer_inputs.c: makes the inputs of all layers, of the embedding; adds a layer's to the stream, in which nothing is
 * pending; and, of a walk that has just turned to fewer rows than those of the stream x, gathers these of an input. */
void tri_walk_layer_inputs(tri_walk *w);
void tri_walk_add_input(tri_walk *w, const tri_layer *y);
void tri_walk_narrow_input(tri_walk *w, const tri_layer *y, tri_mat x);
/* cross.c: attention to the encoder's states, from a branch's input to buf.delta. */
void tri_walk_cross(tri_walk *w, const tri_layer *y, tri_mat in);
/* pooling.c: from an encoder's final states to what is pooled and to a classifier's logits; and where those lie. */
bool tri_is_pooling_rank(const tri_model_config *c, const tri_shard *s);
void tri_walk_pool(tri_walk *w);
tri_encoder_output tri_encoder_output_of(const tri_walk *w);
/* logits.c: both ways in which logits become samples, for RECORD walks. */
void tri_walk_record_samples(tri_walk *w, tri_mat logits);
/* position_bias.c: makes the tables of angles, and of what is added to the scores by position. */
tri_status tri_forward_make_tables(tri_forward *f);

/* Returns the observer of this step; NULL: none. */
static inline const tri_observer *tri_observer_of(const tri_forward *f) {
  const tri_observer *o = &f->cfg.observer;
  return (o->hidden || o->logits || o->encoder_output || o->part) && (!o->looks || *o->looks) ? o : NULL;
}

/* Both ask of a layer of this rank. */
static inline bool tri_has_experts_on_host(const tri_forward *f, const tri_layer *y) {
  return tri_layer_experts_on_host(f->cfg.model, f->cfg.shard.p, y->number);
}

static inline bool tri_has_hot_experts(const tri_forward *f, const tri_layer *y) {
  return tri_layer_has_hot_experts(f->cfg.model, f->cfg.shard.p, y->number);
}

/* ---- views ---- */

/* Views share the memory and the row stride (ld, in elements) of what they are of. */
static inline tri_mat tri_rows(tri_mat m, int rows) {
  m.rows = rows;
  return m;
}
/* The rows from `first` on. */
static inline tri_mat tri_rows_from(tri_mat m, int first) {
  m.data = (float *)((char *)m.data + (size_t)first * (size_t)m.ld * tri_dtype_size(m.dtype));
  m.rows -= first;
  return m;
}
/* Returns the angles of the walk's rows. */
static inline float *tri_angles_of(const tri_walk *w, tri_mat angles) {
  return angles.data ? angles.data + (size_t)w->first_row * (size_t)angles.ld : NULL;
}
/* The front of a buffer, without gaps between rows that are shorter than its own. */
static inline tri_mat tri_packed(tri_mat m, int rows, int cols) { return (tri_mat){m.data, rows, cols, cols, m.dtype}; }
static inline tri_mat tri_columns(tri_mat m, int from, int n) {
  m.data = (float *)((char *)m.data + (size_t)from * tri_dtype_size(m.dtype));
  m.cols = n;
  return m;
}
static const tri_mat tri_no_mat;
static const tri_weight tri_no_weight;
/* Stands for the arguments `weight, bias` where there is neither. */
#define TRI_NO_WEIGHTS &tri_no_weight, &tri_no_weight

/* A micro-batch's residual stream. */
static inline tri_mat tri_stream_of(const tri_forward *f, int micro_batch, int rows) {
  tri_mat x = tri_packed(f->buf.x, rows, (int)f->cfg.model->hidden_size);
  x.data += (size_t)micro_batch * f->buf.micro_batch_stride / sizeof *x.data;
  return x;
}

/* Returns what the head of this rank writes: logits of its part of the vocabulary. */
static inline tri_mat tri_logits_of(const tri_forward *f, int rows) {
  return f->cfg.shard.last_stage && !f->cfg.model->encoder && rows ? tri_rows(f->buf.local_logits, rows) : tri_no_mat;
}

/* ---- arguments (op_args.c) ---- */

/* Adds delta to x, if there is one, and writes the norm of the sum. */
tri_norm_args tri_norm_of(const tri_walk *w, tri_mat x, tri_mat delta, const tri_weight *gain, const tri_weight *bias,
                          tri_mat out);
/* Adds to x, or some rows of it, what is pending, and has no outputs yet. */
tri_branch_norm_args tri_branch_norm_of(const tri_walk *w, tri_mat x, const tri_pending *p);
/* Overwrites out, without an activation: callers set what they want else. */
tri_linear_args tri_linear_of(const tri_walk *w, tri_mat x, const tri_weight *weight, const tri_weight *bias,
                              tri_mat out);
bool tri_adds_positions_late(const tri_model_config *c); /* after the projection */
tri_embed_args tri_embed_of(const tri_walk *w);
tri_embed_args tri_positions_of(const tri_walk *w); /* positions alone, on top of nothing, into the stream */
tri_rope_angles_args tri_rope_of(const tri_walk *w);
tri_rope_angles_args tri_local_rope_of(const tri_walk *w);
/* Returns what the queries of a layer are multiplied with, a factor for each row of the walk; NULL: they are not. */
const float *tri_q_scale_of(const tri_walk *w, const tri_layer *y);
/* The query heads of a layer that this rank has. */
tri_range tri_q_heads_of(const tri_walk *w, const tri_layer *y);
/* Rows of queries, keys and values of a layer, of these the queries or keys alone, and what attention makes of them:
 * layers may have heads of several sizes, and their rows follow each other without gaps. */
tri_mat tri_qkv_of(const tri_walk *w, const tri_layer *y);
tri_mat tri_queries_of(const tri_walk *w, const tri_layer *y);
tri_mat tri_keys_of(const tri_walk *w, const tri_layer *y);
tri_mat tri_attended_of(const tri_walk *w, const tri_layer *y);
/* Rows that attention writes: these, or longer ones in which a head has as much as of its keys, with zeros at its end.
 */
tri_mat tri_wide_attended_of(const tri_walk *w, const tri_layer *y);
/* Those keys of a step's that no lower rank has, too: each is counted once in a sum over the ranks. */
tri_mat tri_counted_keys_of(const tri_walk *w, const tri_layer *y);
/* The norm of queries or keys over all heads of all ranks. */
tri_norm_args tri_whole_norm_of(const tri_walk *w, tri_mat x, const tri_weight *gain, const float *sums, int64_t whole);
tri_qkv_rope_append_args tri_append_of(const tri_walk *w, const tri_layer *y);
tri_attention_args tri_attention_of(const tri_walk *w, const tri_layer *y, const tri_batch *b);
/* A gated or plain MLP of `units` local units: its first product, the activation after it, its second product. */
tri_linear_args tri_up_of(const tri_walk *w, tri_mat in, const tri_weight *weight, const tri_weight *bias, int units);
tri_glu_args tri_glu_of(const tri_walk *w, const tri_layer *y, int units);
/* The gates of a layer's heads, [T, heads]; and their meeting with what attention gives, a head's row at a time. */
tri_mat tri_head_gate_of(const tri_walk *w, const tri_layer *y);
tri_gate_rows_args tri_gated_heads_of(const tri_walk *w, const tri_layer *y);
tri_linear_args tri_down_of(const tri_walk *w, const tri_weight *weight, const tri_weight *bias, int units);
/* Returns whether a branch's last product adds to the stream itself, so that the norm after it moves less than half as
 * much: where nothing is to be summed over ranks or done to the result before. A record has the buffers of the other
 * way, in which smaller steps go. */
bool tri_adds_in_place(const tri_walk *w);
/* Returns where attention's result goes, of a step in chunks the walk's. */
tri_mat tri_attention_delta_of(const tri_walk *w);
/* Returns where the MLP's result goes: of a parallel residual on top of what attention adds. */
tri_mat tri_mlp_delta_of(const tri_walk *w);
/* The rows that the router and the routed experts read: a branch's input, or rows that norms of their own have made. */
tri_mat tri_router_rows_of(const tri_walk *w, tri_mat in);
tri_mat tri_routed_rows_of(const tri_walk *w, tri_mat in);
tri_moe_route_args tri_route_of(const tri_walk *w, const tri_layer *y);
tri_moe_experts_args tri_experts_of(const tri_walk *w, const tri_layer *y, tri_mat in);
/* The same of those on the device, where the host has all. */
tri_moe_map_args tri_hot_map_of(const tri_walk *w, const tri_layer *y);
tri_moe_experts_args tri_hot_experts_of(const tri_walk *w, const tri_layer *y, tri_mat in);
/* The map, and the experts' work, of so many rows that an exchange has brought together. */
tri_moe_map_args tri_exchanged_map_of(const tri_walk *w, const tri_layer *y, int rows);
tri_moe_experts_args tri_exchanged_experts_of(const tri_walk *w, const tri_layer *y, int rows);
/* Returns whether such work rounds its rows, as they come, in the groups in which they may travel rounded. All ranks of
 * a column get the same answer: it depends on the rows of all of them, on weights that have one form, and on backends
 * that are alike where weights of FP8 stay such (see fp8_wishes of runtime/engine/engine.c). */
bool tri_dispatch_rounds(const tri_walk *w, const tri_moe_experts_args *experts);

static inline bool tri_has_rope(const tri_model_config *c) { return c->attention.position == TRI_POS_ROPE; }

#endif
