/* SPDX-License-Identifier: Apache-2.0 */
/* Models larger than the memory, with defaults: what stays, what the KV cache gets, and how a refusal says what fits.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/ledger_refusal.h"
#include "runtime/step/limits.h"

Suite *suite_ledger_streams(void);

#define LLAMA                                                                                                          \
  "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"rms_norm_eps\": 1e-5, \"rope_theta\": 5e5, "                  \
  "\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "                          \
  "\"num_key_value_heads\": 8, \"max_position_embeddings\": "

/* The shapes of published models: Llama 3.1 70B, Llama 3 70B, Llama 3.1 8B, Llama 3 8B, Qwen3-32B, Mixtral 8x7B. */
static const char *const shapes[] = {
    LLAMA "131072, \"hidden_size\": 8192, \"intermediate_size\": 28672, \"num_hidden_layers\": 80, "
          "\"num_attention_heads\": 64}",
    LLAMA "8192, \"hidden_size\": 8192, \"intermediate_size\": 28672, \"num_hidden_layers\": 80, "
          "\"num_attention_heads\": 64}",
    LLAMA "131072, \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32}",
    LLAMA "8192, \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
          "\"num_attention_heads\": 32}",
    "{\"model_type\": \"qwen3\", \"vocab_size\": 151936, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6, \"head_dim\": "
    "128, "
    "\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"attention_bias\": "
    "false, "
    "\"num_key_value_heads\": 8, \"max_position_embeddings\": 40960, \"hidden_size\": 5120, "
    "\"intermediate_size\": 25600, \"num_hidden_layers\": 64, \"num_attention_heads\": 64}",
    "{\"model_type\": \"mixtral\", \"vocab_size\": 32000, \"rms_norm_eps\": 1e-5, \"rope_theta\": 1e6, "
    "\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, "
    "\"num_key_value_heads\": 8, \"max_position_embeddings\": 32768, \"hidden_size\": 4096, "
    "\"intermediate_size\": 14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_local_experts\": 8, "
    "\"num_experts_per_tok\": 2}",
};
enum { L70, L70_SHORT, L8, L8_SHORT, QWEN_32B, MIXTRAL, NUM_SHAPES };

static const int layouts[][2] = {{1, 1}, {2, 1}, {1, 2}, {4, 2}}; /* tp, pp */

struct shape {
  tri_model_config c;
  tri_shard s;
  tri_limits limits;
  tri_offload_config offload;
  tri_ledger_config config;
};

static void open_shape(struct shape *k, int shape, int tp, int pp, bool device) {
  tri_error err = {0};
  tri_limits_config lc = {.device = device}; /* nothing is asked for */
  tri_parallel p = {.tp = tp, .pp = pp, .pp_rank = pp - 1};
  ck_assert_msg(tri_model_config_parse(shapes[shape], strlen(shapes[shape]), NULL, 0, (tri_config_rules){0}, &k->c,
                                       &err) == TRI_OK,
                "%s", err.message);
  ck_assert_int_eq(tri_shard_make(&k->c, p, &k->s, &err), TRI_OK);
  ck_assert_int_eq(tri_limits_make(&k->c, &lc, &k->limits, &err), TRI_OK);
  k->offload = (tri_offload_config){.tier = TRI_OFFLOAD_AUTO, .gpu_layers = -1};
  k->config = (tri_ledger_config){
      .dtype = TRI_DTYPE_COUNT, .kv_dtype = device ? TRI_BF16 : TRI_F32, .device = device, .offload = &k->offload};
}

static tri_status make(struct shape *k, int64_t memory, tri_ledger *l, tri_error *err) {
  k->config.memory = memory;
  tri_error_clear(err);
  return tri_ledger_make(&k->c, &k->s, NULL, &k->limits, k->s.p.pp, &k->config, l, err);
}

static int64_t one_sequence(const struct shape *k, const tri_ledger *l) {
  return (k->limits.max_model_len + k->limits.block_size - 1) / k->limits.block_size * (int64_t)l->block_bytes;
}

static int64_t all_of(const tri_ledger *l) {
  return (int64_t)(l->weights + l->reads + l->activations + l->workspace + l->reserve + l->all2all + l->kv);
}

/* From too little on: what fits with some memory fits with more, has room for one sequence of full length, and streams
 * no more; and nothing streams where all could stay beside one sequence. */
