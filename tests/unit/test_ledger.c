/* SPDX-License-Identifier: Apache-2.0 */
/* The byte ledger: what is refused and when, and that nothing is given to the KV cache that something else needs. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/ledger.h"
#include "runtime/engine/ledger_refusal.h"
#include "runtime/engine/offload_options.h"
#include "runtime/step/limits.h"

Suite *suite_ledger(void);

struct ledger_case {
  tri_model_config c;
  tri_shard s;
  tri_limits limits;
};

static void open_case(struct ledger_case *k, const char *name) {
  char dir[700];
  tri_error err = {0};
  tri_limits_config lc = {.max_num_seqs = 4, .max_num_batched_tokens = 64, .block_size = 16, .max_model_len = 64};
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, name);
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, &k->c, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_shard_make(&k->c, (tri_parallel){.tp = 1, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &k->s, &err),
                   TRI_OK);
  ck_assert_int_eq(tri_limits_make(&k->c, &lc, &k->limits, &err), TRI_OK);
}

static tri_status make(const struct ledger_case *k, int64_t memory, int64_t kv_bytes, bool device, tri_ledger *l,
                       tri_error *err) {
  tri_ledger_config config = {
      .dtype = TRI_F32, .kv_dtype = TRI_F32, .memory = memory, .kv_bytes = kv_bytes, .device = device};
  tri_error_clear(err);
  return tri_ledger_make(&k->c, &k->s, NULL, &k->limits, 1, &config, l, err);
}

static int64_t fixed(const tri_ledger *l) { return (int64_t)(l->weights + l->activations + l->workspace + l->reserve); }

static const char *const models[] = {"llama", "mixtral_odd", "deepseek_v3", "bert"};
enum { DEEPSEEK = 2, ENCODER = 3 };

/* The longest length is found from any bound on, also from the greatest number. */
START_TEST(longest_lengths) {
  static struct ledger_case k;
  tri_ledger l;
  tri_error err;
  open_case(&k, "llama");
  ck_assert_int_eq(make(&k, 0, 0, false, &l, &err), TRI_OK);
  tri_ledger_config config = {.dtype = TRI_F32, .kv_dtype = TRI_F32, .memory = fixed(&l) + (int64_t)l.kv * 2};
  int longest = tri_ledger_longest(&k.c, &k.s, NULL, &k.limits, 1, &config, 1 << 20, false);
  ck_assert(longest > 64 && longest < 1 << 20);
  ck_assert_int_eq(tri_ledger_longest(&k.c, &k.s, NULL, &k.limits, 1, &config, INT_MAX, false), longest);
  for (int most = longest - 1; most <= longest + 1; most++)
    ck_assert_int_eq(tri_ledger_longest(&k.c, &k.s, NULL, &k.limits, 1, &config, most, false),
                     most < longest ? most : longest);
  ck_assert_int_eq(tri_ledger_longest(&k.c, &k.s, NULL, &k.limits, 1, &config, 0, false), 0);
}
END_TEST

