/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that a family's tables do not read: those of published models change nothing and are accepted in
 * silence, those that are known to change the result are refused by their value, and the rest is noted. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/arch.h"
#include "runtime/model/config.h"

Suite *suite_config_keys(void);

static const tri_config_rules strict = {.strict = true};

/* A small model of a family with one member more. */
static tri_status parse(const char *type, const char *member, tri_config_rules rules, tri_model_config *c,
                        tri_error *err) {
  char text[2048];
  snprintf(text, sizeof text,
           "{\"model_type\":\"%s\",\"hidden_size\":2048,\"num_hidden_layers\":4,\"num_attention_heads\":32,"
           "\"vocab_size\":1000,\"max_position_embeddings\":512%s%s}",
           type, *member ? "," : "", member);
  tri_error_clear(err);
  return tri_model_config_parse(text, strlen(text), NULL, 0, rules, c, err);
}

/* ---- published models ---- */

/* One line of the file: a repository, a tab, its config.json. */
static char *read_line(FILE *f, char **name) {
  static char line[1 << 16];
  if (!fgets(line, sizeof line, f)) return NULL;
  char *tab = strchr(line, '\t');
  ck_assert_ptr_nonnull(tab);
  *tab = '\0';
  *name = line;
  return tab + 1;
}

START_TEST(published_models) {
  FILE *f = fopen(TRI_SOURCE "/tests/data/configs/published.tsv", "r");
  char *name, *config;
  int count = 0;
  ck_assert_ptr_nonnull(f);
  for (; (config = read_line(f, &name)); count++) {
    tri_model_config c;
    tri_error err = {0};
    ck_assert_msg(tri_model_config_parse(config, strlen(config), NULL, 0, (tri_config_rules){0}, &c, &err) == TRI_OK,
                  "%s: %s", name, err.message);
    ck_assert_msg(!c.unknown_keys[0], "%s: %s", name, c.unknown_keys);
  }
  fclose(f);
  ck_assert_int_ge(count, 70);
}
END_TEST

static bool is_published(const char *repository) {
  FILE *f = fopen(TRI_SOURCE "/tests/data/configs/published.tsv", "r");
  char *name;
  bool found = false;
  ck_assert_ptr_nonnull(f);
  while (!found && read_line(f, &name)) found = !strcmp(name, repository);
  fclose(f);
  return found;
}

/* The config of every repository that the table of families names is among them. */
START_TEST(models_of_the_documentation) {
  FILE *f = fopen(TRI_SOURCE "/docs/models.md", "r");
  char line[2048];
  int count = 0;
  ck_assert_ptr_nonnull(f);
  while (fgets(line, sizeof line, f) && !strstr(line, "Folders that do not run")) {
    char *cell = line[0] == '|' ? strrchr(line, '|') : NULL;
    if (!cell || !strstr(line, " | `")) continue; /* no row of a family */
    *cell = '\0';
    char *save = NULL;
    for (char *r = strtok_r(strrchr(line, '|') + 1, ", ", &save); r; r = strtok_r(NULL, ", ", &save), count++)
      ck_assert_msg(!strchr(r, '/') || is_published(r), "there is no config of %s", r);
  }
  fclose(f);
  ck_assert_int_ge(count, 50);
}
END_TEST

/* ---- single keys ---- */

