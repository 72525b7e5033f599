/* SPDX-License-Identifier: Apache-2.0 */
/* Places of weights. loader.c and dummy.c fill them. Places follow from the config, the shard and the stored types
 * alone, in the order of the weights' ids: the ledger, `trireme plan`, packs and the loader each make the map anew and
 * find the same places. */
#include "runtime/load/weights.h"

#include "runtime/load/stored_form.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 64 };

const tri_st_tensor *tri_rule_find(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                                   int layer, int expert) {
  char name[256];
  const char *prefix;
  const tri_st_tensor *t = NULL;
  for (int i = 0; !t && (prefix = tri_tensor_prefix(c, i)); i++) { /* heads stand outside the prefix */
    int n = snprintf(name, sizeof name, "%s", prefix);
    snprintf(name + n, sizeof name - (size_t)n, rule->name, layer, expert);
    t = tri_checkpoint_find(ckpt, name);
  }
  return t;
}

/* The type of a rule's tensor in memory, unless another is asked for; TRI_DTYPE_COUNT without a tensor. */
static tri_dtype stored_dtype_of(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *r,
                                 int layer) {
  const tri_st_tensor *t = tri_rule_find(c, ckpt, r, layer, 0);
  if (t && t->dtype <= TRI_BF16) return t->dtype;
  return c->stored.method != TRI_STORED_PLAIN ? c->stored.widened : TRI_DTYPE_COUNT;
}

/* The type that a weight gets in memory: the stored one, or float32 where a fused weight's parts differ. */
static tri_dtype stored_dtype(const tri_model_config *c, const tri_checkpoint *ckpt, tri_weight_id id, int layer) {
  tri_dtype found = TRI_DTYPE_COUNT;
  tri_weight_id source = id == TRI_W_HEAD && c->head.tie_word_embeddings ? TRI_W_EMBED : id;
  if (id == TRI_W_CLASSIFIER && c->head.num_class_tokens) source = tri_class_tokens_weight(c);
  for (const tri_tensor_rule *r = tri_rule_next(c, NULL); ckpt && r; r = tri_rule_next(c, r)) {
    if (r->weight != source || !tri_rule_applies(c, r, layer)) continue;
    tri_dtype type = stored_dtype_of(c, ckpt, r, layer);
    if (type == TRI_DTYPE_COUNT) continue;
    if (found != TRI_DTYPE_COUNT && found != type) return TRI_F32;
    found = type;
  }
  if (found != TRI_DTYPE_COUNT) return found;
  return c->stored.method != TRI_STORED_PLAIN ? c->stored.widened : c->dtype;
}

/* The next free place for so many bytes after *end. */
static tri_status reserve(size_t *end, size_t bytes, size_t *offset) {
  *offset = *end;
  if (bytes > SIZE_MAX - ALIGN) return TRI_OVERFLOW;
  return tri_size_add(*end, (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1), end) ? TRI_OK : TRI_OVERFLOW;
}

/* A map, and what it is made of. */
struct mapping {
  const tri_model_config *c;
  const tri_shard *s;
  const tri_checkpoint *ckpt;
  tri_dtype dtype;
  tri_quantization quantization;
  const tri_tiers *tiers;
  tri_weight_map m;
};

/* Returns the part that a weight of the shard's layer l belongs to. */
static int part_of(const struct mapping *p, tri_weight_id id, int l) {
  if (tri_weight_is_of_experts(id) && tri_layer_experts_on_host(p->c, p->s->p, p->s->layers.first + l))
    return TRI_PART_ON_HOST;
  bool large = tri_weight_is_linear(id) || id == TRI_W_K_UP || id == TRI_W_V_UP;
  if (!large || !tri_weight_is_per_layer(id)) return TRI_PART_STAYS;
  return tri_part_of(l, tri_weight_is_mlp(id) ? TRI_PART_MLP : TRI_PART_ATTENTION);
}

/* Places the elements and the scales after *end. */
static tri_status put(size_t *end, tri_weight_place *at) {
  TRI_CHECK(reserve(end, at->bytes, &at->offset));
  return at->scale_bytes ? reserve(end, at->scale_bytes, &at->scale_offset) : TRI_OK;
}

