/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the forward pass's ops, from the model's numbers, the shard, and the batch of a walk.
 *
 * Pure functions of the walk: a LAUNCH walk must make the same arguments as the PLAN walk over the same batch did, and
 * a recorded step keeps the addresses that are in them. */
#include "runtime/forward/forward_state.h"

#include "kernels/gemm_tactics.h"
#include "kernels/quantize.h"

tri_norm_args tri_norm_of(const tri_walk *w, tri_mat x, tri_mat delta, const tri_weight *gain, const tri_weight *bias,
                          tri_mat out) {
  const tri_model_config *c = w->f->cfg.model;
  return (tri_norm_args){.x = x,
                         .delta = delta,
                         .delta_scale = (float)c->norm.residual_scale,
                         .weight = tri_vector(gain),
                         .bias = tri_vector(bias),
                         .eps = (float)c->norm.eps,
                         .weight_offset = (float)c->norm.weight_offset,
                         .kind = c->norm.kind,
                         .out = out};
}

static const float *gain_of(const tri_weight *w) { return w ? tri_vector(w) : NULL; }

tri_branch_norm_args tri_branch_norm_of(const tri_walk *w, tri_mat x, const tri_pending *p) {
  const tri_model_config *c = w->f->cfg.model;
  return (tri_branch_norm_args){.x = x,
                                .delta = p->delta,
                                .second = p->second,
                                .delta_weight = gain_of(p->delta_gain),
                                .second_weight = gain_of(p->second_gain),
                                .sum_weight = gain_of(p->sum_gain),
                                .delta_scale = (float)c->norm.residual_scale,
                                .x_scale = p->scale != 0 ? p->scale : 1,
                                .eps = (float)c->norm.eps,
                                .weight_offset = (float)c->norm.weight_offset,
                                .scale = {1, 1, 1}};
}

/* Returns whether `rows` rows of x are rounded for a GEMM: for weights of int8 always or never, for those of FP8 where
 * many rows make it faster, `from` or more. Blocks that begin before the weight's columns are not those of rows. */
static bool rounds_rows(const tri_walk *w, const tri_weight *weight, int64_t rows, int from) {
  const tri_forward_config *c = &w->f->cfg;
  if (weight->dtype == TRI_I8) return c->int8_activations;
  return weight->dtype == TRI_F8_E4M3 && from && rows >= from && !weight->groups.skip_col;
}

tri_linear_args tri_linear_of(const tri_walk *w, tri_mat x, const tri_weight *weight, const tri_weight *bias,
                              tri_mat out) {
  const tri_backend *be = w->f->cfg.backend;
  return (tri_linear_args){.x = x,
                           .w = *weight,
                           .bias = tri_vector(bias),
                           .act = TRI_ACT_NONE,
                           .rounds_rows = rounds_rows(w, weight, x.rows, be ? be->rounds_fp8_from : 0),
                           .out = out};
}

bool tri_adds_positions_late(const tri_model_config *c) { return c->embed.projected && !c->embed.projects_last; }

tri_embed_args tri_embed_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_weight *g = tri_walk_global(w);
  const tri_model_config *c = f->cfg.model;
  bool late = tri_adds_positions_late(c);
  return (tri_embed_args){
      .ids = w->b->token_ids,
      .sampled = f->cfg.sampled,
      .positions = w->b->positions,
      .table = g[TRI_W_EMBED],
      .first_id = (uint32_t)f->cfg.shard.vocab.first,
      .scale = (float)c->embed.scale,
      .position_table = late ? tri_no_weight : g[TRI_W_POSITIONS],
      .type_table = late ? tri_no_weight : g[TRI_W_TYPES],
      .types = w->b->types,
      .position_offset = (int)c->embed.position_offset,
      .out = c->embed.projected ? tri_rows(f->buf.embed, w->b->num_tokens) : w->x,
  };
}

tri_embed_args tri_positions_of(const tri_walk *w) {
  tri_embed_args a = tri_embed_of(w);
  a.table = tri_no_weight;
  a.position_table = tri_walk_global(w)[TRI_W_POSITIONS];
  a.type_table = tri_walk_global(w)[TRI_W_TYPES];
  a.out = w->x;
  return a;
}

