/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ref/formulas.h"
#include "tests/opcheck/opcheck.h"

static const int head_dims[] = {16, 32, 40, 64, 80, 96, 128, 7, 256, 512, 272};

/* A cache of kv_blocks blocks, all NaN. */
static tri_kv_layer kv_layer(oc *c, tri_dtype t, int kv_blocks, int heads, int block, int d, size_t *bytes) {
  tri_kv_layer kv = {.dtype = t, .num_blocks = kv_blocks, .num_kv_heads = heads, .block_size = block, .head_dim = d};
  size_t n = (size_t)kv_blocks * (size_t)heads * (size_t)block * (size_t)d;
  *bytes = n * tri_dtype_size(t);
  kv.k = oc_host(c, *bytes), kv.v = oc_host(c, *bytes);
  for (size_t i = 0; i < n; i++) tri_store_f32(kv.k, t, i, NAN), tri_store_f32(kv.v, t, i, NAN);
  return kv;
}

/* KV blocks in random order, and of them no more than each sequence needs; keys beyond a context stay NaN. Now and then
 * a sequence shares what the first one has filled, down to the keys of this step. */
void oc_attention_build(oc *c, oc_attention *x, const oc_sequences *s, int hq, int hkv, int d, int block, tri_dtype t) {
  memset(x, 0, sizeof *x);
  tri_batch *b = &x->batch;
  int kv_blocks = 0, most = 1;
  int32_t *start = oc_host(c, (size_t)(s->count + 1) * sizeof *start), *context = oc_host(c, (size_t)s->count * 4);
  for (int i = 0; i < s->count; i++) {
    start[i + 1] = start[i] + s->tokens[i];
    context[i] = s->context[i];
    int need = (s->context[i] + block - 1) / block;
    kv_blocks += need;
    if (need > most) most = need;
    if (s->context[i] > b->max_context) b->max_context = s->context[i];
    if (s->tokens[i] > b->max_query) b->max_query = s->tokens[i];
    b->num_single += s->tokens[i] == 1;
  }
  b->num_tokens = start[s->count], b->num_seqs = s->count;
  b->seq_start = start, b->context_len = context;
  tri_kv_layer kv = kv_layer(c, t, kv_blocks + 1, hkv, block, d, &x->kv_bytes);
  int32_t *table = oc_host(c, (size_t)s->count * (size_t)most * sizeof *table),
          *order = oc_host(c, (size_t)(kv_blocks + 1) * 4);
  for (int i = 0; i <= kv_blocks; i++) {
    int at = oc_range(c, 0, i);
    order[i] = order[at], order[at] = i;
  }
  memset(table, 0x7f,
         (size_t)s->count * (size_t)most * sizeof *table); /* KV blocks nobody owns: a read there would crash */
  for (int i = 0, next = 0; i < s->count; i++) {
    int both = s->context[i] < s->context[0] ? s->context[i] : s->context[0];
    int shared = i && oc_chance(c, 25) ? both / block * block : 0;
    memcpy(table + (size_t)i * (size_t)most, table, (size_t)(shared / block) * sizeof *table);
    for (int key = shared; key < s->context[i]; key++) {
      int32_t *kv_block = &table[(size_t)i * (size_t)most + (size_t)(key / block)];
      if (key % block == 0) *kv_block = order[next++];
      for (int h = 0; h < hkv; h++) {
        size_t at = (((size_t)*kv_block * (size_t)hkv + (size_t)h) * (size_t)block + (size_t)(key % block)) * (size_t)d;
        for (int e = 0; e < d; e++) {
          tri_store_f32(kv.k, t, at + (size_t)e, oc_normal(c));
          tri_store_f32(kv.v, t, at + (size_t)e, oc_normal(c));
        }
      }
    }
  }
  int32_t *block_start = oc_host(c, (size_t)(s->count + 1) * sizeof *block_start);
  for (int i = 0; i <= s->count; i++) block_start[i] = i * most;
  b->block_table = table, b->block_start = block_start;
  int64_t *slots = oc_host(c, (size_t)b->num_tokens * sizeof *slots);
  for (int i = 0; i < s->count; i++)
    for (int j = 0; j < s->tokens[i]; j++) {
      int key = s->context[i] - s->tokens[i] + j;
      slots[start[i] + j] = (int64_t)table[(size_t)i * (size_t)most + (size_t)(key / block)] * block + key % block;
    }
  b->kv_slot = slots;
  x->args = (tri_attention_args){.kv = kv, .num_heads = hq, .scale = 1 / sqrtf((float)d), .causal = true};
  x->args.heads_per_kv = (hq + hkv - 1) / hkv;
  x->args.q = oc_matrix(c, b->num_tokens, hq * d, false), x->args.out = oc_matrix(c, b->num_tokens, hq * d, true);
  x->args.batch = b;
}

