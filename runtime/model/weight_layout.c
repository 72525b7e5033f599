/* SPDX-License-Identifier: Apache-2.0 */
/* A weight in a layout: its shape on a shard, the whole tensor that a checkpoint has of it, and how that is cut. Both
 * directions follow from one place: a weight's shape says how many rows and columns of which axis a rank has, and
 * slices say where in the checkpoint's tensor they lie. The loader checks that the slices cover the shape. Functions
 * of shapes go from one to the next by `default`, since one switch over all weights would be longer than a function
 * may be. */
#include "runtime/model/layout.h"

/* ---- of a shard ---- */

static tri_weight_shape matrix(int64_t n, int64_t k) { return (tri_weight_shape){n, k, false}; }
static tri_weight_shape vector(bool present, int64_t n) { return (tri_weight_shape){present ? n : 0, 1, true}; }

/* Rows of the table of positions. */
static int64_t positions_of(const tri_model_config *c) {
  bool table = c->attention.position == TRI_POS_LEARNED || c->attention.position == TRI_POS_SINUSOID;
  return table ? c->max_position_embeddings + c->embed.position_offset : 0;
}

/* Returns the width at which positions and types are added to an embedding and at which it is normed. */
static int64_t entrance_width(const tri_model_config *c) {
  return c->embed.projects_last ? c->embed.size : c->hidden_size;
}

/* Positions and types are added by one tensor rank before the all-reduce, or by all after the projection. */
static bool adds_positions(const tri_model_config *c, const tri_shard *s) {
  return s->first_stage && (s->p.tp_rank == 0 || (c->embed.projected && !c->embed.projects_last));
}

/* The ends of an encoder: one rank has all of them. */
static tri_weight_shape encoder_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id) {
  bool mine = s->last_stage && s->p.tp_rank == 0, pooler = mine && c->head.has_pooler,
       classifier = mine && c->head.has_classifier;
  const tri_dense_config *dense = c->sentence.dense;
  switch (id) {
  case TRI_W_POOLER: return matrix(pooler ? c->hidden_size : 0, c->hidden_size);
  case TRI_W_POOLER_BIAS: return vector(pooler && !c->head.pooler_no_bias, c->hidden_size);
  case TRI_W_POOLER_NORM: return vector(pooler && c->head.pooler_norm, c->hidden_size);
  case TRI_W_POOLER_NORM_BIAS: return vector(pooler && c->head.pooler_norm_bias, c->hidden_size);
  case TRI_W_CLASSIFIER: return matrix(classifier ? c->head.num_labels : 0, c->hidden_size);
  case TRI_W_CLASSIFIER_BIAS: return vector(classifier && c->head.classifier_bias, c->head.num_labels);
  case TRI_W_DENSE1: return matrix(mine ? dense[0].out : 0, dense[0].in);
  case TRI_W_DENSE1_BIAS: return vector(mine && dense[0].bias, dense[0].out);
  case TRI_W_DENSE2: return matrix(mine ? dense[1].out : 0, dense[1].in);
  case TRI_W_DENSE2_BIAS: return vector(mine && dense[1].bias, dense[1].out);
  default: return vector(false, 0);
  }
}

/* Attention to the encoder's states, and learned biases of distances. */
static tri_weight_shape cross_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id) {
  bool on = c->seq2seq.on;
  int64_t h = c->hidden_size, q = s->q_heads.count * c->attention.head_dim,
          kv = 2 * s->kv_heads.count * c->attention.head_dim;
  switch (id) {
  case TRI_W_RELATIVE_BIAS:
    return matrix(c->attention.position == TRI_POS_RELATIVE ? c->attention.bias_buckets : 0, s->q_heads.count);
  case TRI_W_CROSS_NORM: return vector(on, h);
  case TRI_W_CROSS_NORM_BIAS: return vector(on && c->norm.bias, h);
  case TRI_W_CROSS_Q: return matrix(on ? q : 0, h);
  case TRI_W_CROSS_Q_BIAS: return vector(on && c->attention.bias, q);
  case TRI_W_CROSS_KV: return matrix(on ? kv : 0, h);
  case TRI_W_CROSS_KV_BIAS: return vector(on && c->attention.bias, kv);
  case TRI_W_CROSS_O: return matrix(on ? h : 0, q);
  case TRI_W_CROSS_O_BIAS: return vector(on && c->attention.o_bias && s->p.tp_rank == 0, h);
  default: return encoder_shape(c, s, id);
  }
}

