/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised weights: every shard against a straightforward quantisation of the whole matrix, for stored and for made-up
 * checkpoints of families with transposed, stacked, fused and interleaved tensors; sizes, refusals, the option. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/quantize.h"
#include "tests/unit/quantize_rows.h"
#include "runtime/engine/ledger.h"
#include "base/options/serve_options.h"
#include "runtime/load/weights.h"

Suite *suite_quantized_weights(void);

#define DIR TRI_TEST_SCRATCH "/quantized"
enum { MAX_TP = 3 };

/* ---- a checkpoint of random numbers for any config ---- */

static FILE *data_file, *header_file;
static char *header;
static size_t header_len, num_written;
static char written[400][120];
static uint32_t state;

static float draw(void) {
  state = state * 1664525u + 1013904223u;
  return (float)((int32_t)state >> 8) * 0x1p-23f;
}

/* One tensor; the first numbers are zeros, a whole row of them in a matrix. bad: the last number is infinite. */
static void write_tensor(const char *name, int rank, const int64_t *shape, bool bad) {
  size_t n = 1;
  long at = ftell(data_file);
  bool half = num_written % 2; /* fused weights then come from two types */
  for (size_t i = 0; i < num_written; i++)
    if (!strcmp(written[i], name)) return; /* one tensor may have two rules */
  snprintf(written[num_written++], sizeof *written, "%s", name);
  fprintf(header_file, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", at ? "," : "", name, half ? "BF16" : "F32");
  for (int i = 0; i < rank; i++) {
    n *= (size_t)shape[i];
    fprintf(header_file, "%s%lld", i ? "," : "", (long long)shape[i]);
  }
  for (size_t i = 0; i < n; i++) {
    float x = rank > 1 && i < (size_t)shape[rank - 1] ? 0 : draw();
    if (bad && i == n - 1) x = INFINITY;
    uint16_t narrow = tri_f32_to_bf16(x);
    fwrite(half ? (void *)&narrow : (void *)&x, half ? 2 : 4, 1, data_file);
  }
  fprintf(header_file, "],\"data_offsets\":[%ld,%ld]}", at, ftell(data_file));
}

static void write_rule(const tri_model_config *c, const tri_tensor_rule *r, int layer, int expert, const char *bad) {
  char name[120];
  tri_weight_shape full = tri_rule_full_shape(c, r, layer);
  bool transposed = r->flags & TRI_TENSOR_TRANSPOSED, stacked = r->flags & TRI_TENSOR_STACKED;
  int64_t shape[3] = {c->moe.num_experts};
  int rank = stacked;
  shape[rank++] = transposed ? full.k : full.n;
  if (!full.vector) shape[rank++] = transposed ? full.n : full.k;
  size_t n = (size_t)snprintf(name, sizeof name, "%s", c->arch->prefix);
  snprintf(name + n, sizeof name - n, r->name, layer, expert);
  write_tensor(name, rank, shape, bad && strstr(name, bad));
}

/* bad: a part of the name of the tensors that get an infinite number, or NULL. */
static void write_checkpoint(const tri_model_config *c, const char *bad) {
  mkdir(DIR, 0755);
  num_written = 0, state = 1;
  data_file = tmpfile();
  header_file = open_memstream(&header, &header_len);
  ck_assert(data_file && header_file);
  fputc('{', header_file);
  for (const tri_tensor_rule *r = c->arch->tensors; r->name; r++) {
    if (r->weight == TRI_W_HEAD && c->head.tie_word_embeddings) continue;
    for (int l = 0; l < (tri_weight_is_per_layer(r->weight) ? c->num_layers : 1); l++)
      for (int e = 0; e < (r->flags & TRI_TENSOR_PER_EXPERT ? c->moe.num_experts : 1); e++)
        if (tri_rule_applies(c, r, l) && tri_weight_in_layer(c, r->weight, l)) write_rule(c, r, l, e, bad);
  }
  fputc('}', header_file);
  fclose(header_file);
  FILE *f = fopen(DIR "/model.safetensors", "wb");
  uint64_t len = header_len;
  char buf[4096];
  ck_assert(f && fwrite(&len, 8, 1, f) == 1 && fwrite(header, header_len, 1, f) == 1);
  rewind(data_file);
  for (size_t n; (n = fread(buf, 1, sizeof buf, data_file));) fwrite(buf, 1, n, f);
  fclose(f), fclose(data_file), free(header);
}

/* ---- what is compared ---- */

/* A folder of tests/data/checkpoints, or a config. */
static const struct {
  const char *name, *config;
} models[] = {
    {"gpt2_odd", NULL},
    {"gpt_neox_odd", NULL},
    {"llama_odd", NULL},
    {"llama3", NULL},
    {"llama_bias", NULL},
    {"experts in tensors of their own", "{\"model_type\":\"mixtral\",\"hidden_size\":24,\"num_hidden_layers\":2,"
                                        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"intermediate_size\":17,"
                                        "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"vocab_size\":31}"},
    {"stacked, transposed and interleaved experts",
     "{\"model_type\":\"gpt_oss\",\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":6,"
     "\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":17,\"num_local_experts\":3,"
     "\"num_experts_per_tok\":2,\"vocab_size\":31}"},
    {"latents and shared experts",
     "{\"model_type\":\"deepseek_v3\",\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":6,"
     "\"num_key_value_heads\":6,\"intermediate_size\":20,\"moe_intermediate_size\":7,\"kv_lora_rank\":8,"
     "\"q_lora_rank\":10,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":5,\"n_routed_experts\":4,"
     "\"n_shared_experts\":1,\"num_experts_per_tok\":2,\"n_group\":2,\"topk_group\":1,\"first_k_dense_replace\":1,"
     "\"vocab_size\":31}"},
    {"more than a staging buffer",
     "{\"model_type\":\"gpt2\",\"n_embd\":576,\"n_layer\":1,\"n_head\":6,\"n_positions\":8,\"n_inner\":2300,"
     "\"vocab_size\":31}"},
};

static void open_model(int i, tri_model_config *c, tri_checkpoint **ckpt) {
  char dir[700];
  tri_error err = {0};
  const char *json = models[i].config;
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, models[i].name);
  tri_status st = json ? tri_model_config_parse(json, strlen(json), NULL, 0, (tri_config_rules){0}, c, &err)
                       : tri_model_config_load(dir, (tri_config_rules){0}, c, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", models[i].name, err.message);
  if (json) write_checkpoint(c, NULL);
  st = tri_checkpoint_open(json ? DIR : dir, ckpt, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", models[i].name, err.message);
}

static tri_backend *make_backend(void) {
  tri_backend *be = NULL;
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, NULL), TRI_OK);
  return be;
}