/* In a block or in the weight's part: the part's bytes are counted either way. */
static tri_status find_place(struct mapping *p, int part, tri_weight_place *at) {
  tri_weight_place in_part = *at;
  at->part = TRI_PART_STAYS;
  if (part == TRI_PART_STAYS) return put(&p->m.bytes, at);
  if (part == TRI_PART_ON_HOST) {
    at->part = part;
    return put(&p->m.host_bytes, at);
  }
  in_part.part = part;
  TRI_CHECK(put(&p->m.part_bytes[part], &in_part));
  if (!p->tiers || p->tiers->number[part] == TRI_PART_STAYS) return put(&p->m.bytes, at);
  *at = in_part;
  return TRI_OK;
}

/* Returns whether everything but codes stays as it is: of a checkpoint that has FP8 nothing else is made FP8, and of a
 * file of int8 blocks nothing else int8. */
static bool keeps_numbers(const struct mapping *p) {
  const tri_stored *s = &p->c->stored;
  if (p->quantization == TRI_QUANTIZE_FP8) return tri_stored_has_fp8(s);
  return p->quantization == TRI_QUANTIZE_INT8 && p->ckpt && !s->wide_blocks_only && tri_stored_has_int8_blocks(s);
}

/* Finds the form of a weight that is not numbers: codes of the type that is asked for stay as they are stored. What is
 * made FP8 has a head as it was, as in published folders. Int8 blocks are not multiplied with rounded inputs. */
static void find_form(const struct mapping *p, tri_weight_id id, int layer, tri_weight_place *at) {
  if (p->quantization == TRI_QUANTIZE_NONE || !tri_weight_is_quantized(p->c, id)) return;
  bool fp8 = p->quantization == TRI_QUANTIZE_FP8;
  tri_dtype type = fp8 ? TRI_F8_E4M3 : TRI_I8;
  at->is_stored = p->c->stored.method != TRI_STORED_PLAIN &&
                  tri_stored_form_find(p->c, p->s, p->ckpt, id, layer, type, &at->groups);
  if (at->groups.cols && p->quantization == TRI_QUANTIZE_W8A8) {
    at->is_stored = false;
    at->groups = (tri_groups){0};
  }
  bool rounded = !keeps_numbers(p) && !(fp8 && id == TRI_W_HEAD);
  if (at->is_stored || rounded) at->dtype = type;
}

static bool find_bytes(tri_weight_shape shape, tri_weight_place *at) {
  size_t down = (size_t)tri_groups_down(at->groups, (int)shape.n);
  if (!tri_size_mul((size_t)shape.n, (size_t)shape.k, &at->bytes) ||
      !tri_size_mul(at->bytes, tri_dtype_size(at->dtype), &at->bytes))
    return false;
  if (at->dtype <= TRI_BF16) return true;
  return tri_size_mul(down, (size_t)tri_groups_across(at->groups, (int)shape.k), &at->scale_bytes) &&
         tri_size_mul(at->scale_bytes, sizeof(float), &at->scale_bytes);
}

/* l: of the shard's layers, of a weight that is per layer. */
static tri_status place(struct mapping *p, tri_weight_id id, int l, tri_weight_place *out) {
  const tri_model_config *c = p->c;
  int layer = tri_weight_is_per_layer(id) && !c->shared_layers ? p->s->layers.first + l : 0;
  tri_weight_shape shape = tri_shard_weight_shape(c, p->s, id, layer);
  tri_weight_place at = {.dtype = p->dtype};
  if (!tri_weight_in_layer(c, id, layer)) shape.n = 0;
  if (shape.vector || (id == TRI_W_POSITIONS && c->attention.position == TRI_POS_SINUSOID))
    at.dtype = TRI_F32;
  else if (p->dtype == TRI_DTYPE_COUNT)
    at.dtype = stored_dtype(c, p->ckpt, id, layer);
  at.inputs = at.dtype;
  find_form(p, id, layer, &at);
  if (shape.n > INT32_MAX || shape.k > INT32_MAX || !find_bytes(shape, &at)) return TRI_OVERFLOW;
  TRI_CHECK(find_place(p, part_of(p, id, l), &at));
  *out = at;
  return TRI_OK;
}

