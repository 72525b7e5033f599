#include "runtime/forward/forward_state.h"

/* ---- arguments ---- */

tri_norm_args tri_norm_of(const tri_forward *f, tri_mat x, tri_mat delta, const tri_weight *w, const tri_weight *bias,
                          tri_mat out) {
  const tri_model_config *c = f->cfg.model;
  return (tri_norm_args){.x = x,
                         .delta = delta,
                         .delta_scale = (float)c->residual_scale,
                         .weight = tri_vector(w),
                         .bias = tri_vector(bias),
                         .eps = (float)c->norm_eps,
                         .weight_offset = (float)c->norm_weight_offset,
                         .kind = c->norm,
                         .out = out};
}

tri_linear_args tri_linear_of(const tri_forward *f, tri_mat x, const tri_weight *w, const tri_weight *bias, tri_act act,
                              bool accumulate, tri_mat out) {
  return (tri_linear_args){.x = x,
                           .w = *w,
                           .bias = tri_vector(bias),
                           .act = act,
                           .accumulate = accumulate,
                           .int8_activations = f->cfg.int8_activations && w->dtype == TRI_I8 && w->k <= TRI_INT8_MAX_K,
                           .out = out};
}

bool tri_adds_positions_late(const tri_model_config *c) { return c->projected && !c->projects_last; }

tri_embed_args tri_embed_of(const tri_forward *f, const tri_batch *b, int lane) {
  const tri_weights *w = f->cfg.weights;
  const tri_model_config *c = f->cfg.model;
  return (tri_embed_args){
      .ids = b->token_ids,
      .drawn = f->cfg.drawn,
      .positions = b->positions,
      .table = w->global[TRI_W_EMBED],
      .first_id = (uint32_t)f->cfg.shard.vocab.first,
      .scale = (float)c->embed_scale,
      .position_table = tri_adds_positions_late(c) ? tri_no_weight : w->global[TRI_W_POSITIONS],
      .type_table = tri_adds_positions_late(c) ? tri_no_weight : w->global[TRI_W_TYPES],
      .types = b->types,
      .position_offset = (int)c->position_offset,
      .out = tri_rows(c->projected ? f->buf.embed : f->buf.x[lane], b->num_tokens),
  };
}

tri_embed_args tri_positions_of(const tri_forward *f, const tri_batch *b, int lane) {
  tri_embed_args a = tri_embed_of(f, b, lane);
  a.table = tri_no_weight;
  a.position_table = f->cfg.weights->global[TRI_W_POSITIONS];
  a.type_table = f->cfg.weights->global[TRI_W_TYPES];
  a.out = tri_rows(f->buf.x[lane], b->num_tokens);
  return a;
}

tri_linear_args tri_project_in_of(const tri_forward *f, tri_mat embedded, tri_mat x) {
  const tri_weight *w = f->cfg.weights->global;
  return tri_linear_of(f, embedded, &w[TRI_W_PROJECT_IN], &w[TRI_W_PROJECT_IN_BIAS], TRI_ACT_NONE,
                       tri_adds_positions_late(f->cfg.model), x);
}

tri_rope_angles_args tri_rope_of(const tri_forward *f, const tri_batch *b) {
  const tri_rope *r = &f->cfg.model->rope;
  return (tri_rope_angles_args){
      .positions = b->positions,
      .rope_len = b->rope_len,
      .inv_freq = f->inv_freq,
      .inv_freq_long = f->inv_freq_long,
      .kind = r->kind,
      .num_tokens = b->num_tokens,
      .rotary_dim = r->rotary_dim,
      .original_max_len = r->original_max_len,
      .base = r->base,
      .factor = r->factor,
      .attention_scale = r->attention_scale,
      .cos = f->buf.cos,
      .sin = f->buf.sin,
  };
}

tri_mat tri_queries_of(const tri_forward *f, int t) {
  return tri_columns(tri_rows(f->buf.qkv, t), 0, f->cfg.shard.q_heads.count * (int)f->cfg.model->head_dim);
}

tri_mat tri_keys_of(const tri_forward *f, int t) {
  int d = (int)f->cfg.model->head_dim;
  return tri_columns(tri_rows(f->buf.qkv, t), f->cfg.shard.q_heads.count * d, f->cfg.shard.kv_heads.count * d);
}

tri_norm_args tri_whole_norm_of(const tri_forward *f, tri_mat x, const tri_weight *w, const float *sums,
                                int64_t whole) {
  tri_norm_args a = tri_norm_of(f, x, tri_no_mat, w, &tri_no_weight, x);
  a.square_sums = f->cfg.group->p.tp > 1 ? sums : NULL;
  a.whole_cols = (int)whole;
  return a;
}

