/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders' families as encoders, and the encoders of 2024 and 2025: their keys, and what is refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model/arch.h"
#include "runtime/model/layout.h"

Suite *suite_encoder_configs(void);

/* A small model of a family; sizes come by the family's own names. */
static tri_status parse(const char *type, const char *members, tri_model_config *out, tri_error *err) {
  static const char sizes[] = "\"hidden_size\":64,\"num_hidden_layers\":5,\"num_attention_heads\":4,"
                              "\"num_key_value_heads\":4,\"intermediate_size\":96,\"max_position_embeddings\":512",
                    nomic[] = "\"n_embd\":64,\"n_layer\":5,\"n_head\":4,\"n_inner\":96,\"n_positions\":512";
  char text[2048];
  snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"vocab_size\":256,%s%s%s}", type,
           strcmp(type, "nomic_bert") ? sizes : nomic, *members ? "," : "", members);
  return tri_model_config_parse(text, strlen(text), NULL, 0, (tri_config_rules){0}, out, err);
}

static tri_model_config accept(const char *type, const char *members) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(parse(type, members, &c, &err) == TRI_OK, "%s %s: %s", type, members, err.message);
  ck_assert_msg(!c.unknown_keys[0], "%s %s: %s", type, members, c.unknown_keys);
  return c;
}

typedef struct refusal {
  const char *type, *members;
  tri_status status;
  const char *field;
} refusal;

static void refuse(const refusal *r) {
  tri_model_config c;
  tri_error err = {0};
  tri_status st = parse(r->type, r->members, &c, &err);
  ck_assert_msg(st == r->status && !strcmp(err.field, r->field), "%s %s: %s, %s: %s", r->type, r->members,
                tri_status_name(st), err.field, err.message);
}

#define CLASS(name) "\"architectures\":[\"" name "\"]"

/* ---- decoders ---- */

static const struct {
  const char *type, *members;
  bool encoder, score;
  int64_t labels;
} decoders[] = {
    {"qwen3", CLASS("Qwen3ForCausalLM"), false, false, 0},
    {"qwen3", CLASS("Qwen3Model"), true, false, 0},
    {"qwen3", CLASS("Qwen3ForSequenceClassification"), true, true, 2},
    {"qwen3", CLASS("Qwen3ForSequenceClassification") ",\"num_labels\":1", true, true, 1},
    {"qwen3", CLASS("Qwen3ForSequenceClassification") ",\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}", true, true,
     3},
    {"qwen2", CLASS("Qwen2Model"), true, false, 0},
    {"mistral", CLASS("MistralModel"), true, false, 0},
    {"llama", CLASS("LlamaForSequenceClassification"), true, true, 2},
    {"gemma2", CLASS("Gemma2Model"), true, false, 0},
    {"gemma3_text", CLASS("Gemma3TextModel"), true, false, 0},
    {"gpt2", CLASS("GPT2Model"), true, false, 0},
    {"mixtral", CLASS("MixtralForSequenceClassification") ",\"num_local_experts\":4", true, true, 2},
};

START_TEST(decoders_become_encoders) {
  tri_model_config c = accept(decoders[_i].type, decoders[_i].members);
  tri_shard s;
  ck_assert(c.encoder == decoders[_i].encoder && c.attention.causal);
  ck_assert(c.head.has_score == decoders[_i].score && c.head.has_classifier == decoders[_i].score &&
            c.head.num_labels == decoders[_i].labels && !c.head.classifier_bias && !c.head.token_head);
  ck_assert_int_eq(c.head.pooling, decoders[_i].score ? TRI_POOL_LAST : TRI_POOL_NONE);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1, .dp = 1}, &s, NULL), TRI_OK);
  ck_assert_int_eq(tri_shard_weight_shape(&c, &s, TRI_W_HEAD, 0).n, c.encoder ? 0 : 256);
  ck_assert_int_eq(tri_shard_weight_shape(&c, &s, TRI_W_CLASSIFIER, 0).n, decoders[_i].labels);
  ck_assert_int_eq(tri_shard_weight_shape(&c, &s, TRI_W_CLASSIFIER_BIAS, 0).n, 0);
}
END_TEST