/* Inputs of layers: the first stage makes them of all. */
static tri_weight_shape input_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id) {
  int64_t h = c->hidden_size, width = c->embed.layer_width, all = s->first_stage ? c->num_layers * width : 0;
  switch (id) {
  case TRI_W_LAYER_EMBED: return matrix(all ? s->vocab.count : 0, all);
  case TRI_W_LAYER_PROJECT: return matrix(all, h);
  case TRI_W_LAYER_PROJECT_NORM: return vector(all, width);
  case TRI_W_INPUT_GATE: return matrix(width, h);
  case TRI_W_INPUT_PROJECT: return matrix(width ? h : 0, width);
  case TRI_W_INPUT_NORM: return vector(width, h);
  default: return cross_shape(c, s, id);
  }
}

static tri_weight_shape latent_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id) {
  const tri_mla *m = &c->mla;
  int64_t h = c->hidden_size, heads = s->q_heads.count;
  if (!m->on) return input_shape(c, s, id);
  switch (id) {
  case TRI_W_QKV_A: return matrix(m->q_rank + m->rank + m->rope_dim, h);
  case TRI_W_Q_A_NORM: return vector(m->low_rank_q, m->q_rank);
  case TRI_W_Q_B: return matrix(heads * c->attention.head_dim, m->low_rank_q ? m->q_rank : h);
  case TRI_W_KV_A_NORM: return vector(true, m->rank);
  case TRI_W_K_UP: return matrix(heads * m->rank, m->nope_dim);
  case TRI_W_V_UP: return matrix(heads * m->v_dim, m->rank);
  default: return input_shape(c, s, id);
  }
}

/* Biases that are added after a sum over ranks lie on one rank alone (adds_bias, first_slice): each rank's own would
 * be added once for each. */
static tri_weight_shape expert_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id) {
  const tri_moe *m = &c->moe;
  int64_t h = c->hidden_size, e = s->slots.count, f = s->expert_ff.count, up = c->mlp.gated ? 2 * f : f;
  bool first_slice = tri_parallel_stage_rank(s->p) % tri_parallel_etp(s->p) == 0;
  int64_t shared = m->has_shared ? s->shared_ff.count : 0;
  switch (id) {
  case TRI_W_LAYER_SCALE: return vector(c->norm.layer_scale, 1);
  case TRI_W_ROUTER_NORM:
  case TRI_W_EXPERT_NORM:
  case TRI_W_EXPERT_BRANCH_NORM:
  case TRI_W_SHARED_BRANCH_NORM: return vector(m->own_norms, h);
  case TRI_W_EXPERT_SCALE: return vector(m->expert_scale, m->num_experts);
  case TRI_W_ROUTER: return matrix(m->num_experts, h);
  case TRI_W_ROUTER_BIAS: return vector(m->router_bias, m->num_experts);
  case TRI_W_CHOICE_BIAS: return vector(m->choice_bias, m->num_experts);
  case TRI_W_EXPERT_UP: return matrix(e * up, h);
  case TRI_W_EXPERT_UP_BIAS: return vector(m->expert_bias, e * up);
  case TRI_W_EXPERT_DOWN: return matrix(e * h, e ? f : 0);
  case TRI_W_EXPERT_DOWN_BIAS: return vector(m->expert_bias && first_slice, e * h);
  case TRI_W_SHARED_UP: return matrix(c->mlp.gated ? 2 * shared : shared, h);
  case TRI_W_SHARED_DOWN: return matrix(shared ? h : 0, shared);
  case TRI_W_SHARED_GATE: return matrix(m->shared_gate ? 1 : 0, h);
  default: return latent_shape(c, s, id);
  }
}

