/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: every bound element of every shard against a slow reading of the file, name by name; what a checkpoint must
 * not lack, hold or claim; made-up weights that do not depend on the layout. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/model/layout.h"
#include "runtime/load/weights.h"

Suite *suite_loader(void);

enum { PARTS = 8 }; /* of the folder of checkpoints, a test each */

/* ---- where an element of a shard comes from ---- */

/* An element of the whole model. For QKV `which` is 0 q, 1 k, 2 v and row counts inside that part; for UP 0 is the
 * gate. */
struct element {
  tri_weight_id id;
  int layer, which;
  int64_t row, col;
};

static struct element locate(const tri_model_config *c, const tri_shard *s, tri_weight_id id, int layer, int64_t row,
                             int64_t col) {
  struct element e = {id, layer, 0, row, col};
  tri_range q_heads = tri_shard_q_heads(c, s, layer), kv_heads = tri_shard_new_kv_heads(c, s, layer),
            units = tri_shard_units(c, s, layer);
  int64_t d = tri_layer_heads(c, layer).dim, q = q_heads.count * d, kv = kv_heads.count * d,
          v = tri_value_dim(c, layer);
  switch (id) {
  case TRI_W_EMBED:
  case TRI_W_LAYER_EMBED:
  case TRI_W_HEAD: e.row += s->vocab.first; break;
  case TRI_W_QKV:
  case TRI_W_QKV_BIAS:
    e.which = row < q ? 0 : row < q + kv ? 1 : 2;
    if (e.which == 0)
      e.row = row + q_heads.first * d;
    else
      e.row = e.which == 1 ? row - q + kv_heads.first * d : row - q - kv + kv_heads.first * v;
    break;
  case TRI_W_UP:
  case TRI_W_UP_BIAS:
    e.which = !c->mlp.gated || row >= units.count;
    e.row = row % units.count + units.first;
    break;
  case TRI_W_O: e.col += q_heads.first * v; break;
  case TRI_W_DOWN: e.col += units.first; break;
  default: break;
  }
  return e;
}

typedef float (*source_fn)(void *ctx, const tri_model_config *c, const struct element *e);

/* Every element of the shard's weights is what the source says it is, after rounding to the weight's type. */
static void compare(const tri_model_config *c, const tri_shard *s, const tri_weights *w, source_fn source, void *ctx,
                    const char *what) {
  for (int l = -1; l < s->layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      if (tri_weight_is_per_layer((tri_weight_id)id) != (l >= 0)) continue;
      const tri_weight *t = l < 0 ? &w->global[id] : &w->layers[l].w[id];
      tri_weight_shape shape = tri_shard_weight_shape(c, s, (tri_weight_id)id, l < 0 ? 0 : s->layers.first + l);
      ck_assert(t->n == shape.n && (!t->n || t->k == shape.k) && (t->data != NULL) == (t->n > 0));
      ck_assert(!shape.n || !shape.vector || t->dtype == TRI_F32);
      for (int64_t row = 0; row < t->n; row++)
        for (int64_t col = 0; col < t->k; col++) {
          struct element e = locate(c, s, (tri_weight_id)id, l < 0 ? 0 : s->layers.first + l, row, col);
          float want = source(ctx, c, &e), got = tri_load_f32(t->data, t->dtype, (size_t)(row * t->k + col));
          uint32_t rounded[1];
          tri_store_f32(rounded, t->dtype, 0, want);
          want = tri_load_f32(rounded, t->dtype, 0);
          if (memcmp(&want, &got, 4))
            ck_abort_msg("%s, tp %d of %d, pp %d of %d: %s, layer %d, element (%d, %d) is %g, not %g", what,
                         s->p.tp_rank, s->p.tp, s->p.pp_rank, s->p.pp, tri_weight_name((tri_weight_id)id), e.layer,
                         (int)row, (int)col, got, want);
        }
    }
}

/* ---- a slow reading of the file ---- */

struct file {
  tri_checkpoint *ckpt;
  char **data;   /* [tensors] */
  struct found { /* the tensors asked for last: looking a name up for each element would take most of the time */
    const char *pattern;
    int layer;
    const tri_st_tensor *tensor;
    const char *data;
  } found[64];
};

static struct file open_file(const char *dir) {
  struct file f = {0};
  tri_error err = {0};
  ck_assert_msg(tri_checkpoint_open(dir, &f.ckpt, &err) == TRI_OK, "%s: %s", dir, err.message);
  f.data = tri_calloc(tri_checkpoint_num_tensors(f.ckpt), sizeof *f.data);
  return f;
}

static void close_file(struct file *f) {
  for (size_t i = 0; i < tri_checkpoint_num_tensors(f->ckpt); i++) tri_free(f->data[i]);
  tri_free(f->data);
  tri_checkpoint_close(f->ckpt);
}

/* A tensor by its name as the file has it, with or without the family's prefix, and all of its bytes. */
static struct found find(struct file *f, const tri_model_config *c, const char *pattern, int layer) {
  char name[300];
  size_t n = (size_t)snprintf(name, sizeof name, "%s", c->arch->prefix);
  snprintf(name + n, sizeof name - n, pattern, layer);
  const tri_st_tensor *t = tri_checkpoint_find(f->ckpt, name);
  if (!t) t = tri_checkpoint_find(f->ckpt, name + n);
  ck_assert_msg(t != NULL, "no tensor %s", name);
  size_t i = (size_t)(t - tri_checkpoint_tensor(f->ckpt, 0));
  if (!f->data[i]) {
    f->data[i] = tri_malloc(t->bytes, 1);
    ck_assert_int_eq(pread(tri_checkpoint_fd(f->ckpt, t->file), f->data[i], t->bytes, (off_t)t->offset),
                     (ssize_t)t->bytes);
  }
  return (struct found){pattern, layer, t, f->data[i]};
}

static float stored(struct file *f, const tri_model_config *c, const char *pattern, int layer, int64_t row,
                    int64_t col) {
  struct found *at = &f->found[((uintptr_t)pattern / 8 + (unsigned)layer * 7) % 64];
  if (at->pattern != pattern || at->layer != layer) *at = find(f, c, pattern, layer);
  int64_t cols = at->tensor->rank == 2 ? at->tensor->shape[1] : at->tensor->shape[0];
  return tri_load_f32(at->data, at->tensor->dtype, (size_t)(row * cols + col));
}