void oc_attention_latent(oc *c, oc_attention *x, int v_dim) {
  x->args.kv.v = NULL, x->args.kv.v_dim = v_dim;
  x->args.out = oc_matrix(c, x->batch.num_tokens, x->args.num_heads * v_dim, true);
}

void oc_attention_device(oc *c, oc_attention *x, const oc_attention *host) {
  *x = *host;
  size_t hq = (size_t)host->args.num_heads;
  x->args.batch = &x->batch;
  x->args.q = oc_device_matrix(c, &host->args.q), x->args.out = oc_device_matrix(c, &host->args.out);
  x->args.kv.k = oc_device(c, host->args.kv.k, host->kv_bytes);
  x->args.kv.v = oc_device(c, host->args.kv.v, host->kv_bytes);
  x->args.alibi_slopes = oc_device(c, host->args.alibi_slopes, hq * 4);
  x->args.sinks = oc_device(c, host->args.sinks, hq * 4);
  x->args.position_bias = oc_device(c, host->args.position_bias, hq * (size_t)host->args.bias_len * 4);
}

/* Returns the keys' type, another one, or float32. */
static tri_dtype query_type(oc *c, tri_dtype keys) {
  if (!c->be->narrow_activations || oc_chance(c, 30)) return TRI_F32;
  return keys == TRI_F32 || oc_chance(c, 15) ? oc_narrow_type(c) : keys;
}

/* Takes the step's own keys and values out of the device's cache, and makes the op before attention, which writes them.
 * y is of x, and its batch is not bound yet. */
static tri_qkv_rope_append_args take_new_keys(oc *c, const oc_attention *x, oc_attention *y) {
  const tri_kv_layer *kv = &x->args.kv;
  int heads = kv->num_kv_heads, d = kv->head_dim;
  void *k = memcpy(oc_host(c, x->kv_bytes), kv->k, x->kv_bytes),
       *v = memcpy(oc_host(c, x->kv_bytes), kv->v, x->kv_bytes);
  tri_mat qkv = oc_matrix(c, x->batch.num_tokens, 3 * heads * d, false);
  for (int r = 0; r < qkv.rows; r++) {
    int64_t slot = x->batch.kv_slot[r];
    for (int h = 0; h < heads; h++) {
      size_t at =
          (size_t)(slot / kv->block_size * heads + h) * (size_t)kv->block_size + (size_t)(slot % kv->block_size);
      float *row = qkv.data + (size_t)r * (size_t)qkv.ld + (size_t)(heads + h) * (size_t)d;
      for (size_t e = 0; e < (size_t)d; e++) {
        row[e] = tri_load_f32(kv->k, kv->dtype, at * (size_t)d + e);
        row[(size_t)heads * (size_t)d + e] = tri_load_f32(kv->v, kv->dtype, at * (size_t)d + e);
        tri_store_f32(k, kv->dtype, at * (size_t)d + e, NAN);
        tri_store_f32(v, kv->dtype, at * (size_t)d + e, NAN);
      }
    }
  }
  y->args.kv.k = oc_device(c, k, x->kv_bytes), y->args.kv.v = oc_device(c, v, x->kv_bytes);
  return (tri_qkv_rope_append_args){
      .qkv = oc_device_matrix(c, &qkv), .num_heads = heads, .num_kv_heads = heads, .head_dim = d, .kv = y->args.kv};
}