static tri_rope_angles_args angles_of(const tri_walk *w, const tri_rope *r, tri_mat cosines, tri_mat sines) {
  return (tri_rope_angles_args){
      .positions = w->b->positions,
      .rope_len = w->b->rope_len,
      .kind = r->kind,
      .num_tokens = w->b->num_tokens,
      .rotary_dim = r->rotary_dim,
      .original_max_len = r->original_max_len,
      .base = r->base,
      .factor = r->factor,
      .attention_scale = r->attention_scale,
      .attention_scale_long = r->attention_scale_long,
      .cos = tri_angles_of(w, cosines),
      .sin = tri_angles_of(w, sines),
  };
}

tri_rope_angles_args tri_rope_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_q_scale *s = &f->cfg.model->attention.q_scale;
  tri_rope_angles_args a = angles_of(w, &f->cfg.model->attention.rope, f->buf.cos, f->buf.sin);
  a.inv_freq = f->inv_freq;
  a.inv_freq_long = f->inv_freq_long;
  if (s->beta <= 0) return a;
  a.q_scale_beta = (float)s->beta;
  a.q_scale_offset = (int)s->offset;
  a.q_scale_every = (int)s->every;
  a.q_scale = tri_angles_of(w, f->buf.q_scale);
  return a;
}

tri_rope_angles_args tri_local_rope_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  tri_rope_angles_args a = angles_of(w, &f->cfg.model->attention.local_rope, f->buf.local_cos, f->buf.local_sin);
  a.inv_freq = f->local_inv_freq;
  return a;
}

static int head_dim_of(const tri_walk *w, const tri_layer *y) {
  return (int)tri_layer_heads(w->f->cfg.model, y->number).dim;
}

tri_range tri_q_heads_of(const tri_walk *w, const tri_layer *y) {
  return tri_shard_q_heads(w->f->cfg.model, &w->f->cfg.shard, y->number);
}

/* Returns the KV heads that a layer makes. */
static tri_range kv_heads_of(const tri_walk *w, const tri_layer *y) {
  return tri_shard_new_kv_heads(w->f->cfg.model, &w->f->cfg.shard, y->number);
}

/* Returns how many query heads of the model share a KV head of the layer. */
static int group_of(const tri_walk *w, const tri_layer *y) {
  tri_head_sizes heads = tri_layer_heads(w->f->cfg.model, y->number);
  return (int)(heads.num / heads.num_kv);
}

/* A row of qkv: the heads of queries, then those of keys, head_dim each, then those of values. */
tri_mat tri_qkv_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  int kv_heads = kv_heads_of(w, y).count, keys = (tri_q_heads_of(w, y).count + kv_heads) * head_dim_of(w, y);
  return tri_packed(f->buf.qkv, w->b->num_tokens, keys + kv_heads * (int)tri_value_dim(f->cfg.model, y->number));
}

tri_mat tri_queries_of(const tri_walk *w, const tri_layer *y) {
  return tri_columns(tri_qkv_of(w, y), 0, tri_q_heads_of(w, y).count * head_dim_of(w, y));
}

tri_mat tri_keys_of(const tri_walk *w, const tri_layer *y) {
  int d = head_dim_of(w, y);
  return tri_columns(tri_qkv_of(w, y), tri_q_heads_of(w, y).count * d, kv_heads_of(w, y).count * d);
}

/* The first KV head may be the last one of the rank before. */
tri_mat tri_counted_keys_of(const tri_walk *w, const tri_layer *y) {
  int d = head_dim_of(w, y), shared = tri_q_heads_of(w, y).first % group_of(w, y) != 0;
  return tri_columns(tri_keys_of(w, y), shared * d, (kv_heads_of(w, y).count - shared) * d);
}

tri_mat tri_wide_attended_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  if (!f->cfg.model->attention.value_dim) return tri_attended_of(w, y);
  return tri_packed(f->buf.wide_attn, w->b->num_tokens, tri_q_heads_of(w, y).count * head_dim_of(w, y));
}

tri_mat tri_attended_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  int d = (int)tri_value_dim(f->cfg.model, y->number);
  return tri_packed(f->buf.attn, w->b->num_tokens, tri_q_heads_of(w, y).count * d);
}

/* A norm over heads that are spread over tensor ranks: each rank has a slice of the row, and `sums` the squares of all
 * of them. */
tri_norm_args tri_whole_norm_of(const tri_walk *w, tri_mat x, const tri_weight *gain, const float *sums,
                                int64_t whole) {
  tri_norm_args a = tri_norm_of(w, x, tri_no_mat, gain, &tri_no_weight, x);
  a.square_sums = w->f->cfg.shard.p.tp > 1 ? sums : NULL;
  a.whole_cols = (int)whole;
  return a;
}

