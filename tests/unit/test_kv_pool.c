/* SPDX-License-Identifier: Apache-2.0 */
/* KV blocks between a rank's cache and the host's memory: every layer's keys and values, or latents, of each block. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/swap_turns.h"
#include "runtime/forward/kv_cache.h"

Suite *suite_kv_pool(void);

enum { BLOCKS = 7, HOST_BLOCKS = 5, BLOCK = 4, MOVES = 3 };

static const char *const models[] = {"llama", "mixtral_odd", "deepseek_v3", "gemma2_odd", "gemma4_text_e_odd"};
static const tri_dtype types[] = {TRI_F32, TRI_BF16};

static size_t block_bytes(const tri_kv_layer *l) {
  return (size_t)l->num_kv_heads * (size_t)l->block_size * (size_t)l->head_dim * tri_dtype_size(l->dtype);
}

/* One number for each place of a block, layer, and keys or values. */
static unsigned char mark(int block, int layer, int part, size_t at) {
  return (unsigned char)(block * 31 + layer * 7 + part * 3 + (int)(at % 5) + 1);
}

/* Returns whether a layer has the keys and values of an earlier one. */
static bool is_shared(const tri_kv_cache *kv, int layer) {
  for (int l = 0; l < layer; l++)
    if (kv->layers[l].k == kv->layers[layer].k) return true;
  return false;
}

/* Fills a block, or counts the bytes that are not what the block `of` was filled with; of -1: zeros. */
static size_t each_byte(const tri_kv_cache *kv, int block, int of, bool fill) {
  size_t wrong = 0;
  for (int l = 0; l < kv->num_layers; l++)
    for (int part = 0; !is_shared(kv, l) && part < (kv->layers[l].v_dim ? 1 : 2); part++) {
      size_t n = block_bytes(&kv->layers[l]);
      unsigned char *p = (unsigned char *)(part ? kv->layers[l].v : kv->layers[l].k) + (size_t)block * n;
      for (size_t i = 0; i < n; i++) {
        unsigned char want = of < 0 ? 0 : mark(of, l, part, i);
        if (fill) p[i] = want;
        wrong += p[i] != want;
      }
    }
  return wrong;
}

static tri_kv_cache *make(const char *model, tri_dtype type, tri_backend *be, tri_model_config *c) {
  char dir[700];
  tri_shard s;
  tri_error err = {0};
  tri_kv_cache *kv = NULL;
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, model);
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, c, &err) == TRI_OK, "%s", err.message);
  if (!strcmp(model, "gemma2_odd"))
    c->attention.global_heads = c->attention.num_heads, c->attention.global_kv_heads = 1,
    c->attention.global_head_dim = 12;
  ck_assert_int_eq(tri_shard_make(c, (tri_parallel){.tp = 1, .pp = 1}, &s, &err), TRI_OK);
  ck_assert_int_eq(tri_kv_cache_create(be, c, &s, type, BLOCK, BLOCKS, &kv, &err), TRI_OK);
  ck_assert_int_eq(tri_kv_cache_add_pool(kv, HOST_BLOCKS, &err), TRI_OK);
  return kv;
}

START_TEST(moves) {
  static const int32_t out[MOVES][2] = {{6, 0}, {2, 4}, {3, 1}}, in[MOVES][2] = {{0, 4}, {6, 1}, {5, 0}};
  static const int from[BLOCKS] = {2, 1, -1, -1, 4, 6, 3}; /* what each block has in the end */
  static tri_model_config c;
  for (int t = 0; t < 2; t++) {
    tri_backend *be;
    tri_error err = {0};
    ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = t ? "cpu" : "ref"}, &be, &err), TRI_OK);
    tri_kv_cache *kv = make(models[_i], types[t], be, &c);
    ck_assert_uint_eq(kv->pool_bytes, kv->bytes / BLOCKS * HOST_BLOCKS);
    for (int b = 0; b < BLOCKS; b++) each_byte(kv, b, b, true);
    tri_kv_cache_move(kv, out[0], MOVES, true);
    for (int i = 0; i < MOVES; i++) each_byte(kv, out[i][0], -1, true);
    tri_kv_cache_move(kv, in[0], MOVES, false);
    for (int b = 0; b < BLOCKS; b++)
      ck_assert_msg(!each_byte(kv, b, from[b], false), "%s: block %d is not what %d was", models[_i], b, from[b]);
    tri_kv_cache_destroy(kv);
    tri_backend_destroy(be);
  }
}
END_TEST

