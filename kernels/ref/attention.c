/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of attention, its cache and its rotary positions: plain loops, sums in double. */
#include "kernels/kv_heads.h"
#include "kernels/ref/ref.h"
#include "kernels/visible_keys.h"

#include <math.h>
#include <string.h>

void tri_ref_rope_frequencies(const tri_rope_angles_args *a, int rope_len, float *inv_freq) {
  int half = a->rotary_dim / 2, d = a->rotary_dim;
  bool beyond = rope_len > a->original_max_len;
  if (a->kind == TRI_ROPE_DYNAMIC && beyond) {
    for (int i = 0; i < half; i++)
      inv_freq[i] = tri_formula_dynamic_frequency(a->base, a->factor, rope_len, a->original_max_len, d, i);
  } else {
    memcpy(inv_freq, a->kind == TRI_ROPE_BY_LENGTH && beyond ? a->inv_freq_long : a->inv_freq,
           (size_t)half * sizeof *inv_freq);
  }
}

float tri_ref_rope_scale(const tri_rope_angles_args *a, int rope_len) {
  bool beyond = a->kind == TRI_ROPE_BY_LENGTH && rope_len > a->original_max_len;
  return beyond ? a->attention_scale_long : a->attention_scale;
}

tri_status tri_ref_rope_angles_plan(tri_backend *be, const tri_rope_angles_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){.workspace = (size_t)(a->rotary_dim > 0 ? a->rotary_dim : 0) * sizeof(float)};
  if (a->num_tokens < 0 || a->rotary_dim < 0 || a->rotary_dim % 2) return TRI_INVALID_ARGUMENT;
  if (a->q_scale && (a->q_scale_every < 1 || a->q_scale_offset < 0)) return TRI_INVALID_ARGUMENT;
  if (a->kind == TRI_ROPE_DYNAMIC && (a->rotary_dim < 4 || a->original_max_len < 1)) return TRI_INVALID_ARGUMENT;
  return TRI_OK;
}

void tri_ref_rope_angles_launch(tri_backend *be, const tri_op_plan *plan, const tri_rope_angles_args *a) {
  (void)plan;
  int half = a->rotary_dim / 2;
  float *inv_freq = be->workspace;
  for (int t = 0; t < a->num_tokens; t++) {
    tri_ref_rope_frequencies(a, a->rope_len[t], inv_freq);
    float scale = tri_ref_rope_scale(a, a->rope_len[t]);
    if (a->q_scale) a->q_scale[t] = tri_formula_q_scale(a, a->positions[t]);
    for (int i = 0; i < half; i++) {
      float angle = (float)a->positions[t] * inv_freq[i];
      a->cos[(size_t)t * (size_t)half + (size_t)i] = (float)(scale * cos(angle));
      a->sin[(size_t)t * (size_t)half + (size_t)i] = (float)(scale * sin(angle));
    }
  }
}

static bool kv_ok(const tri_kv_layer *kv) {
  return (kv->dtype == TRI_F32 || kv->dtype == TRI_F16 || kv->dtype == TRI_BF16) && kv->block_size > 0 &&
         kv->num_kv_heads > 0 && kv->head_dim > 0 && kv->v_dim >= 0 && kv->v_dim <= kv->head_dim;
}

static bool qkv_rope_append_fits(const tri_qkv_rope_append_args *a) {
  int d = a->head_dim, width = tri_append_width(a);
  bool values = a->value_dim >= 0 && a->value_dim <= d && !(a->value_dim && a->v_norm);
  bool rotary = a->rotary_dim >= 0 && a->rotary_dim <= d && a->rotary_dim % 2 == 0;
  bool fits = a->qkv.cols == width && a->qkv.ld >= width && a->kv.head_dim == d &&
              (a->kv.num_kv_heads == a->num_kv_heads || !a->num_kv_heads);
  fits = fits && a->kv.v_dim == 0;
  return kv_ok(&a->kv) && rotary && values && fits;
}

/* TRI_NORM_RMS has no mean to subtract: mean stays 0 and `square` is the sum of plain squares. */
static void norm_head(float *x, int d, const float *weight, tri_norm_kind kind, float eps, float offset) {
  double mean = 0, square = 0;
  for (int i = 0; i < d && kind == TRI_NORM_LAYER; i++) mean += (double)x[i] / d;
  for (int i = 0; i < d; i++) square += (x[i] - mean) * (x[i] - mean);
  double factor = 1 / sqrt(square / d + eps);
  for (int i = 0; i < d; i++) x[i] = (float)((x[i] - mean) * factor * ((double)weight[i] + offset));
}