/* Angles and rotary dimensions are those of the layer's kind, or none. */
static void set_rotation(const tri_walk *w, const tri_layer *y, tri_qkv_rope_append_args *a) {
  const tri_forward *f = w->f;
  const tri_attention_config *c = &f->cfg.model->attention;
  bool local = c->has_local_rope && y->flags & TRI_LAYER_LOCAL;
  if (!tri_has_rope(f->cfg.model) || y->flags & TRI_LAYER_NO_ROPE) return;
  a->rotary_dim = (local ? &c->local_rope : &c->rope)->rotary_dim;
  a->interleaved = c->rope.interleaved;
  a->cos = tri_angles_of(w, local ? f->buf.local_cos : f->buf.cos);
  a->sin = tri_angles_of(w, local ? f->buf.local_sin : f->buf.sin);
}

const float *tri_q_scale_of(const tri_walk *w, const tri_layer *y) {
  const tri_q_scale *s = &w->f->cfg.model->attention.q_scale;
  bool has = s->beta > 0 && (!s->without_rope || y->flags & TRI_LAYER_NO_ROPE);
  return has ? tri_angles_of(w, w->f->buf.q_scale) : NULL;
}

tri_qkv_rope_append_args tri_append_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  bool per_head = c->attention.qk_norm == TRI_QK_NORM_HEAD || c->attention.qk_norm == TRI_QK_NORM_EACH_HEAD;
  tri_qkv_rope_append_args a = {
      .qkv = tri_qkv_of(w, y),
      .num_heads = tri_q_heads_of(w, y).count,
      .num_kv_heads = kv_heads_of(w, y).count,
      .head_dim = head_dim_of(w, y),
      .value_dim = (int)c->attention.value_dim,
      .value_scale = (float)c->attention.value_scale,
      .q_norm = per_head ? tri_vector(&y->w[TRI_W_Q_NORM]) : NULL,
      .k_norm = per_head ? tri_vector(&y->w[TRI_W_K_NORM]) : NULL,
      .v_norm = c->attention.norm_values ? f->ones : NULL,
      .norm_eps = (float)c->norm.eps,
      .norm_weight_offset = (float)c->norm.weight_offset,
      .norm_kind = c->norm.kind,
      .norm_stride = c->attention.qk_norm == TRI_QK_NORM_EACH_HEAD ? head_dim_of(w, y) : 0,
      .q_scale = tri_q_scale_of(w, y),
      .kv_slot = w->b->kv_slot,
      .kv = y->kv,
  };
  set_rotation(w, y, &a);
  if (c->attention.qk_norm != TRI_QK_NORM_BARE || y->flags & TRI_LAYER_NO_ROPE) return a;
  a.q_norm = a.k_norm = f->ones;
  a.norm_weight_offset = 0;
  a.norm_kind = TRI_NORM_RMS;
  return a;
}

/* A tensor rank's query heads may begin in the middle of a group that shares a KV head: skipped_heads are those of the
 * group that the rank before has. Latent attention is one group over one row of keys. */
tri_attention_args tri_attention_of(const tri_walk *w, const tri_layer *y, const tri_batch *b) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  int group = group_of(w, y);
  double scale = c->attention.scale_by_layer ? c->attention.scale / (y->number + 1) : c->attention.scale;
  return (tri_attention_args){
      .q = tri_queries_of(w, y),
      .kv = y->kv,
      .batch = b,
      .num_heads = tri_q_heads_of(w, y).count,
      .heads_per_kv = c->mla.on ? (int)c->attention.num_heads : group,
      .skipped_heads = c->mla.on ? 0 : tri_q_heads_of(w, y).first % group,
      .scale = (float)scale,
      .softcap = (float)c->attention.softcap,
      .window = y->flags & TRI_LAYER_LOCAL ? (int)c->attention.window : 0,
      .chunked = c->attention.chunked,
      .causal = c->attention.causal,
      .alibi_slopes = f->slopes,
      .sinks = tri_vector(&y->w[TRI_W_SINKS]),
      .position_bias = f->bias,
      .bias_len = f->bias_len,
      .bias_offset = f->bias_offset,
      .bias_relative = c->attention.position == TRI_POS_RELATIVE,
      .out = tri_wide_attended_of(w, y),
  };
}