tri_weight_shape tri_shard_weight_shape(const tri_model_config *c, const tri_shard *s, tri_weight_id id, int layer) {
  int64_t h = c->hidden_size, e = c->embed.size, d = tri_layer_heads(c, layer).dim,
          f = tri_shard_units(c, s, layer).count, up = c->mlp.gated ? 2 * f : f;
  int64_t kv_heads = tri_shard_new_kv_heads(c, s, layer).count, q_heads = tri_shard_q_heads(c, s, layer).count,
          qkv = (q_heads + kv_heads) * d + kv_heads * tri_value_dim(c, layer);
  bool adds_bias = s->p.tp_rank == 0, first = s->first_stage, last = s->last_stage;
  bool two_norms = !c->norm.one_norm && c->norm.place != TRI_NORM_RESULT;
  bool branch_norms = c->norm.place == TRI_NORM_BOTH || c->norm.place == TRI_NORM_RESULT;
  switch (id) {
  case TRI_W_EMBED: return matrix(first && !c->feeds_decoder ? s->vocab.count : 0, e);
  case TRI_W_EMBED_NORM: return vector(first && c->embed.norm, entrance_width(c));
  case TRI_W_EMBED_NORM_BIAS: return vector(first && c->embed.norm && c->norm.bias, entrance_width(c));
  case TRI_W_PROJECT_IN: return matrix(first && c->embed.projected ? h : 0, e);
  case TRI_W_PROJECT_IN_BIAS: return vector(first && c->embed.projected && c->embed.projects_last, h);
  case TRI_W_POSITIONS: return matrix(adds_positions(c, s) ? positions_of(c) : 0, entrance_width(c));
  case TRI_W_TYPES: return matrix(adds_positions(c, s) ? c->embed.type_vocab_size : 0, entrance_width(c));
  case TRI_W_FINAL_NORM: return vector(last && !c->norm.no_final, h);
  case TRI_W_FINAL_NORM_BIAS: return vector(last && !c->norm.no_final && c->norm.bias, h);
  case TRI_W_PROJECT_OUT: return matrix(last && c->embed.projected && !c->encoder ? e : 0, h);
  case TRI_W_HEAD: return matrix(last && !c->encoder ? s->vocab.count : 0, e);
  case TRI_W_HEAD_BIAS: return vector(last && c->head.bias, s->vocab.count);
  case TRI_W_NORM1: return vector(c->norm.place != TRI_NORM_RESULT, h);
  case TRI_W_NORM1_BIAS: return vector(c->norm.place != TRI_NORM_RESULT && c->norm.bias, h);
  case TRI_W_NORM2: return vector(two_norms, h);
  case TRI_W_NORM2_BIAS: return vector(two_norms && c->norm.bias, h);
  case TRI_W_BRANCH_NORM1:
  case TRI_W_BRANCH_NORM2: return vector(branch_norms, h);
  case TRI_W_QKV: return matrix(c->mla.on ? 0 : qkv, h);
  case TRI_W_QKV_BIAS: return vector(c->attention.bias, qkv);
  case TRI_W_SINKS:
    return vector(c->attention.has_sinks && (!c->attention.local_sinks || c->layer_flags[layer] & TRI_LAYER_LOCAL),
                  q_heads);
  case TRI_W_Q_NORM:
    return vector(c->attention.has_qk_norm, c->attention.qk_norm == TRI_QK_NORM_HEAD ? d : q_heads * d);
  case TRI_W_K_NORM:
    return vector(c->attention.has_qk_norm && kv_heads, c->attention.qk_norm == TRI_QK_NORM_HEAD ? d : kv_heads * d);
  case TRI_W_O: return matrix(h, q_heads * tri_value_dim(c, layer));
  case TRI_W_O_BIAS: return vector(c->attention.o_bias && adds_bias, h);
  case TRI_W_ATTENTION_GATE: return matrix(c->attention.head_gate ? q_heads : 0, h);
  case TRI_W_UP: return matrix(up, h);
  case TRI_W_UP_BIAS: return vector(c->mlp.bias && !c->mlp.no_up_bias, up);
  case TRI_W_DOWN: return matrix(h, f);
  case TRI_W_DOWN_BIAS: return vector(c->mlp.bias && adds_bias, h);
  default: return expert_shape(c, s, id);
  }
}

/* ---- of a checkpoint's tensor ---- */

/* Returns whether a tensor is about the keys and values that a layer makes alone. */
static bool is_of_new_keys(const tri_tensor_rule *rule) {
  return rule->part == TRI_PART_K || rule->part == TRI_PART_V || rule->weight == TRI_W_K_NORM;
}

bool tri_rule_applies(const tri_model_config *c, const tri_tensor_rule *rule, int layer) {
  const char *at = (const char *)c;
  if (c->layer_flags[layer] & TRI_LAYER_SHARED_KV && is_of_new_keys(rule)) return false;
  int of = rule->flags & (TRI_TENSOR_LOCAL | TRI_TENSOR_GLOBAL), local = c->layer_flags[layer] & TRI_LAYER_LOCAL;
  if (of && of != (local ? TRI_TENSOR_LOCAL : TRI_TENSOR_GLOBAL)) return false;
  return (!rule->if_field || *(const bool *)(at + rule->if_field)) &&
         !(rule->unless_field && *(const bool *)(at + rule->unless_field));
}