START_TEST(more_memory_streams_less) {
  enum { STEPS = 160 };
  static struct shape k;
  int device = _i % 2, layout = _i / 2 % 4, shape = _i / 8;
  tri_ledger l, all;
  tri_error err;
  open_shape(&k, shape, layouts[layout][0], layouts[layout][1], device);
  ck_assert_int_eq(make(&k, 0, &all, &err), TRI_OK);
  int64_t resident = all_of(&all) - (int64_t)all.kv + one_sequence(&k, &all);
  size_t streamed = SIZE_MAX;
  bool streams = false;
  for (int i = 1; i <= STEPS; i++) {
    int64_t memory = resident / 100 * i;
    tri_status st = make(&k, memory, &l, &err);
    if (st == TRI_NO_CAPACITY) {
      ck_assert_msg(streamed == SIZE_MAX, "%lld bytes fit nothing, and fewer did: %s", (long long)memory, err.message);
      ck_assert_int_gt(all_of(&l), memory);
      continue;
    }
    ck_assert_msg(st == TRI_OK, "%s", err.message);
    ck_assert(all_of(&l) <= memory && (int64_t)l.kv >= one_sequence(&k, &l));
    /* A ring may grow before a part stays. */
    ck_assert_msg(streamed == SIZE_MAX || l.streamed <= streamed + l.ring, "%lld bytes stream %zu, and fewer %zu",
                  (long long)memory, l.streamed, streamed);
    ck_assert(!l.streams || memory < resident);
    streamed = l.streamed;
    streams |= l.streams;
  }
  ck_assert(streams && !streamed);
}
END_TEST