tri_mat tri_head_gate_of(const tri_walk *w, const tri_layer *y) {
  return tri_packed(w->f->buf.head_gate, w->b->num_tokens, tri_q_heads_of(w, y).count);
}

tri_gate_rows_args tri_gated_heads_of(const tri_walk *w, const tri_layer *y) {
  tri_mat x = tri_attended_of(w, y);
  int heads = tri_q_heads_of(w, y).count, dim = (int)tri_value_dim(w->f->cfg.model, y->number);
  return (tri_gate_rows_args){.x = {x.data, x.rows * heads, dim, dim, x.dtype}, .gate = tri_head_gate_of(w, y).data};
}

/* Returns the activation of a layer whose limit is `own`, and *limit: that, or the model's. */
static tri_act act_with(const tri_model_config *c, double own, float *limit) {
  *limit = (float)(own > 0 ? own : c->moe.glu_limit);
  return own > 0 ? TRI_ACT_SWIGLU_CLAMPED : c->mlp.act;
}

tri_glu_args tri_glu_of(const tri_walk *w, const tri_layer *y, int units) {
  const tri_forward *f = w->f;
  float limit;
  tri_act act = act_with(f->cfg.model, tri_layer_glu_limits(f->cfg.model, y->number).mlp, &limit);
  return (tri_glu_args){.gate_up = tri_packed(f->buf.up, w->b->num_tokens, 2 * units),
                        .act = act,
                        .limit = limit,
                        .out = tri_packed(f->buf.act, w->b->num_tokens, units)};
}

tri_linear_args tri_up_of(const tri_walk *w, tri_mat in, const tri_weight *weight, const tri_weight *bias, int units) {
  const tri_model_config *c = w->f->cfg.model;
  tri_linear_args a =
      tri_linear_of(w, in, weight, bias, tri_packed(w->f->buf.up, in.rows, c->mlp.gated ? 2 * units : units));
  if (!c->mlp.gated) a.act = c->mlp.act;
  return a;
}

tri_linear_args tri_down_of(const tri_walk *w, const tri_weight *weight, const tri_weight *bias, int units) {
  const tri_forward *f = w->f;
  tri_mat middle = tri_packed(f->cfg.model->mlp.gated ? f->buf.act : f->buf.up, w->b->num_tokens, units);
  tri_linear_args a = tri_linear_of(w, middle, weight, bias, tri_mlp_delta_of(w));
  a.accumulate = f->cfg.model->norm.parallel_residual || tri_adds_in_place(w);
  return a;
}

/* is_sum: the residual is what was there plus the result, unscaled, and nothing else. is_whole: no other rank, and no
 * host, has a part of the result that is still to be added. */
bool tri_adds_in_place(const tri_walk *w) {
  const tri_forward_config *cfg = &w->f->cfg;
  const tri_norm_config *n = &cfg->model->norm;
  int from = cfg->backend ? cfg->backend->adds_in_place_from : 0;
  bool is_sum = n->place == TRI_NORM_INPUT && !n->parallel_residual && n->residual_scale == 1;
  bool is_whole = cfg->shard.p.tp == 1 && !tri_dp_ranks_exchange(cfg->model, cfg->shard.p) && !cfg->host;
  return from && is_sum && is_whole && w->b->num_tokens >= from && w->mode != TRI_WALK_RECORD;
}

/* Returns whether what a branch adds is written, and summed over the ranks, in bfloat16: where a step's activations are
 * and the sum is long, as a prompt's. It must be added to the stream as it is: a norm of it alone is made in place, in
 * float32. float16 cannot hold every addend whose sum it holds. Rows count as those of the step that tactics are
 * measured for, so that a shape of products has one type. A record has the other way's buffers, which hold this, too.
 */
static bool sums_in_bf16(const tri_walk *w) {
  const tri_forward_config *cfg = &w->f->cfg;
  const tri_norm_config *n = &cfg->model->norm;
  size_t above = cfg->backend ? cfg->backend->bf16_sums_above : 0;
  bool is_sum = (n->place == TRI_NORM_INPUT || n->place == TRI_NORM_SUM) && !n->parallel_residual;
  if (!above || !is_sum || cfg->shard.p.tp == 1 || w->mode == TRI_WALK_RECORD) return false;
  size_t bytes = (size_t)tri_padded_rows(w->b->num_tokens) * (size_t)cfg->model->hidden_size * sizeof(float);
  if (w->f->buf.h.dtype != TRI_BF16 || bytes <= above) return false;
  return tri_comm_caps(cfg->tensor) & TRI_COMM_CAN_all_reduce_bf16;
}

