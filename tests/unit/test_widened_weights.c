/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that are quantized already: in every layout a rank has, byte for byte, the weights of a plain checkpoint
 * with the same matrices, which is written here with the slow functions; the same from pieces of a few rows, and
 * rounded to int8. Then tensors that do not fit, each refused by its name. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "kernels/ref/ref.h"
#include "runtime/load/form_check.h"
#include "runtime/load/hot_weights.h"
#include "runtime/load/weights.h"
#include "tests/unit/slow_widen.h"

Suite *suite_widened_weights(void);

#define PLAIN TRI_TEST_SCRATCH "/widened"
#define BROKEN TRI_TEST_SCRATCH "/broken"

#define RANDOM TRI_TEST_SCRATCH "/random"
#define WIDE(quantization)                                                                                             \
  "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                    \
  "\"intermediate_size\":9008,\"vocab_size\":8,\"quantization_config\":{" quantization "}}"

#define SMALL(type, keys)                                                                                              \
  "{\"model_type\":\"" type "\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                 \
  "\"num_key_value_heads\":2,\"intermediate_size\":104,\"vocab_size\":8," keys                                         \
  "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[32,48]}}"

/* Folders of tests/data/checkpoints, or configs of models: with rows longer than a piece; with an expert that is stored
 * in another way than the others; with a matrix of one tensor whose rows are cut inside of blocks. */
static const struct {
  const char *name, *config;
  int tp;       /* of all layouts up to it */
  size_t piece; /* bytes of small pieces */
} models[] = {
    {"fp8_deepseek_v3", NULL, 4, 4096},
    {"fp8_llama", NULL, 3, 4096},
    {"mxfp4_gpt_oss", NULL, 3, 4096},
    {"int_llama", NULL, 3, 4096},
    {"gptq_mixtral", NULL, 4, 4096},
    {"gptq_llama", NULL, 3, 4096},
    {"awq_qwen2", NULL, 3, 4096},
    {"wide FP8", WIDE("\"quant_method\":\"fp8\",\"weight_block_size\":[32,48]"), 3, 8192},
    {"wide GPTQ", WIDE("\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32"), 3, 16384},
    {"wide ModelOpt", WIDE("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\""), 3, 8192},
    {"mixed experts", SMALL("mixtral", "\"num_local_experts\":3,\"num_experts_per_tok\":2,"), 3, 8192},
    {"rows of one tensor", SMALL("starcoder2", "\"use_bias\":false,"), 3, 8192},
    {"wide int8",
     WIDE("\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\",\"config_groups\":{\"a\":{\"weights\":{"
          "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"}}}"),
     3, 8192}};
enum { NUM_MODELS = sizeof models / sizeof *models, NUM_STORED = 7 };

/* ---- the plain twin ---- */

static tri_checkpoint *open_checkpoint(const char *dir) {
  tri_checkpoint *c = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_checkpoint_open(dir, &c, &err) == TRI_OK, "%s: %s", dir, err.message);
  return c;
}

static void *read_tensor(const tri_checkpoint *c, const tri_st_tensor *t) {
  void *p = tri_malloc(t->bytes + 8, 1);
  ck_assert_int_eq(pread(tri_checkpoint_fd(c, t->file), p, t->bytes, (off_t)t->offset), (ssize_t)t->bytes);
  return p;
}

/* Finds what a layer has behind its name; NULL without. */
static const tri_st_tensor *find(const tri_checkpoint *c, const char *stem, const char *suffix) {
  char name[300];
  snprintf(name, sizeof name, "%s%s", stem, suffix);
  return tri_checkpoint_find(c, name);
}