/* Looks at the weights whose GEMMs read what norms, attention and activations leave. Routers and gates of float32 take
 * rows of any type: they are small, and no reason for a whole model to compute in float32. */
static tri_dtype gemms_dtype(const tri_weight_map *m, int layers) {
  static const tri_weight_id gemms[] = {
      TRI_W_QKV,         TRI_W_QKV_A,       TRI_W_Q_B,           TRI_W_O,         TRI_W_UP,
      TRI_W_DOWN,        TRI_W_ROUTER,      TRI_W_EXPERT_UP,     TRI_W_SHARED_UP, TRI_W_SHARED_DOWN,
      TRI_W_SHARED_GATE, TRI_W_EXPERT_DOWN, TRI_W_ATTENTION_GATE};
  tri_dtype type = TRI_DTYPE_COUNT;
  for (int l = 0; l < layers; l++)
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
      const tri_weight_place *w = &m->layers[l * TRI_W_COUNT + (int)gemms[i]];
      bool is_gate = gemms[i] == TRI_W_ROUTER || gemms[i] == TRI_W_SHARED_GATE || gemms[i] == TRI_W_ATTENTION_GATE;
      bool takes_any = w->dtype == TRI_F32 && is_gate;
      if (!w->bytes || takes_any) continue;
      if (type == TRI_DTYPE_COUNT) type = w->inputs;
      if (w->inputs != type) return TRI_F32;
    }
  return type == TRI_F16 || type == TRI_BF16 ? type : TRI_F32;
}

/* Tied embeddings share a place where one rank has both ends of the model; in a pipeline the last stage has a copy.
 * Layers that share their weights (ALBERT) share the first one's places. */
tri_status tri_weight_map_make(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                               tri_dtype dtype, tri_quantization quantization, const tri_tiers *tiers,
                               tri_weight_map *out, tri_error *err) {
  tri_status st = TRI_OK;
  struct mapping p = {.c = c, .s = s, .ckpt = ckpt, .dtype = dtype, .quantization = quantization, .tiers = tiers};
  tri_weight_map *m = &p.m;
  m->layers = tri_calloc((size_t)s->layers.count * TRI_W_COUNT, sizeof *m->layers);
  m->part_bytes = tri_calloc((size_t)s->layers.count * TRI_LAYER_PARTS, sizeof *m->part_bytes);
  if (!m->layers || !m->part_bytes) {
    tri_weight_map_free(m);
    return tri_fail(err, TRI_NO_MEMORY, "model", "no memory for the table of weights");
  }
  for (int id = 0; id < TRI_W_COUNT; id++) {
    if (tri_weight_is_per_layer((tri_weight_id)id)) continue;
    if (id == TRI_W_HEAD && c->head.tie_word_embeddings && s->first_stage && s->last_stage) {
      m->global[id] = m->global[TRI_W_EMBED];
      continue;
    }
    TRI_TRY(place(&p, (tri_weight_id)id, 0, &m->global[id]));
  }
  for (int l = 0; l < s->layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      tri_weight_place *at = &m->layers[l * TRI_W_COUNT + id];
      if (!tri_weight_is_per_layer((tri_weight_id)id)) continue;
      if (c->shared_layers && l)
        *at = m->layers[id];
      else
        TRI_TRY(place(&p, (tri_weight_id)id, l, at));
    }
  m->gemms = gemms_dtype(m, s->layers.count);
  size_t counts = tri_weights_num_counts(s->layers.count) * sizeof(uint64_t);
  TRI_TRY(reserve(&m->bytes, counts, &m->counts));
  *out = *m;
  return TRI_OK;
cleanup:
  tri_weight_map_free(m);
  return tri_fail(err, st, "model", "the weights' size overflows");
}

void tri_weight_map_free(tri_weight_map *m) {
  tri_free(m->layers);
  tri_free(m->part_bytes);
  m->layers = NULL;
  m->part_bytes = NULL;
}

