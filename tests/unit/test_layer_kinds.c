/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of layers: windows, heads and rotary angles of their own, no rotation, chosen keys, queries scaled by position;
 * and the text part of a multimodal folder, whose config is that of the same model alone. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model/arch.h"
#include "runtime/model/layout.h"
#include "runtime/step/limits.h"

Suite *suite_layer_kinds(void);

#define SIZES                                                                                                          \
  "\"hidden_size\":64,\"num_hidden_layers\":8,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"    \
  "\"intermediate_size\":64,\"vocab_size\":256,\"max_position_embeddings\":512"

static tri_status parse(const char *type, const char *members, tri_model_config *out, tri_error *err) {
  char text[2048];
  snprintf(text, sizeof text, "{\"model_type\":\"%s\"," SIZES "%s%s}", type, *members ? "," : "", members);
  return tri_model_config_parse(text, strlen(text), NULL, 0, (tri_config_rules){0}, out, err);
}

static tri_model_config accept(const char *type, const char *members) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(parse(type, members, &c, &err) == TRI_OK, "%s: %s", members, err.message);
  ck_assert_msg(!c.unknown_keys[0], "%s: %s", members, c.unknown_keys);
  return c;
}

static void refuse(const char *type, const char *members, tri_status want, const char *field) {
  tri_model_config c;
  tri_error err = {0};
  tri_status st = parse(type, members, &c, &err);
  ck_assert_msg(st == want && !strcmp(err.field, field), "%s: %s %s %s", members, tri_status_name(st), err.field,
                err.message);
}

/* A letter per layer: w with a window, n that does not rotate, b both; s, x, m and a the same with experts; W and :
 * where keys are those of another layer. */
static const char *kinds(const tri_model_config *c) {
  static char letters[TRI_MAX_LAYERS + 1];
  for (int l = 0; l < c->num_layers; l++)
    letters[l] = (c->layer_flags[l] & TRI_LAYER_SHARED_KV ? ":W" : ".wsxnbma")[c->layer_flags[l] % 8];
  letters[c->num_layers] = '\0';
  return letters;
}

static const struct {
  const char *type, *members, *kinds;
} patterns[] = {
    {"gemma3_text", "", "wwwww.ww"},
    {"gemma3_text", "\"sliding_window_pattern\":2", "w.w.w.w."},
    {"olmo3", "", "www.www."},
    {"olmo3",
     "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\","
     "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
     ".w......"},
    {"cohere2", "", "wwwnwwwn"},
    {"cohere2", "\"sliding_window_pattern\":3", "wwnwwnww"},
    {"exaone4", "\"sliding_window_pattern\":4", "wwwnwwwn"},
    {"exaone4", "\"sliding_window\":null", "........"}, /* all rotate */
    {"exaone4", "\"sliding_window\":null,\"sliding_window_pattern\":0", "........"},
    {"exaone4",
     "\"sliding_window_pattern\":\"LLLG\",\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
     "\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
     "\"full_attention\"]",
     "wwwnwwwn"},
    {"smollm3", "", "...n...n"},
    {"smollm3", "\"no_rope_layer_interval\":3", "..n..n.."},
    {"smollm3", "\"no_rope_layers\":[0,1,1,1,1,1,1,0],\"no_rope_layer_interval\":4", "n......n"},
    {"smollm3", "\"no_rope_layers\":[]", "...n...n"},
    {"llama4_text", "", "xxxmxxxm"},
    {"llama4_text", "\"interleave_moe_layer_step\":2,\"no_rope_layers\":[]", "wxwmwxwm"},
    {"llama4_text", "\"moe_layers\":[0,7],\"interleave_moe_layer_step\":2,\"no_rope_layer_interval\":3", "xwnwwnwx"},
    {"llama4_text", "\"attention_chunk_size\":null,\"no_rope_layers\":[1,1,1,1,1,1,1,0]", "sssssssm"},
    {"llama4_text",
     "\"moe_layers\":[],\"layer_types\":[\"chunked_attention\",\"full_attention\",\"full_attention\","
     "\"chunked_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
     "w..b...n"},
    {"mistral", "", "wwwwwwww"},
    {"mistral", "\"sliding_window\":null", "........"},
};

START_TEST(layers_have_their_kinds) {
  tri_model_config c = accept(patterns[_i].type, patterns[_i].members);
  ck_assert_str_eq(kinds(&c), patterns[_i].kinds);
}
END_TEST

START_TEST(wrong_lists_are_refused) {
  refuse("smollm3", "\"no_rope_layers\":[1,0]", TRI_INVALID_ARGUMENT, "no_rope_layers");
  refuse("smollm3", "\"no_rope_layers\":[1,0,1,1,1,1,1,2]", TRI_INVALID_ARGUMENT, "no_rope_layers");
  refuse("smollm3", "\"no_rope_layer_interval\":0", TRI_OUT_OF_RANGE, "no_rope_layer_interval");
  refuse("smollm3", "\"use_sliding_window\":true", TRI_UNSUPPORTED, "use_sliding_window");
  refuse("gemma3_text", "\"sliding_window_pattern\":0", TRI_OUT_OF_RANGE, "sliding_window_pattern");
  refuse("exaone4", "\"sliding_window_pattern\":0", TRI_OUT_OF_RANGE, "sliding_window_pattern");
  refuse("cohere2", "\"sliding_window\":null", TRI_UNSUPPORTED, "sliding_window");
  refuse("llama4_text", "\"moe_layers\":[0,8]", TRI_OUT_OF_RANGE, "moe_layers");
  refuse("llama4_text", "\"moe_layers\":[0.5]", TRI_OUT_OF_RANGE, "moe_layers");
  refuse("llama4_text", "\"moe_layers\":2", TRI_INVALID_ARGUMENT, "moe_layers");
  refuse("llama4_text", "\"interleave_moe_layer_step\":0", TRI_OUT_OF_RANGE, "interleave_moe_layer_step");
  refuse("llama4_text", "\"no_rope_layers\":[1,0]", TRI_INVALID_ARGUMENT, "no_rope_layers");
  refuse("llama4_text", "\"attention_chunk_size\":0", TRI_OUT_OF_RANGE, "attention_chunk_size");
  refuse("llama4_text",
         "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
         "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
         TRI_UNSUPPORTED, "layer_types");
  refuse("llama4_text",
         "\"attention_chunk_size\":null,\"layer_types\":[\"chunked_attention\",\"full_attention\",\"full_attention\","
         "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
         TRI_INVALID_ARGUMENT, "layer_types");
  refuse("mistral",
         "\"layer_types\":[\"chunked_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
         "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]",
         TRI_UNSUPPORTED, "layer_types");
  refuse("llama", "\"attention_chunk_size\":64", TRI_UNSUPPORTED, "attention_chunk_size");
  refuse("gemma3_text", "\"use_bidirectional_attention\":true", TRI_UNSUPPORTED, "use_bidirectional_attention");
}
END_TEST