static bool cut_by_columns(tri_weight_id id) {
  return id == TRI_W_O || id == TRI_W_DOWN || id == TRI_W_EXPERT_DOWN || id == TRI_W_SHARED_DOWN;
}

/* What a tensor group has of one weight, in float32 and quantised; k: the sum of the columns where it is cut by them.
 */
struct group {
  const tri_weight *wide[MAX_TP], *narrow[MAX_TP];
  int tp;
};

/* NULL, or what is wrong. Puts the ranks' columns from .. to - 1 together, quantises, and compares with their int8. */
static const char *compare_whole(const struct group *g, int from, int to) {
  size_t n = (size_t)g->wide[from]->n, k = 0, at = 0;
  const char *wrong = NULL;
  for (int r = from; r < to; r++) k += (size_t)g->wide[r]->k;
  float *whole = tri_malloc(n * k + 1, sizeof *whole), *scale = tri_malloc(n + 1, sizeof *scale);
  int8_t *q = tri_malloc(n * k + 1, 1);
  for (int r = from; r < to; at += (size_t)g->wide[r++]->k)
    for (size_t row = 0; row < n; row++)
      memcpy(whole + row * k + at, (const float *)g->wide[r]->data + row * (size_t)g->wide[r]->k,
             (size_t)g->wide[r]->k * sizeof *whole);
  if (quantize_rows(whole, TRI_F32, n, k, q, scale) != TRI_OK) wrong = "numbers that cannot be quantised";
  at = 0;
  for (int r = from; r < to && !wrong; at += (size_t)g->wide[r++]->k) {
    const tri_weight *w = g->narrow[r];
    if (w->dtype != TRI_I8 || !w->scale || w->n != g->wide[r]->n || w->k != g->wide[r]->k)
      wrong = "type or shape";
    else if (memcmp(w->scale, scale, n * sizeof *scale))
      wrong = "scales";
    for (size_t row = 0; row < n && !wrong; row++)
      if (memcmp((const int8_t *)w->data + row * (size_t)w->k, q + row * k + at, (size_t)w->k)) wrong = "numbers";
  }
  tri_free(whole), tri_free(scale), tri_free(q);
  return wrong;
}