START_TEST(kv_gets_what_is_left) {
  static struct ledger_case k;
  tri_ledger host, device, l;
  tri_error err;
  open_case(&k, models[_i]);
  ck_assert_int_eq(make(&k, 0, 0, false, &host, &err), TRI_OK);
  ck_assert_int_eq(make(&k, 0, 0, true, &device, &err), TRI_OK);
  ck_assert(!host.workspace && !host.reserve && device.workspace && device.reserve);
  ck_assert_int_eq(device.side_workspace > 0, _i == DEEPSEEK); /* the one with a shared expert */
  ck_assert(device.side_workspace < device.workspace && !host.side_workspace);
  ck_assert(host.weights == device.weights && host.activations == device.activations && host.kv == device.kv);
  int64_t kv = (int64_t)device.kv;
  /* Exactly enough, and a byte less. */
  ck_assert_int_eq(make(&k, fixed(&device) + kv, kv, true, &l, &err), TRI_OK);
  ck_assert_int_eq(make(&k, fixed(&device) + kv - 1, kv, true, &l, &err), TRI_NO_CAPACITY);
  const char *const lines[] = {
      "weights ", "activations ", "workspace ", "reserve ", _i == ENCODER ? "K and V " : "KV cache ", "may use"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ck_assert_msg(strstr(err.message, lines[i]) != NULL, "no %sin: %s", lines[i], err.message);
  ck_assert_int_eq(make(&k, fixed(&host) + kv, kv, false, &l, &err), TRI_OK);
  ck_assert_int_eq(make(&k, fixed(&host) + kv - 1, kv, false, &l, &err), TRI_NO_CAPACITY);
  ck_assert_ptr_null(strstr(err.message, "reserve"));
  ck_assert_int_eq(make(&k, fixed(&device) - 1, 0, true, &l, &err), TRI_NO_CAPACITY);
  /* Not asked for, a fourth of what is left of a host is the most, and all of it of a device. */
  ck_assert_int_eq(make(&k, fixed(&host) + 4 * kv, 0, false, &l, &err), TRI_OK);
  ck_assert_int_eq((int64_t)l.kv, kv);
  ck_assert_int_eq(make(&k, fixed(&host) + 4 * kv - 1, 0, false, &l, &err), TRI_OK);
  ck_assert_int_lt((int64_t)l.kv, kv);
  /* One sequence of the longest comes first, on a host as on a device. */
  int64_t one = (int64_t)host.block_bytes * 64 / 16;
  for (int on_device = 0; on_device < 2; on_device++) {
    int64_t least = fixed(on_device ? &device : &host) + one;
    ck_assert_int_eq(make(&k, least, 0, on_device, &l, &err), TRI_OK);
    ck_assert_int_eq((int64_t)l.kv, one);
    ck_assert_int_eq(make(&k, least - 1, 0, on_device, &l, &err), TRI_NO_CAPACITY);
    ck_assert_str_eq(err.field, "memory");
    ck_assert_ptr_nonnull(strstr(err.message, _i == ENCODER ? " for one text of max_model_len 64"
                                                            : " for one sequence of max_model_len 64"));
  }
  /* A size that was given and holds less is refused with the one that would do. */
  char option[140];
  snprintf(option, sizeof option, "give --kv-cache-memory-bytes %lld or more, or --max-model-len 48 or less",
           (long long)one);
  ck_assert_int_eq(make(&k, 2 * fixed(&host), one - 1, false, &l, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "max_model_len");
  ck_assert_msg(strstr(err.message, option) != NULL, "%s", err.message);
  ck_assert_int_eq(make(&k, fixed(&device) + kv, 0, true, &l, &err), TRI_OK);
  ck_assert_int_eq((int64_t)l.kv, kv);
  ck_assert_int_eq(make(&k, fixed(&device) + kv - 1, 0, true, &l, &err), TRI_OK);
  ck_assert_int_lt((int64_t)l.kv, kv);
}
END_TEST

/* Limits that are not asked for suit the backend, and those that are. */
START_TEST(limits_by_default) {
  static const struct {
    int seqs, tokens, block;
    bool device;
    int want_seqs, want_tokens, want_block;
  } cases[] = {{0, 0, 0, true, 256, 8192, 64}, {0, 0, 0, false, 128, 512, 16},    {7, 0, 16, true, 7, 8192, 16},
               {0, 64, 0, true, 64, 64, 64},   {0, 2048, 0, true, 256, 2048, 64}, {600, 0, 0, false, 600, 600, 16},
               {0, 0, 3, false, 128, 512, 3}};
  static struct ledger_case k;
  open_case(&k, "llama");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_limits_config lc = {.max_num_seqs = cases[i].seqs,
                            .max_num_batched_tokens = cases[i].tokens,
                            .block_size = cases[i].block,
                            .max_model_len = 64,
                            .device = cases[i].device};
    ck_assert_int_eq(tri_limits_make(&k.c, &lc, &k.limits, &err), TRI_OK);
    ck_assert_int_eq(k.limits.max_num_seqs, cases[i].want_seqs);
    ck_assert_int_eq(k.limits.max_num_batched_tokens, cases[i].want_tokens);
    ck_assert_int_eq(k.limits.block_size, cases[i].want_block);
    lc.host_experts = true; /* the host has the prompts' work: its own numbers of tokens */
    ck_assert_int_eq(tri_limits_make(&k.c, &lc, &k.limits, &err), TRI_OK);
    int host_tokens = cases[i].want_tokens == 8192 && !cases[i].tokens ? 512 : cases[i].want_tokens;
    ck_assert_int_eq(k.limits.max_num_batched_tokens, host_tokens);
  }
}
END_TEST

/* Streamed weights want steps that take as long as a pass, in whole chunks, within what chunks and KV blocks allow. */
START_TEST(tokens_that_hide_weights) {
  static const struct {
    int64_t hiding;
    int usual, chunk;
    int64_t kv_tokens;
    int want;
  } cases[] = {{0, 512, 512, 1 << 20, 512},           {400, 512, 512, 1 << 20, 512},
               {512, 512, 512, 1 << 20, 512},         {513, 512, 512, 1 << 20, 1024},
               {3998, 512, 512, 1 << 20, 4096},       {8192, 512, 512, 1 << 20, 8192},
               {8193, 512, 512, 1 << 20, 8192},       {10120, 8192, 2048, 1 << 20, 10240},
               {1 << 20, 8192, 2048, 1 << 20, 32768}, {9000, 8192, 0, 1 << 20, 8192},
               {4000, 512, 512, 3000, 2560},          {4000, 512, 512, 300, 512},
               {5000, 600, 512, 1 << 20, 5120},       {601, 600, 512, 900, 600}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int got = tri_offload_step_tokens(cases[i].hiding, cases[i].usual, cases[i].chunk, cases[i].kv_tokens);
    ck_assert_msg(got == cases[i].want, "%lld of %d: %d tokens, not %d", (long long)cases[i].hiding, cases[i].usual,
                  got, cases[i].want);
  }
}
END_TEST

/* Which models' steps go through streamed weights in chunks: what is taken whole is named in streaming.md. Both
 * branches of a parallel residual need a row of what they add for every token. */
START_TEST(models_in_chunks) {
  static const struct {
    const char *model;
    bool host, device;
  } cases[] = {{"llama", true, true},
               {"gpt_neox", true, true},
               {"falcon_new_one_norm", true, true},
               {"stablelm_parallel", true, true},
               {"opt_narrow", true, false}};
  static struct ledger_case k;
  tri_offload_config o = {.chunk_tokens = 32};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    open_case(&k, cases[i].model);
    ck_assert_int_eq(tri_offload_chunk(&o, &k.c, k.s.p, false), cases[i].host ? 32 : 0);
    ck_assert_int_eq(tri_offload_chunk(&o, &k.c, k.s.p, true), cases[i].device ? 32 : 0);
  }
  ck_assert_int_eq(tri_offload_chunk(&o, &k.c, (tri_parallel){.tp = 1, .pp = 1, .dp = 2}, false), 32);
  open_case(&k, "mixtral_odd");
  ck_assert_int_eq(tri_offload_chunk(&o, &k.c, (tri_parallel){.tp = 1, .pp = 1, .dp = 2, .ep = 2}, false), 0);
}
END_TEST