static float llama_source(void *ctx, const tri_model_config *c, const struct element *e) {
  static const char *const qkv[] = {"layers.%d.self_attn.q_proj.weight", "layers.%d.self_attn.k_proj.weight",
                                    "layers.%d.self_attn.v_proj.weight"};
  static const char *const qkv_bias[] = {"layers.%d.self_attn.q_proj.bias", "layers.%d.self_attn.k_proj.bias",
                                         "layers.%d.self_attn.v_proj.bias"};
  static const char *const up[] = {"layers.%d.mlp.gate_proj.weight", "layers.%d.mlp.up_proj.weight"};
  static const char *const up_bias[] = {"layers.%d.mlp.gate_proj.bias", "layers.%d.mlp.up_proj.bias"};
  const char *name = NULL;
  switch (e->id) {
  case TRI_W_EMBED: return stored(ctx, c, "embed_tokens.weight", 0, e->row, e->col);
  case TRI_W_HEAD:
    return stored(ctx, c, c->head.tie_word_embeddings ? "embed_tokens.weight" : "lm_head.weight", 0, e->row, e->col);
  case TRI_W_QKV: return stored(ctx, c, qkv[e->which], e->layer, e->row, e->col);
  case TRI_W_UP: return stored(ctx, c, up[e->which], e->layer, e->row, e->col);
  case TRI_W_O: return stored(ctx, c, "layers.%d.self_attn.o_proj.weight", e->layer, e->row, e->col);
  case TRI_W_DOWN: return stored(ctx, c, "layers.%d.mlp.down_proj.weight", e->layer, e->row, e->col);
  case TRI_W_QKV_BIAS: name = qkv_bias[e->which]; break;
  case TRI_W_UP_BIAS: name = up_bias[e->which]; break;
  case TRI_W_O_BIAS: name = "layers.%d.self_attn.o_proj.bias"; break;
  case TRI_W_DOWN_BIAS: name = "layers.%d.mlp.down_proj.bias"; break;
  case TRI_W_NORM1: name = "layers.%d.input_layernorm.weight"; break;
  case TRI_W_NORM2: name = "layers.%d.post_attention_layernorm.weight"; break;
  case TRI_W_FINAL_NORM: name = "norm.weight"; break;
  default: ck_abort_msg("Llama has no %s", tri_weight_name(e->id));
  }
  return stored(ctx, c, name, e->layer, 0, e->row);
}

/* Conv1D holds [in, out]: row and column change places. */
static float gpt2_source(void *ctx, const tri_model_config *c, const struct element *e) {
  int64_t fused = e->which * c->hidden_size + e->row; /* q, k and v are hidden_size rows each */
  const char *name = NULL;
  int64_t at = e->row;
  switch (e->id) {
  case TRI_W_EMBED:
  case TRI_W_HEAD: return stored(ctx, c, "wte.weight", 0, e->row, e->col);
  case TRI_W_POSITIONS: return stored(ctx, c, "wpe.weight", 0, e->row, e->col);
  case TRI_W_QKV: return stored(ctx, c, "h.%d.attn.c_attn.weight", e->layer, e->col, fused);
  case TRI_W_O: return stored(ctx, c, "h.%d.attn.c_proj.weight", e->layer, e->col, e->row);
  case TRI_W_UP: return stored(ctx, c, "h.%d.mlp.c_fc.weight", e->layer, e->col, e->row);
  case TRI_W_DOWN: return stored(ctx, c, "h.%d.mlp.c_proj.weight", e->layer, e->col, e->row);
  case TRI_W_QKV_BIAS: name = "h.%d.attn.c_attn.bias", at = fused; break;
  case TRI_W_O_BIAS: name = "h.%d.attn.c_proj.bias"; break;
  case TRI_W_UP_BIAS: name = "h.%d.mlp.c_fc.bias"; break;
  case TRI_W_DOWN_BIAS: name = "h.%d.mlp.c_proj.bias"; break;
  case TRI_W_NORM1: name = "h.%d.ln_1.weight"; break;
  case TRI_W_NORM1_BIAS: name = "h.%d.ln_1.bias"; break;
  case TRI_W_NORM2: name = "h.%d.ln_2.weight"; break;
  case TRI_W_NORM2_BIAS: name = "h.%d.ln_2.bias"; break;
  case TRI_W_FINAL_NORM: name = "ln_f.weight"; break;
  case TRI_W_FINAL_NORM_BIAS: name = "ln_f.bias"; break;
  default: ck_abort_msg("GPT-2 has no %s", tri_weight_name(e->id));
  }
  return stored(ctx, c, name, e->layer, 0, at);
}

/* Each head's q, k and v follow one another. */
static float neox_source(void *ctx, const tri_model_config *c, const struct element *e) {
  int64_t d = c->attention.head_dim, woven = (e->row / d * 3 + e->which) * d + e->row % d, at = e->row;
  const char *name = NULL;
  switch (e->id) {
  case TRI_W_EMBED: return stored(ctx, c, "embed_in.weight", 0, e->row, e->col);
  case TRI_W_HEAD: return stored(ctx, c, "embed_out.weight", 0, e->row, e->col);
  case TRI_W_QKV: return stored(ctx, c, "layers.%d.attention.query_key_value.weight", e->layer, woven, e->col);
  case TRI_W_O: return stored(ctx, c, "layers.%d.attention.dense.weight", e->layer, e->row, e->col);
  case TRI_W_UP: return stored(ctx, c, "layers.%d.mlp.dense_h_to_4h.weight", e->layer, e->row, e->col);
  case TRI_W_DOWN: return stored(ctx, c, "layers.%d.mlp.dense_4h_to_h.weight", e->layer, e->row, e->col);
  case TRI_W_QKV_BIAS: name = "layers.%d.attention.query_key_value.bias", at = woven; break;
  case TRI_W_O_BIAS: name = "layers.%d.attention.dense.bias"; break;
  case TRI_W_UP_BIAS: name = "layers.%d.mlp.dense_h_to_4h.bias"; break;
  case TRI_W_DOWN_BIAS: name = "layers.%d.mlp.dense_4h_to_h.bias"; break;
  case TRI_W_NORM1: name = "layers.%d.input_layernorm.weight"; break;
  case TRI_W_NORM1_BIAS: name = "layers.%d.input_layernorm.bias"; break;
  case TRI_W_NORM2: name = "layers.%d.post_attention_layernorm.weight"; break;
  case TRI_W_NORM2_BIAS: name = "layers.%d.post_attention_layernorm.bias"; break;
  case TRI_W_FINAL_NORM: name = "final_layer_norm.weight"; break;
  case TRI_W_FINAL_NORM_BIAS: name = "final_layer_norm.bias"; break;
  default: ck_abort_msg("GPT-NeoX has no %s", tri_weight_name(e->id));
  }
  return stored(ctx, c, name, e->layer, 0, at);
}