void oc_attention_compare(oc *c, oc_attention *x, bool large) {
  tri_dtype t = x->args.kv.dtype;
  for (int r = 0; r < x->args.q.rows; r++)
    for (int j = 0; j < x->args.q.cols; j++) {
      float *q = x->args.q.data + (size_t)r * (size_t)x->args.q.ld;
      uint32_t bits = 0;
      tri_store_f32(&bits, t, 0, q[j]);
      q[j] = tri_load_f32(&bits, t, 0);
    }
  oc_attention y;
  oc_attention_device(c, &y, x);
  if (c->be->narrow_activations && t != TRI_F32 && oc_chance(c, 50)) {
    bool other = x->args.kv.v_dim && oc_chance(c, 15);
    y.args.out = oc_device_narrow(c, &x->args.out, other ? oc_narrow_type(c) : t);
  }
  y.args.q = oc_device_narrow(c, &x->args.q, query_type(c, t));
  bool appends = !x->args.kv.v_dim && oc_chance(c, 50);
  tri_qkv_rope_append_args append = {0};
  if (appends) append = take_new_keys(c, x, &y);
  /* The arrays of the batch; how attention is cut depends on where its results go. */
  tri_status st = c->be->ops.bind_batch(c->be, 0, &x->batch, &y.args, 1, &y.batch);
  append.kv_slot = y.batch.kv_slot;
  if (appends && st == TRI_OK) st = tri_run_qkv_rope_append(c->be, &append);
  oc_status(c, tri_run_attention(c->ref, &x->args), st == TRI_OK ? tri_run_attention(c->be, &y.args) : st);
  double limit = large ? 5e-11 : 2e-12;
  /* Weights in front of the values, rounded to their type: half a unit in the last place each. */
  if (c->be->narrows_inputs && t == TRI_BF16) limit = 4e-6;
  if (c->be->narrows_inputs && t == TRI_F16) limit = 6e-8;
  /* Of few results all may be sums that are small by chance. */
  int results = x->args.out.rows * x->args.out.cols;
  limit *= 1 + 100.0 / (results ? results : 1);
  oc_compare(c, &x->args.out, &y.args.out, oc_narrow_limit(y.args.out.dtype, limit));
}

static void some_sequences(oc *c, oc_sequences *s, int i, int block) {
  s->count = oc_range(c, 1, 6);
  for (int k = 0; k < s->count; k++) {
    int kind = i < 6 ? i : oc_range(c, 0, 5), most = oc_chance(c, 20) ? 1500 : 300;
    s->context[k] = oc_chance(c, 30) ? block * oc_range(c, 1, 6) + oc_range(c, -1, 1) : oc_range(c, 1, most);
    if (s->context[k] < 1) s->context[k] = 1;
    s->tokens[k] = 1;                                                                      /* decode */
    if (kind == 1) s->tokens[k] = s->context[k] = oc_range(c, 1, 90);                      /* whole prompt */
    if (kind == 2) s->tokens[k] = oc_range(c, 1, s->context[k] > 70 ? 70 : s->context[k]); /* a chunk of one */
    if (kind == 3 && oc_chance(c, 50)) s->tokens[k] = 0;                                   /* nothing new */
  }
}

