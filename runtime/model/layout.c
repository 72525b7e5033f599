/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/layout.h"

int tri_stage_slots(const tri_model_config *c, tri_parallel p) { return tri_expert_slots(p.placement, c); }

/* Shares that follow one another lie in one shard, as etp divides tp. */
tri_range tri_dp_shard_slots(const tri_model_config *c, tri_parallel p, int dp_rank) {
  int ep = tri_parallel_ep(p), slots = tri_stage_slots(c, p), shares = p.tp / tri_parallel_etp(p);
  tri_range from = tri_range_part(slots, ep, dp_rank * shares),
            last = tri_range_part(slots, ep, dp_rank * shares + shares - 1);
  return (tri_range){from.first, last.first + last.count - from.first};
}

/* Refuses shares of experts that the ranks of a stage cannot hold. */
static tri_status check_experts(const tri_model_config *c, tri_parallel p, tri_error *err) {
  int dp = tri_parallel_dp(p), ep = tri_parallel_ep(p), etp = tri_parallel_etp(p);
  int64_t experts = c->moe.num_experts, slots = tri_stage_slots(c, p);
  if (dp < 1 || p.dp_rank < 0 || p.dp_rank >= dp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "rank", "rank outside the layout");
  if (dp > 1 && (c->encoder || c->feeds_decoder || c->seq2seq.on))
    return tri_fail(err, TRI_UNSUPPORTED, "data_parallel_size",
                    "only decoders have shards in a group, and %s is none: groups of their own are its replicas",
                    c->arch->model_type);
  if (!experts && ep > 1)
    return tri_fail(err, TRI_UNSUPPORTED, "expert_parallel_size",
                    "the model has no experts to be shared by %d ranks: expert_parallel_size must be 1", ep);
  if (ep < 1 || (int64_t)ep * etp != (int64_t)dp * p.tp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "expert_parallel_size",
                    "expert-parallel %d x expert slices %d is not data-parallel %d x tensor-parallel %d", ep, etp, dp,
                    p.tp);
  if (experts && p.tp % etp)
    return tri_fail(
        err, TRI_OUT_OF_RANGE, "expert_parallel_size",
        "experts in %d slices (data-parallel %d x tensor-parallel %d / expert-parallel %d): the slices must "
        "divide tensor-parallel %d",
        etp, dp, p.tp, ep, p.tp);
  if (experts && ep > slots)
    return tri_fail(err, TRI_OUT_OF_RANGE, "expert_parallel_size",
                    "%d shares of %lld experts: -ep can be %lld at most, its shares then have slices of experts", ep,
                    (long long)slots, (long long)slots);
  if (experts && etp > c->moe.intermediate_size)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size", "%d slices of an expert of %lld units", etp,
                    (long long)c->moe.intermediate_size);
  if (experts && c->moe.has_shared && p.tp > c->moe.shared_size)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size",
                    "%d tensor ranks exceed the shared expert's intermediate size", p.tp);
  return TRI_OK;
}

bool tri_layer_experts_on_host(const tri_model_config *c, tri_parallel p, int layer) {
  int before = 0;
  if (!p.host_experts || !(c->layer_flags[layer] & TRI_LAYER_SPARSE)) return false;
  for (int l = 0; l < layer; l++) before += (c->layer_flags[l] & TRI_LAYER_SPARSE) != 0;
  return before < p.host_experts;
}

bool tri_shard_narrows(const tri_model_config *c, const tri_shard *s) {
  bool decodes = !c->encoder && !c->feeds_decoder && !c->seq2seq.on;
  return s->last_stage && decodes && !c->norm.parallel_residual && !tri_shards_exchange(c, s->p);
}

/* Returns a rank's part of an MLP's units. Kernels read them in vectors and tiles, so that parts which do not come out
 * even are cut between as many units as leave them equal to a sixteenth. */
static tri_range part_of_units(int64_t n, int parts, int rank) {
  enum { TILE = 64, VECTOR = 8, EQUAL = 16 };
  int64_t each = n / parts, piece = TILE;
  while (piece >= VECTOR && EQUAL * piece > each) piece /= 2;
  if (piece < VECTOR || (n % parts == 0 && each % VECTOR == 0)) return tri_range_part(n, parts, rank);
  tri_range p = tri_range_part((n + piece - 1) / piece, parts, rank);
  int64_t first = p.first * piece, end = first + p.count * piece;
  return (tri_range){(int)first, (int)((end < n ? end : n) - first)};
}