/* Models and memories that were refused once, of which a device may use nine tenths. */
START_TEST(defaults_start) {
  static const struct {
    int shape;
    int64_t memory;
    bool starts;
  } cases[] = {{L70, 80, true},     {L70, 141, true},     {L70_SHORT, 80, true}, {L8_SHORT, 12, true},
               {L8, 24, true},      {QWEN_32B, 24, true}, {QWEN_32B, 48, true},  {MIXTRAL, 80, true},
               {MIXTRAL, 24, true}, {L8, 12, false},      {L70_SHORT, 8, false}, {L8, 40, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static struct shape k;
    tri_ledger l;
    tri_error err = {0};
    open_shape(&k, cases[i].shape, 1, 1, true);
    tri_status st = make(&k, cases[i].memory * 900000000, &l, &err);
    ck_assert_msg((st == TRI_OK) == cases[i].starts, "shape %d in %lld GB: %s", cases[i].shape,
                  (long long)cases[i].memory, err.message);
    if (st == TRI_OK) ck_assert(l.streams == (cases[i].memory != 40));
  }
}
END_TEST

/* The rest is divided as docs/design/memory.md says. */
START_TEST(the_rest_is_shared) {
  static struct shape k;
  tri_ledger l;
  tri_error err = {0};
  /* Little beside one sequence: half of the rest for the cache, as far as that is half of what streams. */
  open_shape(&k, L70_SHORT, 1, 1, true);
  ck_assert_int_eq(make(&k, (int64_t)72 << 30, &l, &err), TRI_OK);
  int64_t more = (int64_t)l.kv - one_sequence(&k, &l);
  ck_assert_int_gt(more, (int64_t)24 << 30);
  ck_assert_int_lt(more, (int64_t)32 << 30);
  /* A cache of one sequence that is more than half of what streams gets nothing. */
  open_shape(&k, L8, 1, 1, true);
  ck_assert_int_eq(make(&k, (int64_t)30 << 30, &l, &err), TRI_OK);
  ck_assert(l.streams && (int64_t)l.kv == one_sequence(&k, &l));
  /* Layers that are to leave in any case leave their room to the cache. */
  k.offload.gpu_layers = 0;
  ck_assert_int_eq(make(&k, (int64_t)60 << 30, &l, &err), TRI_OK);
  ck_assert(l.streams && (int64_t)l.kv > ((int64_t)50 << 30));
  /* Slots that are full have no use for more. */
  k.limits.max_num_seqs = 1;
  ck_assert_int_eq(make(&k, (int64_t)60 << 30, &l, &err), TRI_OK);
  ck_assert_int_eq((int64_t)l.kv, one_sequence(&k, &l));
  /* A host keeps most of it. */
  open_shape(&k, L8_SHORT, 1, 1, false);
  ck_assert_int_eq(make(&k, (int64_t)12 << 30, &l, &err), TRI_OK);
  ck_assert(l.streams && (int64_t)l.kv - one_sequence(&k, &l) < (int64_t)3 << 30);
  k.offload.gpu_layers = 31;
  ck_assert_int_eq(make(&k, (int64_t)80 << 30, &l, &err), TRI_OK);
  ck_assert(l.streams && (int64_t)l.kv > ((int64_t)14 << 30) && (int64_t)l.kv < ((int64_t)20 << 30));
}
END_TEST

static tri_status explain(struct shape *k, int64_t memory, tri_error *err) {
  tri_ledger l;
  tri_status st = make(k, memory, &l, err);
  tri_ledger_explain(&k->c, &k->s, NULL, &k->limits, k->s.p.pp, &k->config, err);
  return st;
}

/* The length that a refusal names fits, and one more block does not. */
static void expect_longest(struct shape *k, int64_t memory, const tri_error *err) {
  const char *words = "the longest max_model_len that fits with ", *at = strstr(err->message, words);
  tri_ledger l;
  tri_error ignored = {0};
  ck_assert_msg(at != NULL, "%s", err->message);
  const char *streamed = strstr(at, " with weights streamed): ");
  char option[64];
  int resident = atoi(strstr(at, " is ") + 4), len = resident, asked = k->limits.max_model_len;
  snprintf(option, sizeof option, "give --max-model-len %d", resident);
  ck_assert_msg(strstr(err->message, option) != NULL, "%s", err->message);
  if (streamed) {
    tri_offload_tier tier = k->offload.tier;
    k->offload.tier = TRI_OFFLOAD_NONE;
    k->limits.max_model_len = resident;
    ck_assert_int_eq(make(k, memory, &l, &ignored), TRI_OK);
    k->limits.max_model_len = resident + 1;
    ck_assert_int_eq(make(k, memory, &l, &ignored), TRI_NO_CAPACITY);
    k->offload.tier = tier;
    len = atoi(strstr(at, " (") + 2);
    ck_assert_int_gt(len, resident);
  }
  k->limits.max_model_len = len;
  ck_assert_int_eq(make(k, memory, &l, &ignored), TRI_OK);
  k->limits.max_model_len = len + 1;
  ck_assert_int_eq(make(k, memory, &l, &ignored), TRI_NO_CAPACITY);
  k->limits.max_model_len = asked;
  snprintf(option, sizeof option, " %d, ", len);
  ck_assert_msg(strstr(err->message, option) != NULL, "%s", err->message);
}

START_TEST(refusals_say_what_fits) {
  static struct shape k;
  tri_error err = {0};
  const int64_t gb = 900000000; /* a device's nine tenths */
  open_shape(&k, L8, 1, 1, true);
  k.offload.tier = TRI_OFFLOAD_NONE;
  ck_assert_int_eq(explain(&k, 24 * gb, &err), TRI_NO_CAPACITY);
  ck_assert_msg(strstr(err.message,
                       "that fits with all weights in memory is 29376: give --max-model-len 29376, --offload-weights "
                       "auto ") != NULL,
                "%s", err.message);
  expect_longest(&k, 24 * gb, &err);
  k.offload.tier = TRI_OFFLOAD_AUTO;
  ck_assert_int_eq(explain(&k, 12 * gb, &err), TRI_NO_CAPACITY);
  expect_longest(&k, 12 * gb, &err);
  ck_assert_int_eq(explain(&k, 20 * gb, &err), TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, " with weights streamed): give "));
  expect_longest(&k, 20 * gb, &err);
  ck_assert_uint_lt(strlen(err.message), TRI_ERROR_MESSAGE - 1); /* nothing was cut off */
  open_shape(&k, L70, 1, 1, false);
  ck_assert_int_eq(explain(&k, (int64_t)24 << 30, &err), TRI_NO_CAPACITY);
  expect_longest(&k, (int64_t)24 << 30, &err);
  ck_assert_int_eq(explain(&k, (int64_t)1 << 30, &err), TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, "; no max_model_len fits: give more ranks (-tp, -pp) or more memory"));
  /* Int8 is named where it would do. */
  open_shape(&k, L8_SHORT, 1, 1, true);
  k.offload.tier = TRI_OFFLOAD_NONE;
  ck_assert_int_eq(explain(&k, 14 * gb, &err), TRI_NO_CAPACITY);
  ck_assert_ptr_nonnull(strstr(err.message, "--quantization int8, "));
  /* Other errors stay as they are. */
  tri_error other = {0};
  tri_fail(&other, TRI_NO_CAPACITY, "max_in_cpu", "as it was");
  tri_ledger_explain(&k.c, &k.s, NULL, &k.limits, 1, &k.config, &other);
  ck_assert_str_eq(other.message, "as it was");
}
END_TEST

Suite *suite_ledger_streams(void) {
  Suite *s = suite_create("ledger_streams");
  TCase *c = tcase_create("ledger_streams");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, more_memory_streams_less, 0, NUM_SHAPES * 8);
  tcase_add_test(c, defaults_start);
  tcase_add_test(c, the_rest_is_shared);
  tcase_add_test(c, refusals_say_what_fits);
  suite_add_tcase(s, c);
  return s;
}