static void some_features(oc *c, tri_attention_args *a) {
  size_t hq = (size_t)a->num_heads;
  if (oc_chance(c, 30)) a->window = oc_range(c, 1, 150);
  a->chunked = oc_chance(c, 40);
  if (oc_chance(c, 25)) a->softcap = 5;
  if (oc_chance(c, 25)) a->alibi_slopes = oc_normals(c, hq, 0.1f);
  if (oc_chance(c, 25)) a->sinks = oc_normals(c, hq, 2);
  if (oc_chance(c, 15)) a->causal = false;
  if (a->softcap == 0 && oc_chance(c, 25)) {
    a->bias_len = oc_range(c, 1, 400), a->bias_offset = oc_range(c, -10, 200);
    a->bias_relative = oc_chance(c, 50);
    a->position_bias = oc_normals(c, hq * (size_t)a->bias_len, 1);
  }
  if (oc_chance(c, 20)) a->scale *= 20; /* sharp: the running maximum matters */
}

void oc_case_attention(oc *c, int i) {
  static const int blocks[] = {16, 1, 32, 64, 128, 5};
  int block = blocks[i % 6], d = head_dims[i % 11], hkv = oc_range(c, 1, 4), group = oc_range(c, 1, i % 7 ? 9 : 40);
  bool latent = i % 5 == 4, cut = oc_chance(c, 40); /* groups that a rank has a part of */
  if (latent && oc_chance(c, 60)) hkv = 1;
  int skipped = cut ? oc_range(c, 0, group - 1) : 0, most = hkv * group - skipped;
  int hq = cut ? oc_range(c, hkv > 1 ? (hkv - 1) * group - skipped + 1 : 1, most) : most;
  oc_sequences s;
  some_sequences(c, &s, i, block);
  oc_attention x;
  if (i % 20 == 4) s = (oc_sequences){.count = 2, .tokens = {1, 2}, .context = {200, 90}}, d = 576; /* DeepSeek's */
  oc_attention_build(c, &x, &s, hq, hkv, d, block, oc_kv_type(i));
  if (latent) oc_attention_latent(c, &x, d == 576 ? 512 : oc_range(c, 1, d));
  x.args.heads_per_kv = group, x.args.skipped_heads = skipped;
  some_features(c, &x.args);
  snprintf(c->what, sizeof c->what,
           "attention %s seqs %d tokens %d context %d hq %d of %d from %d hkv %d d %d/%d block %d window %d%s%s%s%s%s",
           tri_dtype_name(oc_kv_type(i)), s.count, x.batch.num_tokens, x.batch.max_context, hq, group, skipped, hkv, d,
           x.args.kv.v_dim, block, x.args.window, x.args.chunked ? " chunked" : "",
           x.args.softcap > 0 ? " softcap" : "", x.args.alibi_slopes ? " alibi" : "", x.args.sinks ? " sinks" : "",
           x.args.causal ? "" : " not causal");
  oc_attention_compare(c, &x, x.args.scale > 2 / sqrtf((float)d) || x.args.alibi_slopes);
}

/* Single tokens of few sequences with contexts that several blocks share, all of which may be in flight at once, in
 * shapes that kernels are made for. Every 16th case on devices has as many short contexts as a device has blocks for.
 */