/* Layers 4 to 6 read what 3 and 2 write, and have no memory. */
START_TEST(shared_keys) {
  static const int sources[] = {0, 1, 2, 3, 2, 3, 2};
  static tri_model_config c;
  tri_backend *be;
  tri_error err = {0};
  size_t bytes = 0;
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, &err), TRI_OK);
  tri_kv_cache *kv = make("gemma4_text_e_odd", TRI_F32, be, &c);
  for (int l = 0; l < kv->num_layers; l++) {
    const tri_kv_layer *own = &kv->layers[sources[l]];
    ck_assert(kv->layers[l].k == own->k && kv->layers[l].v == own->v && kv->layers[l].head_dim == own->head_dim);
    ck_assert_int_eq(is_shared(kv, l), sources[l] != l);
    if (sources[l] == l) bytes += 2 * BLOCKS * block_bytes(own);
  }
  ck_assert_uint_eq(kv->bytes, bytes);
  tri_kv_cache_destroy(kv);
  tri_backend_destroy(be);
}
END_TEST

/* Where all layers lie in one another's place, a block that has come in holds the layer that came last. */
START_TEST(takes_turns) {
  enum { LAYERS = 7, BYTES = 64 };
  static unsigned char cache[2 * BYTES], pool[2 * LAYERS * BYTES];
  static const int32_t pair[2] = {0, 0};
  tri_backend *be;
  tri_error err = {0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, &err), TRI_OK);
  for (size_t i = 0; i < sizeof pool; i++) pool[i] = (unsigned char)(i / (2 * BYTES));
  for (int turns = 1; turns <= LAYERS + 1; turns++)
    for (int turn = 0; turn < turns; turn++) {
      tri_move_blocks_args a = {.kv = {cache, cache + BYTES, TRI_F32, 1, 1, 4, 4, 0},
                                .num_layers = LAYERS,
                                .host = pool,
                                .num_host_blocks = 1,
                                .pairs = pair,
                                .num_pairs = 1,
                                .num_turns = turns,
                                .turn = turn};
      int last = turn ? turn - 1 : turns - 1; /* of the turns */
      if (last >= LAYERS) last--;             /* which has no layer */
      while (last + turns < LAYERS) last += turns;
      ck_assert_int_eq(tri_run_move_blocks(be, &a), TRI_OK);
      ck_assert_msg(cache[0] == last && cache[2 * BYTES - 1] == last, "turn %d of %d ends with layer %d, not %d", turn,
                    turns, cache[0], last);
    }
  tri_backend_destroy(be);
}
END_TEST

/* Ranks 0, 2 and 3 are of one host, 1 of another. */
START_TEST(finds_turns) {
  static const struct {
    double alone, together;
    int turns;
  } cases[] = {
      {1, 1, 1},                                          /* links of their own */
      {1, 1.06, 1},                                       /* but for noise */
      {1, 1.4, 2},                                        /* memory that has room for two of three */
      {1, 2, 2},    {1, 2.6, 3}, {1, 3.05, 3}, {1, 9, 3}, /* no more than there are ranks */
      {1, 0.8, 1},  {0, 1, 1},   {1, 0, 1},               /* not measured */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_swap_rank all[4];
    for (int r = 0; r < 4; r++) {
      double alone = r == 1 ? 1 : cases[i].alone, together = r == 1 ? 1 : cases[i].together;
      all[r] = (tri_swap_rank){.host = r == 1, .block_bytes = 1000, .together = together, .alone = alone};
    }
    for (int r = 0; r < 4; r++) {
      tri_swap_turns t = tri_swap_find_turns(all, 4, r);
      ck_assert_int_eq(t.ranks, r == 1 ? 1 : 3);
      ck_assert_int_eq(t.number, r > 1 ? r - 1 : 0);
      ck_assert_msg(t.turns == (r == 1 ? 1 : cases[i].turns), "case %zu: rank %d has %d turns", i, r, t.turns);
    }
  }
  /* Ranks of unlike rates: 30 + 10 alone, 12 + 8 together. */
  tri_swap_rank two[] = {{7, 120, 10, 4}, {7, 80, 10, 8}};
  ck_assert_int_eq(tri_swap_find_turns(two, 2, 1).turns, 2);
}
END_TEST

