/* SPDX-License-Identifier: Apache-2.0 */
/* One number of a checkpoint that is infinite or NaN: the rank that reads it says so, wherever the number lies, and the
 * others load. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/load/weights.h"
#include "runtime/model/layout.h"

Suite *suite_finite_weights(void);

struct damage {
  const char *model, *tensor;
  int64_t element; /* from the tensor's end where it is negative */
  float value;
  tri_dtype dtype; /* of the matrices in memory; TRI_DTYPE_COUNT: as stored */
  int host_experts;
  const char *says; /* NULL: it loads */
};

static void copy_file(const char *from, const char *to) {
  char buf[1 << 16];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  ck_assert(in && out);
  for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;) ck_assert_uint_eq(fwrite(buf, 1, n, out), n);
  fclose(in);
  ck_assert_int_eq(fclose(out), 0);
}

/* A copy of the checkpoint, in which the damage is done. */
static void make_copy(const struct damage *d, char *dir, size_t cap) {
  static const char *const files[] = {"config.json", "model.safetensors"};
  char from[700], to[800];
  snprintf(dir, cap, "%s/finite_weights", TRI_TEST_SCRATCH);
  mkdir(dir, 0777);
  for (size_t i = 0; i < 2; i++) {
    snprintf(from, sizeof from, "%s/checkpoints/%s/%s", TRI_TEST_DATA, d->model, files[i]);
    snprintf(to, sizeof to, "%s/%s", dir, files[i]);
    copy_file(from, to);
  }
  tri_checkpoint *ckpt = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_checkpoint_open(dir, &ckpt, &err) == TRI_OK, "%s", err.message);
  const tri_st_tensor *t = tri_checkpoint_find(ckpt, d->tensor);
  ck_assert_ptr_nonnull(t);
  size_t size = tri_dtype_size(t->dtype), all = (size_t)t->bytes / size;
  size_t at = d->element < 0 ? all - (size_t)-d->element : (size_t)d->element;
  char element[4];
  tri_store_f32(element, t->dtype, 0, d->value);
  FILE *f = fopen(to, "r+b");
  ck_assert(f && !fseek(f, (long)(t->offset + at * size), SEEK_SET) && fwrite(element, size, 1, f) == 1);
  ck_assert_int_eq(fclose(f), 0);
  tri_checkpoint_close(ckpt);
}

static tri_status load(const char *dir, const struct damage *d, tri_parallel p, tri_error *err) {
  static tri_model_config c;
  tri_checkpoint *ckpt = NULL;
  tri_backend *be = NULL, *host = NULL;
  tri_weights *w = NULL;
  tri_shard s;
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, &c, err) == TRI_OK, "%s", err->message);
  ck_assert_int_eq(tri_checkpoint_open(dir, &ckpt, err), TRI_OK);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, err), TRI_OK);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &host, err), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, p, &s, err), TRI_OK);
  s.p.host_experts = d->host_experts;
  tri_weights_config wc = {
      .backend = be, .host = host, .model = &c, .shard = &s, .ckpt = ckpt, .dtype = d->dtype, .seed = 1};
  if (c.stored.method == TRI_STORED_FP8) wc.quantization = TRI_QUANTIZE_FP8;
  tri_status st = tri_weights_make(&wc, &w, err);
  ck_assert((st == TRI_OK) == (w != NULL));
  tri_weights_destroy(w);
  ck_assert_uint_eq(be->allocated[TRI_MEM_WEIGHTS] + host->allocated[TRI_MEM_WEIGHTS], 0);
  tri_backend_destroy(be);
  tri_backend_destroy(host);
  tri_checkpoint_close(ckpt);
  return st;
}