void oc_case_decode_attention(oc *c, int i) {
  static const int dims[] = {128, 64, 128, 96, 64, 32, 80, 256, 512, 192, 272}, most_seqs = 32,
                   blocks[] = {16, 64, 32, 5, 128}, groups[] = {4, 8, 1, 7, 16, 20, 5, 3};
  bool many = i % 16 == 7 && !c->be->host_memory;
  int d = many ? 64 : dims[i % 11], block = blocks[i % 5], group = groups[i % 8];
  int skipped = oc_chance(c, 20) ? oc_range(c, 0, group - 1) : 0, few_heads = oc_range(c, 1, i % 4 ? 3 : 8);
  int few_seqs = i % 3 ? oc_range(c, 1, 9) : 1, hkv = many ? 8 : few_heads;
  int hq = hkv * group - skipped, work = c->be->host_memory ? 300000 : 1500000; /* elements of keys */
  oc_sequences s = {.count = many ? most_seqs : few_seqs};
  for (int k = 0; k < s.count; k++) {
    int most = many ? 520 : work / s.count / (hkv * d);
    if (most > 1200) most = 1200;
    s.tokens[k] = 1;
    s.context[k] = oc_chance(c, 40) ? 64 * oc_range(c, 1, 18) + oc_range(c, -1, 1) : oc_range(c, 1, 1200);
    if (s.context[k] > most) s.context[k] = oc_range(c, 1, most);
  }
  oc_attention x;
  oc_attention_build(c, &x, &s, hq, hkv, d, block, i % 3 == 2 ? TRI_F16 : TRI_BF16);
  tri_mat wide = oc_matrix(c, x.batch.num_tokens, (hq + 2 * hkv) * d, false); /* as a step has them */
  wide.cols = hq * d;
  if (wide.ld % 4 == 0) x.args.q = wide;
  x.args.heads_per_kv = group, x.args.skipped_heads = skipped;
  if (oc_chance(c, 70)) some_features(c, &x.args);
  if (x.args.window && oc_chance(c, 60)) x.args.window = oc_range(c, 100, 1000);
  snprintf(c->what, sizeof c->what,
           "decode_attention %s seqs %d context %d hq %d of %d from %d hkv %d d %d block %d window %d%s%s%s%s%s%s",
           tri_dtype_name(x.args.kv.dtype), s.count, x.batch.max_context, hq, group, skipped, hkv, d, block,
           x.args.window, x.args.chunked ? " chunked" : "", x.args.softcap > 0 ? " softcap" : "",
           x.args.alibi_slopes ? " alibi" : "", x.args.sinks ? " sinks" : "", x.args.position_bias ? " bias" : "",
           x.args.causal ? "" : " not causal");
  oc_attention_compare(c, &x, x.args.scale > 2 / sqrtf((float)d) || x.args.alibi_slopes);
}

/* Prompts, and chunks of them behind long contexts, in shapes that kernels are made for: whole groups of heads, even
 * pitches. The numbers of head sizes, block sizes and groups have no common divisor. */
void oc_case_prompt_attention(oc *c, int i) {
  static const int dims[] = {128, 64, 256, 96, 32, 192, 512, 128, 320}, blocks[] = {64, 16, 32, 128, 256},
                   groups[] = {4, 1, 8, 2, 5, 7, 3, 16};
  int d = dims[i % 9], block = blocks[i % 5], group = groups[i % 8], hkv = oc_range(c, 1, group > 5 ? 1 : 3);
  int work = c->be->host_memory ? 4000000 : 60000000; /* products: tiles are larger on devices */
  oc_sequences s = {.count = oc_range(c, 1, 4)};
  for (int k = 0; k < s.count; k++) {
    int most = work / s.count / (hkv * group * d);
    s.context[k] = oc_chance(c, 30) ? block * oc_range(c, 1, 4) + oc_range(c, -1, 1) : oc_range(c, 2, 1200);
    s.tokens[k] = oc_chance(c, 40) ? s.context[k] : oc_range(c, 1, 300);
    if (s.tokens[k] > most / s.context[k]) s.tokens[k] = 1 + most / s.context[k];
    if (s.tokens[k] > s.context[k]) s.tokens[k] = s.context[k];
  }
  oc_attention x;
  oc_attention_build(c, &x, &s, hkv * group, hkv, d, block, i % 3 == 2 ? TRI_F16 : TRI_BF16);
  tri_mat wide = oc_matrix(c, x.batch.num_tokens, (hkv * group + 2 * hkv) * d, false); /* as a step has them */
  wide.cols = hkv * group * d;
  if (wide.ld % 4 == 0) x.args.q = wide;
  if (oc_chance(c, 30)) x.args.window = oc_range(c, 1, 500);
  x.args.chunked = oc_chance(c, 40);
  if (oc_chance(c, 20)) x.args.softcap = 5;
  if (oc_chance(c, 20)) x.args.alibi_slopes = oc_normals(c, (size_t)(hkv * group), 0.1f);
  if (oc_chance(c, 25)) x.args.sinks = oc_normals(c, (size_t)(hkv * group), 2);
  if (oc_chance(c, 10)) x.args.causal = false;
  if (oc_chance(c, 20)) x.args.scale *= 20; /* sharp: the running maximum matters */
  snprintf(c->what, sizeof c->what,
           "prompt_attention %s seqs %d tokens %d context %d group %d hkv %d d %d block %d window %d%s%s%s%s%s",
           tri_dtype_name(x.args.kv.dtype), s.count, x.batch.num_tokens, x.batch.max_context, group, hkv, d, block,
           x.args.window, x.args.chunked ? " chunked" : "", x.args.softcap > 0 ? " softcap" : "",
           x.args.alibi_slopes ? " alibi" : "", x.args.sinks ? " sinks" : "", x.args.causal ? "" : " not causal");
  oc_attention_compare(c, &x, x.args.scale > 2 / sqrtf((float)d) || x.args.alibi_slopes);
}

