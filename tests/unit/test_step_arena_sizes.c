/* SPDX-License-Identifier: Apache-2.0 */
/* The arena's size for models of today, against what lives at its busiest operator; and what it is made of. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/forward/step_arena.h"

Suite *suite_step_arena_sizes(void);

static const struct shape {
  const char *name, *config;
  int tokens, seqs, tp;
  double most; /* times what holds something at the busiest op. Places are fixed for the whole step, so that need not
                  be within reach */
} shapes[] = {
    {"Llama-3-8B",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":4096,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":128256,"
     "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"rope_theta\":500000.0}",
     8192, 256, 1, 1},
    {"Llama-3-70B, tensor rank 0 of 4",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":8192,\"num_hidden_layers\":80,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"intermediate_size\":28672,\"vocab_size\":128256,"
     "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"rope_theta\":500000.0}",
     8192, 256, 4, 1.05},
    {"Mixtral-8x7B",
     "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_size\":4096,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,"
     "\"vocab_size\":32000,\"max_position_embeddings\":32768,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\","
     "\"rope_theta\":1e6,\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":null}",
     8192, 256, 1, 1.01}, /* the last layer's few rows of attention, 2 MiB, find no gap */
    {"DeepSeek-V3, tensor rank 0 of 8",
     "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":7168,"
     "\"num_hidden_layers\":61,\"num_attention_heads\":128,\"num_key_value_heads\":128,\"intermediate_size\":18432,"
     "\"moe_intermediate_size\":2048,\"n_routed_experts\":256,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
     "\"n_group\":8,\"topk_group\":4,\"first_k_dense_replace\":3,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"vocab_size\":129280,"
     "\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-6,\"hidden_act\":\"silu\",\"rope_theta\":10000.0,"
     "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"norm_topk_prob\":true}",
     8192, 256, 8, 1.03},
    {"BERT-base",
     "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\",\"hidden_size\":768,\"num_hidden_layers\":12,"
     "\"num_attention_heads\":12,\"intermediate_size\":3072,\"vocab_size\":30522,\"max_position_embeddings\":512,"
     "\"hidden_act\":\"gelu\"}",
     8192, 32, 1, 1},
};

START_TEST(it_is_no_larger_than_its_busiest_operator) {
  const struct shape *k = &shapes[_i / 2];
  tri_model_config c;
  tri_shard s;
  tri_step_arena a;
  tri_error err = {0};
  tri_limits limits = {.max_num_seqs = k->seqs, .max_num_batched_tokens = k->tokens, .max_model_len = 512};
  ck_assert_msg(tri_model_config_parse(k->config, strlen(k->config), NULL, 0, (tri_config_rules){0}, &c, &err) ==
                    TRI_OK,
                "%s", err.message);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = k->tp, .pp = 1}, &s, NULL), TRI_OK);
  tri_step_arena_config ac = {.model = &c, .shard = &s, .limits = &limits, .num_micro_batches = 1};
  ac.gemms = tri_step_arena_type(&c, _i % 2, TRI_BF16);
  ck_assert_int_eq(ac.gemms, _i % 2 ? TRI_BF16 : TRI_F32); /* those of experts and of latent attention, too */
  ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
  size_t floor = a.floor;
  printf("%s, %d tokens, %s: %.0f MiB side by side, %.0f in the arena, %.0f at the busiest operator\n", k->name,
         k->tokens, ac.gemms == TRI_F32 ? "float32" : "bfloat16", (double)a.apart / 0x1p20, (double)a.bytes / 0x1p20,
         (double)floor / 0x1p20);
  ck_assert_uint_ge(a.bytes, floor);
  ck_assert_double_le((double)a.bytes, k->most * (double)floor);
}
END_TEST