static void check_table(const tri_rope *r, double theta, double factor) {
  ck_assert_int_eq(r->rotary_dim, 16);
  for (int i = 0; i < 8; i++) {
    double want = exp(-log(theta) * i / 8) / factor;
    ck_assert_msg(fabs(r->inv_freq[i] - want) <= 5e-7 * want, "inv_freq[%d] is %.9g, not %.9g", i, r->inv_freq[i],
                  want);
  }
}

/* Gemma-3's, as before and since transformers 5. */
START_TEST(two_tables_in_both_spellings) {
  static const char *const spellings[] = {
      "\"rope_theta\":50000.0,\"rope_local_base_freq\":2000.0,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8."
      "0}",
      "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":50000.0},"
      "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2000.0}}"};
  for (int i = 0; i < 2; i++) {
    tri_model_config c = accept("gemma3_text", spellings[i]);
    check_table(&c.attention.rope, 50000, 8);
    check_table(&c.attention.local_rope, 2000, 1);
  }
}
END_TEST

/* OLMo-3's scaling is for layers without a window; the base is that of both. */
START_TEST(scaling_is_of_the_global_table) {
  tri_model_config c = accept("olmo3", "\"rope_theta\":50000.0,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,"
                                       "\"original_max_position_embeddings\":32,\"attention_factor\":1.25}");
  ck_assert_float_eq(c.attention.rope.attention_scale, 1.25f);
  ck_assert_float_eq(c.attention.local_rope.attention_scale, 1);
  check_table(&c.attention.local_rope, 50000, 1);
}
END_TEST

START_TEST(wrong_sections_are_refused) {
  refuse("gemma3_text", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}", TRI_INVALID_ARGUMENT,
         "rope_parameters");
  refuse("gemma3_text",
         "\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{},\"rope_type\":\"default\"}",
         TRI_INVALID_ARGUMENT, "rope_parameters");
  refuse("gemma3_text",
         "\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":\"dynamic\",\"factor\":2}}",
         TRI_UNSUPPORTED, "rope_parameters");
  refuse("mistral", "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5.0}}", TRI_UNKNOWN_FIELD,
         "rope_parameters.full_attention"); /* has one table */
}
END_TEST

/* ---- queries scaled by position ---- */

#define YARN "\"rope_type\":\"yarn\",\"factor\":16.0,\"rope_theta\":1000000.0"
#define ORIGINAL "\"original_max_position_embeddings\":32"

START_TEST(queries_are_scaled) {
  tri_model_config c = accept("ministral3", "\"sliding_window\":null,\"rope_parameters\":{\"type\":\"yarn\"," YARN
                                            ",\"llama_4_scaling_beta\":0.25,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
                                            "\"max_position_embeddings\":512," ORIGINAL "}");
  ck_assert_float_eq(c.attention.q_scale.beta, 0.25);
  ck_assert_int_eq(c.attention.q_scale.every, 32);
  ck_assert_int_eq(c.attention.q_scale.offset, 0);
  ck_assert_float_eq(c.attention.rope.attention_scale, 1);
  c = accept("ministral3", ORIGINAL ",\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":0.1}");
  ck_assert_int_eq(c.attention.q_scale.every, 32);
  c = accept("llama4_text", "");
  ck_assert(c.attention.q_scale.beta == 0.1 && c.attention.q_scale.every == 8192 && c.attention.q_scale.offset == 1);
  ck_assert(c.attention.q_scale.without_rope && c.attention.chunked && c.attention.window == 8192);
  ck_assert(c.attention.qk_norm == TRI_QK_NORM_BARE && !c.attention.has_qk_norm && c.moe.scale_input);
  c = accept("llama4_text", "\"attn_temperature_tuning\":4,\"floor_scale\":16,\"attn_scale\":0.5,\"use_qk_norm\":false,"
                            "\"intermediate_size_mlp\":100");
  ck_assert(c.attention.q_scale.beta == 0.5 && c.attention.q_scale.every == 16);
  ck_assert(c.attention.qk_norm == TRI_QK_NORM_NONE && c.mlp.intermediate_size == 100);
  ck_assert(c.moe.intermediate_size == 64 && c.moe.shared_size == 64);
  ck_assert(accept("llama4_text", "\"attn_temperature_tuning\":false").attention.q_scale.beta == 0);
  ck_assert(accept("llama4_text", "\"attn_temperature_tuning\":0").attention.q_scale.beta == 0);
  c = accept("ministral3", "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":0," ORIGINAL "}");
  ck_assert_float_eq(c.attention.q_scale.beta, 0);
  ck_assert_str_eq(kinds(&c), "........");
}
END_TEST

START_TEST(wrong_scales_of_queries_are_refused) {
  static const char beta[] = "rope_parameters.llama_4_scaling_beta",
                    original[] = "rope_parameters.original_max_position_embeddings";
  refuse("ministral3", "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":-0.1," ORIGINAL "}", TRI_OUT_OF_RANGE,
         beta);
  refuse("ministral3", "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":true," ORIGINAL "}",
         TRI_INVALID_ARGUMENT, beta);
  refuse("ministral3", "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":0.1}", TRI_INVALID_ARGUMENT, original);
  refuse("ministral3",
         "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":0.1,\"original_max_position_embeddings\":32.5}",
         TRI_OUT_OF_RANGE, original);
  refuse("llama4_text", "\"attn_temperature_tuning\":\"on\"", TRI_INVALID_ARGUMENT, "attn_temperature_tuning");
  refuse("llama4_text", "\"floor_scale\":0", TRI_OUT_OF_RANGE, "floor_scale");
  refuse("llama4_text", "\"attn_scale\":-1", TRI_OUT_OF_RANGE, "attn_scale");
  refuse("llama4_text", "\"intermediate_size_mlp\":0", TRI_OUT_OF_RANGE, "intermediate_size_mlp");
  refuse("llama4_text", "\"use_qk_norm\":1", TRI_INVALID_ARGUMENT, "use_qk_norm");
  refuse("llama4_text", "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}", TRI_UNSUPPORTED, "rope_scaling");
  refuse("llama4_text", "\"num_experts_per_tok\":2", TRI_UNSUPPORTED, "num_experts_per_tok");
  refuse("mistral", "\"rope_parameters\":{" YARN ",\"llama_4_scaling_beta\":0.1," ORIGINAL "}", TRI_UNSUPPORTED, beta);
}
END_TEST

/* ---- heads by kind of layer ---- */

#define ROPE4(more)                                                                                                    \
  "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,"            \
  "\"rope_theta\":1000000" more "},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000}}"
#define GEMMA4 ROPE4("") ",\"hidden_size_per_layer_input\":0"
#define MOE4 GEMMA4 ",\"enable_moe_block\":true,\"num_experts\":8,\"moe_intermediate_size\":24,\"top_k_experts\":"