#define BLOCK "encoder.layer.%d."
static float bert_source(void *ctx, const tri_model_config *c, const struct element *e) {
  static const char *const qkv[] = {BLOCK "attention.self.query.weight", BLOCK "attention.self.key.weight",
                                    BLOCK "attention.self.value.weight"};
  static const char *const qkv_bias[] = {BLOCK "attention.self.query.bias", BLOCK "attention.self.key.bias",
                                         BLOCK "attention.self.value.bias"};
  const char *name = NULL;
  switch (e->id) {
  case TRI_W_EMBED: return stored(ctx, c, "embeddings.word_embeddings.weight", 0, e->row, e->col);
  case TRI_W_POSITIONS: return stored(ctx, c, "embeddings.position_embeddings.weight", 0, e->row, e->col);
  case TRI_W_TYPES: return stored(ctx, c, "embeddings.token_type_embeddings.weight", 0, e->row, e->col);
  case TRI_W_POOLER: return stored(ctx, c, "pooler.dense.weight", 0, e->row, e->col);
  case TRI_W_CLASSIFIER: return stored(ctx, c, "classifier.weight", 0, e->row, e->col);
  case TRI_W_QKV: return stored(ctx, c, qkv[e->which], e->layer, e->row, e->col);
  case TRI_W_O: return stored(ctx, c, BLOCK "attention.output.dense.weight", e->layer, e->row, e->col);
  case TRI_W_UP: return stored(ctx, c, BLOCK "intermediate.dense.weight", e->layer, e->row, e->col);
  case TRI_W_DOWN: return stored(ctx, c, BLOCK "output.dense.weight", e->layer, e->row, e->col);
  case TRI_W_EMBED_NORM: name = "embeddings.LayerNorm.weight"; break;
  case TRI_W_EMBED_NORM_BIAS: name = "embeddings.LayerNorm.bias"; break;
  case TRI_W_POOLER_BIAS: name = "pooler.dense.bias"; break;
  case TRI_W_CLASSIFIER_BIAS: name = "classifier.bias"; break;
  case TRI_W_QKV_BIAS: name = qkv_bias[e->which]; break;
  case TRI_W_O_BIAS: name = BLOCK "attention.output.dense.bias"; break;
  case TRI_W_UP_BIAS: name = BLOCK "intermediate.dense.bias"; break;
  case TRI_W_DOWN_BIAS: name = BLOCK "output.dense.bias"; break;
  case TRI_W_NORM1: name = BLOCK "attention.output.LayerNorm.weight"; break;
  case TRI_W_NORM1_BIAS: name = BLOCK "attention.output.LayerNorm.bias"; break;
  case TRI_W_NORM2: name = BLOCK "output.LayerNorm.weight"; break;
  case TRI_W_NORM2_BIAS: name = BLOCK "output.LayerNorm.bias"; break;
  default: ck_abort_msg("BERT has no %s", tri_weight_name(e->id));
  }
  return stored(ctx, c, name, e->layer, 0, e->row);
}

static const struct {
  const char *dir;
  source_fn source;
} folders[] = {{"gpt2", gpt2_source},         {"gpt2_odd", gpt2_source},
               {"gpt2_bare", gpt2_source},    {"gpt_neox", neox_source},
               {"gpt_neox_odd", neox_source}, {"llama", llama_source},
               {"llama3", llama_source},      {"llama_odd", llama_source},
               {"llama_bias", llama_source},  {"llama_head_dim", llama_source},
               {"bert_odd", bert_source},     {"bert_classifier_odd", bert_source},
               {"roberta", bert_source}};

static tri_backend *make_backend(void) {
  tri_backend *be = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, &err) == TRI_OK, "%s", err.message);
  return be;
}

static const struct {
  int tp, pp;
  tri_dtype dtype;
} layouts[] = {{1, 1, TRI_DTYPE_COUNT}, {2, 1, TRI_DTYPE_COUNT}, {1, 2, TRI_DTYPE_COUNT},
               {2, 2, TRI_F32},         {3, 2, TRI_BF16},        {4, 1, TRI_F16}};

START_TEST(every_element_of_every_shard) {
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, folders[_i].dir);
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s", err.message);
  struct file f = open_file(dir);
  tri_backend *be = make_backend();
  for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
    for (int stage = 0; stage < layouts[k].pp; stage++)
      for (int rank = 0; rank < layouts[k].tp; rank++) {
        tri_shard s;
        tri_weights *w = NULL;
        if (tri_shard_make(&c,
                           (tri_parallel){.tp = layouts[k].tp, .pp = layouts[k].pp, .tp_rank = rank, .pp_rank = stage},
                           &s, &err) != TRI_OK)
          ck_abort_msg("%s", err.message);
        tri_status st = tri_weights_load(be, &c, &s, f.ckpt, layouts[k].dtype, TRI_QUANTIZE_NONE, &w, &err);
        ck_assert_msg(st == TRI_OK, "%s: %s: %s", folders[_i].dir, err.field, err.message);
        if (layouts[k].dtype != TRI_DTYPE_COUNT) ck_assert_int_eq(w->layers[0].w[TRI_W_QKV].dtype, layouts[k].dtype);
        ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], w->bytes);
        compare(&c, &s, w, folders[_i].source, &f, folders[_i].dir);
        tri_weights_destroy(w);
        ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0);
      }
  tri_backend_destroy(be);
  close_file(&f);
}
END_TEST

START_TEST(a_tied_head_shares_the_embeddings_memory) {
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/llama3", TRI_TEST_DATA);
  tri_model_config c;
  tri_shard s;
  tri_weights *w = NULL;
  ck_assert_int_eq(tri_model_config_load(dir, (tri_config_rules){0}, &c, NULL), TRI_OK);
  ck_assert(c.head.tie_word_embeddings);
  struct file f = open_file(dir);
  tri_backend *be = make_backend();
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, NULL), TRI_OK);
  ck_assert_int_eq(tri_weights_load(be, &c, &s, f.ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, &w, NULL), TRI_OK);
  ck_assert_ptr_eq(w->global[TRI_W_HEAD].data, w->global[TRI_W_EMBED].data);
  tri_weights_destroy(w);
  tri_backend_destroy(be);
  close_file(&f);
}
END_TEST