/* Units of the MLP that a weight belongs to. */
static int64_t units_of(const tri_model_config *c, tri_weight_id id, int layer) {
  switch (id) {
  case TRI_W_EXPERT_UP:
  case TRI_W_EXPERT_UP_BIAS:
  case TRI_W_EXPERT_DOWN: return c->moe.intermediate_size;
  case TRI_W_SHARED_UP:
  case TRI_W_SHARED_DOWN: return c->moe.shared_size;
  default: return tri_layer_units(c, layer);
  }
}

/* Returns the rows of the whole tensor: those of its part of a fused weight, or of the weight itself. Vectors are a
 * column. */
static int64_t full_rows(const tri_model_config *c, const tri_tensor_rule *rule, int layer) {
  tri_head_sizes heads = tri_layer_heads(c, layer);
  int64_t d = heads.dim;
  switch (rule->part) {
  case TRI_PART_Q: return heads.num * d;
  case TRI_PART_K: return heads.num_kv * d;
  case TRI_PART_V: return heads.num_kv * tri_value_dim(c, layer);
  case TRI_PART_QKV_CONCAT:
  case TRI_PART_QKV_INTERLEAVED: return (heads.num + 2 * heads.num_kv) * d;
  case TRI_PART_GATE:
  case TRI_PART_UP: return units_of(c, rule->weight, layer);
  case TRI_PART_GATE_UP_CONCAT:
  case TRI_PART_UP_GATE_CONCAT:
  case TRI_PART_GATE_UP_INTERLEAVED: return 2 * units_of(c, rule->weight, layer);
  case TRI_PART_LATENT_Q: return c->mla.q_rank;
  case TRI_PART_LATENT_KV: return c->mla.rank + c->mla.rope_dim;
  case TRI_PART_KEY_UP: return c->mla.rank;
  case TRI_PART_VALUE_UP: return c->attention.num_heads * (c->mla.nope_dim + c->mla.v_dim);
  case TRI_PART_WHOLE: break;
  }
  switch (rule->weight) {
  case TRI_W_EMBED:
  case TRI_W_LAYER_EMBED:
  case TRI_W_HEAD:
  case TRI_W_HEAD_BIAS: return c->vocab_size;
  case TRI_W_LAYER_PROJECT: return c->num_layers * c->embed.layer_width;
  case TRI_W_LAYER_PROJECT_NORM:
  case TRI_W_INPUT_GATE: return c->embed.layer_width;
  case TRI_W_POSITIONS: return positions_of(c);
  case TRI_W_TYPES: return c->embed.type_vocab_size;
  case TRI_W_EMBED_NORM:
  case TRI_W_EMBED_NORM_BIAS: return entrance_width(c);
  case TRI_W_CLASSIFIER: return c->head.num_class_tokens ? c->vocab_size : c->head.num_labels;
  case TRI_W_CLASSIFIER_BIAS: return c->head.num_labels;
  case TRI_W_DENSE1:
  case TRI_W_DENSE1_BIAS: return c->sentence.dense[0].out;
  case TRI_W_DENSE2:
  case TRI_W_DENSE2_BIAS: return c->sentence.dense[1].out;
  case TRI_W_PROJECT_OUT: return c->embed.size;
  case TRI_W_UP:
  case TRI_W_UP_BIAS:
  case TRI_W_EXPERT_UP:
  case TRI_W_EXPERT_UP_BIAS:
  case TRI_W_SHARED_UP: return units_of(c, rule->weight, layer);
  case TRI_W_Q_NORM: return c->attention.qk_norm == TRI_QK_NORM_HEAD ? d : heads.num * d;
  case TRI_W_K_NORM: return c->attention.qk_norm == TRI_QK_NORM_HEAD ? d : heads.num_kv * d;
  case TRI_W_SINKS:
  case TRI_W_ATTENTION_GATE: return heads.num;
  case TRI_W_RELATIVE_BIAS: return c->attention.bias_buckets;
  case TRI_W_Q_B:
  case TRI_W_CROSS_Q:
  case TRI_W_CROSS_Q_BIAS: return c->attention.num_heads * d;
  case TRI_W_ROUTER:
  case TRI_W_ROUTER_BIAS:
  case TRI_W_EXPERT_SCALE:
  case TRI_W_CHOICE_BIAS: return c->moe.num_experts;
  case TRI_W_LAYER_SCALE:
  case TRI_W_SHARED_GATE: return 1;
  case TRI_W_Q_A_NORM: return c->mla.q_rank;
  case TRI_W_KV_A_NORM: return c->mla.rank;
  case TRI_W_K_UP: return c->attention.num_heads * c->mla.rank;
  case TRI_W_V_UP: return c->attention.num_heads * c->mla.v_dim;
  default: return c->hidden_size;
  }
}