/* What ranks of a host have in common lies in its memory once: of it each counts a share. */
START_TEST(parts_in_the_hosts_memory) {
  static struct ledger_case k;
  tri_tiers *t = NULL;
  tri_error err = {0};
  tri_weight_map m = {0}, whole = {0};
  bool in_dram[64];
  open_case(&k, "llama");
  ck_assert_int_eq(tri_weight_map_make(&k.c, &k.s, NULL, TRI_F32, TRI_QUANTIZE_NONE, NULL, &whole, &err), TRI_OK);
  tri_tiers_config tc = {.part_bytes = whole.part_bytes,
                         .num_parts = k.s.layers.count * TRI_LAYER_PARTS,
                         .room = SIZE_MAX,
                         .max_resident = SIZE_MAX,
                         .ring_parts = 2};
  ck_assert(tc.num_parts <= 64 && tri_tiers_plan(&tc, &t, &err) == TRI_OK);
  ck_assert_int_eq(tri_weight_map_make(&k.c, &k.s, NULL, TRI_F32, TRI_QUANTIZE_NONE, t, &m, &err), TRI_OK);
  ck_assert_uint_eq(tri_offload_place(t, NULL, 1, t->streamed, in_dram), t->streamed);
  ck_assert_uint_lt(tri_offload_place(t, NULL, 1, t->streamed / 2 + 64, in_dram), t->streamed);
  ck_assert_uint_eq(tri_offload_place(t, &m, 2, t->streamed / 2 + 64, in_dram), t->streamed);
  ck_assert_uint_lt(tri_offload_place(t, &m, 2, t->streamed / 2 - 64, in_dram), t->streamed);
  ck_assert_uint_eq(tri_offload_place(t, &m, 4, t->streamed / 4 + 64, in_dram), t->streamed);
  size_t home;
  ck_assert(tri_offload_home_bytes(&whole, k.s.layers.count, &home) && home >= t->streamed);
  tri_weight_map_free(&m);
  tri_weight_map_free(&whole);
  tri_tiers_free(t);
}
END_TEST

/* GEMMs take their rows in the type that the weights were rounded from, or have; float32 stays float32. */
START_TEST(type_of_rows) {
  static struct ledger_case k;
  static const tri_quantization quantizations[] = {TRI_QUANTIZE_NONE, TRI_QUANTIZE_INT8, TRI_QUANTIZE_W8A8,
                                                   TRI_QUANTIZE_FP8};
  tri_dtype type = (tri_dtype)(_i % 3);
  tri_weight_map m = {0};
  tri_error err = {0};
  open_case(&k, "mixtral_odd");
  ck_assert(type == TRI_F32 || type == TRI_F16 || type == TRI_BF16);
  ck_assert_int_eq(tri_weight_map_make(&k.c, &k.s, NULL, type, quantizations[_i / 3], NULL, &m, &err), TRI_OK);
  ck_assert_int_eq(m.layers[TRI_W_QKV].dtype, _i < 3 ? type : _i < 9 ? TRI_I8 : TRI_F8_E4M3);
  ck_assert_int_eq(m.gemms, type);
  tri_weight_map_free(&m);
}
END_TEST

/* Projections to latents are one weight: its blocks are as high as the file's where the queries' rows are whole ones,
 * as DeepSeek-V3's are, and else fit into both parts. Each rank of a tensor group has all of it. */