static const struct {
  const char *codes, *scales, *zeros, *order;
  slow_format format;
} suffixes[] = {{"_blocks", "_scales", "", "", SLOW_MXFP4},
                {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx", SLOW_PACKED},
                {".qweight", ".scales", ".qzeros", ".g_idx", SLOW_GPTQ},
                {".weight", ".weight_scale_inv", ".weight_zero_point", ".weight_g_idx", SLOW_FP8},
                {".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx", SLOW_FP8}};
enum { NUM_SUFFIXES = sizeof suffixes / sizeof *suffixes };

/* A quantized layer of the checkpoint with the matrix's shape [out, in] as the rule has it. */
struct layer {
  slow_matrix m;
  void *memory[4];
  int64_t stack;
};

static const void *take(struct layer *l, int number, const tri_checkpoint *c, const tri_st_tensor *t) {
  l->memory[number] = t ? read_tensor(c, t) : NULL;
  return l->memory[number];
}

/* The group sizes are those that make so many scales of the shapes here: 32 x 48 blocks, groups of 32. */
static void find_groups(slow_matrix *m, const tri_st_tensor *scales, bool inputs_first) {
  int64_t first = scales->rank > 1 ? scales->shape[scales->rank - 2] : scales->shape[0];
  int64_t last = scales->rank > 1 ? scales->shape[scales->rank - 1] : 1;
  if (scales->rank == 4) first = scales->shape[0], last = scales->shape[2];
  int64_t in = inputs_first ? first : last, out = inputs_first ? last : first;
  m->group_in = in == 1 ? m->in : m->format == SLOW_FP8 ? 48 : 32;
  m->group_out = out == m->out ? 1 : out == 1 ? m->out : 32;
}

static bool read_layer(const tri_model_config *c, const tri_checkpoint *ckpt, const char *stem, int64_t out, int64_t in,
                       struct layer *l) {
  for (int i = 0; i < NUM_SUFFIXES; i++) {
    const tri_st_tensor *codes = find(ckpt, stem, suffixes[i].codes), *scales = find(ckpt, stem, suffixes[i].scales);
    if (!codes || !scales) continue;
    slow_format f = suffixes[i].format;
    if (f == SLOW_FP8 && codes->dtype == TRI_I8) f = SLOW_INT8;
    if (f == SLOW_GPTQ && c->stored.method == TRI_STORED_AWQ) f = SLOW_AWQ;
    bool inputs_first = f == SLOW_GPTQ || f == SLOW_AWQ;
    *l = (struct layer){.m = {.format = f, .out = out, .in = in, .scale_type = scales->dtype}};
    l->m.bits = f == SLOW_FP8 || f == SLOW_INT8 ? 8 : 4;
    if (f == SLOW_PACKED) l->m.bits = (int)(codes->shape[1] * 32 / in);
    if (f == SLOW_GPTQ) l->m.bits = (int)(codes->shape[0] * 32 / in);
    l->m.less_one = c->stored.zeros_less_one;
    find_groups(&l->m, scales, inputs_first);
    l->m.codes = take(l, 0, ckpt, codes);
    l->m.scales = take(l, 1, ckpt, scales);
    l->m.zeros = take(l, 2, ckpt, find(ckpt, stem, suffixes[i].zeros));
    l->m.order = take(l, 3, ckpt, find(ckpt, stem, suffixes[i].order));
    l->stack = f == SLOW_MXFP4 ? codes->shape[0] : 1;
    return true;
  }
  return false;
}

struct writer {
  FILE *data, *header;
  char written[400][120];
  int num;
};

static void write_head(struct writer *w, const char *name, const char *type, const int64_t *shape, int rank,
                       size_t bytes) {
  long at = ftell(w->data);
  fprintf(w->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", at ? "," : "", name, type);
  for (int i = 0; i < rank; i++) fprintf(w->header, "%s%lld", i ? "," : "", (long long)shape[i]);
  fprintf(w->header, "],\"data_offsets\":[%ld,%ld]}", at, at + (long)bytes);
}

/* Element (row, col) of a plain tensor: of the layer's matrix, or of its transpose where experts are stacked. */
static void write_widened(struct writer *w, const char *name, const struct layer *l) {
  bool stacked = l->m.format == SLOW_MXFP4;
  int64_t out = l->m.out, in = l->m.in;
  const int64_t one[] = {out, in}, all[] = {l->stack, in, out};
  write_head(w, name, "F32", stacked ? all : one, stacked ? 3 : 2, (size_t)(l->stack * out * in) * 4);
  for (int64_t e = 0; e < l->stack; e++) {
    slow_matrix m = l->m;
    m.codes += e * out * in / 2;
    m.scales += stacked ? e * out * in / 32 : 0;
    for (int64_t r = 0; r < (stacked ? in : out); r++)
      for (int64_t k = 0; k < (stacked ? out : in); k++) {
        float x = slow_widen(&m, stacked ? k : r, stacked ? r : k);
        fwrite(&x, sizeof x, 1, w->data);
      }
  }
}

/* Tells whether names have no prefix. */
static bool models_are_bare(const tri_checkpoint *c) { return tri_checkpoint_find(c, "norm.weight") != NULL; }

static void write_rule(struct writer *w, const tri_model_config *c, const tri_checkpoint *ckpt,
                       const tri_tensor_rule *r, int layer, int expert) {
  char name[120], stem[120];
  int n = snprintf(name, sizeof name, "%s", strncmp(r->name, "lm_head", 7) ? c->arch->prefix : "");
  snprintf(name + n, sizeof name - (size_t)n, r->name, layer, expert);
  for (int i = 0; i < w->num; i++)
    if (!strcmp(w->written[i], name)) return; /* one tensor may have two rules */
  snprintf(w->written[w->num++], sizeof *w->written, "%s", name);
  snprintf(stem, sizeof stem, "%s", name);
  char *end = strstr(stem, ".weight");
  if (end) *end = 0;
  tri_weight_shape full = tri_rule_full_shape(c, r, layer);
  bool transpose = r->part == TRI_PART_KEY_UP;
  struct layer l;
  const char *bare = models_are_bare(ckpt) ? name + n : name;
  const tri_st_tensor *t = tri_checkpoint_find(ckpt, bare);
  memmove(stem, stem + (bare - name), strlen(stem + (bare - name)) + 1);
  if (!full.vector && read_layer(c, ckpt, stem, transpose ? full.k : full.n, transpose ? full.n : full.k, &l)) {
    write_widened(w, name, &l);
    for (int i = 0; i < 4; i++) tri_free(l.memory[i]);
    return;
  }
  static const char *const types[] = {"F32", "F16", "BF16"};
  ck_assert_msg(t && t->dtype <= TRI_BF16, "%s is not there", name);
  void *bytes = read_tensor(ckpt, t);
  write_head(w, name, types[t->dtype], t->shape, t->rank, t->bytes);
  fwrite(bytes, 1, t->bytes, w->data);
  tri_free(bytes);
}

static void write_file(const char *path, const char *header, size_t len, FILE *data) {
  FILE *f = fopen(path, "wb");
  uint64_t n = len;
  char buf[4096];
  ck_assert(f && fwrite(&n, 8, 1, f) == 1 && fwrite(header, len, 1, f) == 1);
  rewind(data);
  for (size_t k; (k = fread(buf, 1, sizeof buf, data));) fwrite(buf, 1, k, f);
  fclose(f);
}

static tri_checkpoint *make_plain(const tri_model_config *c, const tri_checkpoint *ckpt) {
  static struct writer w;
  char *header = NULL;
  size_t len = 0;
  mkdir(PLAIN, 0755);
  w = (struct writer){.data = tmpfile(), .header = open_memstream(&header, &len)};
  fputc('{', w.header);
  for (const tri_tensor_rule *r = c->arch->tensors; r->name; r++) {
    for (int l = 0; l < (tri_weight_is_per_layer(r->weight) ? c->num_layers : 1); l++)
      for (int e = 0; e < (r->flags & TRI_TENSOR_PER_EXPERT ? c->moe.num_experts : 1); e++)
        if (tri_rule_applies(c, r, l) && tri_weight_in_layer(c, r->weight, l)) write_rule(&w, c, ckpt, r, l, e);
  }
  fputc('}', w.header);
  fclose(w.header);
  write_file(PLAIN "/model.safetensors", header, len, w.data);
  fclose(w.data);
  free(header);
  return open_checkpoint(PLAIN);
}

/* ---- random ones ---- */

static uint32_t state;
static uint8_t draw(void) {
  state = state * 1664525u + 1013904223u;
  return (uint8_t)(state >> 16);
}

/* A tensor of random bytes, or of small numbers where it is of float32; a weight_scale of blocks has ModelOpt's four
 * dimensions. */
static void write_random(struct writer *w, const char *stem, const char *suffix, const char *type, int64_t rows,
                         int64_t cols) {
  char name[200];
  bool floats = !strcmp(type, "F32"), of_four = cols > 1 && !strcmp(suffix, ".weight_scale");
  const int64_t shape[] = {rows, of_four ? 1 : cols, cols, 1};
  size_t n = (size_t)(rows * cols);
  snprintf(name, sizeof name, "%s%s", stem, suffix);
  write_head(w, name, type, shape, of_four ? 4 : 1 + (cols != 0), (cols ? n : (size_t)rows) * (type[1] == '8' ? 1 : 4));
  for (size_t i = 0; i < (cols ? n : (size_t)rows) * (floats ? 1 : type[1] == '8' ? 1 : 4); i++) {
    float x = (float)(draw() + 1) * 0x1p-9f;
    uint8_t byte = draw() & 0xbf;
    fwrite(floats ? (const void *)&x : (const void *)&byte, floats ? 4 : 1, 1, w->data);
  }
}

/* The ups of the second expert are numbers, so that none of the experts' gates and ups can stay as they are. */
static bool is_plain(const tri_tensor_rule *r, int expert) {
  return !tri_weight_is_linear(r->weight) || r->weight == TRI_W_HEAD || (expert == 1 && r->part == TRI_PART_UP);
}

static void write_random_rule(struct writer *w, const tri_model_config *c, const tri_tensor_rule *r, int layer,
                              int expert, const char *scales) {
  char stem[120], plain[120];
  tri_weight_shape full = tri_rule_full_shape(c, r, layer);
  snprintf(plain, sizeof plain, r->name, layer, expert);
  snprintf(stem, sizeof stem, "%.*s", (int)(strlen(plain) - strlen(".weight")), plain);
  if (is_plain(r, expert)) {
    write_random(w, plain, "", "F32", full.n, full.vector ? 0 : full.k);
  } else if (c->stored.method == TRI_STORED_FP8) {
    write_random(w, stem, ".weight", "F8_E4M3", full.n, full.k);
    const tri_stored_scheme *s = &c->stored.schemes[0];
    int64_t rows = s->rows ? s->rows : full.n, cols = s->cols ? s->cols : full.k;
    write_random(w, stem, layer ? ".weight_scale" : ".weight_scale_inv", scales, (full.n + rows - 1) / rows,
                 (full.k + cols - 1) / cols);
  } else if (c->stored.method == TRI_STORED_COMPRESSED) {
    write_random(w, stem, ".weight", "I8", full.n, full.k);
    write_random(w, stem, ".weight_scale", scales, full.n, 1);
  } else {
    write_random(w, stem, ".qweight", "I32", full.k / 8, full.n);
    write_random(w, stem, ".qzeros", "I32", (full.k + 31) / 32, full.n / 8);
    write_random(w, stem, ".scales", scales, (full.k + 31) / 32, full.n);
  }
}

static tri_checkpoint *make_random(const tri_model_config *c, const char *scales) {
  static struct writer w;
  char *header = NULL;
  size_t len = 0;
  mkdir(RANDOM, 0755);
  state = 1;
  w = (struct writer){.data = tmpfile(), .header = open_memstream(&header, &len)};
  fputc('{', w.header);
  for (const tri_tensor_rule *r = c->arch->tensors; r->name; r++)
    for (int l = 0; l < (tri_weight_is_per_layer(r->weight) ? c->num_layers : 1); l++)
      for (int e = 0; tri_rule_applies(c, r, l) && e < (r->flags & TRI_TENSOR_PER_EXPERT ? c->moe.num_experts : 1); e++)
        write_random_rule(&w, c, r, l, e, scales);
  fputc('}', w.header);
  fclose(w.header);
  write_file(RANDOM "/model.safetensors", header, len, w.data);
  fclose(w.data);
  free(header);
  return open_checkpoint(RANDOM);
}

/* ---- every layout ---- */

static tri_backend *make_backend(void) {
  tri_backend *be = NULL;
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, NULL), TRI_OK);
  return be;
}