static const char *compare_weight(const tri_model_config *c, const struct group *g, tri_weight_id id) {
  const char *wrong = NULL;
  for (int r = 0; r < g->tp && !tri_weight_is_quantized(c, id); r++) {
    const tri_weight *a = g->wide[r], *b = g->narrow[r];
    if (a->dtype != b->dtype || b->scale || a->n != b->n || (a->data != NULL) != (b->data != NULL))
      return "type or shape of what is not quantised";
    if (a->data && memcmp(a->data, b->data, (size_t)a->n * (size_t)a->k * sizeof(float)))
      return "numbers of what is not quantised";
  }
  if (!tri_weight_is_quantized(c, id) || !g->wide[0]->data) return NULL;
  if (cut_by_columns(id)) return compare_whole(g, 0, g->tp);
  for (int r = 0; r < g->tp && !wrong; r++) wrong = compare_whole(g, r, r + 1);
  return wrong;
}

/* Bytes that the shard's weights take by their shapes alone. */
static size_t expected_bytes(const tri_model_config *c, const tri_shard *s, const tri_weights *w) {
  size_t total = 0;
  for (int l = -1; l < s->layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      if (tri_weight_is_per_layer((tri_weight_id)id) != (l >= 0)) continue;
      const tri_weight *t = l < 0 ? &w->global[id] : &w->layers[l].w[id];
      if (!t->data || (id == TRI_W_HEAD && t->data == w->global[TRI_W_EMBED].data)) continue;
      bool int8 = tri_weight_is_quantized(c, (tri_weight_id)id);
      size_t elements = (size_t)t->n * (size_t)t->k * (int8 ? 1 : sizeof(float));
      total += (elements + 63) / 64 * 64 + (int8 ? ((size_t)t->n * sizeof(float) + 63) / 64 * 64 : 0);
    }
  size_t counts = tri_weights_num_counts(s->layers.count) * sizeof *w->not_finite;
  return total + (counts + 63) / 64 * 64;
}

static void check_stage(const tri_model_config *c, tri_backend *be, const tri_checkpoint *ckpt, tri_parallel p,
                        const char *name) {
  tri_weights *wide[MAX_TP] = {0}, *narrow[MAX_TP] = {0};
  tri_shard s = {0};
  tri_error err = {0};
  for (p.tp_rank = 0; p.tp_rank < p.tp; p.tp_rank++) {
    ck_assert_int_eq(tri_shard_make(c, p, &s, &err), TRI_OK);
    tri_status st = tri_weights_load(be, c, &s, ckpt, TRI_F32, TRI_QUANTIZE_NONE, &wide[p.tp_rank], &err);
    if (st == TRI_OK) st = tri_weights_load(be, c, &s, ckpt, TRI_F32, TRI_QUANTIZE_INT8, &narrow[p.tp_rank], &err);
    ck_assert_msg(st == TRI_OK, "%s: %s", name, err.message);
    ck_assert_uint_eq(narrow[p.tp_rank]->bytes, expected_bytes(c, &s, narrow[p.tp_rank]));
    tri_limits limits = {.max_num_seqs = 1, .max_num_batched_tokens = 8, .max_model_len = 8, .block_size = 8};
    tri_ledger_config lc = {.dtype = TRI_F32, .kv_dtype = TRI_F32, .quantization = TRI_QUANTIZE_W8A8};
    tri_ledger ledger;
    ck_assert_int_eq(tri_ledger_make(c, &s, ckpt, &limits, p.pp, &lc, &ledger, &err), TRI_OK);
    ck_assert_uint_eq(ledger.weights, narrow[p.tp_rank]->bytes);
  }
  for (int l = -1; l < s.layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      struct group g = {.tp = p.tp};
      if (tri_weight_is_per_layer((tri_weight_id)id) != (l >= 0)) continue;
      for (int r = 0; r < p.tp; r++) {
        g.wide[r] = l < 0 ? &wide[r]->global[id] : &wide[r]->layers[l].w[id];
        g.narrow[r] = l < 0 ? &narrow[r]->global[id] : &narrow[r]->layers[l].w[id];
      }
      const char *wrong = compare_weight(c, &g, (tri_weight_id)id);
      if (wrong)
        ck_abort_msg("%s, tp %d, stage %d of %d, layer %d, %s: %s", name, p.tp, p.pp_rank, p.pp, l,
                     tri_weight_name((tri_weight_id)id), wrong);
    }
  for (int r = 0; r < p.tp; r++) tri_weights_destroy(wide[r]), tri_weights_destroy(narrow[r]);
}