START_TEST(latents_in_blocks) {
  static const struct { int queries, high; } cases[] = {{1536, 128}, {192, 64}, {36, 4}, {0, 128}};
  static tri_model_config c;
  char json[700], queries[16];
  tri_error err = {0};
  tri_shard s;
  tri_weight_map m;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int rows = cases[i].queries + 512 + 64, high = cases[i].high;
    snprintf(queries, sizeof queries, "%d", cases[i].queries);
    snprintf(json, sizeof json,
             "{\"model_type\":\"deepseek_v3\",\"hidden_size\":384,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
             "\"intermediate_size\":128,\"vocab_size\":32,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"
             "\"q_lora_rank\":%s,\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
             cases[i].queries ? queries : "null");
    ck_assert_msg(tri_model_config_parse(json, strlen(json), NULL, 0, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s",
                  err.message);
    for (int tp = 1; tp <= 4; tp += 3) {
      ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = tp, .pp = 1, .tp_rank = tp - 1}, &s, &err), TRI_OK);
      ck_assert_int_eq(tri_weight_map_make(&c, &s, NULL, TRI_BF16, TRI_QUANTIZE_FP8, NULL, &m, &err), TRI_OK);
      const tri_weight_place *w = &m.layers[TRI_W_QKV_A];
      ck_assert(w->dtype == TRI_F8_E4M3 && w->is_stored && w->bytes == (size_t)rows * 384);
      ck_assert_int_eq(w->groups.rows, high);
      ck_assert(w->groups.cols == 128 && !w->groups.skip_row && !w->groups.skip_col);
      ck_assert_uint_eq(w->scale_bytes, (size_t)((rows + high - 1) / high * 3) * sizeof(float));
      ck_assert_int_eq(m.gemms, TRI_BF16);
      tri_weight_map_free(&m);
    }
  }
}
END_TEST

/* Memory from too little on: there is a larger step as far as the ledger says so, and not at the cost of many KV
 * blocks, of weights that stay, or of the ring. */
START_TEST(memory_for_larger_steps) {
  enum { WANTED = 512, STEP = 32, MOST = 1 << 22, BY = 4096, SOME = 1 << 16 };
  static const struct {
    bool device, streams;
    int keep, blocks;
    int64_t leave;
  } cases[] = {{false, true, 0, 1 << 16, 0},
               {true, true, 0, 16, 0},
               {false, true, -1, 1 << 16, SOME},
               {true, true, -1, 16, SOME},
               {true, false, -1, 0, 0}};
  static struct ledger_case k;
  tri_offload_config offload = {
      .tier = TRI_OFFLOAD_AUTO, .gpu_layers = cases[_i].keep, .bytes = cases[_i].leave, .chunk_tokens = STEP};
  tri_ledger_config lc = {.dtype = TRI_F32,
                          .kv_dtype = TRI_F32,
                          .num_kv_blocks = cases[_i].blocks,
                          .device = cases[_i].device,
                          .offload = &offload};
  tri_ledger usual, l;
  tri_error err = {0};
  open_case(&k, "llama");
  int least = k.limits.max_num_batched_tokens, found[2] = {0};
  ck_assert_msg(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &usual, &err) == TRI_OK, "%s", err.message);
  ck_assert(usual.streams == cases[_i].streams);
  ck_assert_int_eq(tri_ledger_step_tokens(&k.c, &k.s, NULL, &k.limits, 1, &lc, &usual, WANTED), WANTED);
  ck_assert_int_eq(tri_ledger_step_tokens(&k.c, &k.s, NULL, &k.limits, 1, &lc, &usual, least), least);
  int64_t all = fixed(&usual) + (int64_t)(usual.reads + usual.all2all + usual.kv);
  for (lc.memory = all - MOST; lc.memory < all + MOST; lc.memory += BY) {
    if (tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &usual, &err) != TRI_OK) continue;
    tri_limits larger = k.limits;
    larger.max_num_batched_tokens = tri_ledger_step_tokens(&k.c, &k.s, NULL, &k.limits, 1, &lc, &usual, WANTED);
    ck_assert(larger.max_num_batched_tokens >= least && larger.max_num_batched_tokens <= WANTED);
    found[larger.max_num_batched_tokens == WANTED]++;
    ck_assert_int_eq(tri_ledger_make(&k.c, &k.s, NULL, &larger, 1, &lc, &l, &err), TRI_OK);
    ck_assert(l.streamed * 8 <= usual.streamed * 9 && l.ring * 8 >= usual.ring * 7);
    ck_assert(l.num_blocks * 8 >= usual.num_blocks * 7);
  }
  ck_assert(found[0] && found[1]);
}
END_TEST