tri_status tri_shard_make(const tri_model_config *c, tri_parallel p, tri_shard *out, tri_error *err) {
  if (p.tp < 1 || p.tp > c->attention.num_heads)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size",
                    "-tp %d: %lld attention heads can be shared by 1 to %lld tensor ranks", p.tp,
                    (long long)c->attention.num_heads, (long long)c->attention.num_heads);
  if (p.tp > c->mlp.intermediate_size || p.tp > c->vocab_size)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size",
                    "-tp %d exceeds the intermediate or the vocabulary size", p.tp);
  if (p.pp < 1 || p.pp > c->num_layers)
    return tri_fail(err, TRI_OUT_OF_RANGE, "pipeline_parallel_size",
                    "-pp %d: %lld layers can be cut into 1 to %lld pipeline stages", p.pp, (long long)c->num_layers,
                    (long long)c->num_layers);
  if (p.pp > 1 && (c->seq2seq.on || c->feeds_decoder))
    return tri_fail(err, TRI_UNSUPPORTED, "pipeline_parallel_size",
                    "an encoder-decoder is not cut into stages: pipeline_parallel_size must be 1");
  if (p.tp_rank < 0 || p.tp_rank >= p.tp || p.pp_rank < 0 || p.pp_rank >= p.pp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "rank", "rank outside the layout");
  TRI_CHECK(check_experts(c, p, err));
  int etp = tri_parallel_etp(p), s = tri_parallel_stage_rank(p);
  int group = (int)(c->attention.num_heads / c->attention.num_kv_heads);
  tri_range q = tri_range_part(c->attention.num_heads, p.tp, p.tp_rank);
  int kv_first = q.first / group, kv_end = (q.first + q.count - 1) / group + 1;
  *out = (tri_shard){
      .p = p,
      .first_stage = p.pp_rank == 0,
      .last_stage = p.pp_rank == p.pp - 1,
      .layers = tri_stage_layers(c, p, p.pp_rank),
      .q_heads = q,
      .kv_heads = {kv_first, kv_end - kv_first},
      .ff = part_of_units(c->mlp.intermediate_size, p.tp, p.tp_rank),
      .slots = tri_range_part(tri_stage_slots(c, p), tri_parallel_ep(p), s / etp),
      .expert_ff = part_of_units(c->moe.intermediate_size, etp, s % etp),
      .shared_ff = part_of_units(c->moe.shared_size, p.tp, p.tp_rank),
      .vocab = tri_range_part(c->vocab_size, p.tp, p.tp_rank),
  };
  return TRI_OK;
}

/* Returns the first row of a head in a QKV tensor; which: 0 q, 1 k, 2 v. */
static int64_t qkv_row(const tri_model_config *c, tri_part part, int which, int64_t head) {
  int64_t d = c->attention.head_dim, group = c->attention.num_heads / c->attention.num_kv_heads;
  if (part == TRI_PART_QKV_INTERLEAVED) {
    int64_t kv_head = which ? head : head / group, within = which ? group + which - 1 : head % group;
    return (kv_head * (group + 2) + within) * d;
  }
  const int64_t before[] = {0, c->attention.num_heads, c->attention.num_heads + c->attention.num_kv_heads};
  return ((part == TRI_PART_QKV_CONCAT ? before[which] : 0) + head) * d; /* else a tensor of its own */
}

struct emit {
  tri_status (*fn)(void *, const tri_slice *);
  void *ctx;
};

static tri_status emit_rows(const struct emit *e, int64_t src, int64_t dst, int64_t rows, int64_t cols) {
  tri_slice s = {.src_row = src, .dst_row = dst, .rows = rows, .cols = cols, .row_step = 1};
  return rows ? e->fn(e->ctx, &s) : TRI_OK;
}

static tri_status emit_qkv(const tri_model_config *c, const tri_shard *s, tri_part part, int64_t cols,
                           const struct emit *e) {
  int64_t d = c->attention.head_dim;
  int64_t dst[3] = {0, s->q_heads.count * d, (s->q_heads.count + (int64_t)s->kv_heads.count) * d};
  for (int p = 0; p < 3; p++) {
    if ((part == TRI_PART_Q && p != 0) || (part == TRI_PART_K && p != 1) || (part == TRI_PART_V && p != 2)) continue;
    tri_range heads = p ? s->kv_heads : s->q_heads;
    /* Heads that follow one another are one rectangle. */
    for (int i = 0, run; i < heads.count; i += run) {
      int64_t at = qkv_row(c, part, p, heads.first + i);
      for (run = 1; i + run < heads.count && qkv_row(c, part, p, heads.first + i + run) == at + run * d;) run++;
      tri_status st = emit_rows(e, at, dst[p] + i * d, run * d, cols);
      if (st != TRI_OK) return st;
    }
  }
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
  tri_status st = TRI_OK;
  int64_t up_dst = dst + (gated ? mine.count : 0);
  if (part == TRI_PART_GATE_UP_INTERLEAVED) {
    tri_slice s = {.src_row = 2 * (int64_t)mine.first, .dst_row = dst, .rows = mine.count, .cols = cols, .row_step = 2};
    st = e->fn(e->ctx, &s);
    s.src_row++;
    s.dst_row = up_dst;
    return st == TRI_OK ? e->fn(e->ctx, &s) : st;
  }
  bool gate = part == TRI_PART_GATE || part == TRI_PART_GATE_UP_CONCAT, up = part != TRI_PART_GATE;
  if (gate) st = emit_rows(e, mine.first, dst, mine.count, cols);
  if (st == TRI_OK && up)
    st = emit_rows(e, mine.first + (part == TRI_PART_GATE_UP_CONCAT ? size : 0), up_dst, mine.count, cols);
  return st;
}