/* Neighbours in a pair as GPT-J has them (interleaved), or halves as GPT-NeoX and Llama do. Elements from rotary_dim on
 * stay as they are. */
static void rotate_head(float *x, int rotary_dim, bool interleaved, const float *cosine, const float *sine) {
  int half = rotary_dim / 2;
  for (int i = 0; i < half; i++) {
    float *a = interleaved ? x + 2 * i : x + i, *b = interleaved ? a + 1 : a + half;
    double u = *a, v = *b;
    *a = (float)(u * cosine[i] - v * sine[i]);
    *b = (float)(v * cosine[i] + u * sine[i]);
  }
}

static void scale_all(float *x, size_t n, float factor) {
  for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void qkv_rope_append_run(const tri_qkv_rope_append_args *a) {
  int d = a->head_dim, hq = a->num_heads, hkv = a->num_kv_heads, half = a->rotary_dim / 2, v = tri_append_value_dim(a);
  for (int t = 0; t < a->qkv.rows; t++) {
    float *row = a->qkv.data + (size_t)t * (size_t)a->qkv.ld;
    for (int h = 0; h < hq + 2 * hkv; h++) {
      bool query = h < hq, value = h >= hq + hkv;
      float *x = row + (value ? (hq + hkv) * d + (h - hq - hkv) * v : h * d);
      const float *weight = query ? a->q_norm : a->k_norm;
      if (value) weight = a->v_norm;
      size_t own = (size_t)(query ? h : (h - hq) % hkv) * (size_t)a->norm_stride;
      if (weight) norm_head(x, d, weight + own, a->norm_kind, a->norm_eps, a->norm_weight_offset);
      size_t angle = (size_t)t * (size_t)half;
      if (half && !value) rotate_head(x, a->rotary_dim, a->interleaved, a->cos + angle, a->sin + angle);
      if (a->q_scale && query) scale_all(x, (size_t)d, a->q_scale[t]);
    }
    int64_t slot = a->kv_slot[t];
    if (slot < 0) continue; /* a padding row */
    size_t kv_block = (size_t)(slot / a->kv.block_size), in_block = (size_t)(slot % a->kv.block_size);
    for (int h = 0; h < hkv; h++) {
      size_t at = ((kv_block * (size_t)hkv + (size_t)h) * (size_t)a->kv.block_size + in_block) * (size_t)d;
      for (int i = 0; i < d; i++) {
        tri_store_f32(a->kv.k, a->kv.dtype, at + (size_t)i, row[(hq + h) * d + i]);
        float value = i < v ? tri_append_value_scale(a) * row[(hq + hkv) * d + h * v + i] : 0;
        tri_store_f32(a->kv.v, a->kv.dtype, at + (size_t)i, value);
      }
    }
  }
}
TRI_REF_OP(qkv_rope_append)

static bool mla_append_fits(const tri_mla_append_args *a) {
  bool dims = a->num_heads > 0 && a->nope_dim >= 0 && a->rope_dim >= 0 && a->rope_dim % 2 == 0 && a->rank > 0;
  if (!dims || !kv_ok(&a->kv)) return false;
  int row = a->rank + a->rope_dim;
  bool cache = a->kv.num_kv_heads == 1 && a->kv.head_dim == row && a->kv.v_dim == a->rank;
  bool fits = a->q.cols == a->num_heads * (a->nope_dim + a->rope_dim) && a->q_out.cols == a->num_heads * row &&
              a->kv_a.cols == row && a->q.rows == a->kv_a.rows && a->q.rows == a->q_out.rows && a->q.ld >= a->q.cols &&
              a->kv_a.ld >= row && a->q_out.ld >= a->q_out.cols;
  return cache && fits;
}

/* The cache has the compressed latent, normalized, and the rotated key that all heads share. Only the rotary part of q
 * is moved here: a head_linear with the absorbed weights has written the other `rank` elements of q_out's rows. */
static void mla_append_run(const tri_mla_append_args *a) {
  size_t rank = (size_t)a->rank, rope = (size_t)a->rope_dim, nope = (size_t)a->nope_dim;
  for (size_t t = 0; t < (size_t)a->q.rows; t++) {
    const float *q = a->q.data + t * (size_t)a->q.ld, *co = NULL, *si = NULL;
    float *out = a->q_out.data + t * (size_t)a->q_out.ld, *latent = a->kv_a.data + t * (size_t)a->kv_a.ld;
    if (rope) {
      co = a->cos + t * (rope / 2);
      si = a->sin + t * (rope / 2);
    }
    for (size_t h = 0; h < (size_t)a->num_heads; h++) {
      float *to = out + h * (rank + rope) + rank;
      memcpy(to, q + h * (nope + rope) + nope, rope * sizeof *to);
      rotate_head(to, a->rope_dim, a->interleaved, co, si);
      if (a->q_scale) scale_all(to - rank, rank + rope, a->q_scale[t]);
    }
    norm_head(latent, a->rank, a->norm, TRI_NORM_RMS, a->norm_eps, 0);
    rotate_head(latent + rank, a->rope_dim, a->interleaved, co, si);
    if (a->kv_slot[t] < 0) continue; /* a padding row */
    for (size_t i = 0; i < rank + rope; i++)
      tri_store_f32(a->kv.k, a->kv.dtype, (size_t)a->kv_slot[t] * (rank + rope) + i, latent[i]);
  }
}
TRI_REF_OP(mla_append)

tri_status tri_ref_attention_plan(tri_backend *be, const tri_attention_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){.workspace = (size_t)(a->kv.head_dim > 0 ? a->kv.head_dim : 0) * sizeof(double)};
  int width = a->num_heads * a->kv.head_dim, out_width = a->num_heads * tri_kv_value_dim(&a->kv);
  bool fits = a->q.cols == width && a->out.cols == out_width && a->q.ld >= width && a->out.ld >= out_width &&
              a->q.rows == a->batch->num_tokens && a->out.rows == a->batch->num_tokens;
  fits = fits && a->heads_per_kv > 0 && a->skipped_heads >= 0 && a->skipped_heads < a->heads_per_kv &&
         (!a->num_heads || tri_kv_head_of(a, a->num_heads - 1) < a->kv.num_kv_heads);
  fits = fits && (!a->position_bias || (a->bias_len > 0 && a->softcap == 0));
  return kv_ok(&a->kv) && fits && a->window >= 0 ? TRI_OK : TRI_INVALID_ARGUMENT;
}