/* Ops of a step in chunks have a chunk's rows, so that a larger step wants no larger workspace. */
START_TEST(workspace_of_chunks) {
  enum { TOKENS = 512, STEP = 32, BLOCKS = 64 };
  static struct ledger_case k;
  tri_offload_config offload = {.tier = TRI_OFFLOAD_CPU, .gpu_layers = 0, .chunk_tokens = STEP};
  tri_ledger_config lc = {
      .dtype = TRI_F32, .kv_dtype = TRI_F32, .num_kv_blocks = BLOCKS, .device = true, .offload = &offload};
  tri_ledger streamed[2], whole[2];
  tri_error err = {0};
  open_case(&k, "mixtral_odd");
  for (int larger = 0; larger < 2; larger++) {
    if (larger) k.limits.max_num_batched_tokens = TOKENS;
    ck_assert_msg(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &streamed[larger], &err) == TRI_OK, "%s",
                  err.message);
    ck_assert(streamed[larger].streams);
    ck_assert_int_eq(make(&k, 0, 0, true, &whole[larger], &err), TRI_OK);
  }
  ck_assert_uint_eq(streamed[0].workspace, streamed[1].workspace);
  ck_assert(streamed[0].workspace < whole[0].workspace && whole[0].workspace < whole[1].workspace);
}
END_TEST

/* KV blocks of the host: a part of what a rank without a device may use, and apart from a device's memory. */
/* A 70B's rank of eight: its QKV GEMM of 1408 rows has 110 tiles, fewer than an H200 multiprocessors, and cuts k into
 * six parts. */
START_TEST(parts_of_8_bit_sums) {
  static struct ledger_case k;
  static const tri_quantization types[] = {TRI_QUANTIZE_FP8, TRI_QUANTIZE_INT8, TRI_QUANTIZE_W8A8};
  const int64_t rows = 1408, qkv = 10 * 128, hidden = 8192, rounded = rows * hidden + hidden / 128 * rows * 4;
  tri_error err = {0};
  open_case(&k, "llama");
  k.c.hidden_size = hidden;
  k.c.attention.num_heads = 64;
  k.c.attention.num_kv_heads = 8;
  k.c.attention.head_dim = 128;
  k.c.mlp.intermediate_size = 28672;
  k.limits.max_num_batched_tokens = 2048;
  ck_assert_int_eq(tri_shard_make(&k.c, (tri_parallel){.tp = 8, .pp = 1}, &k.s, &err), TRI_OK);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    tri_ledger l;
    tri_ledger_config config = {.dtype = TRI_BF16, .kv_dtype = TRI_BF16, .device = true, .quantization = types[i]};
    ck_assert_int_eq(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &config, &l, &err), TRI_OK);
    ck_assert_int_ge((int64_t)l.workspace, rounded + 6 * rows * qkv * 4);
  }
}
END_TEST

START_TEST(blocks_of_the_host) {
  static struct ledger_case k;
  tri_offload_config offload = {.tier = TRI_OFFLOAD_NONE};
  tri_ledger_config lc = {.dtype = TRI_F32, .kv_dtype = TRI_F32, .num_kv_blocks = 16, .offload = &offload};
  tri_ledger none, l;
  tri_error err = {0};
  for (int m = 0; m < 4; m++)
    for (int device = 0; device < 2; device++) {
      open_case(&k, models[m]);
      lc.device = device;
      lc.memory = offload.host_kv = 0;
      ck_assert_int_eq(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &none, &err), TRI_OK);
      ck_assert(!none.host_kv && !none.num_host_blocks);
      int64_t bytes = (int64_t)none.block_bytes, wanted = k.c.encoder ? 0 : 5;
      offload.host_kv = 6 * bytes - 1;
      lc.memory = fixed(&none) + (int64_t)(none.kv + none.all2all) + (device ? 0 : wanted * bytes);
      ck_assert_int_eq(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &l, &err), TRI_OK);
      ck_assert(l.num_host_blocks == wanted && l.host_kv == (size_t)(wanted * bytes) && l.num_blocks == 16);
      lc.memory--;
      ck_assert_int_eq(tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &l, &err), TRI_NO_CAPACITY);
      ck_assert(device || !wanted || strstr(err.message, "KV blocks of preempted sequences"));
      tri_error_clear(&err);
      offload.host_kv = bytes - 1;
      lc.memory = 0;
      tri_status st = tri_ledger_make(&k.c, &k.s, NULL, &k.limits, 1, &lc, &l, &err);
      ck_assert_int_eq(st, wanted ? TRI_NO_CAPACITY : TRI_OK);
      if (wanted) ck_assert_str_eq(err.field, "kv_offloading_size");
      tri_error_clear(&err);
    }
  offload.host_kv = INT64_MAX;
  ck_assert_int_eq(tri_offload_check_host_kv(&offload, 1, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "kv_offloading_size");
  offload.host_kv = 1;
  ck_assert_int_eq(tri_offload_check_host_kv(&offload, 2, &err), TRI_OK);
}
END_TEST

static const char *const with_experts[] = {"mixtral_odd", "deepseek_v3", "gpt_oss_odd", "qwen2_moe_odd"};