static tri_weights *load(tri_backend *be, const tri_model_config *c, const tri_checkpoint *ckpt, tri_parallel p,
                         tri_dtype type, tri_quantization q, size_t piece, tri_error *err) {
  tri_shard s;
  tri_weights *w = NULL;
  tri_reader_config io = tri_reader_config_default();
  io.kind = TRI_AIO_THREADS;
  io.piece_bytes = piece;
  io.num_buffers = 4;
  tri_error_clear(err);
  ck_assert_int_eq(tri_shard_make(c, p, &s, err), TRI_OK);
  tri_status st = tri_weights_load_with(be, c, &s, ckpt, type, q, &io, &w, err);
  ck_assert((st == TRI_OK) == (w != NULL));
  return w;
}

/* Whether a rank's parts of rows fit into a small piece. */
static bool fits(int model, int tp) { return !models[model].config || tp == models[model].tp; }

/* Compares two loads number by number. Returns how many matrices of `stored` have codes. */
static int compare_numbers(const tri_weights *stored, const tri_weights *wide, int layers, const char *name) {
  int num = 0;
  for (int l = -1; l < layers; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *a = l < 0 ? &stored->global[id] : &stored->layers[l].w[id];
      const tri_weight *b = l < 0 ? &wide->global[id] : &wide->layers[l].w[id];
      ck_assert((a->data != NULL) == (b->data != NULL) && a->n == b->n && a->k == b->k && !b->scale);
      if (id == TRI_W_HEAD && a->scale) continue; /* it was rounded */
      num += a->scale != NULL;
      for (int i = 0; a->data && i < a->n; i++)
        for (int j = 0; j < a->k; j++)
          if ((float)tri_ref_weight_at(a, (size_t)i, (size_t)j) != (float)tri_ref_weight_at(b, (size_t)i, (size_t)j))
            ck_abort_msg("%s: element %d, %d of weight %s of layer %d is another number", name, i, j,
                         tri_weight_name((tri_weight_id)id), l);
    }
  return num;
}