static const struct {
  const char *type, *member;
} harmless[] = {
    /* switches that are off, and numbers that say nothing */
    {"llama", "\"use_mrope\":false"},
    {"llama", "\"no_such_switch\":false"},
    {"llama", "\"no_such_factor\":1.0"},
    {"llama", "\"no_such_number\":0"},
    {"llama", "\"no_such_list\":[]"},
    {"llama", "\"no_such_section\":{}"},
    {"llama", "\"no_such_word\":\"none\""},
    {"llama", "\"no_such_thing\":null"},
    {"phi3", "\"full_attn_mod\":1,\"interpolate_factor\":1,\"lm_head_bias\":false,\"mlp_bias\":false"},
    {"mistral", "\"attention_bias\":false"},
    {"llama", "\"logit_scale\":1.0,\"embedding_multiplier\":1,\"residual_multiplier\":1.0,\"logits_scaling\":1"},
    {"llama", "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":0.0"},
    {"qwen2", "\"num_experts\":0,\"norm_topk_prob\":true,\"num_experts_per_tok\":2"},
    {"gpt2", "\"norm_bias\":false,\"qkv_proj_bias\":false,\"attention_bias\":false"}, /* its weights have them */
    {"llama", "\"parallel_residual\":false,\"rope_interleaved\":0,\"use_parallel_residual\":false"},
    /* what the model has anyway */
    {"llama", "\"rope_interleaved\":false,\"rope_pct\":1.0,\"rope_type\":\"default\",\"norm_type\":\"rms_norm\""},
    {"gptj", "\"rope_interleaved\":true"},
    {"llama", "\"n_embd\":2048,\"n_layer\":4,\"kv_channels\":64,\"query_pre_attn_scalar\":64"},
    {"gpt2", "\"attention_bias\":true,\"num_key_value_heads\":32,\"head_dim\":64"},
    {"phi", "\"rotary_dim\":32,\"lm_head_bias\":true"},
    {"qwen3", "\"qk_norm\":true,\"use_qk_norm\":true"},
    {"bloom", "\"position_embedding_type\":\"alibi\""},
    {"llama", "\"position_embedding_type\":\"rope\""},
    {"llama", "\"is_causal\":true,\"bidirectional\":false"},
    {"llama", "\"sliding_window\":512"}, /* as many as there are positions */
    {"llama", "\"sliding_window\":64,\"use_sliding_window\":false"},
    {"gpt_oss", "\"scoring_func\":\"softmax\""},
    {"deepseek_v3", "\"scoring_func\":\"sigmoid\""},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"scoring_func\":\"softmax\",\"topk_method\":\"greedy\",\"n_group\":7"},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"rope_interleave\":true"},
    {"minimax_m2", "\"attn_type_list\":[1,1,1,1],\"qk_norm_type\":\"per_layer\",\"use_routing_bias\":true"},
    {"minimax",
     "\"architectures\":[\"MiniMaxM2ForCausalLM\"],\"layernorm_mlp_beta\":1.0,\"mlp_intermediate_size\":8192"},
    {"ernie4_5_moe", "\"moe_gate\":\"topk\",\"moe_norm_min\":1e-12,\"moe_use_aux_free\":true,\"use_bias\":false"},
    {"hy_v3", "\"qk_norm\":true,\"expert_hidden_dim\":1536,\"moe_intermediate_size\":1536"},
    /* notes */
    {"llama", "\"unk_token_id\":0,\"is_llama_config\":true,\"attn_implementation\":\"eager\",\"model_max_length\":99"},
    {"llama", "\"transformers.js_config\":{\"dtype\":\"q4\"},\"max_sequence_length\":4096,\"_private\":[1]"},
    {"bert", "\"unsloth_fixed\":true,\"use_flash_attention_2\":true"},
    /* spellings */
    {"llama", "\"torch_dtype\":\"auto\""},
    {"llama", "\"dtype\":\"torch.float16\""},
    {"llama", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"finetuned\":true,\"extrapolation_factor\":1.0}"},
};

START_TEST(harmless_keys) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(parse(harmless[_i].type, harmless[_i].member, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s: %s",
                harmless[_i].member, err.message);
  ck_assert_msg(!c.unknown_keys[0], "%s: %s", harmless[_i].member, c.unknown_keys);
}
END_TEST