START_TEST(every_layout_has_the_whole_matrix_quantised) {
  static tri_model_config c;
  tri_checkpoint *ckpt = NULL;
  open_model(_i, &c, &ckpt);
  tri_backend *be = make_backend();
  for (int tp = 1; tp <= MAX_TP; tp++)
    for (int pp = 1; pp <= (c.num_layers > 1 ? 2 : 1); pp++)
      for (int stage = 0; stage < pp; stage++)
        check_stage(&c, be, ckpt, (tri_parallel){.tp = tp, .pp = pp, .pp_rank = stage}, models[_i].name);
  ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
}
END_TEST

/* ---- made-up weights ---- */

START_TEST(dummy_weights_are_the_float_ones_rounded) {
  static tri_model_config c;
  tri_checkpoint *ckpt = NULL;
  open_model(_i, &c, &ckpt);
  tri_backend *be = make_backend();
  size_t bad = 0, rows = 0;
  for (int rank = 0; rank < 2; rank++) {
    tri_shard s;
    tri_weights *wide = NULL, *narrow = NULL;
    ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = rank}, &s, NULL), TRI_OK);
    ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_NONE, &wide, NULL), TRI_OK);
    ck_assert_int_eq(tri_weights_dummy(be, &c, &s, 7, TRI_F32, TRI_QUANTIZE_W8A8, &narrow, NULL), TRI_OK);
    ck_assert_uint_eq(narrow->bytes, expected_bytes(&c, &s, narrow));
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *a = &wide->layers[0].w[id], *b = &narrow->layers[0].w[id];
      if (!a->data || !tri_weight_is_quantized(&c, (tri_weight_id)id)) continue;
      for (int r = 0; r < a->n; r++, rows++) {
        bad += !(b->scale[r] > 0) || b->scale[r] != b->scale[0]; /* of all ranks, so that layouts agree */
        for (int k = 0; k < a->k; k++) {
          size_t i = (size_t)r * (size_t)a->k + (size_t)k;
          float q = ((const int8_t *)b->data)[i], x = ((const float *)a->data)[i];
          bad += !(fabsf(q * b->scale[r] - x) <= 0.5001f * b->scale[r]);
        }
      }
    }
    tri_weights_destroy(wide);
    tri_weights_destroy(narrow);
  }
  ck_assert_msg(rows > 0 && !bad, "%s: %zu numbers in %zu rows are not the float weights", models[_i].name, bad, rows);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
}
END_TEST

/* ---- what is refused, and what is left alone ---- */

static tri_status load_bad(const char *config, const char *bad, tri_error *err) {
  static tri_model_config c;
  tri_shard s;
  tri_weights *w = NULL;
  tri_checkpoint *ckpt = NULL;
  tri_backend *be = make_backend();
  tri_error_clear(err);
  ck_assert_int_eq(tri_model_config_parse(config, strlen(config), NULL, 0, (tri_config_rules){0}, &c, err), TRI_OK);
  write_checkpoint(&c, bad);
  ck_assert_int_eq(tri_checkpoint_open(DIR, &ckpt, err), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, err), TRI_OK);
  tri_status st = tri_weights_load(be, &c, &s, ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_INT8, &w, err);
  tri_weights_destroy(w);
  ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS], 0);
  tri_backend_destroy(be);
  tri_checkpoint_close(ckpt);
  return st;
}