/* What transformers 5 writes instead: members of layers 5 and 7, which have no window. */
#define BY_LAYER(a, b) ",\"per_layer_config\":{\"5\":{\"head_dim\":" a "},\"7\":{\"head_dim\":" b "}}"

START_TEST(heads_are_listed_by_layer) {
  tri_model_config c = accept("gemma4_text", GEMMA4 ",\"attention_k_eq_v\":true" BY_LAYER(
                                                 "32,\"num_key_value_heads\":1", "32,\"num_key_value_heads\":1"));
  ck_assert(tri_layer_heads(&c, 0).num_kv == 2 && tri_layer_heads(&c, 0).dim == 16);
  ck_assert(tri_layer_heads(&c, 5).num_kv == 1 && tri_layer_heads(&c, 5).dim == 32);
  ck_assert_int_eq(c.attention.rope.rotary_dim, 32);
  c = accept("gemma4_text", GEMMA4 ",\"global_head_dim\":64" BY_LAYER("32", "32")); /* as transformers has it */
  ck_assert(tri_layer_heads(&c, 5).num_kv == 2 && tri_layer_heads(&c, 5).dim == 32);
  c = accept("gemma4_text", GEMMA4 ",\"per_layer_config\":{}");
  ck_assert(tri_layer_heads(&c, 5).num_kv == 2 && tri_layer_heads(&c, 5).dim == 16);
  c = accept("gemma4_text", GEMMA4 ",\"per_layer_config\":null");
  ck_assert_int_eq(tri_layer_heads(&c, 5).dim, 512);
}
END_TEST

START_TEST(heads_differ_by_kind_of_layer) {
  tri_model_config c = accept("gemma4_text", GEMMA4 ",\"attention_k_eq_v\":true,\"global_head_dim\":32,"
                                                    "\"num_global_key_value_heads\":1");
  ck_assert_str_eq(kinds(&c), "wwwww.w."); /* the last one has no window */
  ck_assert(tri_layer_heads(&c, 0).num_kv == 2 && tri_layer_heads(&c, 0).dim == 16);
  ck_assert(tri_layer_heads(&c, 5).num_kv == 1 && tri_layer_heads(&c, 5).dim == 32);
  ck_assert(c.attention.scale == 1 && c.embed.scale == 8 && !c.moe.num_experts);
  const tri_rope *all = &c.attention.rope, *local = &c.attention.local_rope;
  ck_assert(all->rotary_dim == 32 && local->rotary_dim == 16);
  ck_assert_float_eq(all->inv_freq[3], (float)pow(1e6, -6.0 / 32));
  for (int i = 4; i < 16; i++) ck_assert_float_eq(all->inv_freq[i], 0); /* a quarter of the pairs rotates */
  ck_assert_float_eq(local->inv_freq[7], (float)pow(1e4, -14.0 / 16));
  /* Without values that are keys the number of KV heads is one, and the size of heads has a default. */
  c = accept("gemma4_text", GEMMA4 ",\"num_global_key_value_heads\":1");
  ck_assert(tri_layer_heads(&c, 5).num_kv == 2 && tri_layer_heads(&c, 5).dim == 512);
  ck_assert(tri_layer_heads(&c, 0).dim == 16);
  c = accept("llama", "");
  ck_assert(tri_layer_heads(&c, 0).num_kv == 2 && tri_layer_heads(&c, 7).dim == 16);
}
END_TEST

#define E4 ROPE4("") ",\"vocab_size_per_layer_input\":256,\"hidden_size_per_layer_input\":8"