static const struct {
  const char *type, *key, *value;
} refused[] = {
    {"llama", "use_mrope", "true"},
    {"llama", "rope_interleaved", "true"},
    {"llama", "rope_pct", "0.25"},
    {"llama", "rotary_dim", "8"},
    {"llama", "rope_local_base_freq", "20000"},
    {"llama", "rotary_scaling_factor", "2"},
    {"llama", "sliding_window", "64"},
    {"llama", "sliding_window_pattern", "6"},
    {"llama", "window_size", "256"},
    {"llama", "no_rope_layers", "[1,1,0,1]"},
    {"llama", "position_embedding_type", "\"nope\""},
    {"llama", "alibi", "true"},
    {"gpt_neox", "position_embedding_type", "\"absolute\""},
    {"llama", "attn_logit_softcapping", "50.0"},
    {"gemma", "final_logit_softcapping", "30.0"},
    {"llama", "logits_soft_cap", "20"},
    {"llama", "is_causal", "false"},
    {"gemma2", "use_bidirectional_attention", "true"},
    {"llama", "clip_qkv", "8.0"},
    {"olmoe", "clip_qkv", "8.0"},
    {"mistral", "attention_bias", "true"},
    {"phi3", "mlp_bias", "true"},
    {"phi3", "lm_head_bias", "true"},
    {"llama", "use_qk_norm", "true"},
    {"llama", "qk_layernorm", "true"},
    {"phi3", "full_attn_mod", "2"},
    {"phi3", "interpolate_factor", "4"},
    {"llama", "num_experts", "8"},
    {"llama", "num_local_experts", "8"},
    {"llama", "n_routed_experts", "64"},
    {"qwen3_moe", "n_shared_experts", "1"},
    {"qwen3_moe", "scoring_func", "\"sigmoid\""},
    {"llama", "logit_scale", "0.0625"},
    {"llama", "embedding_multiplier", "12.0"},
    {"llama", "residual_multiplier", "0.22"},
    {"llama", "attention_multiplier", "0.015"},
    {"llama", "logits_scaling", "8"},
    {"llama", "scale_emb", "12"},
    {"llama", "scale_depth", "1.4"},
    {"llama", "query_pre_attn_scalar", "256"},
    {"llama", "kv_lora_rank", "512"},
    {"deepseek_v3", "index_topk", "2048"},
    {"deepseek_v3", "mlp_bias", "true"},
    {"glm4", "use_qk_norm", "true"},
    {"gpt2", "num_key_value_heads", "2"},
    {"llama", "parallel_residual", "true"},
    {"llama", "use_parallel_residual", "true"},
    {"gptj", "parallel_residual", "false"},
    {"phi", "use_parallel_residual", "false"},
    {"cohere", "parallel_attn", "0"},
    {"gptj", "rope_interleaved", "false"},
    {"cohere", "rope_interleave", "false"},
    {"llama", "norm_type", "\"layer_norm\""},
    {"starcoder2", "norm_type", "\"rms_norm\""},
    {"starcoder2", "mlp_type", "\"gated\""},
    {"bert", "do_layer_norm_before", "false"},
    {"llama", "scale_attn_weights", "false"},
    {"bert", "embedding_size", "32"},
    {"llama", "quantization", "{\"bits\":4,\"group_size\":64}"},
    {"llama", "vision_config", "{\"hidden_size\":8}"},
};