START_TEST(layers_share_their_weights) {
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/albert_odd", TRI_TEST_DATA);
  tri_model_config c;
  ck_assert_int_eq(tri_model_config_load(dir, (tri_config_rules){0}, &c, NULL), TRI_OK);
  ck_assert(c.shared_layers && c.num_layers == 3);
  struct file f = open_file(dir);
  tri_backend *be = make_backend();
  size_t bytes[3];
  for (int k = 0; k < 3; k++) { /* three layers, two of them, and the other one on the next stage */
    tri_shard s;
    tri_weights *w = NULL;
    ck_assert_int_eq(
        tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = k ? 2 : 1, .tp_rank = 0, .pp_rank = k == 1}, &s, NULL),
        TRI_OK);
    ck_assert_int_eq(tri_weights_load(be, &c, &s, f.ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, &w, NULL), TRI_OK);
    for (int l = 0; l < s.layers.count; l++)
      ck_assert_mem_eq(&w->layers[l], &w->layers[0], sizeof w->layers[0]); /* the same pointers */
    float first = stored(&f, &c, "encoder.albert_layer_groups.%d.albert_layers.0.ffn.weight", 0, 1, 2);
    const tri_weight *up = &w->layers[s.layers.count - 1].w[TRI_W_UP];
    ck_assert(tri_load_f32(up->data, up->dtype, (size_t)up->k + 2) == first);
    bytes[k] = w->bytes;
    tri_weights_destroy(w);
  }
  /* Both stages hold the layer, so together they have more than the whole model. */
  ck_assert(bytes[1] < bytes[0] && bytes[2] < bytes[0] && bytes[1] + bytes[2] > bytes[0]);
  tri_backend_destroy(be);
  close_file(&f);
}
END_TEST

/* ---- pieces ---- */

/* Pieces of a block, so that every tensor is in many, and a page cache that other threads read; or the usual pieces,
 * with what is in them shared by three threads. */
static void same_by_every_way(const tri_model_config *c, const tri_checkpoint *ckpt, tri_parallel p, tri_dtype dtype,
                              tri_quantization quantization, tri_pool *pool, const char *name) {
  static const tri_reader_config ways[] = {
      {.piece_bytes = TRI_READER_BLOCK, .num_buffers = 3, .kind = TRI_AIO_THREADS, .buffered = true},
      {.piece_bytes = 2 * TRI_READER_BLOCK, .num_buffers = 1},
      {.piece_bytes = 1 << 20, .num_buffers = 4}};
  tri_weights *first = NULL;
  tri_backend *be = make_backend();
  tri_error err = {0};
  tri_shard s;
  ck_assert_int_eq(tri_shard_make(c, p, &s, &err), TRI_OK);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    tri_weights *w = NULL;
    be->pool = i == 2 ? pool : NULL;
    tri_status st = tri_weights_load_with(be, c, &s, ckpt, dtype, quantization, &ways[i], &w, &err);
    ck_assert_msg(st == TRI_OK, "%s: %s", name, err.message);
    ck_assert_uint_gt(w->read_bytes, 0);
    if (first && (first->bytes != w->bytes || memcmp(first->memory, w->memory, w->bytes)))
      ck_abort_msg("%s, tp %d of %d: way %zu makes other weights", name, p.tp_rank, p.tp, i);
    if (first) tri_weights_destroy(w);
    if (!first) first = w;
  }
  tri_weights_destroy(first);
  tri_backend_destroy(be);
}

START_TEST(pieces_change_nothing) {
  static tri_model_config c;
  DIR *dir = opendir(TRI_TEST_DATA "/checkpoints");
  tri_pool *pool = NULL;
  int models = 0, number = 0;
  ck_assert_ptr_nonnull(dir);
  ck_assert_int_eq(tri_pool_create(3, NULL, 0, &pool), TRI_OK);
  for (struct dirent *e; (e = readdir(dir));) {
    char path[700];
    tri_checkpoint *ckpt = NULL;
    snprintf(path, sizeof path, "%s/checkpoints/%.255s", TRI_TEST_DATA, e->d_name);
    if (*e->d_name == '.' || number++ % PARTS != _i ||
        tri_model_config_load(path, (tri_config_rules){0}, &c, NULL) != TRI_OK || c.seq2seq.on ||
        tri_checkpoint_open(path, &ckpt, NULL) != TRI_OK)
      continue;
    for (int tp = 1; tp <= 2; tp++) {
      tri_parallel p = {.tp = tp, .pp = 1, .tp_rank = tp - 1};
      same_by_every_way(&c, ckpt, p, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, pool, e->d_name);
      same_by_every_way(&c, ckpt, p, tp == 1 ? TRI_F32 : TRI_F16, TRI_QUANTIZE_INT8, pool, e->d_name);
    }
    tri_checkpoint_close(ckpt);
    models++;
  }
  ck_assert_int_gt(models, 5);
  tri_pool_destroy(pool);
  closedir(dir);
}
END_TEST

/* A check refuses none of the checkpoints, those of encoder-decoders among them. */
START_TEST(checked_without_reading) {
  char path[700];
  int models = 0, seq2seq = 0;
  snprintf(path, sizeof path, "%s/checkpoints", TRI_TEST_DATA);
  DIR *dir = opendir(path);
  ck_assert_ptr_nonnull(dir);
  for (struct dirent *e; (e = readdir(dir));) {
    tri_model_config c;
    tri_checkpoint *ckpt;
    tri_error err = {0};
    snprintf(path, sizeof path, "%s/checkpoints/%.255s", TRI_TEST_DATA, e->d_name);
    if (*e->d_name == '.' || tri_model_config_load(path, (tri_config_rules){0}, &c, NULL) != TRI_OK ||
        tri_checkpoint_open(path, &ckpt, NULL) != TRI_OK)
      continue;
    tri_weights_find_head(&c, ckpt);
    if (tri_weights_check(&c, ckpt, &err) != TRI_OK) ck_abort_msg("%s: %s", e->d_name, err.message);
    models++;
    if (c.seq2seq.on) {
      c.num_layers++; /* of its decoder, which the file lacks */
      ck_assert_int_eq(tri_weights_check(&c, ckpt, &err), TRI_CORRUPT);
      c.num_layers--;
      c.seq2seq.num_layers++;
      ck_assert_int_eq(tri_weights_check(&c, ckpt, &err), TRI_CORRUPT);
      seq2seq++;
    }
    tri_checkpoint_close(ckpt);
  }
  ck_assert_int_gt(models, 40);
  ck_assert_int_gt(seq2seq, 2);
  closedir(dir);
}
END_TEST

