/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a rank has and does from the map of its weights.
 *
 * The map of weights gives bytes, as the ledger counts them; operations are 2 n k for each token. Of ranks of a stage
 * the most in each term counts, for they wait for each other. */
#include "runtime/load/weights.h"
#include "runtime/cost/cost.h"

/* Ops of a layer that are launched one after the other, as runtime/forward/layer.c has them. Sums count by themselves,
 * and a shared expert runs concurrently with the router. */
static int layer_ops(const tri_model_config *c, bool sparse) {
  int norms = c->norm.one_norm ? 1 : 2;
  int attention = 4; /* product, positions and cache, attention, product */
  if (c->mla.on) attention += c->mla.low_rank_q ? 6 : 4;
  if (c->attention.qk_norm == TRI_QK_NORM_WHOLE) attention += 2;
  if (c->attention.head_gate) attention += 2; /* a product, and heads times their gates */
  int mlp = sparse ? 5 : 2;                   /* router, choice with its map, both products, sum of the choices */
  if (c->embed.layer_width) mlp += 4;         /* the stream is settled, a gated product and another */
  return attention + mlp + norms;
}

/* Elements of a token's rows that a layer's norms, positions and activations go through. */
static double layer_elements(const tri_model_config *c, const tri_shard *s, int layer, bool sparse) {
  int norms = c->norm.one_norm ? 1 : 2, of_branches = c->norm.place == TRI_NORM_BOTH ? 2 : 0;
  double kv_heads = tri_shard_new_kv_heads(c, s, layer).count, d = (double)tri_layer_heads(c, layer).dim;
  double heads = (tri_shard_q_heads(c, s, layer).count + 2 * kv_heads) * d;
  double units =
      sparse ? (double)c->moe.top_k * s->expert_ff.count + s->shared_ff.count : tri_shard_units(c, s, layer).count;
  if (c->embed.layer_width) norms++;
  return (norms + of_branches) * (double)c->hidden_size + heads + 3 * (double)c->embed.layer_width +
         units * (c->mlp.gated ? 2 : 1);
}

static int layer_sums(const tri_model_config *c) {
  int sums = c->norm.parallel_residual ? 1 : 2;
  return sums + (c->attention.qk_norm == TRI_QK_NORM_WHOLE);
}

/* Bytes of a weight's elements and scales. */
static double place_bytes(const tri_weight_place *at) { return (double)at->bytes + (double)at->scale_bytes; }

/* Takes a matrix for those that products are timed with. */
static void add_sample(const tri_weight_place *at, tri_weight_shape shape, tri_quantization q, tri_cost_share *out) {
  tri_cost_sample *s = &out->sample;
  enum { MOST_K = 8192 }; /* of longer sums a part takes as long as any other */
  int most = (int)(sizeof s->gemms / sizeof *s->gemms);
  if (s->num_gemms == most || shape.n > INT32_MAX) return;
  bool int8 = q == TRI_QUANTIZE_W8A8 && at->dtype == TRI_I8;
  s->gemms[s->num_gemms++] = (tri_gemm_sample){(int)shape.n, shape.k < MOST_K ? (int)shape.k : MOST_K, at->dtype, int8};
}

/* Returns whether a layer needs a matrix after attention alone. */
static bool is_behind_attention(tri_weight_id id) {
  return id == TRI_W_O || id == TRI_W_UP || id == TRI_W_DOWN || id == TRI_W_ROUTER || id == TRI_W_SHARED_UP ||
         id == TRI_W_SHARED_DOWN || id == TRI_W_SHARED_GATE || id == TRI_W_INPUT_GATE || id == TRI_W_INPUT_PROJECT;
}

/* Adds up one layer's matrices. Vectors are small, and stay in caches. */
static void add_layer(const tri_model_config *c, const tri_shard *s, const tri_weight_place *places, int layer,
                      tri_quantization quantization, tri_cost_share *out) {
  bool first = !out->sample.num_gemms, sparse = c->layer_flags[layer] & TRI_LAYER_SPARSE;
  bool on_host = tri_layer_experts_on_host(c, s->p, layer);
  bool is_last = tri_shard_narrows(c, s) && layer + 1 == s->layers.first + s->layers.count;
  double expert_bytes = 0, expert_flops = 0;
  for (int id = 0; id < TRI_W_COUNT; id++) {
    tri_weight_shape shape = tri_shard_weight_shape(c, s, (tri_weight_id)id, layer);
    bool table = id == TRI_W_RELATIVE_BIAS;
    if (shape.vector || !places[id].bytes || table) continue;
    double bytes = place_bytes(&places[id]), flops = 2 * (double)shape.n * (double)shape.k;
    if (tri_weight_is_of_experts((tri_weight_id)id)) {
      expert_bytes += bytes / s->slots.count;
      expert_flops += flops / s->slots.count;
    } else {
      if (first) add_sample(&places[id], shape, quantization, out);
      out->dense_bytes += bytes;
      out->dense_flops += flops;
      if (is_last && is_behind_attention((tri_weight_id)id)) out->last_flops += flops;
    }
  }
  if (sparse) {
    out->expert_bytes = expert_bytes;
    out->expert_flops = expert_flops;
  }
  out->sparse_layers += sparse && !on_host;
  out->last_sparse = is_last && sparse && !on_host;
  out->host_layers += on_host;
  out->local_layers += (c->layer_flags[layer] & TRI_LAYER_LOCAL) != 0;
  out->row_elements += layer_elements(c, s, layer, sparse);
  out->ops += layer_ops(c, sparse);
  out->sums += layer_sums(c);
}