/* Keys outside the table have the bias of its nearest end. */
static double bias_of(const tri_attention_args *a, int head, int key, int position) {
  if (!a->position_bias) return 0;
  int i = key + a->bias_offset - (a->bias_relative ? position : 0);
  if (i >= a->bias_len) i = a->bias_len - 1;
  if (i < 0) i = 0;
  return a->position_bias[(size_t)head * (size_t)a->bias_len + (size_t)i];
}

/* Scale, cap, then ALiBi's slope: the cap is on the product alone. */
static double score_of(const tri_attention_args *a, const float *q, size_t key, int head, int distance) {
  double s = 0;
  for (int i = 0; i < a->kv.head_dim; i++) s += q[i] * (double)tri_load_f32(a->kv.k, a->kv.dtype, key + (size_t)i);
  s *= a->scale;
  if (a->softcap > 0) s = a->softcap * tanh(s / a->softcap);
  return a->alibi_slopes ? s + (double)a->alibi_slopes[head] * distance : s;
}

/* One query head of one token over the keys first..last. The first pass finds the largest score, which the second one
 * subtracts in each exponent. A sink takes part in the softmax as a key without a value. */
static void attend(const tri_attention_args *a, const int32_t *kv_blocks, int t, int head, int position, int first,
                   int last, double *acc) {
  int d = tri_kv_value_dim(&a->kv), kv_head = tri_kv_head_of(a, head);
  const void *values = tri_kv_values(&a->kv);
  const float *q = a->q.data + (size_t)t * (size_t)a->q.ld + (size_t)head * (size_t)a->kv.head_dim;
  double max = a->sinks ? a->sinks[head] : -INFINITY;
  for (int j = first; j <= last; j++)
    max = fmax(max, score_of(a, q, tri_ref_kv_offset(&a->kv, kv_blocks, j, kv_head), head, j - position) +
                        bias_of(a, head, j, position));
  double sum = a->sinks ? exp(a->sinks[head] - max) : 0;
  for (int i = 0; i < d; i++) acc[i] = 0;
  for (int j = first; j <= last; j++) {
    size_t key = tri_ref_kv_offset(&a->kv, kv_blocks, j, kv_head);
    double p = exp(score_of(a, q, key, head, j - position) + bias_of(a, head, j, position) - max);
    sum += p;
    for (int i = 0; i < d; i++) acc[i] += p * tri_load_f32(values, a->kv.dtype, key + (size_t)i);
  }
  float *out = a->out.data + (size_t)t * (size_t)a->out.ld + (size_t)head * (size_t)d;
  for (int i = 0; i < d; i++) out[i] = (float)(acc[i] / sum);
}