/* ---- made-up weights ---- */

/* The (1, 1) layout's weights as the source of the others. */
static float whole_source(void *ctx, const tri_model_config *c, const struct element *e) {
  const tri_weights *w = ctx;
  const tri_weight *t = tri_weight_is_per_layer(e->id) ? &w->layers[e->layer].w[e->id] : &w->global[e->id];
  int64_t row = e->row, d = c->attention.head_dim;
  if (e->id == TRI_W_QKV || e->id == TRI_W_QKV_BIAS)
    row += e->which == 0 ? 0 : (c->attention.num_heads + (e->which == 2 ? c->attention.num_kv_heads : 0)) * d;
  if ((e->id == TRI_W_UP || e->id == TRI_W_UP_BIAS) && c->mlp.gated && e->which) row += c->mlp.intermediate_size;
  return tri_load_f32(t->data, t->dtype, (size_t)(row * t->k + e->col));
}

/* Rows of an expert's weight: the shard's are those of its slots' experts, as the whole model has them. */
static void compare_experts(const tri_weights *whole, const tri_weights *part, const tri_shard *s, int64_t experts) {
  static const tri_weight_id ids[] = {TRI_W_EXPERT_UP, TRI_W_EXPERT_DOWN, TRI_W_EXPERT_UP_BIAS, TRI_W_EXPERT_DOWN_BIAS};
  for (int l = 0; l < s->layers.count; l++)
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
      const tri_weight *all = &whole->layers[l].w[ids[i]], *own = &part->layers[l].w[ids[i]];
      size_t each = all->data ? (size_t)(all->n / experts * all->k) * tri_dtype_size(all->dtype) : 0;
      if (!each) continue;
      ck_assert_int_eq(own->n, all->n / experts * s->slots.count);
      for (int k = 0; k < s->slots.count; k++) {
        size_t expert = (size_t)tri_expert_of_slot(s->p.placement, s->layers.first + l, s->slots.first + k);
        ck_assert_mem_eq((const char *)own->data + (size_t)k * each, (const char *)all->data + expert * each, each);
      }
    }
}

/* A rank reads and holds its own experts only, whether a checkpoint has a tensor for each or stacks them. */
START_TEST(own_experts_only) { /* of each model linear, round robin, and with copies */
  static const char *const names[] = {"mixtral_odd", "gpt_oss_odd"};
  tri_model_config c;
  tri_error err = {0};
  tri_shard s;
  tri_weights *whole = NULL, *part;
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, names[_i % 2]);
  ck_assert_int_eq(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err), TRI_OK);
  struct file f = open_file(dir);
  tri_backend *be = make_backend();
  tri_expert_placement *placement;
  tri_expert_placement_config pc = {
      .ep = 2, .strategy = (tri_expert_strategy)(_i / 2 == 1), .num_redundant = _i / 2 == 2 ? 2 : 0};
  ck_assert_int_eq(tri_expert_placement_make(&c, &pc, &placement, &err), TRI_OK);
  ck_assert((placement != NULL) == (_i / 2 > 0));
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1}, &s, &err), TRI_OK);
  ck_assert_int_eq(tri_weights_load(be, &c, &s, f.ckpt, TRI_F32, TRI_QUANTIZE_NONE, &whole, &err), TRI_OK);
  int64_t per_expert = 0;
  for (int id = TRI_W_EXPERT_UP; id <= TRI_W_EXPERT_DOWN; id++)
    for (int l = 0; l < s.layers.count; l++)
      per_expert += (int64_t)whole->layers[l].w[id].n * whole->layers[l].w[id].k / c.moe.num_experts;
  for (int d = 0; d < 2; d++) {
    tri_parallel p = {.tp = 1, .pp = 1, .dp = 2, .ep = 2, .dp_rank = d, .placement = placement};
    ck_assert_msg(tri_shard_make(&c, p, &s, &err) == TRI_OK, "%s", err.message);
    tri_status st = tri_weights_load(be, &c, &s, f.ckpt, TRI_F32, TRI_QUANTIZE_NONE, &part, &err);
    ck_assert_msg(st == TRI_OK, "%s: %s", err.field, err.message);
    compare_experts(whole, part, &s, c.moe.num_experts);
    uint64_t foreign = (uint64_t)((c.moe.num_experts - s.slots.count) * per_expert);
    ck_assert_uint_le(part->bytes + foreign * sizeof(float) * 9 / 10, whole->bytes);
    ck_assert_uint_le(part->read_bytes + foreign * tri_dtype_size(c.dtype) * 9 / 10, whole->read_bytes);
    tri_weights_destroy(part);
  }
  tri_weights_destroy(whole);
  tri_expert_placement_free(placement);
  tri_backend_destroy(be);
  close_file(&f);
}
END_TEST

START_TEST(dummy_weights_are_the_same_in_every_layout) {
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, folders[_i].dir);
  tri_model_config c;
  tri_shard s;
  tri_weights *whole = NULL, *other = NULL;
  ck_assert_int_eq(tri_model_config_load(dir, (tri_config_rules){0}, &c, NULL), TRI_OK);
  tri_backend *be = make_backend();
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, NULL), TRI_OK);
  ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_NONE, &whole, NULL), TRI_OK);
  static const tri_parallel shapes[] = {{.tp = 1, .pp = 2}, {.tp = 2, .pp = 1}, {.tp = 3, .pp = 2}, {.tp = 4, .pp = 1}};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (int stage = 0; stage < shapes[k].pp; stage++)
      for (int rank = 0; rank < shapes[k].tp; rank++) {
        ck_assert_int_eq(
            tri_shard_make(&c,
                           (tri_parallel){.tp = shapes[k].tp, .pp = shapes[k].pp, .tp_rank = rank, .pp_rank = stage},
                           &s, NULL),
            TRI_OK);
        ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_NONE, &other, NULL), TRI_OK);
        compare(&c, &s, other, whole_source, whole, folders[_i].dir);
        tri_weights_destroy(other);
      }
  /* Not constant, of the width that keeps activations near one, another model for another seed. */
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, NULL), TRI_OK);
  ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 8, TRI_F32, TRI_QUANTIZE_NONE, &other, NULL), TRI_OK);
  const tri_weight *a = &whole->layers[0].w[TRI_W_O], *b = &other->layers[0].w[TRI_W_O],
                   *l1 = &whole->layers[1].w[TRI_W_O];
  double squares = 0;
  int same = 0, same_layer = 0, n = a->n * a->k;
  for (int i = 0; i < n; i++) {
    float x = ((const float *)a->data)[i];
    squares += (double)x * x;
    same += x == ((const float *)b->data)[i];
    same_layer += x == ((const float *)l1->data)[i];
  }
  ck_assert_msg(fabs(squares / n * a->k - 1) < 0.1, "variance times columns is %g", squares / n * a->k);
  ck_assert(same < n / 100 && same_layer < n / 100);
  tri_weights_destroy(whole);
  tri_weights_destroy(other);
  tri_backend_destroy(be);
}
END_TEST