tri_weight_shape tri_rule_full_shape(const tri_model_config *c, const tri_tensor_rule *rule, int layer) {
  tri_weight_shape full = {full_rows(c, rule, layer), c->hidden_size, false};
  switch (rule->weight) {
  case TRI_W_EMBED:
  case TRI_W_HEAD:
  case TRI_W_PROJECT_IN: full.k = c->embed.size; break;
  case TRI_W_POSITIONS:
  case TRI_W_TYPES: full.k = entrance_width(c); break;
  case TRI_W_PROJECT_OUT:
  case TRI_W_POOLER:
  case TRI_W_CLASSIFIER:
  case TRI_W_QKV:
  case TRI_W_ATTENTION_GATE:
  case TRI_W_UP:
  case TRI_W_ROUTER:
  case TRI_W_EXPERT_UP:
  case TRI_W_SHARED_UP:
  case TRI_W_SHARED_GATE:
  case TRI_W_QKV_A:
  case TRI_W_CROSS_Q:
  case TRI_W_CROSS_KV:
  case TRI_W_LAYER_PROJECT:
  case TRI_W_INPUT_GATE: break;
  case TRI_W_DENSE1: full.k = c->sentence.dense[0].in; break;
  case TRI_W_DENSE2: full.k = c->sentence.dense[1].in; break;
  case TRI_W_RELATIVE_BIAS: full.k = c->attention.num_heads; break;
  case TRI_W_Q_B: full.k = c->mla.low_rank_q ? c->mla.q_rank : c->hidden_size; break;
  case TRI_W_K_UP: /* the transpose of a tensor that has the values', too */
    full.k = rule->part == TRI_PART_WHOLE ? c->mla.nope_dim : c->attention.num_heads * (c->mla.nope_dim + c->mla.v_dim);
    break;
  case TRI_W_V_UP: full.k = c->mla.rank; break;
  case TRI_W_O:
  case TRI_W_CROSS_O: full.k = tri_layer_heads(c, layer).num * tri_value_dim(c, layer); break;
  case TRI_W_DOWN:
  case TRI_W_EXPERT_DOWN:
  case TRI_W_SHARED_DOWN: full.k = units_of(c, rule->weight, layer); break;
  case TRI_W_LAYER_EMBED: full.k = c->num_layers * c->embed.layer_width; break;
  case TRI_W_INPUT_PROJECT: full.k = c->embed.layer_width; break;
  default:
    full.k = 1;
    full.vector = true;
    break;
  }
  return full;
}

/* ---- the rectangles of a tensor that a shard has ---- */

/* Returns the first row of a head in a QKV tensor; which: 0 q, 1 k, 2 v. */
static int64_t qkv_row(tri_head_sizes heads, tri_part part, int which, int64_t head) {
  int64_t d = heads.dim, group = heads.num / heads.num_kv;
  if (part == TRI_PART_QKV_INTERLEAVED) {
    int64_t kv_head = which ? head : head / group, within = which ? group + which - 1 : head % group;
    return (kv_head * (group + 2) + within) * d;
  }
  const int64_t before[] = {0, heads.num, heads.num + heads.num_kv};
  return ((part == TRI_PART_QKV_CONCAT ? before[which] : 0) + head) * d; /* else a tensor of its own */
}

/* The receiver of rectangles, kept together. */
struct emit {
  tri_status (*fn)(void *, const tri_slice *);
  void *ctx;
};

static tri_status emit_rows(const struct emit *e, int64_t src, int64_t dst, int64_t rows, int64_t cols) {
  tri_slice s = {.src_row = src, .dst_row = dst, .rows = rows, .cols = cols, .row_step = 1};
  return rows ? e->fn(e->ctx, &s) : TRI_OK;
}