static const refusal refused_decoders[] = {
    {"qwen3", CLASS("Qwen3ForTokenClassification"), TRI_UNSUPPORTED, "architectures"},
    {"qwen3", CLASS("Qwen2Model"), TRI_UNSUPPORTED, "architectures"},
    {"qwen3", CLASS("Qwen3ForRewardModel"), TRI_UNSUPPORTED, "architectures"},
    {"qwen3", CLASS("Qwen3ForSequenceClassification") ",\"num_labels\":0", TRI_OUT_OF_RANGE, "num_labels"},
    {"bert", "\"classifier_from_token\":[1,2]", TRI_UNSUPPORTED, "classifier_from_token"},
    {"t5", CLASS("T5Model"), TRI_UNSUPPORTED, "architectures"},
    {"gemma3_text", CLASS("Gemma3ForCausalLM") ",\"use_bidirectional_attention\":true", TRI_UNSUPPORTED,
     "use_bidirectional_attention"},
    {"gemma3_text", CLASS("Gemma3TextModel") ",\"use_bidirectional_attention\":1", TRI_INVALID_ARGUMENT,
     "use_bidirectional_attention"},
    {"opt", CLASS("OPTModel") ",\"word_embed_proj_dim\":32,\"ffn_dim\":96", TRI_UNSUPPORTED, "architectures"},
};

START_TEST(other_decoders_are_refused) { refuse(&refused_decoders[_i]); }
END_TEST

/* ---- EmbeddingGemma ---- */

START_TEST(embedding_gemma) {
  tri_model_config c = accept("gemma3_text", CLASS("Gemma3TextModel") ",\"use_bidirectional_attention\":true,"
                                                                      "\"sliding_window\":512");
  ck_assert(c.encoder && !c.attention.causal && c.attention.window == 257);
  ck_assert(c.layer_flags[0] & TRI_LAYER_LOCAL);
  c = accept("gemma3_text", CLASS("Gemma3TextModel") ",\"sliding_window\":512");
  ck_assert(c.encoder && c.attention.causal && c.attention.window == 512);
}
END_TEST

/* ---- ModernBERT ---- */

START_TEST(modernbert) {
  tri_model_config c = accept("modernbert", "");
  ck_assert(c.encoder && !c.attention.causal && !c.norm.bias && !c.attention.bias && !c.mlp.bias && c.mlp.gated);
  ck_assert(c.attention.window == 65 && c.attention.rope_theta == 160000 && c.attention.local_rope_theta == 10000);
  static const uint8_t flags[] = {TRI_LAYER_BARE, TRI_LAYER_LOCAL, TRI_LAYER_LOCAL, 0, TRI_LAYER_LOCAL};
  ck_assert_mem_eq(c.layer_flags, flags, sizeof flags);
  ck_assert(!tri_weight_in_layer(&c, TRI_W_NORM1, 0) && tri_weight_in_layer(&c, TRI_W_NORM1, 1) &&
            tri_weight_in_layer(&c, TRI_W_NORM2, 0));
  c = accept("modernbert", "\"local_attention\":32,\"global_attn_every_n_layers\":2,\"global_rope_theta\":1e5,"
                           "\"local_rope_theta\":5e3,\"norm_bias\":true,\"attention_bias\":true,\"mlp_bias\":true,"
                           "\"norm_eps\":1e-6,\"position_embedding_type\":\"absolute\"");
  ck_assert(c.attention.window == 17 && c.norm.bias && c.attention.bias && c.attention.o_bias && c.mlp.bias);
  ck_assert(c.attention.rope_theta == 1e5 && c.attention.local_rope_theta == 5e3 && c.norm.eps == 1e-6);
  ck_assert(c.layer_flags[1] == TRI_LAYER_LOCAL && c.layer_flags[2] == 0);
  c = accept("modernbert", "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\","
                           "\"full_attention\",\"sliding_attention\"]");
  ck_assert(c.layer_flags[0] == (TRI_LAYER_LOCAL | TRI_LAYER_BARE) && !c.layer_flags[1] && !c.layer_flags[2]);
}
END_TEST

START_TEST(modernbert_classifiers) {
  tri_model_config c = accept("modernbert", CLASS("ModernBertForSequenceClassification"));
  ck_assert(c.head.has_pooler && c.head.pooler_norm && c.head.pooler_no_bias && !c.head.pooler_norm_bias);
  ck_assert(c.head.pooling == TRI_POOL_FIRST && c.head.pool_act == TRI_ACT_GELU_ERF && c.head.classifier_bias);
  c = accept("modernbert", CLASS("ModernBertForSequenceClassification") ",\"classifier_pooling\":\"mean\","
                                                                        "\"classifier_activation\":\"silu\","
                                                                        "\"classifier_bias\":true,\"norm_bias\":true");
  ck_assert(!c.head.pooler_no_bias && c.head.pooler_norm_bias && c.head.pooling == TRI_POOL_MEAN &&
            c.head.pool_act == TRI_ACT_SILU);
  c = accept("modernbert", CLASS("ModernBertModel") ",\"classifier_pooling\":\"mean\"");
  ck_assert(!c.head.has_pooler && !c.head.has_classifier);
}
END_TEST

/* ---- Nomic, GTE ---- */