/* The parts of the up-projection of keys and values: head by head, the keys' turned. */
static tri_status emit_latent(const tri_model_config *c, const tri_shard *s, tri_weight_id id, const struct emit *e) {
  const tri_mla *m = &c->mla;
  for (int i = 0; i < s->q_heads.count; i++) {
    int64_t at = (s->q_heads.first + i) * (m->nope_dim + m->v_dim);
    tri_slice keys = {.src_col = at, .dst_row = i * m->rank, .rows = m->rank, .cols = m->nope_dim, .row_step = 1};
    tri_slice values = {
        .src_row = at + m->nope_dim, .dst_row = i * m->v_dim, .rows = m->v_dim, .cols = m->rank, .row_step = 1};
    tri_status st = e->fn(e->ctx, id == TRI_W_K_UP ? &keys : &values);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

static bool is_of_experts(tri_weight_id id) {
  return id == TRI_W_EXPERT_UP || id == TRI_W_EXPERT_UP_BIAS || id == TRI_W_EXPERT_DOWN || id == TRI_W_EXPERT_DOWN_BIAS;
}

tri_status tri_shard_slices(const tri_model_config *c, const tri_shard *s, const tri_tensor_rule *rule, int slot,
                            tri_status (*fn)(void *ctx, const tri_slice *slice), void *ctx) {
  tri_weight_shape mine = tri_shard_weight_shape(c, s, rule->weight);
  struct emit e = {fn, ctx};
  tri_slice slice = {.rows = mine.n, .cols = mine.k, .row_step = 1};
  if (!mine.n) return TRI_OK;
  int64_t slots = s->slots.count;
  if (is_of_experts(rule->weight) && (slot < 0 || slot >= slots)) return TRI_OK;
  switch (rule->weight) {
  case TRI_W_QKV:
  case TRI_W_QKV_BIAS: return emit_qkv(c, s, rule->part, mine.k, &e);
  case TRI_W_UP:
  case TRI_W_UP_BIAS: return emit_up(c->mlp.gated, c->mlp.intermediate_size, s->ff, rule->part, mine.k, 0, &e);
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
  case TRI_W_HEAD:
  case TRI_W_HEAD_BIAS: return emit_rows(&e, s->vocab.first, 0, s->vocab.count, mine.k);
  case TRI_W_Q_NORM:
    slice.src_row = c->attention.qk_norm == TRI_QK_NORM_HEAD ? 0 : s->q_heads.first * c->attention.head_dim;
    break;
  case TRI_W_K_NORM:
    slice.src_row = c->attention.qk_norm == TRI_QK_NORM_HEAD ? 0 : s->kv_heads.first * c->attention.head_dim;
    break;
  case TRI_W_SINKS: slice.src_row = s->q_heads.first; break;
  case TRI_W_RELATIVE_BIAS: slice.src_col = s->q_heads.first; break;
  case TRI_W_Q_B:
  case TRI_W_CROSS_Q:
  case TRI_W_CROSS_Q_BIAS: slice.src_row = s->q_heads.first * c->attention.head_dim; break;
  case TRI_W_CROSS_KV:
  case TRI_W_CROSS_KV_BIAS: return emit_cross_kv(c, s, rule->part, mine.k, &e);
  case TRI_W_CROSS_O:
  case TRI_W_O: slice.src_col = s->q_heads.first * tri_value_dim(c); break;
  case TRI_W_K_UP:
  case TRI_W_V_UP: return emit_latent(c, s, rule->weight, &e);
  case TRI_W_DOWN: slice.src_col = s->ff.first; break;
  default: break;
  }
  return fn(ctx, &slice);
}