tri_qkv_rope_append_args tri_append_of(const tri_forward *f, const tri_batch *b, int layer) {
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->layers[layer].w;
  bool per_head = c->qk_norm == TRI_QK_NORM_HEAD || c->qk_norm == TRI_QK_NORM_EACH_HEAD;
  return (tri_qkv_rope_append_args){
      .qkv = tri_rows(f->buf.qkv, b->num_tokens),
      .num_heads = f->cfg.shard.q_heads.count,
      .num_kv_heads = f->cfg.shard.kv_heads.count,
      .head_dim = (int)c->head_dim,
      .q_norm = per_head ? tri_vector(&w[TRI_W_Q_NORM]) : NULL,
      .k_norm = per_head ? tri_vector(&w[TRI_W_K_NORM]) : NULL,
      .norm_eps = (float)c->norm_eps,
      .norm_weight_offset = (float)c->norm_weight_offset,
      .norm_kind = c->norm,
      .norm_stride = c->qk_norm == TRI_QK_NORM_EACH_HEAD ? (int)c->head_dim : 0,
      .rotary_dim = tri_has_rope(c) ? c->rope.rotary_dim : 0,
      .interleaved = c->rope.interleaved,
      .cos = f->buf.cos,
      .sin = f->buf.sin,
      .kv_slot = b->kv_slot,
      .kv = f->cfg.kv->layers[layer],
  };
}

tri_attention_args tri_attention_of(const tri_forward *f, const tri_batch *b, int layer) {
  const tri_model_config *c = f->cfg.model;
  int l = f->cfg.shard.layers.first + layer;
  double scale = c->attn_scale;
  if (c->scale_attn_by_layer) scale /= l + 1;
  return (tri_attention_args){
      .q = tri_queries_of(f, b->num_tokens),
      .kv = f->cfg.kv->layers[layer],
      .batch = b,
      .num_heads = f->cfg.shard.q_heads.count,
      .kv_head_of = f->kv_head_of,
      .heads_per_kv = f->heads_per_kv,
      .scale = (float)scale,
      .softcap = (float)c->attn_softcap,
      .window = c->layer_flags[l] & TRI_LAYER_LOCAL ? (int)c->window : 0,
      .causal = !c->encoder,
      .alibi_slopes = f->slopes,
      .sinks = tri_vector(&f->cfg.weights->layers[layer].w[TRI_W_SINKS]),
      .position_bias = f->bias,
      .bias_len = f->bias_len,
      .bias_offset = f->bias_offset,
      .bias_relative = c->position == TRI_POS_RELATIVE,
      .out = tri_rows(f->buf.attn, b->num_tokens),
  };
}

static tri_mat packed(tri_mat m, int rows, int cols) { return (tri_mat){m.data, rows, cols, cols, m.dtype}; }

tri_glu_args tri_glu_of(const tri_forward *f, int t, int units) {
  return (tri_glu_args){.gate_up = packed(f->buf.up, t, 2 * units),
                        .act = f->cfg.model->act,
                        .limit = (float)f->cfg.model->moe.glu_limit,
                        .out = packed(f->buf.act, t, units)};
}

tri_linear_args tri_up_of(const tri_forward *f, tri_mat in, const tri_weight *w, const tri_weight *bias, int units) {
  const tri_model_config *c = f->cfg.model;
  return tri_linear_of(f, in, w, bias, c->gated ? TRI_ACT_NONE : c->act, false,
                       packed(f->buf.up, in.rows, c->gated ? 2 * units : units));
}

tri_linear_args tri_down_of(const tri_forward *f, int t, const tri_weight *w, const tri_weight *bias, int units,
                            bool accumulate) {
  tri_mat middle = packed(f->cfg.model->gated ? f->buf.act : f->buf.up, t, units);
  return tri_linear_of(f, middle, w, bias, TRI_ACT_NONE, accumulate, tri_rows(f->buf.mlp_delta, t));
}

tri_linear_args tri_router_of(const tri_forward *f, const tri_weight *w, tri_mat in) {
  return tri_linear_of(f, in, &w[TRI_W_ROUTER], &w[TRI_W_ROUTER_BIAS], TRI_ACT_NONE, false,
                       tri_rows(f->buf.router, in.rows));
}