void tri_ref_attention_launch(tri_backend *be, const tri_op_plan *plan, const tri_attention_args *a) {
  (void)plan;
  const tri_batch *b = a->batch;
  for (int s = 0; s < b->num_seqs; s++) {
    int start = b->seq_start[s], end = b->seq_start[s + 1], context = b->context_len[s];
    const int32_t *kv_blocks = tri_batch_blocks(b, s);
    for (int t = start; t < end; t++) {
      int position = context - (end - t), first = tri_first_key(a->window, a->chunked, position),
          last = tri_last_key(a->causal, a->window, position, context);
      for (int h = 0; h < a->num_heads; h++) attend(a, kv_blocks, t, h, position, first, last, be->workspace);
    }
  }
}

/* A block of a layer is [kv_head][token of the block][head_dim], for keys, and again for values that are not keys. */
static size_t block_bytes(const tri_kv_layer *kv) {
  return (size_t)kv->num_kv_heads * (size_t)kv->block_size * (size_t)kv->head_dim * tri_dtype_size(kv->dtype);
}

static bool copy_blocks_fits(const tri_copy_blocks_args *a) { return kv_ok(&a->kv) && a->num_pairs >= 0; }

static void copy_blocks_run(const tri_copy_blocks_args *a) {
  size_t bytes = block_bytes(&a->kv);
  for (int i = 0; i < a->num_pairs; i++) {
    size_t from = (size_t)a->pairs[2 * i] * bytes, to = (size_t)a->pairs[2 * i + 1] * bytes;
    if (from == to) continue;
    memcpy((char *)a->kv.k + to, (const char *)a->kv.k + from, bytes);
    if (!a->kv.v_dim) memcpy((char *)a->kv.v + to, (const char *)a->kv.v + from, bytes);
  }
}
TRI_REF_OP(copy_blocks)

static bool move_blocks_fits(const tri_move_blocks_args *a) {
  return kv_ok(&a->kv) && a->num_layers >= 1 && a->layer_stride % block_bytes(&a->kv) == 0 && a->num_host_blocks >= 0 &&
         a->num_pairs >= 0 && a->num_turns >= 0 && a->turn >= 0 && (!a->turn || a->turn < a->num_turns);
}

static void move_block(void *in_cache, void *in_pool, size_t bytes, bool out) {
  if (out)
    memcpy(in_pool, in_cache, bytes);
  else
    memcpy(in_cache, in_pool, bytes);
}

static void move_layer(const tri_move_blocks_args *a, int layer) {
  size_t bytes = block_bytes(&a->kv), parts = a->kv.v_dim ? 1 : 2;
  for (int i = 0; i < a->num_pairs; i++) {
    size_t at = (size_t)layer * a->layer_stride + (size_t)a->pairs[2 * i] * bytes;
    size_t piece = ((size_t)a->pairs[2 * i + 1] * (size_t)a->num_layers + (size_t)layer) * parts;
    move_block((char *)a->kv.k + at, (char *)a->host + piece * bytes, bytes, a->out);
    if (parts == 2) move_block((char *)a->kv.v + at, (char *)a->host + (piece + 1) * bytes, bytes, a->out);
  }
}

static void move_blocks_run(const tri_move_blocks_args *a) {
  int turns = a->num_turns ? a->num_turns : 1;
  for (int t = 0; t < turns; t++)
    for (int l = (a->turn + t) % turns; l < a->num_layers; l += turns) move_layer(a, l);
}
TRI_REF_OP(move_blocks)