START_TEST(nomic_bert) {
  tri_model_config c = accept("nomic_bert", "");
  ck_assert(c.encoder && c.hidden_size == 64 && c.num_layers == 5 && c.attention.num_heads == 4 &&
            c.mlp.intermediate_size == 96 && c.max_position_embeddings == 512);
  ck_assert(c.attention.rope_theta == 1000 && !c.attention.bias && c.norm.bias && c.mlp.gated &&
            c.mlp.act == TRI_ACT_SILU && c.norm.place == TRI_NORM_SUM);
  c = accept("nomic_bert", "\"rotary_emb_base\":10000,\"rotary_emb_fraction\":0.5,\"rotary_emb_interleaved\":true,"
                           "\"activation_function\":\"swiglu\",\"rotary_emb_scale_base\":null,\"prenorm\":false,"
                           "\"rotary_scaling_factor\":null,\"max_trained_positions\":2048");
  ck_assert(c.attention.rope_theta == 10000 && c.attention.rope.rotary_dim == 8 && c.attention.rope.interleaved);
}
END_TEST

START_TEST(gte) {
  tri_model_config c = accept("new", CLASS("NewModel"));
  ck_assert(c.encoder && !c.head.has_pooler && c.attention.bias && c.mlp.bias && c.mlp.no_up_bias && c.mlp.gated);
  c = accept("new", CLASS("NewForSequenceClassification") ",\"num_labels\":1");
  ck_assert(c.head.has_pooler && c.head.pooling == TRI_POOL_FIRST && c.head.pool_act == TRI_ACT_TANH);
  c = accept("new", "\"architectures\":[\"NewModel\",\"NewForTokenClassification\"]");
  ck_assert(!c.head.has_classifier);
  c = accept("gte", CLASS("GteForSequenceClassification") ",\"num_labels\":1,\"rope_parameters\":{\"rope_theta\":2e4}");
  ck_assert(c.head.has_classifier && c.head.has_pooler && c.norm.place == TRI_NORM_SUM && c.attention.scales_by_ntk);
  ck_assert_str_eq(c.arch->prefix, "gte.");
  c = accept("new", "\"type_vocab_size\":0,\"position_embedding_type\":\"rope\"");
  ck_assert(c.embed.type_vocab_size == 0);
  /* 8 times as long: theta * 8, and all angles over 8^(2/16) */
  c = accept("new", "\"rope_theta\":20000,\"rope_scaling\":{\"type\":\"ntk\",\"factor\":8.0}");
  for (int i = 0; i < 8; i++) {
    double want = exp(-log(160000) * i / 8) / pow(8, 0.125);
    ck_assert_msg(fabs(c.attention.rope.inv_freq[i] - want) <= 1e-6 * want, "inv_freq[%d] is %.9g, not %.9g", i,
                  c.attention.rope.inv_freq[i], want);
  }
}
END_TEST