static size_t experts_of(const struct ledger_case *k, int layer) {
  static const tri_weight_id ids[] = {TRI_W_EXPERT_UP, TRI_W_EXPERT_UP_BIAS, TRI_W_EXPERT_DOWN, TRI_W_EXPERT_DOWN_BIAS};
  size_t bytes = 0;
  for (size_t i = 0; i < sizeof ids / sizeof *ids && (k->c.layer_flags[layer] & TRI_LAYER_SPARSE); i++) {
    tri_weight_shape shape = tri_shard_weight_shape(&k->c, &k->s, ids[i], layer);
    bytes += ((size_t)(shape.n * shape.k) * sizeof(float) + 63) / 64 * 64;
  }
  return bytes;
}

/* The experts of the first layers that have any leave the device's weights for the host's memory, bytes for bytes, and
 * with the last of them the workspace of the device's experts goes. */
START_TEST(experts_of_the_host) {
  static struct ledger_case k;
  tri_ledger none, some;
  tri_error err;
  open_case(&k, with_experts[_i]);
  ck_assert_int_eq(make(&k, 0, 0, true, &none, &err), TRI_OK);
  ck_assert_uint_eq(none.host_experts, 0);
  int sparse = 0, layers = (int)k.c.num_layers;
  for (int l = 0; l < layers; l++) sparse += (k.c.layer_flags[l] & TRI_LAYER_SPARSE) != 0;
  ck_assert_int_gt(sparse, 1);
  for (int n = 1; n <= sparse + 1; n++) {
    size_t moved = 0;
    int left = k.s.p.host_experts = n;
    for (int l = 0; l < layers && left; l++) {
      moved += experts_of(&k, l);
      left -= (k.c.layer_flags[l] & TRI_LAYER_SPARSE) != 0;
    }
    ck_assert_int_eq(make(&k, 0, 0, true, &some, &err), TRI_OK);
    ck_assert_uint_eq(some.host_experts, moved);
    ck_assert_uint_eq(some.weights, none.weights - moved);
    ck_assert_int_eq(some.workspace < none.workspace, n >= sparse);
  }
}
END_TEST

static tri_status make_hot_tier(const struct ledger_case *k, tri_offload_tier tier, int64_t memory, int64_t kv_bytes,
                                int hot, tri_ledger *l, tri_error *err) {
  tri_offload_config offload = {.tier = tier, .gpu_layers = -1, .host_experts = INT_MAX, .hot_experts = hot};
  tri_ledger_config config = {.dtype = TRI_F32, .kv_dtype = TRI_F32, .device = true, .offload = &offload};
  config.memory = memory;
  config.kv_bytes = kv_bytes;
  tri_error_clear(err);
  return tri_ledger_make(&k->c, &k->s, NULL, &k->limits, 1, &config, l, err);
}

static tri_status make_hot(const struct ledger_case *k, int64_t memory, int64_t kv_bytes, int hot, tri_ledger *l,
                           tri_error *err) {
  return make_hot_tier(k, TRI_OFFLOAD_NONE, memory, kv_bytes, hot, l, err);
}

/* Experts of the host that lie on the device, too: as many as the KV cache leaves room for, and no more. */
START_TEST(hot_experts_get_what_is_left) {
  static struct ledger_case k;
  tri_ledger none, all, l, more;
  tri_error err;
  open_case(&k, with_experts[_i]);
  k.s.p.host_experts = INT_MAX;
  int experts = k.s.slots.count, most = 0;
  ck_assert_int_eq(make_hot(&k, 0, 0, 0, &none, &err), TRI_OK);
  ck_assert(!none.hot && !none.hot_experts);
  ck_assert_int_eq(make_hot(&k, 0, 0, INT_MAX, &all, &err), TRI_OK);
  ck_assert_int_eq(all.hot_experts, experts);
  ck_assert_uint_ge(all.hot, all.host_experts - 64 * (size_t)k.c.num_layers * 8); /* each weight is aligned by itself */
  ck_assert_uint_le(all.hot, all.host_experts + 64 * (size_t)k.c.num_layers * 8);
  ck_assert(all.weights == none.weights && all.kv == none.kv && all.workspace > none.workspace);
  int64_t from = fixed(&none) + (int64_t)none.kv, to = fixed(&all) + (int64_t)(all.hot + all.kv);
  for (int i = 0; i <= 40; i++) {
    int64_t memory = from + (to - from) * i / 40;
    for (int given = 0; given < 2; given++) {
      ck_assert_int_eq(make_hot(&k, memory, given ? (int64_t)none.kv : 0, TRI_HOT_EXPERTS_AUTO, &l, &err), TRI_OK);
      ck_assert(l.hot_experts >= 0 && l.hot_experts <= experts && l.kv == none.kv);
      ck_assert_int_le(fixed(&l) + (int64_t)(l.hot + l.kv), memory);
      if (l.hot_experts < experts)
        ck_assert_int_eq(make_hot(&k, memory, (int64_t)none.kv, l.hot_experts + 1, &more, &err), TRI_NO_CAPACITY);
      if (l.hot_experts > most) most = l.hot_experts;
    }
  }
  ck_assert_int_eq(most, experts);
  ck_assert_int_eq(make_hot(&k, from - 1, (int64_t)none.kv, 1, &l, &err), TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, "+ experts "));
}
END_TEST