void oc_case_qkv_rope_append(oc *c, int i) {
  tri_dtype t = oc_kv_type(i);
  int d = head_dims[i % 11], hkv = oc_range(c, 1, 3), hq = hkv * oc_range(c, 1, 4), block = oc_range(c, 1, 20);
  int tokens = i % 4 == 0 ? 1 : oc_range(c, 0, 40), kv_blocks = tokens / block + 3;
  int made = oc_chance(c, 10) ? 0 : hkv; /* of a layer that has another's keys: none */
  tri_qkv_rope_append_args a = {.num_heads = hq, .num_kv_heads = made, .head_dim = d, .norm_eps = 1e-6f};
  if (oc_chance(c, 25)) a.value_dim = d < 8 || oc_chance(c, 30) ? oc_range(c, 1, d) : oc_range(c, 1, d / 8) * 8;
  if (oc_chance(c, 30)) a.value_scale = 0.7f;
  a.qkv = oc_matrix(c, tokens, tri_append_width(&a), false);
  a.rotary_dim = oc_chance(c, 50) ? d / 2 * 2 : oc_range(c, 0, d / 2) * 2;
  if (oc_chance(c, 15)) a.rotary_dim = 0;
  if (oc_chance(c, 15)) a.rotary_dim = oc_range(c, 0, d / 8) * 8;
  a.interleaved = oc_chance(c, 40);
  a.norm_stride = oc_chance(c, 30) ? d : 0;
  a.norm_kind = (tri_norm_kind)oc_range(c, 0, 1);
  size_t gains = (size_t)(a.norm_stride ? hq : 1) * (size_t)d;
  if (oc_chance(c, 40)) a.q_norm = oc_normals(c, gains, 1);
  if (oc_chance(c, 40)) a.k_norm = oc_normals(c, gains, 1);
  if (!a.value_dim && oc_chance(c, 30)) a.v_norm = oc_normals(c, gains, 1);
  if (oc_chance(c, 30)) a.norm_weight_offset = 1;
  size_t half = (size_t)a.rotary_dim / 2, angles = (size_t)tokens * half, bytes;
  float *co = oc_host(c, angles * 4), *si = oc_host(c, angles * 4);
  for (size_t j = 0; j < angles; j++) {
    float angle = 3 * oc_normal(c);
    co[j] = cosf(angle), si[j] = sinf(angle);
  }
  int64_t *slots = oc_host(c, (size_t)tokens * sizeof *slots);
  int first = oc_range(c, 0, block);
  for (int r = 0; r < tokens; r++) slots[r] = oc_chance(c, 5) ? -1 : first + r;
  a.kv = kv_layer(c, t, kv_blocks, hkv, block, d, &bytes);
  a.cos = co, a.sin = si, a.kv_slot = slots;
  if (oc_chance(c, 30)) a.q_scale = oc_normals(c, (size_t)tokens, 1);
  snprintf(c->what, sizeof c->what, "qkv_rope_append %s tokens %d hq %d hkv %d d %d/%d rotary %d%s%s%s%s",
           tri_dtype_name(t), tokens, hq, made, d, a.value_dim, a.rotary_dim, a.interleaved ? " interleaved" : "",
           a.q_norm ? " q norm" : "", a.v_norm ? " v norm" : "", a.q_scale ? " scale" : "");
  tri_qkv_rope_append_args b = a;
  b.qkv = oc_device_narrow(c, &a.qkv, oc_narrow_type(c));
  b.q_norm = oc_device(c, a.q_norm, gains * 4), b.k_norm = oc_device(c, a.k_norm, gains * 4);
  b.v_norm = oc_device(c, a.v_norm, gains * 4);
  b.cos = oc_device(c, co, angles * 4), b.sin = oc_device(c, si, angles * 4);
  b.q_scale = oc_device(c, a.q_scale, (size_t)tokens * 4);
  b.kv_slot = oc_device(c, slots, (size_t)tokens * sizeof *slots);
  b.kv.k = oc_device(c, a.kv.k, bytes), b.kv.v = oc_device(c, a.kv.v, bytes);
  oc_status(c, tri_run_qkv_rope_append(c->ref, &a), tri_run_qkv_rope_append(c->be, &b));
  tri_mat q = a.qkv, got = b.qkv; /* only q's place in the row is defined afterwards */
  size_t elements = (size_t)tokens * (size_t)q.ld;
  void *stored = oc_host(c, elements * tri_dtype_size(got.dtype));
  float *want = oc_host(c, elements * 4), *have = oc_host(c, elements * 4);
  oc_download(c, stored, got.data, elements * tri_dtype_size(got.dtype));
  for (size_t j = 0; j < elements; j++) {
    bool kept = j % (size_t)q.ld < (size_t)(hq * d), gap = j % (size_t)q.ld >= (size_t)q.cols;
    want[j] = kept ? q.data[j] : NAN;
    have[j] = kept || gap ? tri_load_f32(stored, got.dtype, j) : NAN;
  }
  q.data = want, q.cols = hq * d;
  got.data = oc_device(c, have, elements * 4);
  got.dtype = TRI_F32;
  oc_compare(c, &q, &got, oc_narrow_limit(b.qkv.dtype, 1e-12));
  double limit = oc_either_way_limit(t, (size_t)(tokens * hkv * d), 1e-12);
  size_t n = bytes / tri_dtype_size(t);
  oc_compare_elements(c, t, a.kv.k, b.kv.k, n, limit);
  oc_compare_elements(c, t, a.kv.v, b.kv.v, n, limit);
}