/* Returns in what a model's codes stay as they are; NONE: they are widened, or rounded anew. */
static tri_quantization stays_in(const tri_model_config *c) {
  const tri_stored_scheme *s = &c->stored.schemes[0];
  if (tri_stored_has_fp8(&c->stored)) return TRI_QUANTIZE_FP8;
  bool int8 = c->stored.method == TRI_STORED_COMPRESSED && c->stored.num_schemes == 1 && s->bits == 8 && !s->cols;
  return int8 ? TRI_QUANTIZE_INT8 : TRI_QUANTIZE_NONE;
}

/* Codes that stay have the numbers of the widened weights, and every matrix of codes stays but those that are
 * turned. */
static void compare_stored(tri_backend *be, const tri_model_config *c, const tri_checkpoint *ckpt, tri_parallel p,
                           int model) {
  const char *name = models[model].name;
  tri_error err = {0};
  tri_shard s;
  size_t small = fits(model, p.tp) ? models[model].piece : 65536;
  bool host = be->host_memory;
  ck_assert_int_eq(tri_shard_make(c, p, &s, &err), TRI_OK);
  tri_weights *wide = load(be, c, ckpt, p, TRI_F32, TRI_QUANTIZE_NONE, 65536, &err);
  ck_assert_msg(wide != NULL, "%s: %s", name, err.message);
  for (int i = 0; i < 2; i++) {
    be->host_memory = host && i;
    tri_weights *w = load(be, c, ckpt, p, TRI_F32, stays_in(c), i ? small : 65536, &err);
    ck_assert_msg(w != NULL, "%s: %s", name, err.message);
    int num = compare_numbers(w, wide, s.layers.count, name);
    ck_assert_msg(num >= 3 * s.layers.count, "%s: %d matrices of %d layers have codes", name, num, s.layers.count);
    tri_weights_destroy(w);
  }
  be->host_memory = host;
  tri_weights_destroy(wide);
}

