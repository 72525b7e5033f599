/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of experts that lie in the host's memory beside a device. */
#include <check.h>
#include <limits.h>
#include <stdio.h>

#include "runtime/load/weights.h"
#include "runtime/model/layout.h"

Suite *suite_loader_host(void);

static tri_backend *make_backend(void) {
  tri_backend *be = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_backend_create(&(tri_backend_config){.name = "ref"}, &be, &err) == TRI_OK, "%s", err.message);
  return be;
}

static bool lies_in(const void *p, const void *memory, size_t bytes) {
  return (const char *)p >= (const char *)memory && (const char *)p < (const char *)memory + bytes;
}

/* Each weight is the other's; experts of the first `hosts` sparse layers lie in the host's memory, all else does not.
 */
static void compare_hosts(const tri_model_config *c, const tri_weights *all, const tri_weights *w, int hosts) {
  int sparse = 0, on_host = 0;
  for (int l = 0; l < (int)c->num_layers; l++) {
    bool here = (c->layer_flags[l] & TRI_LAYER_SPARSE) && sparse++ < hosts;
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *a = &all->layers[l].w[id], *b = &w->layers[l].w[id];
      bool moved = here && tri_weight_is_of_experts((tri_weight_id)id);
      ck_assert(a->n == b->n && a->k == b->k && a->dtype == b->dtype && !a->data == !b->data);
      if (!a->data) continue;
      ck_assert_mem_eq(a->data, b->data, (size_t)a->n * (size_t)a->k * tri_dtype_size(a->dtype));
      if (a->scale) ck_assert_mem_eq(a->scale, b->scale, (size_t)a->n * sizeof *a->scale);
      ck_assert(lies_in(b->data, w->host_memory, w->host_bytes) == moved);
      if (b->scale) ck_assert(lies_in(b->scale, w->host_memory, w->host_bytes) == moved);
      on_host += moved;
    }
  }
  ck_assert_int_ge(on_host, hosts ? 2 : 0);
}

/* Experts on the host are what they are elsewhere, of a checkpoint and made up, whatever their type. */
START_TEST(experts_in_the_hosts_memory) {
  static const char *const names[] = {"mixtral_odd", "gpt_oss_odd", "deepseek_v3_odd"};
  static const tri_quantization types[] = {TRI_QUANTIZE_NONE, TRI_QUANTIZE_INT8};
  static const int hosts[] = {1, 2, INT_MAX};
  static tri_model_config c;
  tri_error err = {0};
  char dir[700];
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, names[_i % 3]);
  ck_assert_int_eq(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err), TRI_OK);
  tri_checkpoint *ckpt = NULL;
  ck_assert_int_eq(tri_checkpoint_open(dir, &ckpt, &err), TRI_OK);
  tri_backend *be = make_backend(), *host = make_backend();
  tri_shard s;
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = 1}, &s, &err), TRI_OK);
  tri_weights_config wc = {.backend = be, .host = host, .model = &c, .shard = &s, .dtype = TRI_DTYPE_COUNT, .seed = 9};
  if (_i / 3 == 0) wc.ckpt = ckpt;
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) {
      tri_weights *all = NULL, *w = NULL;
      wc.quantization = types[t];
      s.p.host_experts = 0;
      ck_assert_msg(tri_weights_make(&wc, &all, &err) == TRI_OK, "%s", err.message);
      ck_assert(!all->host_memory && !host->allocated[TRI_MEM_WEIGHTS]);
      s.p.host_experts = hosts[h];
      ck_assert_msg(tri_weights_make(&wc, &w, &err) == TRI_OK, "%s", err.message);
      compare_hosts(&c, all, w, hosts[h]);
      ck_assert_uint_eq(w->bytes + w->host_bytes, all->bytes);
      ck_assert_uint_eq(w->read_bytes, all->read_bytes);
      ck_assert_uint_eq(host->allocated[TRI_MEM_WEIGHTS], w->host_bytes);
      tri_weights_destroy(all);
      tri_weights_destroy(w);
    }
  tri_backend_destroy(be);
  tri_backend_destroy(host);
  tri_checkpoint_close(ckpt);
}
END_TEST

Suite *suite_loader_host(void) {
  Suite *s = suite_create("loader_host");
  TCase *c = tcase_create("loader_host");
  tcase_add_loop_test(c, experts_in_the_hosts_memory, 0, 6);
  suite_add_tcase(s, c);
  return s;
}