/* Refused in either mode, unless it is to be ignored: then the model is what it is without the key. */
START_TEST(refused_by_value) {
  char member[200];
  const char *name = refused[_i].key;
  tri_model_config c, plain;
  tri_error err = {0};
  tri_config_rules ignore = {.ignored = {&name, 1}};
  snprintf(member, sizeof member, "\"%s\":%s", name, refused[_i].value);
  for (int i = 0; i < 2; i++) {
    tri_status st = parse(refused[_i].type, member, (tri_config_rules){.strict = i}, &c, &err);
    ck_assert_msg(st == TRI_UNSUPPORTED && !strcmp(err.field, name), "%s of %s: %s %s %s", member, refused[_i].type,
                  tri_status_name(st), err.field, err.message);
    ck_assert_ptr_nonnull(strstr(err.message, "--ignore-config-key"));
  }
  tri_error_clear(&err);
  ck_assert_msg(parse(refused[_i].type, member, ignore, &c, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(parse(refused[_i].type, "", ignore, &plain, &err), TRI_OK);
  ck_assert(tri_model_config_hash(&c) == tri_model_config_hash(&plain) && !c.unknown_keys[0]);
}
END_TEST

/* Values that a family's own functions check. */
static const struct {
  const char *type, *member, *field;
  tri_status status;
} checked[] = {
    {"deepseek_v2", "\"hidden_act\":\"silu\"", "num_experts_per_tok", TRI_OUT_OF_RANGE}, /* has no default */
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"scoring_func\":\"sigmoid\"", "scoring_func", TRI_UNSUPPORTED},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"topk_method\":\"noaux_tc\"", "topk_method", TRI_UNSUPPORTED},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"norm_topk_prob\":true", "norm_topk_prob", TRI_UNSUPPORTED},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"rope_interleave\":false", "rope_interleave", TRI_UNSUPPORTED},
    {"deepseek_v2", "\"num_experts_per_tok\":6,\"topk_method\":\"group_limited_greedy\",\"n_group\":7", "n_group",
     TRI_OUT_OF_RANGE},
    {"deepseek_v3", "\"n_group\":256,\"topk_group\":16", "n_group", TRI_OUT_OF_RANGE}, /* groups of one, best two */
    {"deepseek_v3", "\"n_group\":64,\"topk_group\":1", "n_group", TRI_OUT_OF_RANGE},
    {"kimi_k2", "\"topk_method\":\"greedy\"", "topk_method", TRI_UNSUPPORTED},
    {"glm4_moe_lite", "\"mlp_layer_types\":[\"dense\",\"sparse\"]", "mlp_layer_types", TRI_INVALID_ARGUMENT},
    {"glm4_moe_lite", "\"mlp_layer_types\":[\"dense\",\"sparse\",7,\"sparse\"]", "mlp_layer_types", TRI_UNSUPPORTED},
    {"glm4_moe_lite", "\"topk_method\":\"greedy\"", "topk_method", TRI_UNSUPPORTED},
    {"mistral4", "\"scoring_func\":\"sigmoid\"", "scoring_func", TRI_UNSUPPORTED},
    {"mistral4", "\"topk_method\":\"noaux_tc\"", "topk_method", TRI_UNSUPPORTED},
    {"mistral4", "\"n_group\":3", "n_group", TRI_OUT_OF_RANGE},
    {"mistral4", "\"rope_parameters\":{\"llama_4_scaling_beta\":0.1}",
     "rope_parameters.original_max_position_embeddings", TRI_INVALID_ARGUMENT},
    {"glm4_moe", "\"scoring_func\":\"softmax\"", "scoring_func", TRI_UNSUPPORTED},
    {"glm4_moe", "\"topk_method\":7", "topk_method", TRI_UNSUPPORTED},
    {"minimax_m2", "\"attn_type_list\":[1,0,1,1]", "attn_type_list", TRI_UNSUPPORTED},
    {"minimax", "\"architectures\":[\"MiniMaxForCausalLM\"]", "architectures", TRI_UNSUPPORTED}, /* MiniMax-Text-01 */
    {"minimax_m2", "\"qk_norm_type\":\"per_head\"", "qk_norm_type", TRI_UNSUPPORTED},
    {"minimax_m2", "\"use_routing_bias\":false", "use_routing_bias", TRI_UNSUPPORTED},
    {"minimax_m2", "\"shared_intermediate_size\":64", "shared_intermediate_size", TRI_UNSUPPORTED},
    {"ernie4_5_moe", "\"use_bias\":true", "use_bias", TRI_UNSUPPORTED},
    {"ernie4_5_moe", "\"moe_norm_min\":0.1", "moe_norm_min", TRI_OUT_OF_RANGE},
    {"ernie4_5_moe", "\"moe_gate\":\"sinkhorn\"", "moe_gate", TRI_UNSUPPORTED},
    {"ernie4_5_moe", "\"moe_use_aux_free\":false", "moe_use_aux_free", TRI_UNSUPPORTED},
    {"hy_v3", "\"mlp_bias\":true", "mlp_bias", TRI_UNSUPPORTED},
    {"hy_v3", "\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"hashed\"]", "mlp_layer_types", TRI_UNSUPPORTED},
    {"hy_v3", "\"mlp_layer_types\":[\"dense\"]", "mlp_layer_types", TRI_INVALID_ARGUMENT},
};

START_TEST(checked_by_the_family) {
  tri_model_config c;
  tri_error err = {0};
  tri_status st = parse(checked[_i].type, checked[_i].member, (tri_config_rules){0}, &c, &err);
  ck_assert_msg(st == checked[_i].status && !strcmp(err.field, checked[_i].field), "%s of %s: %s %s %s",
                checked[_i].member, checked[_i].type, tri_status_name(st), err.field, err.message);
}
END_TEST