/* Calls fn for another weight that a model's rule fills, too, of the same tensor. */
static tri_status also_fill(const tri_model_config *c, const tri_shard *s, const tri_weight_map *m,
                            const tri_tensor_rule *rule, tri_weight_id id,
                            tri_status (*fn)(void *ctx, const tri_weight_target *t), void *ctx) {
  tri_weight_target t = {.rule = *rule, .place = m->global[id], .k = tri_shard_weight_shape(c, s, id, 0).k};
  t.rule.weight = id;
  return fn(ctx, &t);
}

/* Rules outside, layers inside: a rule's tensors of all layers come one after the other. */
tri_status tri_weights_each(const tri_model_config *c, const tri_shard *s, const tri_weight_map *m, int part,
                            tri_status (*fn)(void *ctx, const tri_weight_target *t), void *ctx) {
  for (const tri_tensor_rule *r = tri_rule_next(c, NULL); r; r = tri_rule_next(c, r)) {
    if (!tri_weight_is_per_layer(r->weight) && !tri_rule_applies(c, r, 0)) continue;
    tri_weight_target t = {.rule = *r};
    if (part == TRI_PART_STAYS && c->head.num_class_tokens && r->weight == tri_class_tokens_weight(c))
      TRI_CHECK(also_fill(c, s, m, r, TRI_W_CLASSIFIER, fn, ctx));
    if (r->weight == TRI_W_HEAD && (c->head.tie_word_embeddings || c->encoder))
      continue; /* a copy of the embedding, or of no use; where it is stored at all */
    bool per_layer = tri_weight_is_per_layer(r->weight), many = per_layer && !c->shared_layers;
    for (int l = 0; l < (many ? s->layers.count : 1); l++) {
      t.layer = many ? s->layers.first + l : 0;
      if (!tri_rule_applies(c, r, t.layer) || !tri_weight_in_layer(c, r->weight, t.layer)) continue;
      t.place = per_layer ? m->layers[l * TRI_W_COUNT + r->weight] : m->global[r->weight];
      if (t.place.part != part) continue;
      t.k = tri_shard_weight_shape(c, s, r->weight, t.layer).k;
      bool experts = r->flags & (TRI_TENSOR_PER_EXPERT | TRI_TENSOR_STACKED);
      for (t.slot = 0; t.slot < (experts ? s->slots.count : 1); t.slot++) {
        t.expert = experts ? tri_expert_of_slot(s->p.placement, t.layer, s->slots.first + t.slot) : 0;
        TRI_CHECK(fn(ctx, &t));
      }
      t.slot = t.expert = 0;
    }
    if (part == TRI_PART_STAYS && r->weight == TRI_W_EMBED && c->head.tie_word_embeddings && s->last_stage &&
        !s->first_stage)
      TRI_CHECK(also_fill(c, s, m, r, TRI_W_HEAD, fn, ctx));
  }
  return TRI_OK;
}

/* Returns where the memory begins that a place counts in. */
static char *base_of(const tri_weights *w, const tri_tiers *tiers, const tri_weight_place *at) {
  if (at->part == TRI_PART_ON_HOST) return w->host_memory;
  return at->part < 0 ? w->memory : w->ring + tiers->places[tiers->number[at->part]].at;
}

static void bind(const tri_model_config *c, const tri_shard *s, const tri_tiers *tiers, const tri_weight_map *m,
                 tri_weights *w) {
  for (int l = -1; l < s->layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      if (tri_weight_is_per_layer((tri_weight_id)id) != (l >= 0)) continue;
      const tri_weight_place *at = l < 0 ? &m->global[id] : &m->layers[l * TRI_W_COUNT + id];
      int layer = l < 0 || c->shared_layers ? 0 : s->layers.first + l;
      tri_weight_shape shape = tri_shard_weight_shape(c, s, (tri_weight_id)id, layer);
      if (l >= 0 && !tri_weight_in_layer(c, (tri_weight_id)id, s->layers.first + l)) shape.n = 0;
      tri_weight *to = l < 0 ? &w->global[id] : &w->layers[l].w[id];
      if (!shape.n) {
        *to = (tri_weight){.dtype = at->dtype, .k = (int)shape.k};
        continue;
      }
      char *base = base_of(w, tiers, at);
      *to = (tri_weight){.data = base + at->offset,
                         .scale = at->scale_bytes ? (const float *)(base + at->scale_offset) : NULL,
                         .dtype = at->dtype,
                         .groups = at->groups,
                         .n = (int)shape.n,
                         .k = (int)shape.k};
    }
}

