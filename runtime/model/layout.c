/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/layout.h"

/* ---- the cuts between stages ---- */

/* Bytes by which the largest stage may grow so that all have as much to do: of a model to which that is much, stages
 * are cut by their memory instead. */
static const double MEMORY_FOR_BALANCE = 512.0 * 1024 * 1024;

bool tri_weight_is_quantized(const tri_model_config *c, tri_weight_id id) {
  return tri_weight_is_linear(id) && !(id == TRI_W_HEAD && c->head.tie_word_embeddings);
}

/* Bytes of a weight of the whole model, or of its first or last stage; matrices count as of 16 bits. In double, which
 * is exact up to 2^53 and the same on every rank. */
static double weight_bytes(const tri_model_config *c, const tri_shard *s, tri_weight_id id, int layer, bool quantized) {
  tri_weight_shape shape = tri_shard_weight_shape(c, s, id, layer);
  double size = quantized && tri_weight_is_quantized(c, id) ? 1 : 2;
  return (double)shape.n * (double)shape.k * (shape.vector ? sizeof(float) : size);
}

/* Bytes of what a stage has in addition to its layers. */
static double end_bytes(const tri_model_config *c, tri_shard s, bool first, bool last, bool quantized) {
  double sum = 0;
  s.first_stage = first;
  s.last_stage = last;
  for (int id = 0; id < TRI_W_COUNT; id++)
    if (!tri_weight_is_per_layer((tri_weight_id)id)) sum += weight_bytes(c, &s, (tri_weight_id)id, 0, quantized);
  return sum;
}

static double layer_bytes(const tri_model_config *c, const tri_shard *s, int layer, bool quantized) {
  double sum = 0;
  for (int id = 0; id < TRI_W_COUNT; id++)
    if (tri_weight_is_per_layer((tri_weight_id)id) && tri_weight_in_layer(c, (tri_weight_id)id, layer))
      sum += weight_bytes(c, s, (tri_weight_id)id, layer, quantized);
  return sum;
}

/* The share of a tensor group of one, whose weights are the model's. */
static tri_shard whole(const tri_model_config *c) {
  return (tri_shard){.p = {.tp = 1, .pp = 1},
                     .q_heads = tri_range_part(c->attention.num_heads, 1, 0),
                     .kv_heads = tri_range_part(c->attention.num_kv_heads, 1, 0),
                     .global_q_heads = tri_range_part(c->attention.global_heads, 1, 0),
                     .global_kv_heads = tri_range_part(c->attention.global_kv_heads, 1, 0),
                     .ff = tri_range_part(c->mlp.intermediate_size, 1, 0),
                     .shared_kv_ff = tri_range_part(c->mlp.shared_kv_size, 1, 0),
                     .slots = {0, (int)c->moe.num_experts},
                     .expert_ff = tri_range_part(c->moe.intermediate_size, 1, 0),
                     .shared_ff = tri_range_part(c->moe.shared_size, 1, 0),
                     .vocab = tri_range_part(c->vocab_size, 1, 0)};
}

/* Bytes of the first stage and of the last in addition to their layers. */
struct ends {
  double first, last;
};

/* Returns the last layer that a stage may begin with: none after it reads keys and values of one before it. */
static int last_first_layer(const tri_model_config *c) {
  int last = (int)c->num_layers - 1;
  for (int l = 0; l < c->num_layers; l++)
    if (tri_kv_source(c, l) != l && tri_kv_source(c, l) < last) last = tri_kv_source(c, l);
  return last;
}

/* The layers of a stage where stages come closest to equal parts of the layers' bytes and these. */
static tri_range cut_stage(const tri_model_config *c, tri_parallel p, struct ends ends, int stage) {
  int layers = (int)c->num_layers, last = last_first_layer(c), cut = 0, first = 0;
  tri_shard s = whole(c);
  double at = ends.first, total = ends.first + ends.last;
  for (int l = 0; l < layers; l++) total += layer_bytes(c, &s, l, p.quantized);
  for (int k = 1; k <= stage + 1; k++) {
    double target = total / p.pp * k;
    int least = cut + 1, most = k == p.pp ? layers : last + 1 - (p.pp - k);
    first = cut;
    if (k == p.pp) cut = layers;
    while (cut < most) {
      double next = at + layer_bytes(c, &s, cut, p.quantized);
      if (cut >= least && next - target > target - at) break;
      at = next;
      cut++;
    }
  }
  return (tri_range){first, cut - first};
}

/* Bytes of the largest stage when they are cut by `by`. */
static double largest_stage(const tri_model_config *c, tri_parallel p, struct ends by, struct ends bytes) {
  tri_shard s = whole(c);
  double most = 0;
  for (int k = 0; k < p.pp; k++) {
    tri_range r = cut_stage(c, p, by, k);
    double sum = 0;
    if (k == 0) sum += bytes.first;
    if (k == p.pp - 1) sum += bytes.last;
    for (int l = r.first; l < r.first + r.count; l++) sum += layer_bytes(c, &s, l, p.quantized);
    if (sum > most) most = sum;
  }
  return most;
}