/* ---- checkpoints that do not fit their config ---- */

#define FOLDER TRI_TEST_SCRATCH "/loader"

static const char tiny[] =
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":3,\"vocab_size\":5}";

static struct tensor {
  char name[100];
  const char *dtype;
  int rank;
  int64_t shape[3];
} tensors[40];
static int num_tensors;

static void add(const char *dtype, int rank, int64_t rows, int64_t cols, const char *pattern, int layer) {
  struct tensor *t = &tensors[num_tensors++];
  *t = (struct tensor){.dtype = dtype, .rank = rank, .shape = {rows, cols}};
  snprintf(t->name, sizeof t->name, pattern, layer);
}

static void tiny_tensors(void) {
  num_tensors = 0;
  add("F32", 2, 5, 4, "model.embed_tokens.weight", 0);
  for (int l = 0; l < 2; l++) {
    add("F32", 1, 4, 0, "model.layers.%d.input_layernorm.weight", l);
    add("F32", 2, 4, 4, "model.layers.%d.self_attn.q_proj.weight", l);
    add("F32", 2, 2, 4, "model.layers.%d.self_attn.k_proj.weight", l);
    add("F32", 2, 2, 4, "model.layers.%d.self_attn.v_proj.weight", l);
    add("F32", 2, 4, 4, "model.layers.%d.self_attn.o_proj.weight", l);
    add("F32", 1, 4, 0, "model.layers.%d.post_attention_layernorm.weight", l);
    add("F32", 2, 3, 4, "model.layers.%d.mlp.gate_proj.weight", l);
    add("F32", 2, 3, 4, "model.layers.%d.mlp.up_proj.weight", l);
    add("F32", 2, 4, 3, "model.layers.%d.mlp.down_proj.weight", l);
  }
  add("F32", 1, 4, 0, "model.norm.weight", 0);
  add("F32", 2, 5, 4, "lm_head.weight", 0);
}

/* Writes the tensors (zeros) to a model.safetensors, leaving out number `without` (-1: none). */
static void write_checkpoint(int without) {
  static char header[16384];
  size_t n = 1;
  int64_t at = 0;
  header[0] = '{';
  for (int i = 0; i < num_tensors; i++) {
    const struct tensor *t = &tensors[i];
    if (i == without) continue;
    int64_t bytes = !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "I32") ? 4 : !strcmp(t->dtype, "F64") ? 8 : 2;
    n += (size_t)snprintf(header + n, sizeof header - n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", n > 1 ? "," : "",
                          t->name, t->dtype);
    for (int k = 0; k < t->rank; k++) {
      bytes *= t->shape[k];
      n += (size_t)snprintf(header + n, sizeof header - n, "%s%lld", k ? "," : "", (long long)t->shape[k]);
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                          (long long)(at + bytes));
    at += bytes;
  }
  header[n++] = '}';
  ck_assert_uint_lt(n, sizeof header);
  mkdir(FOLDER, 0755);
  FILE *f = fopen(FOLDER "/model.safetensors", "wb");
  ck_assert_ptr_nonnull(f);
  uint64_t len = n;
  fwrite(&len, 1, 8, f);
  fwrite(header, 1, n, f);
  ck_assert_int_eq(fflush(f), 0);
  ck_assert_int_eq(ftruncate(fileno(f), (off_t)(8 + n) + at), 0);
  fclose(f);
}

static tri_status load_tiny(const char *config, tri_parallel p, tri_error *err) {
  tri_model_config c;
  tri_shard s;
  tri_weights *w = NULL;
  struct file f = open_file(FOLDER);
  tri_backend *be = make_backend();
  tri_error_clear(err);
  ck_assert_msg(tri_model_config_parse(config, strlen(config), NULL, 0, (tri_config_rules){0}, &c, err) == TRI_OK, "%s",
                err->message);
  ck_assert_int_eq(tri_shard_make(&c, p, &s, err), TRI_OK);
  tri_status st = tri_weights_load(be, &c, &s, f.ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, &w, err);
  ck_assert((st == TRI_OK) == (w != NULL) && (st == TRI_OK) == (err->status == TRI_OK));
  tri_error before = {0}; /* what a plan says of it, which knows nothing of the reader's buffers */
  tri_status checked = tri_weights_check(&c, f.ckpt, &before), expected = st == TRI_TOO_LARGE ? TRI_OK : st;
  ck_assert_msg(checked == expected, "%s, not %s", tri_status_name(checked), tri_status_name(expected));
  if (checked != TRI_OK) ck_assert_str_eq(before.field, err->field);
  if (checked != TRI_OK) ck_assert_str_eq(before.message, err->message);
  tri_weights_destroy(w);
  ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0); /* nothing is kept after a failure */
  tri_backend_destroy(be);
  close_file(&f);
  return st;
}

static const tri_parallel one = {.tp = 1, .pp = 1};

static void refused(tri_status want, const char *name) {
  tri_error err = {0};
  tri_status st = load_tiny(tiny, one, &err);
  ck_assert_msg(st == want, "%s: %s (%s)", name, tri_status_name(st), err.message);
  const char *bare = strncmp(name, "model.", 6) ? name : name + 6;
  ck_assert_msg(strstr(err.field, bare) && strstr(err.message, bare), "%s: blamed on %s: %s", name, err.field,
                err.message);
}

START_TEST(missing_tensors) {
  tri_error err = {0};
  tiny_tensors();
  write_checkpoint(-1);
  ck_assert_msg(load_tiny(tiny, one, &err) == TRI_OK, "%s: %s", err.field, err.message);
  for (int i = 0; i < num_tensors; i++) {
    write_checkpoint(i);
    refused(TRI_CORRUPT, tensors[i].name);
  }
}
END_TEST