static void compare(tri_backend *be, const tri_model_config *c, const tri_model_config *plain_c,
                    tri_checkpoint *const ckpts[2], tri_parallel p, int model) {
  const char *name = models[model].name;
  size_t small = fits(model, p.tp) ? models[model].piece : 65536;
  const struct {
    tri_dtype type;
    tri_quantization q;
    size_t piece;
  } ways[] = {{TRI_F32, TRI_QUANTIZE_NONE, 65536},
              {TRI_BF16, TRI_QUANTIZE_NONE, small},
              {TRI_F16, TRI_QUANTIZE_INT8, models[model].config ? 65536 : small},
              {TRI_F32, TRI_QUANTIZE_INT8, 65536},
              {TRI_BF16, TRI_QUANTIZE_FP8, models[model].config ? 65536 : small}};
  bool host = be->host_memory;
  tri_quantization own = stays_in(c);
  if (own) compare_stored(be, c, ckpts[0], p, model);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    tri_error err = {0};
    if (own && ways[i].q == own) continue; /* its own codes stay */
    be->host_memory = host && i % 2;       /* else through the room, as to a device */
    tri_weights *w = load(be, c, ckpts[0], p, ways[i].type, ways[i].q, ways[i].piece, &err);
    ck_assert_msg(w != NULL, "%s: %s", name, err.message);
    be->host_memory = host;
    tri_weights *plain = load(be, plain_c, ckpts[1], p, ways[i].type, ways[i].q, 65536, &err);
    ck_assert_msg(plain != NULL, "%s: %s", name, err.message);
    ck_assert_uint_eq(w->bytes, plain->bytes);
    if (memcmp(w->memory, plain->memory, w->bytes))
      ck_abort_msg("%s: rank %d of %d, stage %d, way %zu has other weights", name, p.tp_rank, p.tp, p.pp_rank, i);
    tri_weights_destroy(w);
    tri_weights_destroy(plain);
  }
}

static void open_model(int i, tri_model_config *c, tri_checkpoint **ckpt) {
  char dir[700];
  tri_error err = {0};
  const char *json = models[i].config;
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, models[i].name);
  tri_status st = json ? tri_model_config_parse(json, strlen(json), NULL, 0, (tri_config_rules){0}, c, &err)
                       : tri_model_config_load(dir, (tri_config_rules){0}, c, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", models[i].name, err.message);
  ck_assert_int_ne((int)c->stored.method, TRI_STORED_PLAIN);
  *ckpt = json ? make_random(c, "F32") : open_checkpoint(dir);
}

START_TEST(every_layout_has_the_widened_weights) {
  static tri_model_config c, plain;
  tri_checkpoint *ckpts[2];
  open_model(_i, &c, &ckpts[0]);
  plain = c;
  plain.stored = (tri_stored){0};
  ckpts[1] = make_plain(&c, ckpts[0]);
  tri_backend *be = make_backend();
  for (int tp = models[_i].config ? models[_i].tp : 1; tp <= models[_i].tp; tp++)
    for (int rank = 0; rank < tp; rank++) {
      tri_parallel p = {.tp = tp, .pp = 2, .tp_rank = rank, .pp_rank = rank % 2};
      compare(be, &c, &plain, ckpts, p, _i);
      if (c.moe.num_experts < tp || tp == 1) continue;
      p.ep = tp; /* whole experts each */
      compare(be, &c, &plain, ckpts, p, _i);
    }
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpts[0]);
  tri_checkpoint_close(ckpts[1]);
}
END_TEST