tri_linear_args tri_shared_gate_of(const tri_forward *f, const tri_weight *w, tri_mat in) {
  return tri_linear_of(f, in, &w[TRI_W_SHARED_GATE], &tri_no_weight, TRI_ACT_NONE, false,
                       (tri_mat){f->buf.shared_gate, in.rows, 1, 1, TRI_F32});
}

tri_moe_route_args tri_route_of(const tri_forward *f, const tri_weight *w, int t) {
  const tri_moe *m = &f->cfg.model->moe;
  return (tri_moe_route_args){
      .logits = tri_rows(f->buf.router, t),
      .bias = tri_vector(&w[TRI_W_CHOICE_BIAS]),
      .score = m->score,
      .top_k = (int)m->top_k,
      .num_groups = (int)m->num_groups,
      .top_groups = (int)m->top_groups,
      .group_best = (int)m->group_best,
      .renormalize = m->renormalize,
      .scale = (float)m->scale,
      .experts = f->buf.experts,
      .weights = f->buf.expert_weights,
  };
}

tri_moe_experts_args tri_experts_of(const tri_forward *f, const tri_weight *w, tri_mat in) {
  const tri_model_config *c = f->cfg.model;
  const tri_weight *up = &w[TRI_W_EXPERT_UP], *down = &w[TRI_W_EXPERT_DOWN];
  bool int8 = up->dtype == TRI_I8 && down->dtype == TRI_I8 && up->k <= TRI_INT8_MAX_K && down->k <= TRI_INT8_MAX_K;
  return (tri_moe_experts_args){
      .x = in,
      .experts = f->buf.experts,
      .weights = f->buf.expert_weights,
      .top_k = (int)c->moe.top_k,
      .num_experts = (int)c->moe.num_experts,
      .up = *up,
      .down = *down,
      .up_bias = tri_vector(&w[TRI_W_EXPERT_UP_BIAS]),
      .down_bias = tri_vector(&w[TRI_W_EXPERT_DOWN_BIAS]),
      .act = c->act,
      .gated = c->gated,
      .glu_limit = (float)c->moe.glu_limit,
      .accumulate = c->parallel_residual,
      .int8_activations = f->cfg.int8_activations && int8,
      .out = tri_rows(f->buf.mlp_delta, in.rows),
  };
}

/* ---- planning ---- */

static tri_status plan_entrance(tri_forward *f, const tri_batch *b, int lane) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  tri_status st = TRI_OK;
  tri_embed_args embed = tri_embed_of(f, b, lane);
  TRI_TRY(be->ops.embed_plan(be, &embed, &f->plan.embed));
  if (c->embed_norm) {
    tri_mat at = c->projects_last ? embed.out : tri_rows(f->buf.x[lane], b->num_tokens);
    tri_norm_args norm = tri_norm_of(f, at, tri_no_mat, &tri_no_weight, &tri_no_weight, at);
    TRI_TRY(be->ops.norm_plan(be, &norm, &f->plan.embed_norm));
  }
  if (c->projected) {
    tri_embed_args positions = tri_positions_of(f, b, lane);
    tri_linear_args in = tri_project_in_of(f, embed.out, positions.out);
    if (tri_adds_positions_late(c)) TRI_TRY(be->ops.embed_plan(be, &positions, &f->plan.positions));
    TRI_TRY(be->ops.linear_plan(be, &in, &f->plan.project_in));
  }
cleanup:
  return st;
}

/* What a branch reads: normed, or, where the family norms behind its branches, the stream itself, which the first block
 * may find without a copy in the products' type. */
static tri_mat branch_input(const tri_forward *f, int t) {
  tri_norm_place place = f->cfg.model->norm_place;
  return tri_rows(place == TRI_NORM_INPUT || place == TRI_NORM_BOTH ? f->buf.h : f->buf.x[0], t);
}