/* The ends of a model: a lookup and its sum, the head with its norm and the sample. */
static void add_ends(const tri_model_config *c, const tri_shard *s, const tri_weight_map *m, tri_cost_share *out) {
  tri_weight_shape head = tri_shard_weight_shape(c, s, TRI_W_HEAD, 0);
  if (s->first_stage) {
    out->ops += 1;
    out->sums += 1;
  }
  if (!s->last_stage) return;
  out->head_bytes = place_bytes(&m->global[TRI_W_HEAD]);
  out->head_flops = 2 * (double)head.n * (double)head.k;
  out->ops += 3;
  out->sums += 1;
}

/* A key's and its value's bytes, and the operations of a query with both: a multiplication and an addition for each
 * element of either. A latent is both at once, for every head. */
static void add_keys(const tri_model_config *c, const tri_shard *s, tri_dtype kv, int layer, tri_cost_share *out) {
  bool local = c->layer_flags[layer] & TRI_LAYER_LOCAL;
  double size = (double)tri_dtype_size(kv), heads = tri_shard_q_heads(c, s, layer).count,
         d = (double)tri_layer_heads(c, layer).dim;
  double latent = (double)(c->mla.rank + c->mla.rope_dim), kv_heads = tri_shard_kv_heads(c, s, layer).count;
  double *bytes = local ? &out->local_key_bytes : &out->key_bytes;
  double *flops = local ? &out->local_key_flops : &out->key_flops;
  *bytes = c->mla.on ? latent * size : 2 * kv_heads * d * size;
  *flops = c->mla.on ? 2 * heads * (latent + (double)c->mla.rank) : 4 * heads * d;
}

static void most(double *a, double b) { *a = *a > b ? *a : b; }

tri_status tri_cost_share_add(const tri_model_config *c, const tri_shard *s, tri_dtype dtype,
                              tri_quantization quantization, tri_dtype kv, tri_cost_share *stage, tri_error *err) {
  tri_weight_map m;
  tri_cost_share own = {.layers = s->layers.count};
  if (s->p.hot_experts) own.hot_share = (double)s->p.hot_experts / s->slots.count;
  TRI_CHECK(tri_weight_map_make(c, s, NULL, dtype, quantization, NULL, &m, err));
  for (int l = 0; l < s->layers.count; l++) {
    add_layer(c, s, m.layers + l * TRI_W_COUNT, s->layers.first + l, quantization, &own);
    add_keys(c, s, kv, s->layers.first + l, &own);
  }
  add_ends(c, s, &m, &own);
  own.sample.hidden = (int)c->hidden_size;
  own.sample.q_heads = tri_shard_q_heads(c, s, s->layers.first).count;
  own.sample.kv_heads = tri_shard_kv_heads(c, s, s->layers.first).count;
  own.sample.head_dim = c->mla.on ? 0 : (int)tri_layer_heads(c, s->layers.first).dim;
  tri_weight_map_free(&m);
  most(&stage->dense_bytes, own.dense_bytes);
  most(&stage->dense_flops, own.dense_flops);
  most(&stage->last_flops, own.last_flops);
  most(&stage->head_bytes, own.head_bytes);
  most(&stage->head_flops, own.head_flops);
  most(&stage->expert_bytes, own.expert_bytes);
  most(&stage->expert_flops, own.expert_flops);
  most(&stage->key_bytes, own.key_bytes);
  most(&stage->key_flops, own.key_flops);
  most(&stage->local_key_bytes, own.local_key_bytes);
  most(&stage->local_key_flops, own.local_key_flops);
  if (!stage->layers || own.hot_share < stage->hot_share) stage->hot_share = own.hot_share; /* the slowest's */
  stage->layers = own.layers; /* these are alike on all ranks of a stage */
  stage->sparse_layers = own.sparse_layers;
  stage->last_sparse = own.last_sparse;
  stage->host_layers = own.host_layers;
  stage->local_layers = own.local_layers;
  stage->ops = own.ops;
  stage->sums = own.sums;
  stage->row_elements = own.row_elements;
  stage->sample = own.sample;
  return TRI_OK;
}