START_TEST(wrong_shapes) {
  for (int i = 0; i < 21; i++)
    for (int how = 0; how < 5; how++) {
      tiny_tensors();
      struct tensor *t = &tensors[i];
      switch (how) {
      case 0: t->shape[0]++; break;
      case 1: t->shape[t->rank - 1]--; break;
      case 2: t->shape[t->rank++] = 1; break; /* a dimension more */
      case 3: t->rank--; break;
      case 4: t->shape[0] = 0; break;
      }
      write_checkpoint(-1);
      refused(TRI_CORRUPT, t->name);
    }
}
END_TEST

START_TEST(wrong_types) {
  static const char *const types[] = {"I32", "F64", "I16"};
  for (size_t k = 0; k < 3; k++)
    for (int i = 0; i < 21; i++) {
      tiny_tensors();
      tensors[i].dtype = types[k];
      write_checkpoint(-1);
      refused(TRI_UNSUPPORTED, tensors[i].name);
    }
}
END_TEST

START_TEST(tensors_that_nobody_asks_for) {
  static const char *const names[] = {
      "model.layers.0.self_attn.q_proj.bias",   /* the config says: no bias */
      "model.layers.2.self_attn.q_proj.weight", /* a third layer */
      "model.layers.-1.self_attn.q_proj.weight",
      "model.layers.00.self_attn.q_proj.weight",
      "model.layers.+0.self_attn.q_proj.weight",
      "model.layers. 0.self_attn.q_proj.weight",
      "model.layers.99999999999.self_attn.q_proj.weight",
      "model.layers.0.self_attn.q_norm.weight",
      "model.layers.0.self_attn.q_proj.weight_scale",
      "model.model.norm.weight",
      "something.else",
      "model.",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    tiny_tensors();
    add("F32", 1, 4, 0, "extra", 0);
    snprintf(tensors[num_tensors - 1].name, sizeof tensors[0].name, "%s", names[i]);
    write_checkpoint(-1);
    refused(TRI_UNSUPPORTED, names[i]);
  }
  tiny_tensors(); /* but old files carry a table that the model makes itself */
  add("F32", 1, 1, 0, "model.layers.%d.self_attn.rotary_emb.inv_freq", 1);
  write_checkpoint(-1);
  tri_error err = {0};
  ck_assert_msg(load_tiny(tiny, one, &err) == TRI_OK, "%s: %s", err.field, err.message);
}
END_TEST

/* Both spellings of a multimodal folder, with tensors of towers, which a model of text alone refuses. */
START_TEST(text_part_of_a_multimodal_folder) {
  static const char config[] =
      "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\",\"hidden_size\":4,"
      "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":3,"
      "\"vocab_size\":5}}";
  static const char *const names[][3] = {
      {"language_model.model.", "language_model.lm_head.weight", "vision_tower.norm.weight"},
      {"model.language_model.", "lm_head.weight", "model.visual.norm.weight"}};
  static const char model[] = "model.";
  for (int k = 0; k < 2; k++) {
    tri_error err = {0};
    tiny_tensors();
    for (int i = 0; i < num_tensors; i++) {
      char old[100];
      bool head = strncmp(tensors[i].name, model, sizeof model - 1) != 0;
      snprintf(old, sizeof old, "%.60s", tensors[i].name + (head ? 0 : sizeof model - 1));
      snprintf(tensors[i].name, sizeof tensors[i].name, "%s%s", head ? "" : names[k][0], head ? names[k][1] : old);
    }
    add("F32", 1, 4, 0, "tower", 0);
    char *tower = tensors[num_tensors - 1].name;
    snprintf(tower, sizeof tensors[0].name, "%s", names[k][2]);
    write_checkpoint(-1);
    ck_assert_msg(load_tiny(config, one, &err) == TRI_OK, "%s: %s", err.field, err.message);
    snprintf(tower, sizeof tensors[0].name, "towers.norm.weight");
    write_checkpoint(-1);
    ck_assert_int_eq(load_tiny(config, one, &err), TRI_UNSUPPORTED);
    ck_assert_str_eq(err.field, "towers.norm.weight");
  }
  tiny_tensors();
  add("F32", 1, 4, 0, "vision_tower.norm.weight", 0);
  write_checkpoint(-1);
  refused(TRI_UNSUPPORTED, "vision_tower.norm.weight");
}
END_TEST

START_TEST(a_file_that_shrinks) {
  tri_model_config c;
  tri_shard s;
  tri_weights *w = NULL;
  tri_error err = {0};
  tiny_tensors();
  write_checkpoint(-1);
  struct file f = open_file(FOLDER);
  tri_backend *be = make_backend();
  ck_assert_int_eq(tri_model_config_parse(tiny, strlen(tiny), NULL, 0, (tri_config_rules){0}, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, one, &s, &err), TRI_OK);
  struct stat sb;
  ck_assert_int_eq(stat(FOLDER "/model.safetensors", &sb), 0);
  ck_assert_int_eq(truncate(FOLDER "/model.safetensors", sb.st_size - 4), 0);
  ck_assert_int_eq(tri_weights_load(be, &c, &s, f.ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, &w, &err), TRI_IO);
  ck_assert_str_eq(err.field, "lm_head.weight");
  ck_assert_ptr_null(w);
  tri_backend_destroy(be);
  close_file(&f);
}
END_TEST

/* ---- memory and copies that fail ---- */

static tri_status no_host_memory(tri_backend *be, size_t bytes, void **out) {
  (void)be, (void)bytes, (void)out;
  return TRI_NO_MEMORY;
}

static tri_status lost(tri_backend *be, int event) {
  (void)event;
  snprintf(be->failure, sizeof be->failure, "the device is gone");
  return TRI_DEVICE_LOST;
}

START_TEST(refused_before_and_lost_after) {
  tri_model_config c;
  tri_shard s;
  tri_weights *w = NULL;
  tri_reader_config much = {.piece_bytes = 32 << 20, .num_buffers = 8}, usual = tri_reader_config_default();
  tiny_tensors();
  write_checkpoint(-1);
  struct file f = open_file(FOLDER);
  ck_assert_int_eq(tri_model_config_parse(tiny, strlen(tiny), NULL, 0, (tri_config_rules){0}, &c, NULL), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, one, &s, NULL), TRI_OK);
  for (int how = 0; how < 3; how++) {
    static const tri_status want[] = {TRI_NO_MEMORY, TRI_TOO_LARGE, TRI_DEVICE_LOST};
    static const char *const says[] = {"MiB of host memory", "exceed 256 MiB", "the device is gone"};
    tri_error err = {0};
    tri_backend *be = make_backend();
    if (how == 0) be->ops.host_alloc = no_host_memory;
    if (how == 2) be->ops.event_wait = lost;
    tri_status st = tri_weights_load_with(be, &c, &s, f.ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE,
                                          how == 1 ? &much : &usual, &w, &err);
    ck_assert_int_eq(st, want[how]);
    ck_assert_msg(strstr(err.message, says[how]) != NULL, "%s", err.message);
    ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0);
    tri_backend_destroy(be);
  }
  close_file(&f);
}
END_TEST