static int turns_seen, turn_seen;

static void see_turns(tri_backend *be, const tri_op_plan *plan, const tri_move_blocks_args *a) {
  (void)be, (void)plan;
  turns_seen = a->num_turns;
  turn_seen = a->turn;
}

/* A cache that takes turns moves the same bytes. */
START_TEST(moves_in_turns) {
  static const int32_t pairs[2][2] = {{6, 0}, {2, 4}};
  static tri_model_config c;
  tri_backend *be;
  tri_error err = {0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, &err), TRI_OK);
  tri_kv_cache *kv = make("deepseek_v3", TRI_F32, be, &c);
  for (kv->num_turns = 1; kv->num_turns < 5; kv->num_turns++)
    for (kv->turn = 0; kv->turn < kv->num_turns; kv->turn++) {
      for (int b = 0; b < BLOCKS; b++) each_byte(kv, b, b, true);
      tri_kv_cache_move(kv, pairs[0], 2, true);
      for (int i = 0; i < 2; i++) each_byte(kv, pairs[i][0], -1, true);
      tri_kv_cache_move(kv, pairs[0], 2, false);
      for (int b = 0; b < BLOCKS; b++) ck_assert_uint_eq(each_byte(kv, b, b, false), 0);
    }
  kv->num_turns = 3;
  kv->turn = 2;
  be->ops.move_blocks_launch = see_turns;
  tri_kv_cache_move(kv, pairs[0], 2, true);
  ck_assert(turns_seen == 3 && turn_seen == 2);
  tri_kv_cache_destroy(kv);
  tri_backend_destroy(be);
}
END_TEST

/* Measuring leaves the cache as it was. */
START_TEST(measures) {
  static tri_model_config c;
  tri_backend *be;
  tri_error err = {0};
  double seconds = 0;
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, &err), TRI_OK);
  tri_kv_cache *kv = make(models[0], TRI_F32, be, &c);
  for (int b = 0; b < BLOCKS; b++) each_byte(kv, b, b, true);
  ck_assert_int_eq(tri_kv_cache_measure(kv, &seconds), TRI_OK);
  ck_assert(seconds > 0);
  for (int b = 0; b < BLOCKS; b++) ck_assert_uint_eq(each_byte(kv, b, b, false), 0);
  tri_kv_cache_destroy(kv);
  tri_backend_destroy(be);
}
END_TEST

static tri_status no_memory(tri_backend *be, size_t bytes, void **out) {
  (void)be, (void)bytes, (void)out;
  return TRI_NO_MEMORY;
}

START_TEST(refused) {
  static tri_model_config c;
  tri_backend *be;
  tri_error err = {0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, &err), TRI_OK);
  tri_kv_cache *kv = make(models[0], TRI_F32, be, &c);
  be->ops.host_free(be, kv->pool, kv->pool_bytes);
  kv->pool = NULL;
  be->ops.host_alloc = no_memory;
  ck_assert_int_eq(tri_kv_cache_add_pool(kv, HOST_BLOCKS, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "kv_offloading_size");
  ck_assert(!kv->pool);
  ck_assert_int_eq(tri_kv_cache_add_pool(kv, 0, &err), TRI_OK);
  tri_kv_cache_destroy(kv);
  tri_backend_destroy(be);
}
END_TEST

Suite *suite_kv_pool(void) {
  Suite *s = suite_create("kv_pool");
  TCase *t = tcase_create("kv_pool");
  tcase_add_loop_test(t, moves, 0, sizeof models / sizeof *models);
  tcase_add_test(t, shared_keys);
  tcase_add_test(t, takes_turns);
  tcase_add_test(t, finds_turns);
  tcase_add_test(t, moves_in_turns);
  tcase_add_test(t, measures);
  tcase_add_test(t, refused);
  suite_add_tcase(s, t);
  return s;
}