static tri_status emit_qkv(const tri_model_config *c, const tri_shard *s, tri_part part, int layer, int64_t cols,
                           const struct emit *e) {
  tri_head_sizes sizes = tri_layer_heads(c, layer);
  tri_range q_heads = tri_shard_q_heads(c, s, layer), kv_heads = tri_shard_new_kv_heads(c, s, layer);
  int64_t dst[3] = {0, q_heads.count * sizes.dim, (q_heads.count + (int64_t)kv_heads.count) * sizes.dim};
  for (int p = 0; p < 3; p++) {
    if ((part == TRI_PART_Q && p != 0) || (part == TRI_PART_K && p != 1) || (part == TRI_PART_V && p != 2)) continue;
    tri_range heads = p ? kv_heads : q_heads;
    int64_t d = p == 2 ? tri_value_dim(c, layer) : sizes.dim; /* in a tensor of their own where that is another */
    tri_head_sizes of = {sizes.num, sizes.num_kv, d};
    /* Heads that follow one another are one rectangle. */
    for (int i = 0, run; i < heads.count; i += run) {
      int64_t at = qkv_row(of, part, p, heads.first + i);
      for (run = 1; i + run < heads.count && qkv_row(of, part, p, heads.first + i + run) == at + run * d;) run++;
      TRI_CHECK(emit_rows(e, at, dst[p] + i * d, run * d, cols));
    }
  }
  return TRI_OK;
}

/* Rows of the head for the vocabulary, or of the whole tensor. */
static tri_status emit_classifier(const tri_model_config *c, tri_weight_shape mine, const struct emit *e) {
  if (!c->head.num_class_tokens) return emit_rows(e, 0, 0, mine.n, mine.k);
  for (int64_t i = 0; i < mine.n; i++) TRI_CHECK(emit_rows(e, c->head.class_tokens[i], i, 1, mine.k));
  return TRI_OK;
}

/* Keys or values of all local heads, the keys first. */
static tri_status emit_cross_kv(const tri_model_config *c, const tri_shard *s, tri_part part, int64_t cols,
                                const struct emit *e) {
  int64_t d = c->attention.head_dim, rows = s->kv_heads.count * d;
  return emit_rows(e, s->kv_heads.first * d, part == TRI_PART_V ? rows : 0, rows, cols);
}

/* Rows of gates and ups of an MLP: `part` of its tensor, of whose `size` units this shard has `mine`, to rows from dst
 * on. */
static tri_status emit_up(bool gated, int64_t size, tri_range mine, tri_part part, int64_t cols, int64_t dst,
                          const struct emit *e) {
  int64_t up_dst = dst + (gated ? mine.count : 0);
  if (part == TRI_PART_GATE_UP_INTERLEAVED) {
    tri_slice s = {.src_row = 2 * (int64_t)mine.first, .dst_row = dst, .rows = mine.count, .cols = cols, .row_step = 2};
    TRI_CHECK(e->fn(e->ctx, &s));
    s.src_row++;
    s.dst_row = up_dst;
    return e->fn(e->ctx, &s);
  }
  bool gate = part == TRI_PART_GATE || part == TRI_PART_GATE_UP_CONCAT || part == TRI_PART_UP_GATE_CONCAT,
       up = part != TRI_PART_GATE;
  if (gate) TRI_CHECK(emit_rows(e, mine.first + (part == TRI_PART_UP_GATE_CONCAT ? size : 0), dst, mine.count, cols));
  if (!up) return TRI_OK;
  return emit_rows(e, mine.first + (part == TRI_PART_GATE_UP_CONCAT ? size : 0), up_dst, mine.count, cols);
}

/* The parts of the up-projection of keys and values: head by head, the keys' turned; or those of a tensor of its own.
 */
static tri_status emit_latent(const tri_model_config *c, const tri_shard *s, const tri_tensor_rule *rule,
                              const struct emit *e) {
  const tri_mla *m = &c->mla;
  bool of_keys = rule->weight == TRI_W_K_UP;
  if (rule->part == TRI_PART_WHOLE) {
    int64_t rows = of_keys ? m->rank : m->v_dim;
    return emit_rows(e, s->q_heads.first * rows, 0, s->q_heads.count * rows, of_keys ? m->nope_dim : m->rank);
  }
  for (int i = 0; i < s->q_heads.count; i++) {
    int64_t at = (s->q_heads.first + i) * (m->nope_dim + m->v_dim);
    tri_slice keys = {.src_col = at, .dst_row = i * m->rank, .rows = m->rank, .cols = m->nope_dim, .row_step = 1};
    tri_slice values = {
        .src_row = at + m->nope_dim, .dst_row = i * m->v_dim, .rows = m->v_dim, .cols = m->rank, .row_step = 1};
    TRI_CHECK(e->fn(e->ctx, of_keys ? &keys : &values));
  }
  return TRI_OK;
}