/* Row p of a table of sinusoids: sin(p / 10000^(2i / width)) for i < width / 2, then the cosines; an odd width has one
 * sine more. */
static tri_status put_sinusoids(tri_backend *be, const tri_weight *to) {
  float *row = tri_malloc((size_t)to->k, sizeof *row);
  if (!row) return TRI_NO_MEMORY;
  int sines = (to->k + 1) / 2;
  for (int p = 0; p < to->n; p++) {
    for (int i = 0; i < to->k; i++) {
      int pair = i < sines ? i : i - sines;
      double angle = p / pow(10000, 2.0 * pair / to->k);
      row[i] = (float)(i < sines ? sin(angle) : cos(angle));
    }
    be->ops.upload(be, (char *)to->data + (size_t)p * (size_t)to->k * sizeof *row, row, (size_t)to->k * sizeof *row);
  }
  tri_status st = be->ops.stream_sync(be);
  tri_free(row);
  return st;
}

/* Three pieces: what stays, with the counters of its check at the end; the host's experts; the ring of streamed parts.
 */
static tri_status take_memory(tri_weights *w, int layers, const tri_tiers *tiers, const tri_weight_map *m) {
  tri_backend *be = w->backend;
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_WEIGHTS, m->bytes, &w->memory));
  w->bytes = m->bytes;
  w->not_finite = (uint64_t *)(void *)((char *)w->memory + m->counts);
  if (m->host_bytes) {
    TRI_CHECK(w->host->ops.mem_alloc(w->host, TRI_MEM_WEIGHTS, m->host_bytes, &w->host_memory));
    w->host_bytes = m->host_bytes;
    w->host_not_finite = tri_calloc(tri_weights_num_counts(layers), sizeof *w->host_not_finite);
    if (!w->host_not_finite) return TRI_NO_MEMORY;
  }
  if (!tiers || !tiers->num_streamed) return TRI_OK;
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_WEIGHTS, tiers->ring_bytes, (void **)&w->ring));
  w->ring_bytes = tiers->ring_bytes;
  return TRI_OK;
}

tri_status tri_weights_alloc(const tri_weights_config *config, const tri_weight_map *m, tri_weights **out,
                             tri_error *err) {
  const tri_model_config *c = config->model;
  const tri_shard *s = config->shard;
  tri_weights *w = tri_calloc(1, sizeof *w);
  if (!w) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory for a table of weights");
  w->backend = config->backend;
  w->host = config->host;
  w->gemms = m->gemms;
  w->layers = tri_calloc((size_t)s->layers.count, sizeof *w->layers);
  if (!w->layers || take_memory(w, s->layers.count, config->tiers, m) != TRI_OK) {
    size_t ring = config->tiers ? config->tiers->ring_bytes : 0;
    tri_weights_destroy(w);
    return tri_fail(err, TRI_NO_MEMORY, "model", "no memory for %zu bytes of weights", m->bytes + ring + m->host_bytes);
  }
  bind(c, s, config->tiers, m, w);
  const tri_weight *positions = &w->global[TRI_W_POSITIONS];
  bool sinusoids = c->attention.position == TRI_POS_SINUSOID && positions->data;
  if (sinusoids && put_sinusoids(config->backend, positions) != TRI_OK) {
    tri_weights_destroy(w);
    return tri_fail(err, TRI_NO_MEMORY, "model", "cannot make the table of positions");
  }
  *out = w;
  return TRI_OK;
}

void tri_weights_destroy(tri_weights *w) {
  if (!w) return;
  tri_backend *be = w->backend;
  if (w->memory) be->ops.mem_free(be, TRI_MEM_WEIGHTS, w->memory, w->bytes);
  if (w->ring) be->ops.mem_free(be, TRI_MEM_WEIGHTS, w->ring, w->ring_bytes);
  if (w->host_memory) w->host->ops.mem_free(w->host, TRI_MEM_WEIGHTS, w->host_memory, w->host_bytes);
  tri_free(w->host_not_finite);
  tri_free(w->layers);
  tri_free(w);
}