tri_range tri_stage_layers(const tri_model_config *c, tri_parallel p, int stage) {
  if (p.pp == 1 || c->shared_layers)
    return tri_range_part((int)c->num_layers, p.pp, stage); /* shared: every stage has all bytes */
  tri_shard s = whole(c);
  struct ends bytes = {end_bytes(c, s, true, false, p.quantized), end_bytes(c, s, false, true, p.quantized)};
  /* A step reads all of the head, and a few rows of the embedding's tables. */
  struct ends work = {.last = bytes.last};
  bool small = largest_stage(c, p, work, bytes) <= largest_stage(c, p, bytes, bytes) + MEMORY_FOR_BALANCE;
  return cut_stage(c, p, small ? work : bytes, stage);
}

/* ---- a rank's share ---- */

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
                    "only decoders can have data-parallel ranks in a replica, and %s is none: use --replicas",
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
  return s->last_stage && decodes && !c->norm.parallel_residual && !tri_dp_ranks_exchange(c, s->p);
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

/* Returns the KV heads that some query heads use, of so many of both kinds in the model; 0: there are none. */
static tri_range kv_heads_of(tri_range q, int64_t num_heads, int64_t num_kv_heads) {
  if (!num_kv_heads) return (tri_range){0};
  int group = (int)(num_heads / num_kv_heads);
  int first = q.first / group, end = (q.first + q.count - 1) / group + 1;
  return (tri_range){first, end - first};
}

/* Every rank has a head of each layer. */
static tri_status check_heads(const tri_model_config *c, tri_parallel p, tri_error *err) {
  int64_t heads = c->attention.num_heads, global = c->attention.global_heads;
  bool fewer = global && global < heads;
  if (fewer) heads = global;
  if (p.tp >= 1 && p.tp <= heads) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size",
                  "-tp %d: %lld attention heads%s can be shared by 1 to %lld tensor ranks", p.tp, (long long)heads,
                  fewer ? " of layers without a window" : "", (long long)heads);
}

tri_status tri_shard_make(const tri_model_config *c, tri_parallel p, tri_shard *out, tri_error *err) {
  TRI_CHECK(check_heads(c, p, err));
  if (p.tp > c->mlp.intermediate_size || p.tp > c->vocab_size)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensor_parallel_size",
                    "-tp %d exceeds the intermediate or the vocabulary size", p.tp);
  if (p.pp < 1 || p.pp > c->num_layers)
    return tri_fail(err, TRI_OUT_OF_RANGE, "pipeline_parallel_size",
                    "-pp %d: %lld layers can be cut into 1 to %lld pipeline stages", p.pp, (long long)c->num_layers,
                    (long long)c->num_layers);
  if (p.pp > last_first_layer(c) + 1)
    return tri_fail(err, TRI_UNSUPPORTED, "pipeline_parallel_size",
                    "-pp %d: the last %lld layers read keys and values of earlier ones (num_kv_shared_layers), so that "
                    "all from layer %d on are one pipeline stage, and there can be %d",
                    p.pp, (long long)c->attention.shared_kv_layers, last_first_layer(c), last_first_layer(c) + 1);
  if (p.pp > 1 && (c->seq2seq.on || c->feeds_decoder))
    return tri_fail(err, TRI_UNSUPPORTED, "pipeline_parallel_size",
                    "an encoder-decoder is not cut into stages: pipeline_parallel_size must be 1");
  if (p.tp_rank < 0 || p.tp_rank >= p.tp || p.pp_rank < 0 || p.pp_rank >= p.pp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "rank", "rank outside the layout");
  TRI_CHECK(check_experts(c, p, err));
  int etp = tri_parallel_etp(p), s = tri_parallel_stage_rank(p);
  const tri_attention_config *a = &c->attention;
  tri_range q = tri_range_part(a->num_heads, p.tp, p.tp_rank),
            global = tri_range_part(a->global_heads, p.tp, p.tp_rank);
  *out = (tri_shard){
      .p = p,
      .first_stage = p.pp_rank == 0,
      .last_stage = p.pp_rank == p.pp - 1,
      .layers = tri_stage_layers(c, p, p.pp_rank),
      .q_heads = q,
      .kv_heads = kv_heads_of(q, a->num_heads, a->num_kv_heads),
      .global_q_heads = global,
      .global_kv_heads = kv_heads_of(global, a->global_heads, a->global_kv_heads),
      .ff = part_of_units(c->mlp.intermediate_size, p.tp, p.tp_rank),
      .shared_kv_ff = part_of_units(c->mlp.shared_kv_size, p.tp, p.tp_rank),
      .slots = tri_range_part(tri_stage_slots(c, p), tri_parallel_ep(p), s / etp),
      .expert_ff = part_of_units(c->moe.intermediate_size, etp, s % etp),
      .shared_ff = part_of_units(c->moe.shared_size, p.tp, p.tp_rank),
      .vocab = tri_range_part(c->vocab_size, p.tp, p.tp_rank),
  };
  return TRI_OK;
}