/* A cache that nobody has given a size keeps slots of some 2,048 tokens, not all of the device. */
START_TEST(hot_experts_beside_long_contexts) {
  static struct ledger_case k;
  tri_ledger without, l;
  tri_error err;
  open_case(&k, "mixtral_odd");
  k.s.p.host_experts = INT_MAX;
  k.limits.max_model_len = 4096;
  k.limits.max_num_seqs = 64;
  ck_assert_int_eq(make_hot(&k, 0, 0, 1, &l, &err), TRI_OK);
  int64_t slots = (int64_t)l.block_bytes * 64 * 2048 / 16, memory = fixed(&l) + slots + (int64_t)l.hot;
  ck_assert_int_eq(make_hot(&k, memory, 0, 0, &without, &err), TRI_OK);
  ck_assert_int_gt((int64_t)without.kv, slots); /* of full slots */
  ck_assert_int_eq(make_hot(&k, memory, 0, TRI_HOT_EXPERTS_AUTO, &l, &err), TRI_OK);
  ck_assert_int_eq(l.hot_experts, 1);
  ck_assert_int_ge((int64_t)l.kv, slots);
  ck_assert_int_eq(make_hot(&k, memory - 1, 0, TRI_HOT_EXPERTS_AUTO, &l, &err), TRI_OK);
  ck_assert(!l.hot_experts && !l.hot && l.workspace == without.workspace);
}
END_TEST

/* Nothing is streamed for their sake, and nothing that is leaves room for them. */
START_TEST(hot_experts_stream_nothing) {
  enum { VOCAB = 400000 }; /* so that there are more weights than what reads of files go through */
  static struct ledger_case k;
  tri_ledger none, one, l;
  tri_error err = {0};
  open_case(&k, "mixtral_odd");
  k.c.vocab_size = VOCAB;
  ck_assert_int_eq(tri_shard_make(&k.c, (tri_parallel){.tp = 1, .pp = 1, .host_experts = INT_MAX}, &k.s, &err), TRI_OK);
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, 0, 0, 0, &none, &err), TRI_OK);
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, 0, 0, 1, &one, &err), TRI_OK);
  int64_t kv = (int64_t)none.kv, memory = fixed(&one) + (int64_t)one.hot + kv;
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, memory, kv, 1, &l, &err), TRI_OK);
  ck_assert(l.hot_experts == 1 && !l.streams);
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, memory - 1, kv, 0, &l, &err), TRI_OK);
  ck_assert(!l.hot && !l.streams);
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, memory - 1, kv, 1, &l, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "hot_experts");
  ck_assert_ptr_nonnull(strstr(err.message, "give a smaller --hot-experts"));
  ck_assert_int_eq(make_hot_tier(&k, TRI_OFFLOAD_CPU, fixed(&none) + kv - 1, kv, TRI_HOT_EXPERTS_AUTO, &l, &err),
                   TRI_OK);
  ck_assert(l.streams && !l.hot && !l.hot_experts);
}
END_TEST

START_TEST(hot_experts_by_options) {
  static struct ledger_case k;
  tri_serve_options o = {
      .offload_weights = TRI_OFFLOAD_AUTO, .gpu_layers = -1, .tp = 1, .pp = 1, .hot_experts = TRI_HOT_EXPERTS_AUTO};
  tri_offload_config c;
  tri_error err = {0};
  tri_parallel one = {.tp = 1, .pp = 1};
  open_case(&k, "mixtral_odd");
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, true, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, true, false), 0); /* all are the device's */
  o.hot_experts = 2;
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, false, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "hot_experts");
  tri_error_clear(&err);
  o.cpu_moe = true;
  k.s.p.host_experts = INT_MAX;
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, false, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, true, false), 2);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, true, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "hot_experts");
  c.hot_experts = INT_MAX;
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, true, false), k.s.slots.count);
  c.hot_experts = TRI_HOT_EXPERTS_AUTO;
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, true, false), TRI_HOT_EXPERTS_AUTO);
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, true, true), 0);
  ck_assert_int_eq(tri_offload_hot_experts(&c, &k.c, &k.s, false, false), 0);
}
END_TEST