void oc_case_copy_blocks(oc *c, int i) {
  tri_dtype t = oc_kv_type(i);
  size_t bytes;
  int kv_blocks = oc_range(c, 2, i % 3 ? 12 : 900), n = oc_range(c, 0, i % 3 ? 10 : 300);
  tri_copy_blocks_args a = {
      .kv = kv_layer(c, t, kv_blocks, oc_range(c, 1, 3), oc_range(c, 1, 17), head_dims[i % 11], &bytes)};
  size_t count = bytes / tri_dtype_size(t);
  a.kv.k = oc_elements(c, t, count, 1), a.kv.v = oc_elements(c, t, count, 1);
  int32_t *pairs = oc_host(c, (size_t)n * 2 * sizeof *pairs);
  for (int j = 0; j < 2 * n; j++) pairs[j] = oc_range(c, 0, kv_blocks - 1);
  a.pairs = pairs, a.num_pairs = n;
  if (i % 4 == 3) a.kv.v = NULL, a.kv.v_dim = a.kv.head_dim; /* a latent cache */
  snprintf(c->what, sizeof c->what, "copy_blocks %s pairs %d", tri_dtype_name(t), n);
  tri_copy_blocks_args b = a;
  b.kv.k = oc_device(c, a.kv.k, bytes), b.kv.v = oc_device(c, a.kv.v, bytes);
  oc_status(c, tri_run_copy_blocks(c->ref, &a), tri_run_copy_blocks(c->be, &b));
  oc_compare_elements(c, t, a.kv.k, b.kv.k, count, 0);
  if (a.kv.v) oc_compare_elements(c, t, a.kv.v, b.kv.v, count, 0);
}