static tri_mat in_bf16(tri_mat m) {
  m.dtype = TRI_BF16;
  return m;
}

/* Returns the walk's rows of what attention adds. A parallel residual has some for every token: the chunks of a step
 * all attend before the MLP begins. The library adds biases to float32 alone. */
tri_mat tri_attention_delta_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  int first = c->norm.parallel_residual ? w->first_row : 0;
  if (tri_adds_in_place(w)) return w->x;
  tri_mat delta = tri_rows(tri_rows_from(f->buf.delta, first), w->b->num_tokens);
  return sums_in_bf16(w) && !c->attention.o_bias ? in_bf16(delta) : delta;
}

/* Returns whether one op gives all that this rank adds: others add to it, in float32. */
static bool is_one_mlp(const tri_forward_config *cfg) {
  const tri_model_config *c = cfg->model;
  bool elsewhere = cfg->host || cfg->shard.p.hot_experts || tri_dp_ranks_exchange(c, cfg->shard.p);
  return !elsewhere && !c->moe.has_shared && !c->mlp.bias;
}

tri_mat tri_router_rows_of(const tri_walk *w, tri_mat in) {
  return w->f->cfg.model->moe.own_norms ? tri_rows(w->f->buf.router_rows, in.rows) : in;
}

tri_mat tri_routed_rows_of(const tri_walk *w, tri_mat in) {
  return w->f->cfg.model->moe.own_norms ? tri_rows(w->f->buf.routed_rows, in.rows) : in;
}

tri_mat tri_mlp_delta_of(const tri_walk *w) {
  const tri_forward *f = w->f;
  if (tri_adds_in_place(w)) return w->x;
  if (f->cfg.model->norm.parallel_residual) return tri_attention_delta_of(w);
  tri_mat delta = tri_rows(f->buf.mlp_delta, w->b->num_tokens);
  return sums_in_bf16(w) && is_one_mlp(&f->cfg) ? in_bf16(delta) : delta;
}

/* 32-bit numbers as floats are. */
static int32_t *numbers_of(tri_mat m) { return (int32_t *)m.data; }

static tri_expert_map map_of(const tri_forward *f) {
  return (tri_expert_map){.first = numbers_of(f->buf.map_first),
                          .choice = numbers_of(f->buf.map_choice),
                          .row = numbers_of(f->buf.map_row)};
}

tri_moe_route_args tri_route_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  const tri_moe *m = &f->cfg.model->moe;
  size_t layer = (size_t)(y->number - f->cfg.shard.layers.first);
  size_t table = (size_t)m->num_experts * (1 + (size_t)f->most_copies);
  tri_parallel p = f->cfg.shard.p;
  tri_range own = tri_dp_shard_slots(f->cfg.model, p, p.dp_rank);
  tri_moe_route_args a = {
      .logits = tri_rows(f->buf.router, w->b->num_tokens),
      .bias = tri_vector(&y->w[TRI_W_CHOICE_BIAS]),
      .kv_slot = w->b->kv_slot,
      .score = m->score,
      .top_k = (int)m->top_k,
      .num_groups = (int)m->num_groups,
      .top_groups = (int)m->top_groups,
      .group_best = (int)m->group_best,
      .renormalize = m->renormalize,
      .scale = (float)m->scale,
      .jitter = (float)m->jitter,
      .expert_scale = tri_vector(&y->w[TRI_W_EXPERT_SCALE]),
      .first_expert = f->cfg.shard.slots.first,
      .num_experts = f->cfg.shard.slots.count,
      .slots = f->slots ? f->slots + layer * table : NULL,
      .most_copies = f->most_copies,
      .own_first = own.first,
      .own_end = own.first + own.count,
      .shard = p.dp_rank,
      .experts = numbers_of(f->buf.experts),
      .weights = f->buf.expert_weights.data,
      .map = map_of(f),
      .tally = f->tally ? f->tally + layer * (size_t)f->cfg.shard.slots.count : NULL,
  };
  if (!f->hot || !tri_has_hot_experts(f, y)) return a;
  tri_hot_layer hot = tri_hot_experts_layer(f->hot, y->local);
  a.slots = hot.slots;
  a.most_copies = hot.most_copies;
  a.own_end = hot.first_slot + hot.num_slots; /* there is one shard, whose slots begin with 0 */
  return a;
}