START_TEST(experts_of_the_host_by_options) {
  static struct ledger_case k;
  tri_serve_options o = {.offload_weights = TRI_OFFLOAD_AUTO, .gpu_layers = -1, .tp = 1, .pp = 1};
  tri_offload_config c;
  tri_error err = {0};
  tri_parallel one = {.tp = 1, .pp = 1}, shards = {.tp = 1, .pp = 1, .dp = 2, .ep = 2};
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_host_experts(&c, true), 0);
  open_case(&k, "llama");
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, shards, false, &err), TRI_OK); /* nothing is asked for */
  o.n_cpu_moe = 3;
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_eq(tri_offload_host_experts(&c, true), 3);
  ck_assert_int_eq(tri_offload_host_experts(&c, false), 0); /* there is one memory */
  o.cpu_moe = true;
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_USAGE);
  ck_assert_str_eq(err.field, "n_cpu_moe");
  tri_error_clear(&err);
  o.n_cpu_moe = 0;
  ck_assert_int_eq(tri_offload_of_options(&o, &c, &err), TRI_OK);
  ck_assert_int_ge(tri_offload_host_experts(&c, true), TRI_MAX_LAYERS);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, false, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "cpu_moe");
  open_case(&k, "mixtral_odd");
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, false, &err), TRI_OK);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, shards, false, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "cpu_moe");
  tri_expert_placement moving = {.room = 1};
  one.placement = &moving;
  ck_assert_int_eq(tri_offload_check_experts(&c, &k.c, one, false, &err), TRI_UNSUPPORTED);
  ck_assert_int_eq(tri_offload_check_host_experts(1, 1, &err), TRI_OK);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_offload_check_host_experts((size_t)1 << 60, 1, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "cpu_moe");
}
END_TEST

START_TEST(memory_in_words) {
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {{0, "0 bytes"},    {80, "80 bytes"},     {1023, "1023 bytes"},
               {1536, "1.5 KiB"}, {1 << 20, "1.0 MiB"}, {UINT64_C(80) << 30, "81920.0 MiB"}};
  char text[TRI_MEMORY_TEXT];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_str_eq(tri_memory_text(cases[i].bytes, text), cases[i].text);
}
END_TEST

/* The longest refusal there can be is not cut, and has its most important numbers first. */
START_TEST(longest_refusal) {
  enum { MORE = 64 }; /* what callers may put before it, as a rank's number */
  const size_t most = (size_t)1 << 60;
  tri_ledger l = {.weights = most,
                  .streams = true,
                  .streamed = SIZE_MAX,
                  .reads = most,
                  .hot = most,
                  .activations = most,
                  .workspace = most,
                  .reserve = _i ? most : 0,
                  .all2all = most,
                  .kv = most,
                  .host_kv = most};
  tri_ledger_advice a = {INT_MAX, INT_MAX - 1, true, INT_MAX, true};
  static const char first[] = "8796093022208.0 MiB exceed the 4398046511104.0 MiB that this rank may use: weights ";
  static const char last[] = ", more ranks (-tp, -pp) or more memory";
  tri_error err = {0};
  ck_assert_int_eq(tri_ledger_refuse(&l, INT64_MAX / 2, INT_MAX, &err), TRI_NO_CAPACITY);
  tri_ledger_advise(&a, &err);
  size_t len = strlen(err.message);
  ck_assert_uint_lt(len, TRI_ERROR_MESSAGE - MORE);
  ck_assert_msg(!strncmp(err.message, first, sizeof first - 1), "%s", err.message);
  ck_assert_msg(!strcmp(err.message + len - (sizeof last - 1), last), "%s", err.message);
  ck_assert_ptr_nonnull(strstr(err.message, _i ? " + reserve " : " + KV blocks of preempted sequences "));
}
END_TEST

Suite *suite_ledger(void) {
  Suite *s = suite_create("ledger");
  TCase *c = tcase_create("ledger");
  tcase_add_loop_test(c, type_of_rows, 0, 12);
  tcase_add_test(c, latents_in_blocks);
  tcase_add_loop_test(c, longest_refusal, 0, 2);
  tcase_add_test(c, longest_lengths);
  tcase_add_loop_test(c, kv_gets_what_is_left, 0, sizeof models / sizeof *models);
  tcase_add_test(c, limits_by_default);
  tcase_add_test(c, tokens_that_hide_weights);
  tcase_add_test(c, models_in_chunks);
  tcase_add_test(c, parts_in_the_hosts_memory);
  tcase_add_loop_test(c, memory_for_larger_steps, 0, 5);
  tcase_add_test(c, workspace_of_chunks);
  tcase_add_test(c, parts_of_8_bit_sums);
  tcase_add_test(c, blocks_of_the_host);
  tcase_add_loop_test(c, experts_of_the_host, 0, 4);
  tcase_add_test(c, experts_of_the_host_by_options);
  tcase_add_loop_test(c, hot_experts_get_what_is_left, 0, 4);
  tcase_add_test(c, hot_experts_beside_long_contexts);
  tcase_add_test(c, hot_experts_stream_nothing);
  tcase_add_test(c, hot_experts_by_options);
  tcase_add_test(c, memory_in_words);
  suite_add_tcase(s, c);
  return s;
}