/* Changes one scale of a matrix after the other, and asks the self-test. */
static void damage_scales(const tri_weights_config *cfg, const tri_weight_map *m, const tri_weights *w,
                          const tri_weight *t, const char *what) {
  size_t num = tri_weight_num_scales(t), step = tri_weight_is_blocked(t) ? 1 : num - 1; /* of rows, two are looked at */
  tri_error err = {0};
  int checked;
  for (size_t i = 0; i < num; i += step ? step : 1) {
    float *scale = (float *)t->scale + i, before = *scale;
    const float harmless[] = {nextafterf(before, INFINITY), before * (1 + 0x1p-12f)},
                others[] = {2 * before, 0, NAN, -before};
    for (int k = 0; k < 2; k++) {
      *scale = harmless[k];
      ck_assert_msg(tri_form_check(cfg, m, w, INT64_MAX, &checked, &err) == TRI_OK, "%s: %s", what, err.message);
    }
    for (int k = 0; k < 4; k++) {
      *scale = others[k];
      tri_error_clear(&err);
      ck_assert_msg(tri_form_check(cfg, m, w, INT64_MAX, &checked, &err) == TRI_CORRUPT, "%s: scale %zu of %zu, way %d",
                    what, i, num, k);
      ck_assert_ptr_nonnull(strstr(err.message, "does not multiply as its file says"));
    }
    *scale = before;
  }
}

/* The self-test finds any scale that is not the file's by more than rounding hides, in every slice of a model. */
START_TEST(self_test) {
  enum { LLAMA = 1, RANKS = 3 };
  static tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  int checked = 0;
  open_model(LLAMA, &c, &ckpt);
  tri_backend *be = make_backend();
  for (int rank = 0; rank < RANKS; rank++) {
    tri_shard s;
    tri_weight_map m;
    tri_parallel p = {.tp = RANKS, .pp = 1, .tp_rank = rank};
    ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
    tri_weights_config cfg = {.backend = be, .model = &c, .shard = &s, .ckpt = ckpt, .dtype = TRI_DTYPE_COUNT};
    cfg.quantization = TRI_QUANTIZE_FP8;
    tri_weights *w = load(be, &c, ckpt, p, TRI_DTYPE_COUNT, TRI_QUANTIZE_FP8, 65536, &err);
    ck_assert_msg(w && w->num_checked, "%s", err.message);
    ck_assert_int_eq(tri_weight_map_make(&c, &s, ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_FP8, NULL, &m, &err), TRI_OK);
    ck_assert_int_eq(tri_form_check(&cfg, &m, w, INT64_MAX, &checked, &err), TRI_OK);
    ck_assert_int_ge(checked, 4 * s.layers.count);
    for (int id = 0; id < TRI_W_COUNT; id++)
      if (w->layers[0].w[id].scale) damage_scales(&cfg, &m, w, &w->layers[0].w[id], tri_weight_name((tri_weight_id)id));
    tri_weight_map_free(&m);
    tri_weights_destroy(w);
  }
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
}
END_TEST

/* Returns how many matrices have codes, each number of which is as near to that of `wide` as FP8 can be. */
static int compare_rounded(const tri_weights *w, const tri_weights *wide, int layers, const char *name) {
  int num = 0;
  for (int i = 0; i < layers * TRI_W_COUNT; i++) {
    int l = i / TRI_W_COUNT, id = i % TRI_W_COUNT;
    const tri_weight *a = &w->layers[l].w[id], *b = &wide->layers[l].w[id];
    num += a->scale != NULL;
    for (size_t r = 0; a->scale && r < (size_t)a->n; r++)
      for (size_t k = 0; k < (size_t)a->k; k++) {
        double x = tri_ref_weight_at(b, r, k), step = fmax(fabs(x) / 8, (double)*a->scale / 512);
        if (!(fabs(tri_ref_weight_at(a, r, k) - x) <= 0.5001 * step))
          ck_abort_msg("%s: element %zu, %zu of weight %s of layer %d is no number rounded", name, r, k,
                       tri_weight_name((tri_weight_id)id), l);
      }
  }
  return num;
}