tri_status tri_shard_slices(const tri_model_config *c, const tri_shard *s, const tri_tensor_rule *rule, int layer,
                            int slot, tri_status (*fn)(void *ctx, const tri_slice *slice), void *ctx) {
  tri_weight_shape mine = tri_shard_weight_shape(c, s, rule->weight, layer);
  int64_t d = tri_layer_heads(c, layer).dim;
  tri_range units = tri_shard_units(c, s, layer), q_heads = tri_shard_q_heads(c, s, layer);
  struct emit e = {fn, ctx};
  tri_slice slice = {.rows = mine.n, .cols = mine.k, .row_step = 1};
  if (!mine.n) return TRI_OK;
  int64_t slots = s->slots.count;
  if (tri_weight_is_of_experts(rule->weight) && (slot < 0 || slot >= slots)) return TRI_OK;
  switch (rule->weight) {
  case TRI_W_QKV:
  case TRI_W_QKV_BIAS: return emit_qkv(c, s, rule->part, layer, mine.k, &e);
  case TRI_W_UP:
  case TRI_W_UP_BIAS: return emit_up(c->mlp.gated, tri_layer_units(c, layer), units, rule->part, mine.k, 0, &e);
  case TRI_W_SHARED_UP: return emit_up(c->mlp.gated, c->moe.shared_size, s->shared_ff, rule->part, mine.k, 0, &e);
  case TRI_W_EXPERT_UP:
  case TRI_W_EXPERT_UP_BIAS:
    return emit_up(c->mlp.gated, c->moe.intermediate_size, s->expert_ff, rule->part, mine.k, slot * (mine.n / slots),
                   &e);
  case TRI_W_EXPERT_DOWN:
  case TRI_W_EXPERT_DOWN_BIAS:
    if (rule->weight == TRI_W_EXPERT_DOWN) slice.src_col = s->expert_ff.first;
    slice.rows = mine.n / slots;
    slice.dst_row = slot * slice.rows;
    break;
  case TRI_W_SHARED_DOWN: slice.src_col = s->shared_ff.first; break;
  case TRI_W_EMBED:
  case TRI_W_LAYER_EMBED:
  case TRI_W_HEAD:
  case TRI_W_HEAD_BIAS: return emit_rows(&e, s->vocab.first, 0, s->vocab.count, mine.k);
  case TRI_W_Q_NORM: slice.src_row = c->attention.qk_norm == TRI_QK_NORM_HEAD ? 0 : q_heads.first * d; break;
  case TRI_W_K_NORM:
    slice.src_row = c->attention.qk_norm == TRI_QK_NORM_HEAD ? 0 : tri_shard_kv_heads(c, s, layer).first * d;
    break;
  case TRI_W_SINKS:
  case TRI_W_ATTENTION_GATE: slice.src_row = q_heads.first; break;
  case TRI_W_RELATIVE_BIAS: slice.src_col = s->q_heads.first; break;
  case TRI_W_Q_B:
  case TRI_W_CROSS_Q:
  case TRI_W_CROSS_Q_BIAS: slice.src_row = q_heads.first * d; break;
  case TRI_W_QKV_A:
    slice.dst_row = rule->part == TRI_PART_LATENT_KV ? c->mla.q_rank : 0;
    slice.rows = full_rows(c, rule, layer);
    break;
  case TRI_W_CLASSIFIER: return emit_classifier(c, mine, &e);
  case TRI_W_CROSS_KV:
  case TRI_W_CROSS_KV_BIAS: return emit_cross_kv(c, s, rule->part, mine.k, &e);
  case TRI_W_CROSS_O:
  case TRI_W_O: slice.src_col = q_heads.first * tri_value_dim(c, layer); break;
  case TRI_W_K_UP:
  case TRI_W_V_UP: return emit_latent(c, s, rule, &e);
  case TRI_W_DOWN: slice.src_col = units.first; break;
  default: break;
  }
  return fn(ctx, &slice);
}