/* The host's memory of a backend, with what src has. */
static void *pool_of(oc *c, tri_backend *be, const void *src, size_t bytes) {
  void *p = NULL;
  oc_status(c, TRI_OK, be->ops.host_alloc(be, bytes, &p));
  if (p) memcpy(p, src, bytes);
  return p;
}

/* Each block at most once, in random order. */
static int32_t *make_pairs(oc *c, int kv_blocks, int host_blocks, int n) {
  int32_t *pairs = oc_host(c, (size_t)n * 2 * sizeof *pairs);
  for (int side = 0; side < 2; side++) {
    int all = side ? host_blocks : kv_blocks;
    int32_t *order = oc_host(c, (size_t)all * sizeof *order);
    for (int j = 0; j < all; j++) order[j] = j;
    for (int j = 0; j < n; j++) {
      int other = oc_range(c, j, all - 1);
      pairs[2 * j + side] = order[other];
      order[other] = order[j];
    }
  }
  return pairs;
}

void oc_case_move_blocks(oc *c, int i) {
  tri_dtype t = oc_kv_type(i);
  int kv_blocks = oc_range(c, 1, i % 3 ? 12 : 300), host_blocks = oc_range(c, 1, i % 3 ? 12 : 300);
  int n = oc_range(c, 0, kv_blocks < host_blocks ? kv_blocks : host_blocks), layers = oc_range(c, 1, i % 3 ? 5 : 2);
  size_t bytes, count;
  bool latent = i % 4 == 3;
  tri_move_blocks_args a = {
      .kv = kv_layer(c, t, kv_blocks, oc_range(c, 1, 3), oc_range(c, 1, 17), head_dims[i % 11], &bytes),
      .num_layers = layers,
      .num_host_blocks = host_blocks,
      .num_pairs = n,
      .pairs = make_pairs(c, kv_blocks, host_blocks, n),
      .out = oc_chance(c, 50),
      .num_turns = oc_range(c, 0, 4)};
  if (a.num_turns) a.turn = oc_range(c, 0, a.num_turns - 1);
  size_t all = 2 * (size_t)layers * bytes, pool = (latent ? 1 : 2) * (size_t)layers * bytes / (size_t)kv_blocks;
  pool *= (size_t)host_blocks;
  count = all / tri_dtype_size(t);
  char *cache = oc_elements(c, t, count, 1), *filled = oc_elements(c, t, pool / tri_dtype_size(t), 1);
  char *copy = oc_device(c, cache, all);
  a.layer_stride = 2 * bytes; /* a layer's keys and values lie behind one another */
  a.kv.k = cache, a.kv.v = latent ? NULL : cache + bytes, a.kv.v_dim = latent ? a.kv.head_dim : 0;
  snprintf(c->what, sizeof c->what, "move_blocks %s %s pairs %d layers %d, turn %d of %d%s", tri_dtype_name(t),
           a.out ? "out" : "in", n, layers, a.turn, a.num_turns, latent ? " latent" : "");
  tri_move_blocks_args b = a;
  b.kv.k = copy, b.kv.v = latent ? NULL : copy + bytes;
  a.host = pool_of(c, c->ref, filled, pool), b.host = pool_of(c, c->be, filled, pool);
  if (a.host && b.host) {
    oc_status(c, tri_run_move_blocks(c->ref, &a), tri_run_move_blocks(c->be, &b));
    oc_compare_elements(c, t, cache, copy, count, 0);
    oc_status(c, TRI_OK, c->be->ops.stream_sync(c->be));
    oc_compare_elements(c, t, a.host, oc_device(c, b.host, pool), pool / tri_dtype_size(t), 0);
  }
  c->ref->ops.host_free(c->ref, a.host, pool);
  c->be->ops.host_free(c->be, b.host, pool);
}