/* Those of a config that has FP8, whatever its blocks. */
START_TEST(dummy_weights_are_the_float_ones_rounded) {
  static tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  open_model(_i, &c, &ckpt);
  tri_checkpoint_close(ckpt);
  if (!tri_stored_has_fp8(&c.stored)) return;
  tri_backend *be = make_backend();
  for (int rank = 0; rank < 3; rank++) {
    tri_shard s;
    tri_weights *w, *wide;
    ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 3, .pp = 1, .tp_rank = rank}, &s, &err), TRI_OK);
    ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_FP8, &w, &err), TRI_OK);
    ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_NONE, &wide, &err), TRI_OK);
    ck_assert_int_ge(compare_rounded(w, wide, s.layers.count, models[_i].name), 3 * s.layers.count);
    tri_weights_destroy(w);
    tri_weights_destroy(wide);
  }
  tri_backend_destroy(be);
}
END_TEST

/* A ledger counts for the hot experts of a host what they take on the device. */
START_TEST(copies_of_experts_take_what_is_counted) {
  enum { FP8_DEEPSEEK = 0, SLOTS = 2 };
  static tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  tri_shard s;
  tri_weight_map m;
  tri_weights *w;
  tri_hot_weights *hot;
  size_t bytes = 0;
  open_model(FP8_DEEPSEEK, &c, &ckpt);
  tri_backend *be = make_backend(), *host = make_backend();
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .host_experts = 1}, &s, &err), TRI_OK);
  tri_weights_config wc = {.backend = be,
                           .host = host,
                           .model = &c,
                           .shard = &s,
                           .ckpt = ckpt,
                           .dtype = TRI_DTYPE_COUNT,
                           .quantization = TRI_QUANTIZE_FP8};
  ck_assert_int_eq(tri_weights_make(&wc, &w, &err), TRI_OK);
  ck_assert_int_eq(tri_weight_map_make(&c, &s, ckpt, wc.dtype, wc.quantization, NULL, &m, &err), TRI_OK);
  ck_assert_int_eq(tri_hot_weights_bytes(&s, &m, SLOTS, &bytes), TRI_OK);
  ck_assert_int_eq(tri_hot_weights_create(be, &c, &s, w, SLOTS, &hot), TRI_OK);
  ck_assert(bytes > 0 && hot->bytes == bytes);
  tri_hot_weights_destroy(hot);
  tri_weight_map_free(&m);
  tri_weights_destroy(w);
  tri_backend_destroy(be);
  tri_backend_destroy(host);
  tri_checkpoint_close(ckpt);
}
END_TEST

/* Gates and ups of gpt-oss lie in turn, and every byte of their codes is read once. */
START_TEST(rows_in_turn_are_read_once) {
  enum { MXFP4 = 2 };
  static tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  uint64_t bytes = 0;
  open_model(MXFP4, &c, &ckpt);
  for (size_t i = 0; i < tri_checkpoint_num_tensors(ckpt); i++) bytes += tri_checkpoint_tensor(ckpt, i)->bytes;
  tri_backend *be = make_backend();
  tri_weights *w = load(be, &c, ckpt, (tri_parallel){.tp = 1, .pp = 1}, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, 4096, &err);
  ck_assert_msg(w != NULL, "%s", err.message);
  ck_assert_uint_ge(w->read_bytes, bytes);
  ck_assert_uint_lt(w->read_bytes, bytes + bytes / 32); /* but the biases */
  tri_weights_destroy(w);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
}
END_TEST

/* ---- what does not fit ---- */

/* Copies a checkpoint with one word of its header changed for another as long, or bytes of a tensor. */
static tri_status load_broken(int model, const char *from, const char *to, const char *tensor, const void *bytes,
                              size_t num, tri_error *err) {
  static tri_model_config c;
  tri_checkpoint *ckpt;
  char path[800], *text = NULL;
  size_t len = 0;
  open_model(model, &c, &ckpt);
  snprintf(path, sizeof path, "%s/checkpoints/%s/model.safetensors", TRI_TEST_DATA, models[model].name);
  FILE *f = fopen(path, "rb");
  ck_assert(f != NULL && !fseek(f, 0, SEEK_END));
  len = (size_t)ftell(f);
  text = tri_malloc(len, 1);
  rewind(f);
  ck_assert_uint_eq(fread(text, 1, len, f), len);
  fclose(f);
  char *at = from ? memmem(text, len, from, strlen(from)) : NULL;
  ck_assert(!from || (at && strlen(from) == strlen(to)));
  if (from) memcpy(at, to, strlen(to));
  if (tensor) memcpy(text + tri_checkpoint_find(ckpt, tensor)->offset, bytes, num);
  tri_checkpoint_close(ckpt);
  mkdir(BROKEN, 0755);
  f = fopen(BROKEN "/model.safetensors", "wb");
  ck_assert(f && fwrite(text, 1, len, f) == len && !fclose(f));
  tri_free(text);
  ckpt = open_checkpoint(BROKEN);
  tri_backend *be = make_backend();
  tri_weights *w = load(be, &c, ckpt, (tri_parallel){.tp = 1, .pp = 1}, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, 4096, err);
  tri_status st = w ? TRI_OK : err->status;
  tri_weights_destroy(w);
  ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
  return st;
}