/* Returns the layers with experts as bits. */
static unsigned sparse_layers(const char *type, const char *member) {
  tri_model_config c;
  tri_error err = {0};
  unsigned bits = 0;
  ck_assert_msg(parse(type, member, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s", err.message);
  for (int l = 0; l < c.num_layers; l++) bits |= (unsigned)((c.layer_flags[l] & TRI_LAYER_SPARSE) != 0) << l;
  return bits;
}

START_TEST(layers_with_experts) {
  ck_assert_uint_eq(sparse_layers("deepseek_v2", "\"num_experts_per_tok\":6"), 0xf);
  ck_assert_uint_eq(sparse_layers("deepseek_v3", ""), 0x8);
  ck_assert_uint_eq(sparse_layers("kimi_k2", "\"first_k_dense_replace\":1"), 0xe);
  ck_assert_uint_eq(sparse_layers("glm4_moe", ""), 0xe);
  ck_assert_uint_eq(sparse_layers("glm4_moe_lite", ""), 0xe);
  ck_assert_uint_eq(sparse_layers("mistral4", ""), 0xf);
  ck_assert_uint_eq(sparse_layers("mistral4", "\"first_k_dense_replace\":2"), 0xc);
  ck_assert_uint_eq(sparse_layers("glm4_moe_lite", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"dense\",\"sparse\"]"),
                    0x9);
  ck_assert_uint_eq(sparse_layers("minimax_m2", ""), 0xf);
  ck_assert_uint_eq(sparse_layers("ernie4_5_moe", ""), 0xe);
  ck_assert_uint_eq(sparse_layers("ernie4_5_moe", "\"moe_layer_interval\":2"), 0xa);
  ck_assert_uint_eq(sparse_layers("ernie4_5_moe", "\"moe_layer_start_index\":0,\"moe_layer_end_index\":2"), 0x7);
  ck_assert_uint_eq(sparse_layers("ernie4_5_moe", "\"moe_layer_end_index\":-1"), 0xe);
  ck_assert_uint_eq(sparse_layers("hy_v3", ""), 0xe);
  ck_assert_uint_eq(sparse_layers("hy_v3", "\"first_k_dense_replace\":3"), 0x8);
  ck_assert_uint_eq(sparse_layers("hy_v3", "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\",\"dense\"]"), 0x5);
}
END_TEST

/* Numbers whose defaults are what the releases have, so that no checkpoint shows whether they are read. */
START_TEST(numbers_of_experts) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_int_eq(
      parse("hy_v3", "\"router_scaling_factor\":1.5,\"num_shared_experts\":3", (tri_config_rules){0}, &c, &err),
      TRI_OK);
  ck_assert_double_eq(c.moe.scale, 1.5);
  ck_assert_int_eq(c.moe.shared_size, (int64_t)3 * 1536);
  ck_assert_int_eq(parse("ernie4_5_moe", "\"moe_k\":3,\"moe_num_shared_experts\":0", (tri_config_rules){0}, &c, &err),
                   TRI_OK);
  ck_assert(c.moe.top_k == 3 && !c.moe.has_shared);
  ck_assert_int_eq(parse("glm4_moe", "\"routed_scaling_factor\":2.5,\"norm_topk_prob\":false,\"use_qk_norm\":true",
                         (tri_config_rules){0}, &c, &err),
                   TRI_OK);
  ck_assert(c.moe.scale == 2.5 && !c.moe.renormalize && c.attention.qk_norm == TRI_QK_NORM_HEAD);
  ck_assert_int_eq(parse("glm4_moe", "", (tri_config_rules){0}, &c, &err), TRI_OK);
  ck_assert(c.attention.qk_norm == TRI_QK_NORM_NONE && c.attention.rope.rotary_dim == c.attention.head_dim / 2);
  ck_assert_int_eq(
      parse("gpt_bigcode", "\"multi_query\":false,\"scale_attn_weights\":false", (tri_config_rules){0}, &c, &err),
      TRI_OK);
  ck_assert(c.attention.num_kv_heads == 32 && c.attention.scale == 1);
}
END_TEST

/* Keys that only another family reads are listed as unknown. */
START_TEST(unknown_keys) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_int_eq(parse("llama", "\"frobnication\":2,\"layer_norm_eps\":1e-3,\"n_layer\":9,\"w\":\"x\"",
                         (tri_config_rules){0}, &c, &err),
                   TRI_OK);
  ck_assert_str_eq(c.unknown_keys, "frobnication, layer_norm_eps, n_layer, w");
  ck_assert_int_eq(parse("llama", "\"frobnication\":2", strict, &c, &err), TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.field, "frobnication");
  ck_assert_int_eq(parse("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"twist\":3}",
                         (tri_config_rules){0}, &c, &err),
                   TRI_OK);
  ck_assert_str_eq(c.unknown_keys, "rope_scaling.twist");
  ck_assert_int_eq(parse("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"twist\":3}", strict, &c, &err),
                   TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.field, "rope_scaling.twist");
}
END_TEST