static tri_status plan_attention(tri_forward *f, const tri_batch *b) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->layers->w;
  int t = b->num_tokens;
  tri_status st = TRI_OK;
  tri_linear_args o = tri_linear_of(f, tri_rows(f->buf.attn, t), &w[TRI_W_O], &w[TRI_W_O_BIAS], TRI_ACT_NONE, false,
                                    tri_rows(f->buf.delta, t));
  TRI_TRY(be->ops.linear_plan(be, &o, &f->plan.o));
  if (tri_has_rope(c)) {
    tri_rope_angles_args rope = tri_rope_of(f, b);
    TRI_TRY(be->ops.rope_angles_plan(be, &rope, &f->plan.rope));
  }
  if (c->mla.on) return tri_latent_plan(f, b);
  tri_linear_args qkv = tri_linear_of(f, branch_input(f, t), &w[TRI_W_QKV], &w[TRI_W_QKV_BIAS], TRI_ACT_NONE, false,
                                      tri_rows(f->buf.qkv, t));
  tri_qkv_rope_append_args append = tri_append_of(f, b, 0);
  TRI_TRY(be->ops.linear_plan(be, &qkv, &f->plan.qkv));
  TRI_TRY(be->ops.qkv_rope_append_plan(be, &append, &f->plan.append));
  if (c->qk_norm == TRI_QK_NORM_WHOLE) {
    tri_mat q = tri_queries_of(f, t), k = tri_keys_of(f, t);
    tri_norm_args qn = tri_whole_norm_of(f, q, &w[TRI_W_Q_NORM], f->buf.square_sums, c->num_heads * c->head_dim);
    tri_norm_args kn = tri_whole_norm_of(f, k, &w[TRI_W_K_NORM], f->buf.square_sums, c->num_kv_heads * c->head_dim);
    tri_square_sums_args qs = {.x = q}, ks = {.x = tri_columns(k, 0, f->counted_kv.count * (int)c->head_dim)};
    TRI_TRY(be->ops.norm_plan(be, &qn, &f->plan.q_norm));
    TRI_TRY(be->ops.norm_plan(be, &kn, &f->plan.k_norm));
    TRI_TRY(be->ops.square_sums_plan(be, &qs, &f->plan.q_squares));
    TRI_TRY(be->ops.square_sums_plan(be, &ks, &f->plan.k_squares));
  }
cleanup:
  return st;
}

static tri_status plan_up(tri_forward *f, tri_linear_args up, int units, tri_op_plan *plan) {
  tri_backend *be = f->cfg.backend;
  if (!f->cfg.model->gated) return be->ops.linear_plan(be, &up, plan);
  tri_gated_linear_args gated = {.up = up, .glu = tri_glu_of(f, up.x.rows, units)};
  return be->ops.gated_linear_plan(be, &gated, plan);
}

static tri_status plan_mlp(tri_forward *f, int t) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  int units = f->cfg.shard.ff.count;
  tri_status st = TRI_OK;
  if (f->dense_layer < 0) return TRI_OK;
  const tri_weight *w = f->cfg.weights->layers[f->dense_layer].w;
  tri_linear_args up = tri_up_of(f, branch_input(f, t), &w[TRI_W_UP], &w[TRI_W_UP_BIAS], units);
  tri_linear_args down = tri_down_of(f, t, &w[TRI_W_DOWN], &w[TRI_W_DOWN_BIAS], units, c->parallel_residual);
  TRI_TRY(plan_up(f, up, units, &f->plan.up));
  TRI_TRY(be->ops.linear_plan(be, &down, &f->plan.down));
cleanup:
  return st;
}

static tri_status plan_experts(tri_forward *f, int t) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  int units = f->cfg.shard.shared_ff.count;
  tri_mat h = branch_input(f, t);
  tri_status st = TRI_OK;
  if (f->sparse_layer < 0) return TRI_OK;
  const tri_weight *w = f->cfg.weights->layers[f->sparse_layer].w;
  tri_linear_args router = tri_router_of(f, w, h);
  tri_moe_route_args route = tri_route_of(f, w, t);
  tri_moe_experts_args experts = tri_experts_of(f, w, h);
  TRI_TRY(be->ops.linear_plan(be, &router, &f->plan.router));
  TRI_TRY(be->ops.moe_route_plan(be, &route, &f->plan.route));
  TRI_TRY(be->ops.moe_experts_plan(be, &experts, &f->plan.experts));
  if (!c->moe.has_shared) return TRI_OK;
  tri_linear_args up = tri_up_of(f, h, &w[TRI_W_SHARED_UP], &tri_no_weight, units);
  tri_linear_args down = tri_down_of(f, t, &w[TRI_W_SHARED_DOWN], &tri_no_weight, units, true);
  tri_linear_args gate = tri_shared_gate_of(f, w, h);
  tri_gate_rows_args gated = {.x = down.x};
  TRI_TRY(plan_up(f, up, units, &f->plan.shared_up));
  TRI_TRY(be->ops.linear_plan(be, &down, &f->plan.shared_down));
  if (c->moe.shared_gate) TRI_TRY(be->ops.linear_plan(be, &gate, &f->plan.shared_gate));
  if (c->moe.shared_gate) TRI_TRY(be->ops.gate_rows_plan(be, &gated, &f->plan.shared_gated));