START_TEST(layers_share_keys) {
  tri_model_config c = accept("gemma4_text", E4 ",\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true");
  ck_assert_str_eq(kinds(&c), "wwwww.W:");
  ck_assert(tri_kv_source(&c, 6) == 4 && tri_kv_source(&c, 7) == 5 && tri_kv_source(&c, 4) == 4);
  ck_assert(tri_layer_units(&c, 5) == 64 && tri_layer_units(&c, 6) == 128);
  ck_assert(c.embed.layer_width == 8 && c.embed.has_layer_inputs);
  c = accept("gemma4_text", GEMMA4 ",\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":false");
  ck_assert_str_eq(kinds(&c), "wwwww.w:");
  ck_assert(tri_layer_units(&c, 7) == 64 && !c.embed.has_layer_inputs);
  c = accept("gemma4_text", GEMMA4 ",\"use_double_wide_mlp\":true");
  ck_assert_str_eq(kinds(&c), "wwwww.w.");
  ck_assert(!c.mlp.shared_kv_size);
  /* The width is 256 where the file does not say it. */
  ck_assert_int_eq(accept("gemma4_text", ROPE4("") ",\"vocab_size_per_layer_input\":256").embed.layer_width, 256);
  /* Twice the size that the file leaves to the family. */
  static const char unsaid[] = "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"num_hidden_layers\":8," GEMMA4
                               ",\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true}";
  tri_error err = {0};
  tri_status st = tri_model_config_parse(unsaid, strlen(unsaid), NULL, 0, (tri_config_rules){0}, &c, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  ck_assert(tri_layer_units(&c, 5) == 256 && tri_layer_units(&c, 7) == 512);
}
END_TEST

/* MiMo-V2's config as released, and as transformers 5 writes it. */
#define MIMO                                                                                                           \
  "\"v_head_dim\":8,\"partial_rotary_factor\":0.5,\"n_routed_experts\":8,\"num_experts_per_tok\":2,"                   \
  "\"moe_intermediate_size\":24"
START_TEST(values_are_shorter_than_keys) {
  tri_model_config c = accept("mimo_v2_flash", MIMO
                              ",\"hybrid_layer_pattern\":[0,1,1,0,1,1,1,0],\"moe_layer_freq\":[0,1,1,1,1,1,0,1],"
                              "\"rope_theta\":5000000,\"swa_rope_theta\":20000,\"sliding_window\":128,"
                              "\"sliding_window_size\":128,\"attention_chunk_size\":128,\"swa_head_dim\":16,"
                              "\"swa_v_head_dim\":8,\"swa_num_attention_heads\":4,\"swa_num_key_value_heads\":4,"
                              "\"add_swa_attention_sink_bias\":true,\"add_full_attention_sink_bias\":false,"
                              "\"layernorm_epsilon\":1e-05,\"routed_scaling_factor\":null,\"n_shared_experts\":null,"
                              "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\"");
  ck_assert_str_eq(kinds(&c), ".xxsxxws");
  ck_assert(c.attention.value_dim == 8 && c.attention.value_scale == 0.707 && c.attention.window == 129);
  ck_assert(tri_layer_heads(&c, 0).num_kv == 2 && tri_layer_heads(&c, 1).num_kv == 4);
  ck_assert(c.attention.has_sinks && c.attention.local_sinks && c.moe.scale == 1 && c.moe.choice_bias);
  ck_assert(c.attention.rope.rotary_dim == 8 && c.attention.local_rope_theta == 20000);
  c = accept("mimo_v2_flash", MIMO ",\"attention_value_scale\":null,\"sliding_window\":16");
  ck_assert_str_eq(kinds(&c), ".xxxxsxx");
  ck_assert(c.attention.value_scale == 0 && c.attention.window == 16 && tri_layer_heads(&c, 1).num_kv == 4);
  c = accept("mimo_v2_flash", MIMO ",\"swa_num_attention_heads\":8");
  ck_assert(tri_layer_heads(&c, 0).num == 4 && tri_layer_heads(&c, 0).num_kv == 2);
  ck_assert(tri_layer_heads(&c, 1).num == 8 && tri_layer_heads(&c, 1).num_kv == 4);
  c = accept("mimo_v2_flash", "\"v_head_dim\":16,\"partial_rotary_factor\":0.5");
  ck_assert(!c.attention.value_dim); /* they are not */
}
END_TEST

/* Step-3.5's config as released, but smaller: lists go on for two draft layers. */
#define F "\"full_attention\","
#define S "\"sliding_attention\","
#define STEP                                                                                                           \
  "\"num_nextn_predict_layers\":2,\"sliding_window\":128,\"moe_num_experts\":8,\"moe_top_k\":2,"                       \
  "\"moe_intermediate_size\":24,\"share_expert_dim\":40,\"use_head_wise_attn_gate\":true,"                             \
  "\"layer_types\":[" F S S S F S S S S "\"sliding_attention\"]"
#define STEP_MOE STEP ",\"moe_layers_enum\":\"3, 4,5,6,7\""
#define OTHER(members) ",\"attention_other_setting\":{\"attention_type\":\"sliding_attention\"," members "}"
#define THETAS "\"rope_theta\":[5e6,1e4,1e4,1e4,5e6,1e4,1e4,1e4,1e4,1e4]"
START_TEST(kinds_of_layers_have_numbers_of_their_own) {
  tri_model_config c =
      accept("step3p5", STEP_MOE OTHER("\"num_attention_heads\":6,\"num_attention_groups\":3,\"head_dim\":"
                                       "16") "," THETAS ",\"partial_rotary_factors\":[0.5,1,1,1,0.5,1,1,1,"
                                             "1,1],\"yarn_only_types\":[\"full_attention\"],"
                                             "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2,"
                                             "\"low_freq_factor\":1,\"high_freq_factor\":32,"
                                             "\"original_max_position_embeddings\":128},\"use_rope_"
                                             "layers\":[],\"zero_centered\":true,\"sink\":false,"
                                             "\"use_qk_norm\":true,\"use_mfa\":false,\"use_moe\":true,"
                                             "\"att_impl_type\":\"GQA\","
                                             "\"moe_router_activation\":\"sigmoid\",\"moe_router_scaling_"
                                             "factor\":3,\"norm_expert_weight\":true,"
                                             "\"need_fp32_gate\":true,\"moe_layer_offset\":0,\"moe_every_n_"
                                             "layer\":1,\"max_seq_len\":512,"
                                             "\"use_moe_router_bias\":true");
  ck_assert_str_eq(kinds(&c), ".wwxsxxx");
  ck_assert(tri_layer_heads(&c, 0).num == 4 && tri_layer_heads(&c, 0).num_kv == 2);
  ck_assert(tri_layer_heads(&c, 1).num == 6 && tri_layer_heads(&c, 1).num_kv == 3);
  ck_assert(c.attention.rope.rotary_dim == 8 && c.attention.local_rope.rotary_dim == 16);
  ck_assert(c.attention.rope_theta == 5e6 && c.attention.local_rope_theta == 1e4);
  ck_assert(c.attention.head_gate && c.norm.weight_offset == 1 && c.extra_layers == 2);
  ck_assert(c.moe.scale == 3 && c.moe.choice_bias && c.moe.has_shared && c.moe.shared_size == 40);
  c = accept("step3p5", STEP ",\"moe_layers_enum\":[7,8],\"rope_theta\":20000");
  ck_assert_str_eq(kinds(&c), ".www.wwx");
  ck_assert(tri_layer_heads(&c, 1).num == 4 && c.attention.local_rope_theta == 20000);
}
END_TEST

START_TEST(layers_have_limits) {
  tri_model_config c = accept("step3p5", STEP_MOE ",\"swiglu_limits\":[0,0,null,0,0,0,7,7,1,1],"
                                                  "\"swiglu_limits_shared\":[0,2.5,0,0,0,0,0,16]");
  const double experts[] = {0, 0, 0, 0, 0, 0, 7, 7}, mlp[] = {0, 2.5, 0, 0, 0, 0, 0, 16};
  for (int l = 0; l < 8; l++) {
    tri_glu_limits x = tri_layer_glu_limits(&c, l);
    ck_assert_msg(x.experts == experts[l] && x.mlp == mlp[l], "layer %d: %g %g", l, x.experts, x.mlp);
  }
  ck_assert_int_eq(c.num_glu_limits, 4);
  c = accept("step3p5", STEP_MOE);
  ck_assert(!tri_layer_glu_limits(&c, 7).experts);
  c = accept("llama", "");
  ck_assert(!tri_layer_glu_limits(&c, 7).mlp);
}
END_TEST

START_TEST(more_limits_than_there_is_room_for) {
  char text[4096];
  tri_model_config c;
  tri_error err = {0};
  for (int limits = TRI_MAX_GLU_LIMITS - 1; limits <= TRI_MAX_GLU_LIMITS; limits++) {
    int n = snprintf(text, sizeof text,
                     "{\"model_type\":\"step3p5\",\"hidden_size\":64,\"num_hidden_layers\":%d,"
                     "\"num_attention_heads\":4,\"num_attention_groups\":2,\"head_dim\":16,"
                     "\"vocab_size\":256,\"moe_layers_enum\":[],\"swiglu_limits\":[",
                     limits);
    for (int l = 0; l < limits; l++) n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", l ? "," : "", l + 1);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    tri_status st = tri_model_config_parse(text, strlen(text), NULL, 0, (tri_config_rules){0}, &c, &err);
    ck_assert_int_eq(st, limits < TRI_MAX_GLU_LIMITS ? TRI_OK : TRI_UNSUPPORTED);
  }
  ck_assert_str_eq(err.field, "swiglu_limits");
}
END_TEST

START_TEST(experts_beside_an_mlp) {
  tri_model_config c = accept("gemma4_text", MOE4 "2");
  ck_assert_str_eq(kinds(&c), "xxxxxsxs");
  ck_assert(c.moe.own_norms && c.moe.expert_scale && c.moe.has_shared && c.moe.shared_size == 64);
  ck_assert(c.moe.intermediate_size == 24 && c.moe.router_scale == 0.125 && c.moe.renormalize);
  c = accept("gemma4_text", GEMMA4 ",\"num_experts\":8,\"top_k_experts\":2"); /* not asked for */
  ck_assert(!c.moe.num_experts && !c.moe.has_shared && !strchr(kinds(&c), 's'));
}
END_TEST

static const struct {
  const char *type, *members;
  tri_status status;
  const char *field;
} wrong_heads[] = {
    {"gemma4_text", GEMMA4 ",\"per_layer_config\":[]", TRI_INVALID_ARGUMENT, "per_layer_config"},
    {"gemma4_text", GEMMA4 BY_LAYER("32", "48"), TRI_UNSUPPORTED, "per_layer_config"},
    {"gemma4_text", GEMMA4 BY_LAYER("0", "0"), TRI_UNSUPPORTED, "per_layer_config"},
    {"gemma4_text", GEMMA4 BY_LAYER("32,\"sliding_window\":8", "32"), TRI_UNSUPPORTED, "per_layer_config"},
    {"gemma4_text", GEMMA4 ",\"per_layer_config\":{\"7\":{\"head_dim\":32}}", TRI_UNSUPPORTED, "per_layer_config"},
    {"gemma4_text", GEMMA4 ",\"per_layer_config\":{\"8\":{\"head_dim\":32}}", TRI_UNSUPPORTED, "per_layer_config"},
    {"gemma4_text",
     GEMMA4 ",\"per_layer_config\":{\"5\":{\"head_dim\":32},\"7\":{\"head_dim\":32},\"8\":{\"head_dim\":32}}",
     TRI_INVALID_ARGUMENT, "per_layer_config"},
    {"gemma4_text", GEMMA4 BY_LAYER("1024,\"num_key_value_heads\":3", "1024,\"num_key_value_heads\":3"),
     TRI_OUT_OF_RANGE, "num_global_key_value_heads"},
    {"gemma4_text", GEMMA4 ",\"global_head_dim\":0", TRI_OUT_OF_RANGE, "global_head_dim"},
    {"gemma4_text", GEMMA4 ",\"global_head_dim\":1026", TRI_OUT_OF_RANGE, "global_head_dim"},
    {"gemma4_text", GEMMA4 ",\"global_head_dim\":\"32\"", TRI_INVALID_ARGUMENT, "global_head_dim"},
    {"gemma4_text", GEMMA4 ",\"global_head_dim\":33", TRI_OUT_OF_RANGE, "partial_rotary_factor"},
    {"gemma4_text", GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3", TRI_OUT_OF_RANGE,
     "num_global_key_value_heads"},
    {"gemma4_text", GEMMA4 ",\"num_global_key_value_heads\":0", TRI_OUT_OF_RANGE, "num_global_key_value_heads"},
    {"gemma4_text", GEMMA4 ",\"attention_k_eq_v\":1", TRI_INVALID_ARGUMENT, "attention_k_eq_v"},
    {"gemma4_text", GEMMA4 ",\"attention_bias\":true", TRI_UNSUPPORTED, "attention_bias"},
    {"gemma4_text", GEMMA4 ",\"use_bidirectional_attention\":\"all\"", TRI_UNSUPPORTED, "use_bidirectional_attention"},
    {"gemma4_text", GEMMA4 ",\"num_kv_shared_layers\":3", TRI_INVALID_ARGUMENT, "num_kv_shared_layers"},
    {"gemma4_text", GEMMA4 ",\"num_kv_shared_layers\":8", TRI_OUT_OF_RANGE, "num_kv_shared_layers"},
    {"gemma4_text", MOE4 "2,\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true", TRI_UNSUPPORTED,
     "use_double_wide_mlp"},
    {"gemma4_text", GEMMA4 ",\"use_double_wide_mlp\":2", TRI_INVALID_ARGUMENT, "use_double_wide_mlp"},
    {"gemma4_text", GEMMA4 ",\"num_kv_shared_layers\":-1", TRI_OUT_OF_RANGE, "num_kv_shared_layers"},
    {"gemma4_text", GEMMA4 ",\"final_logit_softcapping\":-1", TRI_OUT_OF_RANGE, "final_logit_softcapping"},
    {"gemma4_text", GEMMA4 ",\"enable_moe_block\":true", TRI_INVALID_ARGUMENT, "enable_moe_block"},
    {"gemma4_text", GEMMA4 ",\"enable_moe_block\":\"yes\"", TRI_INVALID_ARGUMENT, "enable_moe_block"},
    {"gemma4_text", MOE4 "9", TRI_OUT_OF_RANGE, "num_experts_per_tok"},
    {"gemma4_text", MOE4 "0", TRI_OUT_OF_RANGE, "top_k_experts"},
    {"gemma4_text", GEMMA4 ",\"num_experts\":5000", TRI_OUT_OF_RANGE, "num_experts"},
    {"gemma4_text", GEMMA4 ",\"moe_intermediate_size\":0", TRI_OUT_OF_RANGE, "moe_intermediate_size"},
    {"gemma4_text", ROPE4(""), TRI_UNSUPPORTED, "vocab_size_per_layer_input"},
    {"gemma4_text", ROPE4("") ",\"vocab_size_per_layer_input\":300", TRI_UNSUPPORTED, "vocab_size_per_layer_input"},
    {"gemma4_text", ROPE4("") ",\"hidden_size_per_layer_input\":-1", TRI_OUT_OF_RANGE, "hidden_size_per_layer_input"},
    {"gemma4_text", ROPE4("") ",\"vocab_size_per_layer_input\":true", TRI_INVALID_ARGUMENT,
     "vocab_size_per_layer_input"},
    {"gemma4_text", "\"hidden_size_per_layer_input\":0", TRI_INVALID_ARGUMENT, "rope_parameters"},
    {"gemma4_text", ROPE4(",\"factor\":2") ",\"hidden_size_per_layer_input\":0", TRI_UNSUPPORTED,
     "rope_scaling.factor"},
    {"mimo_v2_flash", "\"v_head_dim\":24,\"partial_rotary_factor\":0.5", TRI_UNSUPPORTED, "v_head_dim"},
    {"mimo_v2_flash", MIMO ",\"swa_head_dim\":8", TRI_UNSUPPORTED, "swa_head_dim"},
    {"mimo_v2_flash", MIMO ",\"swa_v_head_dim\":16", TRI_UNSUPPORTED, "swa_v_head_dim"},
    {"mimo_v2_flash", MIMO ",\"swa_num_attention_heads\":6", TRI_OUT_OF_RANGE, "num_key_value_heads"},
    {"mimo_v2_flash", MIMO ",\"swa_num_key_value_heads\":3", TRI_OUT_OF_RANGE, "num_key_value_heads"},
    {"mimo_v2_flash", MIMO ",\"hybrid_layer_pattern\":[0,1]", TRI_INVALID_ARGUMENT, "hybrid_layer_pattern"},
    {"mimo_v2_flash", MIMO ",\"hybrid_layer_pattern\":[0,1,1,1,1,1,1,2]", TRI_INVALID_ARGUMENT, "hybrid_layer_pattern"},
    {"mimo_v2_flash", MIMO ",\"moe_layer_freq\":[0,1]", TRI_INVALID_ARGUMENT, "moe_layer_freq"},
    {"mimo_v2_flash", MIMO ",\"moe_layer_freq\":2", TRI_INVALID_ARGUMENT, "moe_layer_freq"},
    {"mimo_v2_flash", MIMO ",\"add_full_attention_sink_bias\":true", TRI_UNSUPPORTED, "add_full_attention_sink_bias"},
    {"mimo_v2_flash", MIMO ",\"n_shared_experts\":1", TRI_UNSUPPORTED, "n_shared_experts"},
    {"mimo_v2_flash", MIMO ",\"attention_value_scale\":0", TRI_OUT_OF_RANGE, "attention_value_scale"},
    {"step3p5", STEP, TRI_INVALID_ARGUMENT, "moe_layers_enum"},
    {"step3p5", STEP ",\"moe_layers_enum\":\"3;4\"", TRI_INVALID_ARGUMENT, "moe_layers_enum"},
    {"step3p5", STEP ",\"moe_layers_enum\":\"3,,4\"", TRI_INVALID_ARGUMENT, "moe_layers_enum"},
    {"step3p5", STEP ",\"moe_layers_enum\":\"3,10\"", TRI_OUT_OF_RANGE, "moe_layers_enum"},
    {"step3p5", STEP ",\"moe_layers_enum\":[-1]", TRI_OUT_OF_RANGE, "moe_layers_enum"},
    {"step3p5", STEP ",\"moe_layers_enum\":[\"3\"]", TRI_INVALID_ARGUMENT, "moe_layers_enum"},
    {"step3p5", STEP_MOE OTHER("\"head_dim\":32"), TRI_UNSUPPORTED, "attention_other_setting"},
    {"step3p5", STEP_MOE OTHER("\"num_attention_heads\":3"), TRI_OUT_OF_RANGE, "num_key_value_heads"},
    {"step3p5", STEP_MOE OTHER("\"num_attention_heads\":4.5"), TRI_INVALID_ARGUMENT, "num_attention_heads"},
    {"step3p5", STEP_MOE ",\"attention_other_setting\":[1]", TRI_INVALID_ARGUMENT, "attention_other_setting"},
    {"step3p5", STEP_MOE ",\"attention_other_setting\":{\"attention_type\":\"full_attention\"}", TRI_UNSUPPORTED,
     "attention_type"},
    {"step3p5", STEP_MOE ",\"per_layer_config\":{\"0\":{\"num_attention_heads\":4}}", TRI_UNSUPPORTED,
     "per_layer_config"},
    {"step3p5", STEP_MOE ",\"per_layer_config\":{\"1\":{\"num_attention_heads\":6}}", TRI_UNSUPPORTED,
     "per_layer_config"},
    {"step3p5", STEP_MOE ",\"per_layer_config\":{\"1\":{\"sliding_window\":6}}", TRI_UNSUPPORTED, "per_layer_config"},
    {"step3p5", STEP_MOE ",\"rope_theta\":[1e4,1e4]", TRI_INVALID_ARGUMENT, "rope_theta"},
    {"step3p5", STEP_MOE ",\"rope_theta\":[5e6,1e4,1e4,1e4,5e5,1e4,1e4,1e4]", TRI_UNSUPPORTED, "rope_theta"},
    {"step3p5", STEP_MOE ",\"rope_theta\":[5e6,1e4,1e4,1e4,null,1e4,1e4,1e4]", TRI_INVALID_ARGUMENT, "rope_theta"},
    {"step3p5", STEP_MOE ",\"partial_rotary_factors\":[1,1,1,1,1,1,1,2]", TRI_OUT_OF_RANGE, "partial_rotary_factors"},
    {"step3p5", STEP_MOE ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}", TRI_UNSUPPORTED,
     "yarn_only_types"},
    {"step3p5", STEP_MOE ",\"use_rope_layers\":[true,false]", TRI_UNSUPPORTED, "use_rope_layers"},
    {"step3p5", STEP_MOE ",\"swiglu_limits\":[0,7]", TRI_INVALID_ARGUMENT, "swiglu_limits"},
    {"step3p5", STEP_MOE ",\"swiglu_limits\":[0,0,0,0,0,0,0,-1]", TRI_OUT_OF_RANGE, "swiglu_limits"},
    {"step3p5", STEP_MOE ",\"swiglu_limits_shared\":[0,0,0,0,0,0,0,1e-4]", TRI_OUT_OF_RANGE, "swiglu_limits_shared"},
    {"step3p5", STEP_MOE ",\"zero_centered\":false", TRI_UNSUPPORTED, "zero_centered"},
    {"step3p5", STEP_MOE ",\"norm_expert_weight\":false", TRI_UNSUPPORTED, "norm_expert_weight"},
    {"step3p5", STEP_MOE ",\"sink\":true", TRI_UNSUPPORTED, "sink"},
    {"step3p5", STEP_MOE ",\"use_mfa\":true", TRI_UNSUPPORTED, "use_mfa"},
    {"step3p5", STEP_MOE ",\"att_impl_type\":\"MFA\"", TRI_UNSUPPORTED, "att_impl_type"},
    {"step3p5", STEP_MOE ",\"moe_router_activation\":\"softmax\"", TRI_UNSUPPORTED, "moe_router_activation"},
    {"step3p5", STEP_MOE ",\"moe_dynamic_exp_p\":0.9", TRI_UNSUPPORTED, "moe_dynamic_exp_p"},
    {"llama", "\"swiglu_limits\":[0,7]", TRI_UNSUPPORTED, "swiglu_limits"},
    {"llama", "\"use_head_wise_attn_gate\":true", TRI_UNSUPPORTED, "use_head_wise_attn_gate"},
    {"llama", "\"v_head_dim\":8", TRI_UNSUPPORTED, "v_head_dim"},
    {"llama", "\"attention_value_scale\":0.5", TRI_UNSUPPORTED, "attention_value_scale"},
    {"llama", "\"attention_k_eq_v\":true", TRI_UNSUPPORTED, "attention_k_eq_v"},
    {"gemma3_text", "\"global_head_dim\":32", TRI_UNSUPPORTED, "global_head_dim"},
    {"gemma3_text", "\"num_global_key_value_heads\":1", TRI_UNSUPPORTED, "num_global_key_value_heads"},
    {"gemma3_text", "\"enable_moe_block\":true", TRI_UNSUPPORTED, "enable_moe_block"},
    {"gemma3_text", "\"hidden_size_per_layer_input\":8", TRI_UNSUPPORTED, "hidden_size_per_layer_input"},
};

START_TEST(wrong_heads_are_refused) {
  refuse(wrong_heads[_i].type, wrong_heads[_i].members, wrong_heads[_i].status, wrong_heads[_i].field);
}
END_TEST

/* ---- cosines and sines scaled by the length ---- */

#define LONGROPE                                                                                                       \
  "\"type\":\"longrope\",\"original_max_position_embeddings\":128,\"short_factor\":[1,1,1,1,1,1,1,1],"                 \
  "\"long_factor\":[2,2,2,2,2,2,2,2]"

START_TEST(longrope_names_its_scales) {
  tri_model_config c = accept("phimoe", "\"rope_scaling\":{" LONGROPE ",\"short_mscale\":1.25,\"long_mscale\":1.5},"
                                        "\"router_jitter_noise\":0.25,\"attention_bias\":true,\"lm_head_bias\":true");
  ck_assert_int_eq(c.attention.rope.kind, TRI_ROPE_BY_LENGTH);
  ck_assert_float_eq(c.attention.rope.attention_scale, 1.25f);
  ck_assert_float_eq(c.attention.rope.attention_scale_long, 1.5f);
  ck_assert(c.moe.jitter == 0.25 && c.head.bias && c.attention.bias && c.attention.o_bias);
  c = accept("phi3", "\"rope_scaling\":{" LONGROPE "}"); /* without: one for all lengths */
  ck_assert_float_eq(c.attention.rope.attention_scale, c.attention.rope.attention_scale_long);
  ck_assert(accept("phimoe", "").moe.jitter == 0.01);
}
END_TEST

START_TEST(wrong_scales_of_longrope_are_refused) {
  refuse("phimoe", "\"rope_scaling\":{" LONGROPE ",\"long_mscale\":1.5}", TRI_INVALID_ARGUMENT,
         "rope_scaling.short_mscale");
  refuse("phimoe", "\"rope_scaling\":{" LONGROPE ",\"short_mscale\":1.5}", TRI_INVALID_ARGUMENT,
         "rope_scaling.long_mscale");
  refuse("phimoe", "\"rope_scaling\":{" LONGROPE ",\"short_mscale\":0,\"long_mscale\":1.5}", TRI_OUT_OF_RANGE,
         "rope_scaling.short_mscale");
  refuse("phi3", "\"rope_scaling\":{" LONGROPE ",\"short_mscale\":1.25,\"long_mscale\":1.5}", TRI_UNKNOWN_FIELD,
         "rope_scaling.short_mscale");
  refuse("phimoe", "\"num_experts_per_tok\":1", TRI_OUT_OF_RANGE, "num_experts_per_tok");
  refuse("phimoe", "\"router_jitter_noise\":-0.1", TRI_OUT_OF_RANGE, "router_jitter_noise");
  refuse("phimoe", "\"lm_head_bias\":1", TRI_INVALID_ARGUMENT, "lm_head_bias");
}
END_TEST

/* ---- chosen keys ---- */

static const struct {
  const char *type, *members;
  int64_t length;
} chosen[] = {
    {"deepseek_v32", "", 512}, /* of 2,048 keys; there are fewer positions */
    {"deepseek_v32", "\"index_topk\":24,\"index_n_heads\":8,\"index_head_dim\":16", 24},
    {"glm_moe_dsa", "\"index_topk\":100,\"index_topk_freq\":4,\"index_skip_topk_offset\":3,\"mlp_bias\":false", 100},
    {"glm_moe_dsa",
     "\"index_topk\":100,\"layer_types\":[\"indexed_attention\",\"indexed_attention\",\"indexed_attention\","
     "\"indexed_attention\",\"indexed_attention\",\"indexed_attention\",\"indexed_attention\",\"full_attention\"],"
     "\"indexer_types\":[\"full\",\"shared\"]",
     100},
    {"deepseek_v3", "", 512},
};

/* The keys that an indexer would choose: as many tokens a sequence has by default, and at most. */
START_TEST(sequences_end_where_keys_are_chosen) {
  tri_model_config c = accept(chosen[_i].type, chosen[_i].members);
  tri_limits_config asked = {.max_num_seqs = 1, .max_num_batched_tokens = 64, .block_size = 16};
  tri_limits limits;
  tri_error err = {0};
  int64_t most = c.attention.index_topk;
  ck_assert_int_eq(tri_model_config_length(&c), chosen[_i].length);
  ck_assert_msg(tri_limits_make(&c, &asked, &limits, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(limits.max_model_len, chosen[_i].length);
  asked.max_model_len = most ? most : 100000;
  ck_assert_msg(tri_limits_make(&c, &asked, &limits, &err) == TRI_OK, "%s", err.message);
  asked.max_model_len++;
  tri_status st = tri_limits_make(&c, &asked, &limits, &err);
  ck_assert_int_eq(st, most ? TRI_OUT_OF_RANGE : TRI_OK);
  if (most) ck_assert_str_eq(err.field, "max_model_len");
  if (most) ck_assert_ptr_nonnull(strstr(err.message, "index_topk"));
}
END_TEST

START_TEST(wrong_choices_are_refused) {
  refuse("deepseek_v32", "\"index_topk\":0", TRI_OUT_OF_RANGE, "index_topk");
  refuse("glm_moe_dsa", "\"index_topk\":\"all\"", TRI_INVALID_ARGUMENT, "index_topk");
  refuse("deepseek_v32", "\"mlp_bias\":true", TRI_UNSUPPORTED, "mlp_bias");
  refuse("deepseek_v3", "\"index_topk\":24", TRI_UNSUPPORTED, "index_topk");
  refuse("deepseek_v3",
         "\"layer_types\":[\"indexed_attention\",\"indexed_attention\",\"indexed_attention\",\"indexed_attention\","
         "\"indexed_attention\",\"indexed_attention\",\"indexed_attention\",\"indexed_attention\"]",
         TRI_UNSUPPORTED, "layer_types");
}
END_TEST

/* ---- multimodal folders ---- */

static tri_status parse_folder(const char *outer, const char *text, bool strict, tri_model_config *out,
                               tri_error *err) {
  char whole[3000];
  snprintf(whole, sizeof whole, "{%s,\"text_config\":{%s," SIZES "}}", outer, text);
  return tri_model_config_parse(whole, strlen(whole), NULL, 0, (tri_config_rules){.strict = strict}, out, err);
}

#define GEMMA3 "\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3ForConditionalGeneration\"]"

START_TEST(text_parts_are_models) {
  tri_model_config c, alone = accept("gemma3_text", "\"torch_dtype\":\"float16\"");
  tri_error err = {0};
  ck_assert_msg(parse_folder(GEMMA3 ",\"torch_dtype\":\"float16\",\"eos_token_id\":[1,106],\"vision_config\":"
                                    "{\"hidden_size\":8},\"mm_tokens_per_image\":4,\"hidden_size\":9",
                             "\"model_type\":\"gemma3_text\",\"eos_token_id\":null", false, &c, &err) == TRI_OK,
                "%s", err.message);
  ck_assert(c.multimodal && !alone.multimodal && c.arch == alone.arch && c.dtype == TRI_F16);
  ck_assert(c.num_eos_token_ids == 2 && c.eos_token_ids[1] == 106);
  ck_assert_uint_eq(tri_model_config_hash(&c), tri_model_config_hash(&alone));
  ck_assert_str_eq(kinds(&c), "wwwww.ww");
  ck_assert_str_eq(c.unknown_keys, "hidden_size"); /* the text part's counts, and it is noted */
  ck_assert(tri_tensor_is_passed_over(&c, "vision_tower.a.weight"));
  ck_assert(tri_tensor_is_passed_over(&c, "model.vision_tower.a.weight"));
  ck_assert(!tri_tensor_is_passed_over(&c, "language_model.model.norm.weight"));
  ck_assert(!tri_tensor_is_passed_over(&alone, "vision_tower.a.weight"));
  ck_assert_msg(parse_folder("\"model_type\":\"llama4\",\"architectures\":[\"Llama4ForConditionalGeneration\"],"
                             "\"boi_token_index\":1,\"eoi_token_index\":2,\"image_token_index\":3,\"vision_config\":{}",
                             "\"model_type\":\"llama4_text\"", true, &c, &err) == TRI_OK,
                "%s", err.message);
  ck_assert(c.multimodal && tri_tensor_is_passed_over(&c, "vision_model.a.weight"));
}
END_TEST

/* Qwen2.5-VL's config in one level, as released, and in two, as transformers 5 writes it. */
#define QWEN25 "\"model_type\":\"qwen2_5_vl\",\"architectures\":[\"Qwen2_5_VLForConditionalGeneration\"]"
START_TEST(text_parts_in_one_level) {
  tri_model_config flat, c;
  tri_error err = {0};
  static const char whole[] =
      "{" QWEN25 ",\"vision_config\":{\"depth\":1},\"image_token_id\":5,\"vision_token_id\":6,"
      "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[4,2,2]},\"rope_theta\":1e6," SIZES "}";
  ck_assert_msg(
      tri_model_config_parse(whole, strlen(whole), NULL, 0, (tri_config_rules){.strict = true}, &flat, &err) == TRI_OK,
      "%s", err.message);
  ck_assert_msg(parse_folder(QWEN25 ",\"tie_word_embeddings\":true,\"vision_config\":{}",
                             "\"model_type\":\"qwen2_5_vl_text\",\"tie_word_embeddings\":false,\"rope_parameters\":"
                             "{\"rope_type\":\"default\",\"mrope_section\":[4,2,2],\"rope_theta\":1e6}",
                             true, &c, &err) == TRI_OK,
                "%s", err.message);
  ck_assert(flat.multimodal && c.multimodal && flat.arch == c.arch && !flat.unknown_keys[0]);
  ck_assert_uint_eq(tri_model_config_hash(&c), tri_model_config_hash(&flat));
  check_table(&flat.attention.rope, 1e6, 1);
  ck_assert(!memcmp(&flat.attention.rope, &c.attention.rope, sizeof c.attention.rope));
  ck_assert(c.head.tie_word_embeddings && !flat.head.tie_word_embeddings); /* the outer one's counts */
  ck_assert(tri_tensor_is_passed_over(&flat, "visual.a.weight") && tri_tensor_is_passed_over(&c, "model.visual.a"));
}
END_TEST

static void refuse_folder(const char *outer, const char *text, bool strict, tri_status want, const char *field) {
  tri_model_config c;
  tri_error err = {0};
  tri_status st = parse_folder(outer, text, strict, &c, &err);
  ck_assert_msg(st == want && !strcmp(err.field, field), "%s: %s %s %s", outer, tri_status_name(st), err.field,
                err.message);
}

START_TEST(other_folders_are_refused) {
  static const char text[] = "\"model_type\":\"gemma3_text\"", field[] = "text_config.model_type";
  refuse_folder("\"model_type\":\"llava\"", text, false, TRI_UNSUPPORTED, field);
  refuse_folder("\"model_type\":\"gemma3\"", "\"model_type\":\"llama\"", false, TRI_UNSUPPORTED, field);
  refuse_folder("\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3Model\"]", text, false, TRI_UNSUPPORTED, field);
  refuse_folder(GEMMA3 ",\"no_such_key\":7", text, true, TRI_UNKNOWN_FIELD, "no_such_key");
  refuse_folder(GEMMA3, "\"model_type\":\"gemma3_text\",\"clip_qkv\":8", false, TRI_UNSUPPORTED, "clip_qkv");
  refuse_folder("\"model_type\":\"qwen3_vl_moe\"", "\"model_type\":\"qwen3_vl_moe_text\",\"norm_topk_prob\":false",
                false, TRI_UNSUPPORTED, "norm_topk_prob");
  refuse("qwen2_5_vl", "\"architectures\":[\"Qwen2_5_VLModel\"]", TRI_UNSUPPORTED, "model_type");
  refuse("gemma3", "", TRI_UNSUPPORTED, "model_type"); /* has two levels */
  refuse("qwen2", "\"rope_scaling\":{\"rope_type\":\"mrope\"}", TRI_UNSUPPORTED, "rope_scaling.rope_type");
  refuse("qwen2", "\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[1,2]}", TRI_UNKNOWN_FIELD,
         "rope_scaling.mrope_section");
}
END_TEST

Suite *suite_layer_kinds(void) {
  Suite *s = suite_create("layer_kinds");
  TCase *c = tcase_create("layer_kinds");
  tcase_add_loop_test(c, layers_have_their_kinds, 0, sizeof patterns / sizeof *patterns);
  tcase_add_test(c, wrong_lists_are_refused);
  tcase_add_test(c, two_tables_in_both_spellings);
  tcase_add_test(c, scaling_is_of_the_global_table);
  tcase_add_test(c, wrong_sections_are_refused);
  tcase_add_test(c, queries_are_scaled);
  tcase_add_test(c, wrong_scales_of_queries_are_refused);
  tcase_add_test(c, heads_differ_by_kind_of_layer);
  tcase_add_test(c, heads_are_listed_by_layer);
  tcase_add_test(c, kinds_of_layers_have_numbers_of_their_own);
  tcase_add_test(c, layers_have_limits);
  tcase_add_test(c, more_limits_than_there_is_room_for);
  tcase_add_test(c, layers_share_keys);
  tcase_add_test(c, values_are_shorter_than_keys);
  tcase_add_test(c, experts_beside_an_mlp);
  tcase_add_loop_test(c, wrong_heads_are_refused, 0, sizeof wrong_heads / sizeof *wrong_heads);
  tcase_add_test(c, longrope_names_its_scales);
  tcase_add_test(c, wrong_scales_of_longrope_are_refused);
  tcase_add_loop_test(c, sequences_end_where_keys_are_chosen, 0, sizeof chosen / sizeof *chosen);
  tcase_add_test(c, wrong_choices_are_refused);
  tcase_add_test(c, text_parts_are_models);
  tcase_add_test(c, text_parts_in_one_level);
  tcase_add_test(c, other_folders_are_refused);
  suite_add_tcase(s, c);
  return s;
}