static const struct damage damages[] = {
    {"mixtral_odd", "model.embed_tokens.weight", 0, NAN, TRI_DTYPE_COUNT, 0, "weight EMBED (embed_tokens.weight) are"},
    {"mixtral_odd", "model.layers.2.block_sparse_moe.experts.4.w2.weight", -1, INFINITY, TRI_DTYPE_COUNT, 0,
     "1 of the "},
    {"mixtral_odd", "model.layers.2.block_sparse_moe.experts.4.w2.weight", -1, -INFINITY, TRI_DTYPE_COUNT, 0,
     "weight EXPERT_DOWN of layer 2 (layers.2.block_sparse_moe.experts.*.w2.weight) are"},
    {"mixtral_odd", "model.layers.2.block_sparse_moe.experts.4.w2.weight", -1, NAN, TRI_DTYPE_COUNT, 9,
     "weight EXPERT_DOWN of layer 2 (layers.2.block_sparse_moe.experts.*.w2.weight) are"},
    {"mixtral_odd", "model.layers.0.block_sparse_moe.gate.weight", 3, NAN, TRI_DTYPE_COUNT, 9,
     "weight ROUTER of layer 0"},
    {"mixtral_odd", "model.norm.weight", -1, NAN, TRI_BF16, 0, "weight FINAL_NORM (norm.weight) are"},
    {"mixtral_odd", "model.layers.0.block_sparse_moe.gate.weight", 3, 65520, TRI_F16, 0, "(--dtype)"},
    {"mixtral_odd", "model.layers.0.block_sparse_moe.gate.weight", 3, 65280, TRI_F16, 0, NULL},
    {"gpt2_odd", "transformer.wpe.weight", -1, NAN, TRI_DTYPE_COUNT, 0, "weight POSITIONS (wpe.weight) are"},
    {"fp8_deepseek_v3", "model.layers.1.mlp.experts.2.down_proj.weight", -1, NAN, TRI_DTYPE_COUNT, 0,
     "1 of the 16128 numbers of weight EXPERT_DOWN of layer 1"},
    {"fp8_deepseek_v3", "model.layers.1.mlp.experts.2.down_proj.weight_scale_inv", 0, INFINITY, TRI_DTYPE_COUNT, 9,
     "weight EXPERT_DOWN of layer 1"},
    {"fp8_deepseek_v3", "model.layers.1.self_attn.o_proj.weight_scale_inv", -1, NAN, TRI_DTYPE_COUNT, 0,
     "weight O of layer 1 (layers.1.self_attn.o_proj.weight) are"},
    {"fp8_deepseek_v3", "model.layers.1.self_attn.o_proj.weight_scale_inv", -1, -1, TRI_DTYPE_COUNT, 0, NULL},
};

START_TEST(damaged_numbers_are_found) {
  const struct damage *d = &damages[_i];
  char dir[700];
  tri_error err = {0};
  make_copy(d, dir, sizeof dir);
  tri_status st = load(dir, d, (tri_parallel){.tp = 1, .pp = 1}, &err);
  if (!d->says) {
    ck_assert_msg(st == TRI_OK, "%s", err.message);
    return;
  }
  ck_assert_int_eq(st, TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, d->says), "%s: %s", d->tensor, err.message);
}
END_TEST

/* The damage is in the last expert of the last layer: the last column of its last rows. */
START_TEST(ranks_without_them_load) {
  const struct damage *d = &damages[2];
  char dir[700];
  make_copy(d, dir, sizeof dir);
  for (int rank = 0; rank < 2; rank++) {
    tri_error err = {0};
    ck_assert_int_eq(load(dir, d, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = rank}, &err),
                     rank ? TRI_CORRUPT : TRI_OK);
    ck_assert_int_eq(load(dir, d, (tri_parallel){.tp = 1, .pp = 2, .pp_rank = rank}, &err),
                     rank ? TRI_CORRUPT : TRI_OK);
    if (rank) ck_assert_msg(strstr(err.message, "experts.*.w2.weight) are"), "%s", err.message);
  }
}
END_TEST

Suite *suite_finite_weights(void) {
  Suite *s = suite_create("finite_weights");
  TCase *c = tcase_create("finite_weights");
  tcase_add_loop_test(c, damaged_numbers_are_found, 0, sizeof damages / sizeof *damages);
  tcase_add_test(c, ranks_without_them_load);
  suite_add_tcase(s, c);
  return s;
}