cleanup:
  return st;
}

static tri_status plan_head(tri_forward *f, const tri_batch *b, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->global;
  tri_mat rows = tri_rows(f->buf.rows, b->num_logits), narrow = tri_rows(f->buf.narrow_rows, b->num_logits);
  tri_status st = TRI_OK;
  tri_gather_rows_args gather = {.x = x, .rows = b->logit_rows, .out = rows};
  tri_norm_args norm = tri_norm_of(f, rows, tri_no_mat, &w[TRI_W_FINAL_NORM], &w[TRI_W_FINAL_NORM_BIAS], rows);
  tri_linear_args out = tri_linear_of(f, rows, &w[TRI_W_PROJECT_OUT], &tri_no_weight, TRI_ACT_NONE, false, narrow);
  tri_linear_args head = tri_linear_of(f, c->projected ? narrow : rows, &w[TRI_W_HEAD], &w[TRI_W_HEAD_BIAS],
                                       TRI_ACT_NONE, false, tri_rows(f->buf.local_logits, b->num_logits));
  tri_softcap_args cap = {.x = head.out};
  TRI_TRY(be->ops.gather_rows_plan(be, &gather, &f->plan.gather));
  TRI_TRY(be->ops.norm_plan(be, &norm, &f->plan.final_norm));
  if (c->projected) TRI_TRY(be->ops.linear_plan(be, &out, &f->plan.project_out));
  TRI_TRY(be->ops.linear_plan(be, &head, &f->plan.head));
  TRI_TRY(be->ops.softcap_plan(be, &cap, &f->plan.cap));
cleanup:
  return st;
}

static tri_status plan_tokens(tri_forward *f, const tri_batch *b, int lane) {
  tri_backend *be = f->cfg.backend;
  int t = b->num_tokens;
  tri_mat x = tri_rows(f->buf.x[lane], t), h = tri_rows(f->buf.h, t), delta = tri_rows(f->buf.delta, t);
  tri_status st = TRI_OK;
  tri_norm_args norm = tri_norm_of(f, x, delta, &tri_no_weight, &tri_no_weight, h);
  tri_norm_args settle = tri_norm_of(f, x, delta, &tri_no_weight, &tri_no_weight, tri_no_mat);
  TRI_TRY(be->ops.norm_plan(be, &norm, &f->plan.norm));
  TRI_TRY(be->ops.norm_plan(be, &settle, &f->plan.settle));
  if (f->cfg.shard.first_stage) TRI_TRY(plan_entrance(f, b, lane));
  TRI_TRY(plan_attention(f, b));
  if (f->cfg.model->seq2seq.on) TRI_TRY(tri_cross_plan(f, t));
  TRI_TRY(plan_mlp(f, t));
  TRI_TRY(plan_experts(f, t));
cleanup:
  return st;
}

tri_status tri_forward_plan(tri_forward *f, const tri_batch *b, int lane) {
  tri_backend *be = f->cfg.backend;
  tri_status st = TRI_OK;
  if (b->num_tokens != f->num_tokens) {
    f->num_tokens = -1;
    TRI_TRY(plan_tokens(f, b, lane));
    f->num_tokens = b->num_tokens;
  }
  tri_attention_args attention = tri_attention_of(f, b, 0);
  if (f->cfg.model->mla.on)
    TRI_TRY(tri_latent_plan_attention(f, b));
  else
    TRI_TRY(be->ops.attention_plan(be, &attention, &f->plan.attention));
  if (f->cfg.model->seq2seq.on) TRI_TRY(tri_cross_plan_attention(f));
  tri_mat x = tri_rows(f->buf.x[lane], b->num_tokens);
  if (tri_is_encoding_rank(f->cfg.model, &f->cfg.shard)) TRI_TRY(tri_encoder_plan(f, b, x));
  if (f->cfg.shard.last_stage && b->num_logits) TRI_TRY(plan_head(f, b, x));
  TRI_TRY(tri_forward_reserve(f));
cleanup:
  return st;
}

tri_status tri_forward_reserve(tri_forward *f) {
  size_t need = 0;
  const tri_op_plan *all = (const tri_op_plan *)&f->plan;
  for (size_t i = 0; i < sizeof f->plan / sizeof *all; i++)
    if (all[i].workspace > need) need = all[i].workspace;
  if (need <= f->reserved) return TRI_OK;
  tri_status st = f->cfg.backend->ops.reserve(f->cfg.backend, need);
  if (st == TRI_OK) f->reserved = need;
  return st;
}