START_TEST(tensors_that_do_not_fit) {
  static const int32_t far_group = 3, negative = -1;
  static const uint16_t one = 0x3c00;
  static const struct {
    int model;
    const char *from, *to;
    const char *tensor;
    const void *bytes;
    size_t num;
    tri_status want;
    const char *field;
  } cases[] = {
      {0, "kv_b_proj.weight_scale_inv", "kv_b_proj.weight_scale_all", NULL, NULL, 0, TRI_UNSUPPORTED, "scale_all"},
      {0, "q_a_proj.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,2]",
       "q_a_proj.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[4,1]", NULL, NULL, 0, TRI_CORRUPT,
       "weight_scale_inv"},
      /* a scale of ModelOpt's for a KV cache */
      {1, "layers.0.mlp.gate_proj.input_scale\":", "layers.0.self_attn.k_proj.k_scale\" :", NULL, NULL, 0, TRI_OK, ""},
      {1, "layers.0.mlp.gate_proj.input_scale\":", "layers.0.self_attn.k_proj.z_scale\" :", NULL, NULL, 0,
       TRI_UNSUPPORTED, "k_proj.z_scale"},
      {2, "down_proj_scales\":{\"dtype\":\"U8\",\"shape\":[4,64,3]",
       "down_proj_scales\":{\"dtype\":\"I8\",\"shape\":[4,64,3]", NULL, NULL, 0, TRI_UNSUPPORTED, "down_proj_scales"},
      {3, "q_proj.weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[8,2]",
       "q_proj.weight_zero_point\":{\"dtype\":\"F32\",\"shape\":[8,2]", NULL, NULL, 0, TRI_CORRUPT,
       "weight_zero_point"},
      {4, "w1.qzeros", "w1.qzerox", NULL, NULL, 0, TRI_UNSUPPORTED, "qzerox"},
      {4, NULL, NULL, "model.layers.1.self_attn.q_proj.g_idx", &far_group, 4, TRI_CORRUPT, "g_idx"},
      {4, NULL, NULL, "model.layers.0.self_attn.o_proj.g_idx", &negative, 4, TRI_CORRUPT, "g_idx"},
      {4, NULL, NULL, "model.layers.0.self_attn.q_proj.bias", &one, 2, TRI_UNSUPPORTED, "q_proj.bias"},
      {6, "self_attn.q_proj.scales\":{\"dtype\":\"F16\",\"shape\":[2,64]",
       "self_attn.q_proj.scales\":{\"dtype\":\"F16\",\"shape\":[4,32]", NULL, NULL, 0, TRI_CORRUPT, "scales"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_status st =
        load_broken(cases[i].model, cases[i].from, cases[i].to, cases[i].tensor, cases[i].bytes, cases[i].num, &err);
    ck_assert_msg(st == cases[i].want && strstr(err.field, cases[i].field), "case %zu: %d, %s: %s", i, (int)st,
                  err.field, err.message);
  }
}
END_TEST

START_TEST(scales_of_a_type_that_has_none) {
  enum { WIDE_GPTQ = 8 };
  static tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  open_model(WIDE_GPTQ, &c, &ckpt);
  tri_checkpoint_close(ckpt);
  ckpt = make_random(&c, "F8_E8M0");
  tri_backend *be = make_backend();
  tri_weights *w = load(be, &c, ckpt, (tri_parallel){.tp = 1, .pp = 1}, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, 4096, &err);
  ck_assert(!w && err.status == TRI_UNSUPPORTED);
  ck_assert_msg(strstr(err.field, ".scales") && strstr(err.message, "float8_e8m0fnu"), "%s: %s", err.field,
                err.message);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
}
END_TEST

Suite *suite_widened_weights(void) {
  Suite *s = suite_create("widened_weights");
  TCase *c = tcase_create("layouts");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, every_layout_has_the_widened_weights, 0, NUM_MODELS);
  tcase_add_test(c, self_test);
  tcase_add_loop_test(c, dummy_weights_are_the_float_ones_rounded, 0, NUM_MODELS);
  tcase_add_test(c, copies_of_experts_take_what_is_counted);
  tcase_add_test(c, rows_in_turn_are_read_once);
  tcase_add_test(c, tensors_that_do_not_fit);
  tcase_add_test(c, scales_of_a_type_that_has_none);
  suite_add_tcase(s, c);
  return s;
}