/* More of them than a line has room for end with dots. */
START_TEST(many_unknown_keys) {
  char member[1500] = "";
  tri_model_config c;
  tri_error err = {0};
  for (int i = 0; i < 60; i++) {
    size_t n = strlen(member);
    snprintf(member + n, sizeof member - n, "%s\"unknown_key_%d\":7", i ? "," : "", i);
  }
  ck_assert_msg(parse("llama", member, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s", err.message);
  ck_assert(strlen(c.unknown_keys) < sizeof c.unknown_keys);
  ck_assert_str_eq(c.unknown_keys + strlen(c.unknown_keys) - 5, ", ...");
}
END_TEST

/* Names with commas between them, and what a family would read. */
START_TEST(ignored_keys) {
  const char *names[] = {"rope_scaling,use_mrope", "no_such_key", "qk_layernorm"};
  tri_config_rules rules = {.ignored = {names, 3}};
  tri_model_config c;
  tri_error err = {0};
  ck_assert_int_eq(
      parse("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"use_mrope\":true", rules, &c, &err),
      TRI_OK);
  ck_assert_float_eq(c.attention.rope.inv_freq[0], 1);
  ck_assert_int_eq(parse("phi", "\"qk_layernorm\":true", (tri_config_rules){0}, &c, &err), TRI_UNSUPPORTED);
  tri_error_clear(&err);
  ck_assert_msg(parse("phi", "\"qk_layernorm\":true", rules, &c, &err) == TRI_OK, "%s", err.message);
}
END_TEST

/* A key that has no room is not passed over in silence, be it the first. */
START_TEST(long_keys) {
  static tri_model_config c;
  char key[TRI_UNKNOWN_KEYS + 1];
  memset(key, 'k', sizeof key - 1);
  key[sizeof key - 1] = '\0';
  tri_config_note_key(&c, key);
  ck_assert_str_eq(c.unknown_keys, "...");
  tri_config_note_key(&c, key);
  tri_config_note_key(&c, "a");
  ck_assert_str_eq(c.unknown_keys, "..., a");
  snprintf(c.unknown_keys, sizeof c.unknown_keys, "a");
  tri_config_note_key(&c, key);
  ck_assert_str_eq(c.unknown_keys, "a, ...");
}
END_TEST

Suite *suite_config_keys(void) {
  Suite *s = suite_create("config_keys");
  TCase *c = tcase_create("config_keys");
  tcase_add_test(c, published_models);
  tcase_add_test(c, models_of_the_documentation);
  tcase_add_loop_test(c, harmless_keys, 0, sizeof harmless / sizeof *harmless);
  tcase_add_loop_test(c, refused_by_value, 0, sizeof refused / sizeof *refused);
  tcase_add_loop_test(c, checked_by_the_family, 0, sizeof checked / sizeof *checked);
  tcase_add_test(c, layers_with_experts);
  tcase_add_test(c, numbers_of_experts);
  tcase_add_test(c, unknown_keys);
  tcase_add_test(c, many_unknown_keys);
  tcase_add_test(c, long_keys);
  tcase_add_test(c, ignored_keys);
  suite_add_tcase(s, c);
  return s;
}