/* A header of any length puts the tensors anywhere: what is read is what lies there. */
START_TEST(tensors_at_odd_places) {
  for (int pad = 0; pad < 5; pad++) {
    tri_error err = {0};
    tiny_tensors();
    add("F32", 1, 1, 0, "model.layers.%d.self_attn.rotary_emb.inv_freq", 1);
    if (pad) snprintf(tensors[num_tensors - 1].name, sizeof tensors[0].name, "%.*s", pad, "rest");
    write_checkpoint(pad ? num_tensors - 1 : -1);
    int fd = open(FOLDER "/model.safetensors", O_RDWR | O_CLOEXEC);
    struct stat sb;
    ck_assert(fd >= 0 && !fstat(fd, &sb));
    char *all = tri_calloc((size_t)sb.st_size + (size_t)pad, 1);
    uint64_t len;
    ck_assert_int_eq(pread(fd, all, (size_t)sb.st_size, 0), (ssize_t)sb.st_size);
    memcpy(&len, all, 8);
    /* Spaces behind the header, and numbers that count themselves as the data. */
    size_t data = 8 + len + (size_t)pad, count = ((size_t)sb.st_size - 8 - len) / 4;
    memset(all + 8 + len, ' ', (size_t)pad);
    len += (uint64_t)pad;
    memcpy(all, &len, 8);
    for (size_t i = 0; i < count; i++) memcpy(all + data + 4 * i, &(float){(float)i}, 4);
    ck_assert_int_eq(pwrite(fd, all, data + 4 * count, 0), (ssize_t)(data + 4 * count));
    close(fd);
    tri_free(all);
    tri_model_config c;
    tri_shard s;
    tri_weights *w = NULL;
    struct file f = open_file(FOLDER);
    tri_backend *be = make_backend();
    ck_assert_int_eq(tri_model_config_parse(tiny, strlen(tiny), NULL, 0, (tri_config_rules){0}, &c, &err), TRI_OK);
    ck_assert_int_eq(tri_shard_make(&c, one, &s, &err), TRI_OK);
    for (int narrow = 0; narrow < 2; narrow++) {
      tri_dtype type = narrow ? TRI_BF16 : TRI_F32;
      ck_assert_int_eq(tri_weights_load(be, &c, &s, f.ckpt, type, TRI_QUANTIZE_NONE, &w, &err), TRI_OK);
      compare(&c, &s, w, llama_source, &f, "odd places");
      tri_weights_destroy(w);
    }
    tri_backend_destroy(be);
    close_file(&f);
  }
}
END_TEST

/* Rows beyond the staging buffer: refused or read, never written past it. The file is sparse. */
START_TEST(rows_wider_than_the_staging_buffer) {
  static const char wide[] =
      "{\"model_type\":\"llama\",\"hidden_size\":2,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
      "\"head_dim\":2,\"intermediate_size\":2200000,\"vocab_size\":5}";
  num_tensors = 0;
  add("F32", 2, 5, 2, "model.embed_tokens.weight", 0);
  add("F32", 1, 2, 0, "model.layers.%d.input_layernorm.weight", 0);
  add("F32", 2, 4, 2, "model.layers.%d.self_attn.q_proj.weight", 0);
  add("F32", 2, 4, 2, "model.layers.%d.self_attn.k_proj.weight", 0);
  add("F32", 2, 4, 2, "model.layers.%d.self_attn.v_proj.weight", 0);
  add("F32", 2, 2, 4, "model.layers.%d.self_attn.o_proj.weight", 0);
  add("F32", 1, 2, 0, "model.layers.%d.post_attention_layernorm.weight", 0);
  add("F32", 2, 2200000, 2, "model.layers.%d.mlp.gate_proj.weight", 0);
  add("F32", 2, 2200000, 2, "model.layers.%d.mlp.up_proj.weight", 0);
  add("F32", 2, 2, 2200000, "model.layers.%d.mlp.down_proj.weight", 0);
  add("F32", 1, 2, 0, "model.norm.weight", 0);
  add("F32", 2, 5, 2, "lm_head.weight", 0);
  write_checkpoint(-1);
  for (int tp = 1; tp <= 2; tp++) {
    tri_error err = {0};
    tri_status st = load_tiny(wide, (tri_parallel){.tp = tp, .pp = 1, .tp_rank = tp - 1, .pp_rank = 0}, &err);
    ck_assert_msg(st == TRI_OK || st == TRI_TOO_LARGE, "%s: %s", tri_status_name(st), err.message);
    if (st != TRI_OK) ck_assert_ptr_nonnull(strstr(err.field, "down_proj"));
  }
  unlink(FOLDER "/model.safetensors");
}
END_TEST

Suite *suite_loader(void) {
  Suite *s = suite_create("loader");
  TCase *c = tcase_create("loader");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, every_element_of_every_shard, 0, sizeof folders / sizeof *folders);
  tcase_add_test(c, a_tied_head_shares_the_embeddings_memory);
  tcase_add_test(c, layers_share_their_weights);
  tcase_add_loop_test(c, pieces_change_nothing, 0, PARTS);
  tcase_add_test(c, checked_without_reading);
  suite_add_tcase(s, c);
  c = tcase_create("dummy");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, own_experts_only, 0, 6);
  tcase_add_loop_test(c, dummy_weights_are_the_same_in_every_layout, 0, sizeof folders / sizeof *folders);
  suite_add_tcase(s, c);
  c = tcase_create("refusals");
  tcase_add_test(c, missing_tensors);
  tcase_add_test(c, wrong_shapes);
  tcase_add_test(c, wrong_types);
  tcase_add_test(c, tensors_that_nobody_asks_for);
  tcase_add_test(c, text_part_of_a_multimodal_folder);
  tcase_add_test(c, a_file_that_shrinks);
  tcase_add_test(c, tensors_at_odd_places);
  tcase_add_test(c, refused_before_and_lost_after);
  tcase_add_test(c, rows_wider_than_the_staging_buffer);
  suite_add_tcase(s, c);
  return s;
}