START_TEST(numbers_that_are_not_finite) {
  static const struct {
    const char *config, *tensor, *says;
    tri_status want;
  } cases[] = {
      {"{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
       "\"intermediate_size\":3,\"vocab_size\":5}",
       "layers.1.mlp.down_proj.weight", "layers.1.mlp.down_proj.weight", TRI_UNSUPPORTED},
      {"{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
       "\"intermediate_size\":3,\"vocab_size\":5}",
       "embed_tokens.weight", "weight EMBED", TRI_CORRUPT}, /* not quantised */
      {"{\"model_type\":\"gpt2\",\"n_embd\":4,\"n_layer\":1,\"n_head\":2,\"n_positions\":8,\"n_inner\":3,"
       "\"vocab_size\":5}",
       "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.weight", TRI_UNSUPPORTED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_status st = load_bad(cases[i].config, cases[i].tensor, &err);
    ck_assert_msg(st == cases[i].want && strstr(err.message, cases[i].says), "%s: %s: %s", cases[i].tensor,
                  tri_status_name(st), err.message);
  }
}
END_TEST

START_TEST(a_tied_head_stays_the_embedding) {
  static tri_model_config c;
  static const int tied_and_not[] = {3, 2}; /* llama3, llama_odd */
  for (int i = 0; i < 2; i++) {
    tri_checkpoint *ckpt = NULL;
    tri_weights *w = NULL;
    tri_shard s;
    open_model(tied_and_not[i], &c, &ckpt);
    tri_backend *be = make_backend();
    ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, NULL),
                     TRI_OK);
    ck_assert_int_eq(tri_weights_load(be, &c, &s, ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_INT8, &w, NULL), TRI_OK);
    ck_assert(c.head.tie_word_embeddings == (i == 0));
    ck_assert((w->global[TRI_W_HEAD].data == w->global[TRI_W_EMBED].data) == (i == 0));
    ck_assert((w->global[TRI_W_HEAD].dtype == TRI_I8) == (i == 1));
    ck_assert_int_ne(w->global[TRI_W_EMBED].dtype, TRI_I8);
    tri_weights_destroy(w);
    tri_backend_destroy(be);
    tri_checkpoint_close(ckpt);
  }
}
END_TEST

/* ---- int8 ---- */

/* Numbers between and at halves, of each number of elements that vectors leave over, against the C library's. */
START_TEST(int8_is_the_nearest_even) {
  enum { MOST = 1100 };
  float x[MOST] = {0};
  int8_t out[MOST];
  for (int n = 0; n <= MOST; n += n < 70 ? 1 : 103) {
    bool same = true;
    for (int i = 0; i < n; i++) x[i] = (float)(i % 2 ? -1 : 1) * (float)(i % 1017) / 8;
    memset(out, 99, sizeof out);
    tri_round_elements(out, TRI_I8, 0, x, (size_t)n, 1);
    for (int i = 0; i < n; i++) same &= out[i] == tri_quantize_one(x[i], 1);
    ck_assert_msg(same && (n == MOST || out[n] == 99), "%d numbers", n);
  }
}
END_TEST

START_TEST(the_largest_of_a_row) {
  enum { N = 100 };
  float x[N], max;
  for (int at = 0; at < N; at += 9) {
    for (int i = 0; i < N; i++) x[i] = i % 2 ? -0.5f : 0x1p-140f;
    x[at] = -3;
    max = 0;
    ck_assert(tri_quantize_max(x, N, &max) && max == 3);
    max = 4;
    ck_assert(tri_quantize_max(x, N, &max) && max == 4);
    x[at] = at % 2 ? NAN : -INFINITY;
    max = 0;
    ck_assert(!tri_quantize_max(x, N, &max) && max == (at % 2 ? 0.5f : INFINITY));
  }
  max = 2;
  ck_assert(tri_quantize_max(x, 0, &max) && max == 2);
}
END_TEST

/* ---- FP8 ---- */

