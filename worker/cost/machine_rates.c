/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cost/machine_rates.h"

#include "kernels/roofline.h"

enum { ROUNDS = 9, STREAM_BYTES = 128 << 20 };

/* Keys and values for cross-attention are computed for the tokens of a source, and from then on lie in the cache. */
static bool is_of_source(int id) { return id == TRI_W_CROSS_KV; }

static bool is_of_experts(int id) { return id == TRI_W_EXPERT_UP || id == TRI_W_EXPERT_DOWN; }

/* The weights that one token of the sequence, or else of the source, is multiplied with: top_k of the experts', which
 * have so many slots. What every data-parallel rank has a copy of counts once in the sum over the ranks. */
static double layer_gemms(const tri_model_config *c, const tri_weights *w, int slots, int layers, int dp, bool source) {
  double n = 0, chosen = slots ? (double)c->moe.top_k / (double)slots : 0;
  for (int l = 0; l < layers; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *m = &w->layers[l].w[id];
      double all = (double)m->n * m->k;
      if (m->data && m->k > 1 && is_of_source(id) == source) n += is_of_experts(id) ? all * chosen : all / dp;
    }
  return n;
}

double tri_measure_gemms(const tri_engine *e, bool head) {
  int dp = tri_parallel_dp(e->shard.p), slots = tri_stage_slots(&e->model, e->shard.p);
  double n = layer_gemms(&e->model, e->weights, slots, e->shard.layers.count, dp, false);
  const tri_weight *out = &e->weights->global[TRI_W_HEAD];
  return n + (head && out->data ? (double)out->n * out->k / dp : 0);
}

static double prompt_gemms(const tri_engine *e) {
  const tri_source *s = e->source;
  if (!s) return tri_measure_gemms(e, false);
  return layer_gemms(&s->model, s->weights, 0, (int)s->model.num_layers, 1, false) +
         layer_gemms(&e->model, e->weights, 0, e->shard.layers.count, 1, true);
}

static double matrix_bytes(const tri_weight *m) {
  double scales = (double)tri_weight_num_scales(m) * sizeof *m->scale;
  return m->data ? (double)m->n * m->k * (double)tri_dtype_size(m->dtype) + scales : 0;
}

double tri_measure_step_bytes(const tri_engine *e, double experts) {
  const tri_weights *w = e->weights;
  double n = matrix_bytes(&w->global[TRI_W_HEAD]), all = (double)e->model.moe.num_experts;
  for (int l = 0; l < e->shard.layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      double bytes = is_of_source(id) ? 0 : matrix_bytes(&w->layers[l].w[id]);
      n += is_of_experts(id) && all > 0 ? bytes * experts / all : bytes;
    }
  return n;
}

double tri_measure_weight_bytes(const tri_engine *e) {
  return tri_measure_step_bytes(e, (double)e->model.moe.num_experts);
}

tri_dtype tri_measure_type(const tri_engine *e) {
  const tri_weight *largest = &e->weights->global[TRI_W_HEAD];
  for (int id = 0; e->shard.layers.count && id < TRI_W_COUNT; id++) {
    const tri_weight *m = &e->weights->layers[0].w[id];
    if (m->data && m->k > 1 && (!largest->data || (double)m->n * m->k > (double)largest->n * largest->k)) largest = m;
  }
  return largest->data ? largest->dtype : TRI_BF16;
}

tri_status tri_measure_rooflines(const tri_engine *e, tri_rooflines *out) {
  tri_roofline *floor;
  double read[ROUNDS], gemm[ROUNDS], piece = STREAM_BYTES / 4;
  TRI_CHECK(e->backend->ops.roofline_create(e->backend, STREAM_BYTES, tri_measure_type(e), &floor));
  /* Medians: the best round of a rank that shares cores is one in which it was alone, and would be counted for each. */
  for (int i = 0; i < ROUNDS; i++) {
    read[i] = tri_roofline_read(floor, piece);
    gemm[i] = tri_roofline_gemm(floor);
  }
  *out = (tri_rooflines){.read_bytes_per_s = piece / tri_median(read, ROUNDS),
                         .flops_per_s = 2 / tri_median(gemm, ROUNDS),
                         .weight_bytes = tri_measure_weight_bytes(e),
                         .prompt_token_flops = 2 * prompt_gemms(e),
                         .output_token_flops = 2 * tri_measure_gemms(e, true)};
  tri_roofline_destroy(floor);
  return TRI_OK;
}