static tri_expert_map hot_map_of(const tri_forward *f) {
  return (tri_expert_map){.first = numbers_of(f->buf.hot_first),
                          .choice = numbers_of(f->buf.hot_choice),
                          .row = numbers_of(f->buf.hot_row)};
}

/* Hot experts of a layer are computed on the device and all others on the host, so that each has a map of its own over
 * the same choices. */
tri_moe_map_args tri_hot_map_of(const tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  tri_moe_map_args a = {.experts = numbers_of(f->buf.experts),
                        .num_tokens = w->b->num_tokens,
                        .top_k = (int)f->cfg.model->moe.top_k,
                        .map = hot_map_of(f)};
  if (!f->hot) return a;
  tri_hot_layer hot = tri_hot_experts_layer(f->hot, y->local);
  a.first_expert = hot.first_slot;
  a.num_experts = hot.num_slots;
  a.tally = hot.tally;
  return a;
}

tri_moe_map_args tri_exchanged_map_of(const tri_walk *w, const tri_layer *y, int rows) {
  tri_moe_route_args route = tri_route_of(w, y);
  tri_moe_map_args a = tri_moe_map_of(&route);
  a.experts = numbers_of(w->f->buf.all2all_experts);
  a.num_tokens = rows;
  return a;
}

tri_moe_experts_args tri_exchanged_experts_of(const tri_walk *w, const tri_layer *y, int rows) {
  const tri_forward *f = w->f;
  tri_moe_experts_args a = tri_experts_of(w, y, tri_rows(f->buf.all2all_x, rows));
  if (!f->cfg.model->moe.scale_input) a.weights = f->buf.all2all_weights.data;
  a.accumulate = false;
  a.out = tri_rows(f->buf.all2all_y, rows);
  return a;
}

bool tri_dispatch_rounds(const tri_walk *w, const tri_moe_experts_args *experts) {
  const tri_weight *up = &experts->up;
  bool in_groups = tri_weight_is_blocked(up) && up->groups.cols == TRI_INT8_GROUP;
  return experts->rounds_rows && up->dtype == TRI_F8_E4M3 && in_groups && !w->f->cfg.model->moe.scale_input;
}

tri_moe_experts_args tri_hot_experts_of(const tri_walk *w, const tri_layer *y, tri_mat in) {
  const tri_forward *f = w->f;
  tri_layer hot = *y;
  if (f->hot) hot.w = tri_hot_experts_layer(f->hot, y->local).weights->w;
  tri_moe_experts_args a = tri_experts_of(w, &hot, in);
  a.num_experts = f->cfg.shard.p.hot_experts;
  a.map = hot_map_of(f);
  return a;
}

tri_moe_experts_args tri_experts_of(const tri_walk *w, const tri_layer *y, tri_mat in) {
  const tri_forward *f = w->f;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *up = &y->w[TRI_W_EXPERT_UP], *down = &y->w[TRI_W_EXPERT_DOWN];
  int64_t each = (int64_t)in.rows * c->moe.top_k / c->moe.num_experts; /* of all ranks' experts */
  int from = f->cfg.backend ? f->cfg.backend->rounds_fp8_experts_from : 0;
  float limit;
  tri_act act = act_with(c, tri_layer_glu_limits(c, y->number).experts, &limit);
  return (tri_moe_experts_args){
      .x = in,
      .weights = c->moe.scale_input ? f->ones : f->buf.expert_weights.data,
      .top_k = (int)c->moe.top_k,
      .num_experts = f->cfg.shard.slots.count,
      .map = map_of(f),
      .up = *up,
      .down = *down,
      .up_bias = tri_vector(&y->w[TRI_W_EXPERT_UP_BIAS]),
      .down_bias = tri_vector(&y->w[TRI_W_EXPERT_DOWN_BIAS]),
      .act = act,
      .gated = c->mlp.gated,
      .glu_limit = limit,
      .accumulate = c->norm.parallel_residual || tri_adds_in_place(w),
      .rounds_rows = rounds_rows(w, up, each, from) && rounds_rows(w, down, each, from),
      .out = tri_mlp_delta_of(w),
  };
}