/* Queries of latent attention have the type of GEMMs; latents are float32 up to their norm. */
START_TEST(latent_queries_have_the_type_of_gemms) {
  static const struct {
    tri_buffer_id id;
    int cols; /* of 16 of 128 heads */
    bool narrow;
  } buffers[] = {{TRI_BUF_qkv_a, 1536 + 512 + 64, false}, {TRI_BUF_q_a, 1536, true},
                 {TRI_BUF_qkv, 16 * (128 + 64), true},    {TRI_BUF_absorbed, 16 * (512 + 64), true},
                 {TRI_BUF_latent, 16 * 512, true},        {TRI_BUF_attn, 16 * 128, true}};
  const struct shape *k = &shapes[3];
  tri_model_config c;
  tri_shard s;
  tri_step_arena a;
  tri_limits limits = {.max_num_seqs = 4, .max_num_batched_tokens = 2048, .max_model_len = 512};
  ck_assert_int_eq(tri_model_config_parse(k->config, strlen(k->config), NULL, 0, (tri_config_rules){0}, &c, NULL),
                   TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = k->tp, .pp = 1}, &s, NULL), TRI_OK);
  tri_step_arena_config ac = {.model = &c, .shard = &s, .limits = &limits, .num_micro_batches = 1};
  for (tri_dtype type = TRI_F32; type <= TRI_BF16; type++) {
    ac.gemms = type;
    ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
      const tri_step_arena_buffer *b = &a.buffers[buffers[i].id];
      ck_assert_int_eq(b->type, buffers[i].narrow ? type : TRI_F32);
      ck_assert_uint_eq(b->stride, 2048 * (size_t)buffers[i].cols * tri_dtype_size(b->type));
    }
  }
}
END_TEST

/* Each micro-batch of a pipeline has its own stream, aligned, which nothing else touches. */
START_TEST(micro_batches_have_streams_of_their_own) {
  enum { MICRO_BATCHES = 3 };
  tri_model_config c;
  tri_shard s;
  tri_step_arena a;
  tri_buffers b;
  char *base = (char *)(uintptr_t)4096;
  tri_limits limits = {.max_num_seqs = 2, .max_num_batched_tokens = 7, .max_model_len = 16};
  ck_assert_int_eq(
      tri_model_config_parse(shapes[0].config, strlen(shapes[0].config), NULL, 0, (tri_config_rules){0}, &c, NULL),
      TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = MICRO_BATCHES, .pp_rank = 1}, &s, NULL), TRI_OK);
  tri_step_arena_config ac = {.model = &c, .shard = &s, .limits = &limits, .num_micro_batches = MICRO_BATCHES};
  ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
  tri_step_arena_bind(&a, base, &b);
  ck_assert_uint_eq((uintptr_t)b.x.data % 256, 0);
  ck_assert_uint_eq(b.micro_batch_stride % 256, 0);
  ck_assert_uint_ge(b.micro_batch_stride, 7 * 4096 * sizeof(float));
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const tri_step_arena_buffer *other = &a.buffers[i], *stream = &a.buffers[TRI_BUF_x];
    size_t end = stream->offset + MICRO_BATCHES * stream->stride;
    if (!other->stride) continue;
    ck_assert(i == TRI_BUF_x || other->offset >= end || other->offset + other->stride <= stream->offset);
  }
}
END_TEST

START_TEST(sizes_that_no_memory_has_are_refused) {
  tri_model_config c;
  tri_shard s;
  tri_step_arena a;
  tri_limits limits = {.max_num_seqs = 2, .max_num_batched_tokens = INT32_MAX, .max_model_len = 16};
  ck_assert_int_eq(
      tri_model_config_parse(shapes[0].config, strlen(shapes[0].config), NULL, 0, (tri_config_rules){0}, &c, NULL),
      TRI_OK);
  c.vocab_size = INT32_MAX;
  c.mlp.intermediate_size = INT32_MAX / 2;
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1}, &s, NULL), TRI_OK);
  limits.max_num_logits = INT32_MAX;
  tri_step_arena_config ac = {.model = &c, .shard = &s, .limits = &limits, .num_micro_batches = 1};
  tri_error err = {0};
  ck_assert_int_eq(tri_step_arena_plan(&ac, &a, &err), TRI_OVERFLOW);
  ck_assert_str_eq(err.field, "max_num_batched_tokens");
}
END_TEST

Suite *suite_step_arena_sizes(void) {
  Suite *s = suite_create("step_arena_sizes");
  TCase *sizes = tcase_create("sizes");
  tcase_add_loop_test(sizes, it_is_no_larger_than_its_busiest_operator, 0, 2 * (int)(sizeof shapes / sizeof *shapes));
  tcase_add_test(sizes, latent_queries_have_the_type_of_gemms);
  tcase_add_test(sizes, micro_batches_have_streams_of_their_own);
  tcase_add_test(sizes, sizes_that_no_memory_has_are_refused);
  suite_add_tcase(s, sizes);
  return s;
}