static void rounds_to(float x, int code) {
  uint8_t out[2];
  const float both[] = {x, -x};
  tri_round_elements(out, TRI_F8_E4M3, 0, both, 2, 1);
  ck_assert_msg(tri_f32_to_f8_e4m3(x) == code && out[0] == code, "%a becomes 0x%x, 0x%x, not 0x%x", (double)x,
                tri_f32_to_f8_e4m3(x), out[0], code);
  ck_assert_msg(tri_f32_to_f8_e4m3(-x) == (code | 0x80) && out[1] == (code | 0x80), "%a becomes 0x%x, 0x%x, not 0x%x",
                (double)-x, tri_f32_to_f8_e4m3(-x), out[1], code | 0x80);
}

/* At every number, and on both sides of what lies in the middle between two. */
START_TEST(fp8_is_the_nearest) {
  enum { LARGEST = 0x7e };
  for (int code = 0; code < LARGEST; code++) {
    float low = tri_f8_e4m3_to_f32((uint8_t)code), high = tri_f8_e4m3_to_f32((uint8_t)(code + 1));
    float middle = (low + high) / 2;
    rounds_to(low, code);
    rounds_to(nextafterf(middle, low), code);
    rounds_to(middle, code + code % 2);
    rounds_to(nextafterf(middle, high), code + 1);
  }
  rounds_to(0x1p-149f, 0);
  rounds_to(448, LARGEST);
  rounds_to(480, LARGEST);
  rounds_to(0x1.fffffep127f, LARGEST);
  ck_assert_int_eq(tri_f32_to_f8_e4m3(INFINITY), LARGEST);
  ck_assert_int_eq(tri_f32_to_f8_e4m3(NAN) & 0x7f, 0x7f);
}
END_TEST

/* ---- the option ---- */

static tri_status parse(const char *option, const char *value, int *quantization, tri_error *err) {
  static tri_serve_options o;
  tri_options_spec spec = {
      .program = "demo", .options = tri_serve_option_table, .count = tri_serve_option_count, .max_args = 0};
  char *argv[] = {(char[]){"demo"}, (char *)(uintptr_t)option, (char *)(uintptr_t)value};
  tri_options *opts = NULL;
  tri_error_clear(err);
  tri_status st = tri_options_parse(&spec, &o, option ? 3 : 1, argv, &opts, err);
  *quantization = o.quantization;
  tri_options_free(opts);
  return st;
}

START_TEST(the_option) {
  tri_error err = {0};
  int got;
  ck_assert(parse(NULL, NULL, &got, &err) == TRI_OK && got == TRI_QUANTIZE_AUTO);
  ck_assert(parse("--quantization", "none", &got, &err) == TRI_OK && got == TRI_QUANTIZE_NONE);
  ck_assert(parse("--quantization", "int8", &got, &err) == TRI_OK && got == TRI_QUANTIZE_INT8);
  ck_assert(parse("-q", "w8a8", &got, &err) == TRI_OK && got == TRI_QUANTIZE_W8A8);
  ck_assert(parse("--quantization", "fp8", &got, &err) == TRI_OK && got == TRI_QUANTIZE_FP8);
  ck_assert(parse("--quantization", "fp4", &got, &err) == TRI_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "none, int8, w8a8, fp8, auto"));
}
END_TEST

Suite *suite_quantized_weights(void) {
  Suite *s = suite_create("quantized_weights");
  TCase *c = tcase_create("loading");
  int count = (int)(sizeof models / sizeof *models);
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, every_layout_has_the_whole_matrix_quantised, 0, count);
  tcase_add_loop_test(c, dummy_weights_are_the_float_ones_rounded, 0, count);
  tcase_add_test(c, numbers_that_are_not_finite);
  tcase_add_test(c, a_tied_head_stays_the_embedding);
  suite_add_tcase(s, c);
  c = tcase_create("fp8");
  tcase_add_test(c, int8_is_the_nearest_even);
  tcase_add_test(c, the_largest_of_a_row);
  tcase_add_test(c, fp8_is_the_nearest);
  suite_add_tcase(s, c);
  c = tcase_create("option");
  tcase_add_test(c, the_option);
  suite_add_tcase(s, c);
  return s;
}