static const refusal refused[] = {
    {"modernbert", CLASS("ModernBertForMaskedLM"), TRI_UNSUPPORTED, "architectures"},
    {"modernbert", CLASS("ModernBertForTokenClassification"), TRI_UNSUPPORTED, "architectures"},
    {"modernbert", "\"local_attention\":1", TRI_OUT_OF_RANGE, "local_attention"},
    {"modernbert", "\"local_attention\":\"all\"", TRI_INVALID_ARGUMENT, "local_attention"},
    {"modernbert", "\"global_attn_every_n_layers\":0", TRI_OUT_OF_RANGE, "global_attn_every_n_layers"},
    {"modernbert", "\"global_rope_theta\":0", TRI_OUT_OF_RANGE, "global_rope_theta"},
    {"modernbert", "\"local_rope_theta\":-1", TRI_OUT_OF_RANGE, "local_rope_theta"},
    {"modernbert", "\"norm_eps\":2", TRI_OUT_OF_RANGE, "norm_eps"},
    {"modernbert", "\"norm_bias\":1", TRI_INVALID_ARGUMENT, "norm_bias"},
    {"modernbert", "\"mlp_bias\":\"no\"", TRI_INVALID_ARGUMENT, "mlp_bias"},
    {"modernbert", "\"is_decoder\":true", TRI_UNSUPPORTED, "is_decoder"},
    {"modernbert", "\"layer_types\":[\"full_attention\"]", TRI_INVALID_ARGUMENT, "layer_types"},
    {"modernbert", CLASS("ModernBertForSequenceClassification") ",\"classifier_pooling\":\"max\"", TRI_UNSUPPORTED,
     "classifier_pooling"},
    {"modernbert", CLASS("ModernBertForSequenceClassification") ",\"classifier_pooling\":2", TRI_UNSUPPORTED,
     "classifier_pooling"},
    {"modernbert", CLASS("ModernBertForSequenceClassification") ",\"classifier_activation\":\"maxout\"",
     TRI_UNSUPPORTED, "classifier_activation"},
    {"modernbert", CLASS("ModernBertForSequenceClassification") ",\"classifier_bias\":0", TRI_INVALID_ARGUMENT,
     "classifier_bias"},
    {"nomic_bert", "\"activation_function\":\"gelu\"", TRI_UNSUPPORTED, "activation_function"},
    {"nomic_bert", "\"rotary_emb_base\":0", TRI_OUT_OF_RANGE, "rotary_emb_base"},
    {"nomic_bert", "\"rotary_emb_fraction\":1.5", TRI_OUT_OF_RANGE, "rotary_emb_fraction"},
    {"nomic_bert", "\"rotary_emb_interleaved\":1", TRI_INVALID_ARGUMENT, "rotary_emb_interleaved"},
    {"nomic_bert", "\"rotary_emb_scale_base\":512", TRI_UNSUPPORTED, "rotary_emb_scale_base"},
    {"nomic_bert", "\"rotary_scaling_factor\":2", TRI_UNSUPPORTED, "rotary_scaling_factor"},
    {"nomic_bert", "\"prenorm\":true", TRI_UNSUPPORTED, "prenorm"},
    {"nomic_bert", "\"parallel_block\":true", TRI_UNSUPPORTED, "parallel_block"},
    {"nomic_bert", "\"use_rms_norm\":true", TRI_UNSUPPORTED, "use_rms_norm"},
    {"nomic_bert", "\"causal\":true", TRI_UNSUPPORTED, "causal"},
    {"nomic_bert", "\"qkv_proj_bias\":true", TRI_UNSUPPORTED, "qkv_proj_bias"},
    {"nomic_bert", "\"mlp_fc1_bias\":true", TRI_UNSUPPORTED, "mlp_fc1_bias"},
    {"nomic_bert", "\"mlp_fc2_bias\":true", TRI_UNSUPPORTED, "mlp_fc2_bias"},
    {"nomic_bert", "\"type_vocab_size\":0", TRI_OUT_OF_RANGE, "type_vocab_size"},
    {"nomic_bert", "\"num_experts\":8", TRI_UNSUPPORTED, "num_experts"},
    {"new", "\"pack_qkv\":false", TRI_UNSUPPORTED, "pack_qkv"},
    {"gte", CLASS("NewModel"), TRI_UNSUPPORTED, "architectures"},
    {"new", "\"pack_qkv\":1", TRI_INVALID_ARGUMENT, "pack_qkv"},
    {"new", "\"layer_norm_type\":\"rms_norm\"", TRI_UNSUPPORTED, "layer_norm_type"},
    {"new", "\"logn_attention_scale\":true", TRI_UNSUPPORTED, "logn_attention_scale"},
    {"new", "\"position_embedding_type\":\"absolute\"", TRI_UNSUPPORTED, "position_embedding_type"},
    {"new", "\"type_vocab_size\":-1", TRI_OUT_OF_RANGE, "type_vocab_size"},
    {"new", "\"architectures\":[\"NewModel\",\"NewForMaskedLM\"]", TRI_UNSUPPORTED, "architectures"},
    {"new", "\"rope_scaling\":{\"type\":\"ntk\"}", TRI_INVALID_ARGUMENT, "rope_scaling.factor"},
    {"new", "\"rope_scaling\":{\"type\":\"ntk\",\"factor\":0.5}", TRI_OUT_OF_RANGE, "rope_scaling.factor"},
    {"new", "\"rope_scaling\":{\"type\":\"ntk\",\"factor\":8,\"mixed_b\":0.6}", TRI_UNKNOWN_FIELD,
     "rope_scaling.mixed_b"},
    {"llama", "\"rope_scaling\":{\"type\":\"ntk\",\"factor\":8}", TRI_UNSUPPORTED, "rope_scaling.rope_type"},
};

START_TEST(wrong_values_are_refused) { refuse(&refused[_i]); }
END_TEST

Suite *suite_encoder_configs(void) {
  Suite *suite = suite_create("encoder_configs");
  TCase *t = tcase_create("encoder_configs");
  tcase_add_loop_test(t, decoders_become_encoders, 0, sizeof decoders / sizeof *decoders);
  tcase_add_loop_test(t, other_decoders_are_refused, 0, sizeof refused_decoders / sizeof *refused_decoders);
  tcase_add_test(t, embedding_gemma);
  tcase_add_test(t, modernbert);
  tcase_add_test(t, modernbert_classifiers);
  tcase_add_test(t, nomic_bert);
  tcase_add_test(t, gte);
  tcase_add_loop_test(t, wrong_values_are_refused, 0, sizeof refused / sizeof *refused);
  suite_add_tcase(suite, t);
  return suite;
}
