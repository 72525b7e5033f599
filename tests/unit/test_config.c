/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: what is read, in both spellings, and what is refused by name. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/model/arch.h"
#include "runtime/model/config.h"

Suite *suite_config(void);

/* ---- helpers ---- */

/* A small model of each family as `key: value` members; a test replaces, adds or (value NULL) leaves out some. */
typedef struct member {
  const char *key, *value;
} member;

static const member gpt2[] = {{"model_type", "\"gpt2\""},
                              {"architectures", "[\"GPT2LMHeadModel\"]"},
                              {"n_embd", "64"},
                              {"n_layer", "4"},
                              {"n_head", "8"},
                              {"n_positions", "256"},
                              {"vocab_size", "509"},
                              {"layer_norm_epsilon", "1e-05"},
                              {"activation_function", "\"gelu_new\""},
                              {NULL, NULL}};
static const member gpt_neox[] = {{"model_type", "\"gpt_neox\""},
                                  {"architectures", "[\"GPTNeoXForCausalLM\"]"},
                                  {"hidden_size", "64"},
                                  {"num_hidden_layers", "4"},
                                  {"num_attention_heads", "8"},
                                  {"intermediate_size", "256"},
                                  {"vocab_size", "509"},
                                  {"hidden_act", "\"gelu\""},
                                  {NULL, NULL}};
static const member llama[] = {{"model_type", "\"llama\""},
                               {"architectures", "[\"LlamaForCausalLM\"]"},
                               {"hidden_size", "128"},
                               {"num_hidden_layers", "4"},
                               {"num_attention_heads", "8"},
                               {"num_key_value_heads", "4"},
                               {"intermediate_size", "352"},
                               {"vocab_size", "1000"},
                               {"max_position_embeddings", "512"},
                               {"hidden_act", "\"silu\""},
                               {"rms_norm_eps", "1e-05"},
                               {NULL, NULL}};
static const member bert[] = {
    {"model_type", "\"bert\""}, {"architectures", "[\"BertModel\"]"}, {"hidden_size", "64"},
    {"num_hidden_layers", "4"}, {"num_attention_heads", "8"},         {"intermediate_size", "176"},
    {"vocab_size", "509"},      {"hidden_act", "\"gelu\""},           {NULL, NULL}};
static const member roberta[] = {{"model_type", "\"roberta\""},
                                 {"architectures", "[\"RobertaModel\"]"},
                                 {"hidden_size", "64"},
                                 {"num_hidden_layers", "4"},
                                 {"num_attention_heads", "8"},
                                 {"intermediate_size", "176"},
                                 {"max_position_embeddings", "514"},
                                 {"vocab_size", "509"},
                                 {NULL, NULL}};
static const member distilbert[] = {{"model_type", "\"distilbert\""},
                                    {"architectures", "[\"DistilBertModel\"]"},
                                    {"dim", "64"},
                                    {"n_layers", "4"},
                                    {"n_heads", "8"},
                                    {"hidden_dim", "176"},
                                    {"vocab_size", "509"},
                                    {"activation", "\"gelu\""},
                                    {NULL, NULL}};
static const member albert[] = {{"model_type", "\"albert\""},
                                {"architectures", "[\"AlbertModel\"]"},
                                {"embedding_size", "32"},
                                {"hidden_size", "64"},
                                {"num_hidden_layers", "4"},
                                {"num_attention_heads", "8"},
                                {"intermediate_size", "176"},
                                {"vocab_size", "509"},
                                {NULL, NULL}};
static const member none[] = {{NULL, NULL}};
/* Every key that is not understood is refused; test_config_keys.c has the keys that are accepted otherwise. */
static const tri_config_rules strict = {.strict = true};

static const char *find(const member *list, const char *key, bool *found) {
  for (; list->key; list++)
    if (!strcmp(list->key, key)) {
      *found = true;
      return list->value;
    }
  *found = false;
  return NULL;
}

static void write_config(const member *base, const member *changes, char *out, size_t cap) {
  size_t n = (size_t)snprintf(out, cap, "{");
  const char *comma = "";
  for (int pass = 0; pass < 2; pass++)
    for (const member *m = pass ? changes : base; m->key; m++) {
      bool other;
      const char *value = m->value, *changed = find(pass ? base : changes, m->key, &other);
      if (pass && other) continue; /* written in its place already */
      if (!pass && other) value = changed;
      if (!value) continue;
      n += (size_t)snprintf(out + n, cap - n, "%s\"%s\":%s", comma, m->key, value);
      comma = ",";
    }
  ck_assert_uint_lt(n + 2, cap);
  snprintf(out + n, cap - n, "}");
}

static tri_status parse(const member *base, const member *changes, const char *generation, tri_model_config *c,
                        tri_error *err) {
  char text[16384];
  write_config(base, changes, text, sizeof text);
  tri_error_clear(err);
  return tri_model_config_parse(text, strlen(text), generation, generation ? strlen(generation) : 0, strict, c, err);
}

static tri_model_config accept(const member *base, const member *changes) {
  tri_model_config c;
  tri_error err = {0};
  tri_status st = parse(base, changes, NULL, &c, &err);
  ck_assert_msg(st == TRI_OK, "%s=%s: %s: %s", changes->key, changes->value, err.field, err.message);
  return c;
}
#define CHANGES(...) ((const member[]){__VA_ARGS__, {NULL, NULL}})

static void refuse(const member *base, const member *changes, tri_status status, const char *field) {
  tri_model_config c;
  tri_error err = {0};
  memset(&c, 0x5a, sizeof c);
  tri_status st = parse(base, changes, NULL, &c, &err);
  const char *key = changes->key ? changes->key : "", *value = changes->key ? changes->value : "";
  ck_assert_msg(st == status, "%s=%s: %s (%s: %s), not %s", key, value, tri_status_name(st), err.field, err.message,
                tri_status_name(status));
  ck_assert_msg(!strcmp(err.field, field), "%s=%s is blamed on \"%s\", not on \"%s\"", key, value, err.field, field);
  ck_assert_msg(err.message[0], "%s: refused without a reason", key);
  tri_model_config untouched;
  memset(&untouched, 0x5a, sizeof untouched);
  ck_assert_mem_eq(&c, &untouched, sizeof c); /* outputs are set only on success */
}

/* ---- every family of the table ---- */

START_TEST(every_family_is_found) {
  for (const tri_arch *const *a = tri_arch_list; *a; a++) ck_assert_ptr_eq(tri_arch_find((*a)->model_type), *a);
  ck_assert_ptr_null(tri_arch_find("no such family"));
}
END_TEST

/* Wrong types and values outside the range, for each key that a family's table names. */
static void refuse_bad_values(const char *type, const tri_config_key *k) {
  char low[64], high[64];
  snprintf(low, sizeof low, k->type == TRI_KEY_INT ? "%.0f" : "%.17g", k->min - 1);
  snprintf(high, sizeof high, k->type == TRI_KEY_INT ? "%.0f" : "%.17g", k->max * 2 + 1);
  const struct {
    tri_key_type type;
    const char *value;
    tri_status status;
  } bad[] = {
      {TRI_KEY_INT, low, TRI_OUT_OF_RANGE},
      {TRI_KEY_INT, high, TRI_OUT_OF_RANGE},
      {TRI_KEY_INT, "9223372036854775807", TRI_OUT_OF_RANGE},
      {TRI_KEY_INT, "-9223372036854775808", TRI_OUT_OF_RANGE},
      {TRI_KEY_INT, "2.0", TRI_INVALID_ARGUMENT},
      {TRI_KEY_INT, "\"2\"", TRI_INVALID_ARGUMENT},
      {TRI_KEY_INT, "true", TRI_INVALID_ARGUMENT},
      {TRI_KEY_INT, "[2]", TRI_INVALID_ARGUMENT},
      {TRI_KEY_NUM, low, TRI_OUT_OF_RANGE},
      {TRI_KEY_NUM, high, TRI_OUT_OF_RANGE},
      {TRI_KEY_NUM, "1e300", TRI_OUT_OF_RANGE},
      {TRI_KEY_NUM, "\"0.5\"", TRI_INVALID_ARGUMENT},
      {TRI_KEY_NUM, "false", TRI_INVALID_ARGUMENT},
      {TRI_KEY_NUM, "{}", TRI_INVALID_ARGUMENT},
      {TRI_KEY_BOOL, "1", TRI_INVALID_ARGUMENT},
      {TRI_KEY_BOOL, "\"true\"", TRI_INVALID_ARGUMENT},
      {TRI_KEY_BOOL, "[]", TRI_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (bad[i].type == k->type)
      refuse(none, CHANGES({"model_type", type}, {k->name, bad[i].value}), bad[i].status, k->name);
}

START_TEST(bad_values_of_every_familys_own_keys) {
  for (const tri_arch *const *a = tri_arch_list; *a; a++) {
    char type[100];
    snprintf(type, sizeof type, "\"%s\"", (*a)->model_type);
    for (const tri_config_key *k = (*a)->keys; k->name; k++) refuse_bad_values(type, k);
  }
}
END_TEST

START_TEST(bad_values_of_common_keys) {
  static const tri_config_key keys[] = {
      TRI_INT_KEY("hidden_size", hidden_size, 1, 1 << 20),
      TRI_INT_KEY("num_hidden_layers", num_layers, 1, 4096),
      TRI_INT_KEY("num_attention_heads", attention.num_heads, 1, 1 << 16),
      TRI_INT_KEY("intermediate_size", mlp.intermediate_size, 1, 1 << 24),
      TRI_INT_KEY("vocab_size", vocab_size, 1, 1 << 28),
      TRI_INT_KEY("max_position_embeddings", max_position_embeddings, 1, 1 << 28),
      TRI_BOOL_KEY("tie_word_embeddings", head.tie_word_embeddings),
      TRI_NUM_KEY("rope_theta", attention.rope_theta, 1, 1e12),
      TRI_NUM_KEY("partial_rotary_factor", attention.partial_rotary_factor, 0, 1),
  };
  refuse_bad_values("\"llama\"", &keys[_i]);
  refuse_bad_values("\"gpt_neox\"", &keys[_i]);
}
END_TEST

/* No name of a row is in it twice, or in an earlier one. */
static void check_names(const tri_config_key *keys, const tri_config_key *k) {
  char text[1024], *rest = NULL; /* the memory sanitizer does not see the C library set it */
  ck_assert_uint_lt(strlen(k->name), sizeof text);
  strcpy(text, k->name);
  for (const char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
    ck_assert_msg(!tri_has_word(rest, name), "%s", name);
    for (const tri_config_key *other = keys; other != k; other++)
      ck_assert_msg(!tri_has_word(other->name, name), "%s", name);
  }
}

/* A family's tables fit each other: what a loader and an executor rely on. */
START_TEST(family_tables) {
  for (const tri_arch *const *list = tri_arch_list; *list; list++) {
    const tri_arch *a = *list;
    ck_assert_ptr_nonnull(a->class_names[0]);
    for (const tri_config_key *k = a->keys; k->name; k++) check_names(a->keys, k);
    bool has[TRI_W_COUNT] = {false};
    for (const tri_tensor_rule *r = a->tensors; r->name; r++) {
      has[r->weight] = true;
      ck_assert_msg(tri_weight_is_per_layer(r->weight) == !!strstr(r->name, "%d"), "%s: %s", a->model_type, r->name);
      const char *percent = strchr(r->name, '%');
      int numbers = 0;
      for (; percent; percent = strchr(percent + 1, '%'), numbers++)
        ck_assert_msg(percent[1] == 'd', "%s: %s", a->model_type, r->name);
      ck_assert_msg(numbers <= 1 + !!(r->flags & TRI_TENSOR_PER_EXPERT), "%s: %s", a->model_type, r->name);
      /* A tensor may fill two weights or parts, and one in layers of either kind. */
      for (const tri_tensor_rule *other = a->tensors; other != r; other++) {
        bool apart = (r->flags ^ other->flags) == (TRI_TENSOR_LOCAL | TRI_TENSOR_GLOBAL);
        apart |= r->weight != other->weight || r->part != other->part;
        ck_assert_msg(strcmp(r->name, other->name) || apart, "%s: %s", a->model_type, r->name);
      }
    }
    static const tri_weight_id needed[] = {TRI_W_EMBED, TRI_W_O};
    bool encoder = a->defaults.encoder;
    ck_assert_msg(has[TRI_W_HEAD] == !encoder, "%s", a->model_type);
    ck_assert_msg(has[TRI_W_FINAL_NORM] == !a->defaults.norm.no_final || !encoder, "%s", a->model_type);
    ck_assert_msg(has[TRI_W_FINAL_NORM] == !(a->defaults.seq2seq.on && a->defaults.norm.no_final) || encoder, "%s",
                  a->model_type);
    ck_assert_msg(has[TRI_W_CROSS_Q] == a->defaults.seq2seq.on && a->defaults.seq2seq.on == !!a->source, "%s",
                  a->model_type);
    bool table =
        a->defaults.attention.position == TRI_POS_LEARNED || a->defaults.attention.position == TRI_POS_SINUSOID;
    ck_assert_msg(!encoder || (has[TRI_W_EMBED_NORM] && has[TRI_W_POSITIONS] == table), "%s", a->model_type);
    ck_assert(has[TRI_W_TYPES] == (a->defaults.embed.type_vocab_size > 0));
    ck_assert(has[TRI_W_POOLER] == has[TRI_W_POOLER_BIAS] && has[TRI_W_CLASSIFIER] == has[TRI_W_CLASSIFIER_BIAS]);
    ck_assert(has[TRI_W_UP] == has[TRI_W_DOWN] && has[TRI_W_EXPERT_UP] == has[TRI_W_EXPERT_DOWN]);
    ck_assert((has[TRI_W_UP] || has[TRI_W_EXPERT_UP]) && has[TRI_W_ROUTER] == has[TRI_W_EXPERT_UP]);
    bool input_norms = a->defaults.norm.place != TRI_NORM_RESULT;
    ck_assert(has[TRI_W_NORM1] == input_norms && (has[TRI_W_NORM2] || a->defaults.norm.one_norm || !input_norms));
    ck_assert(has[TRI_W_BRANCH_NORM1] == has[TRI_W_BRANCH_NORM2] && (has[TRI_W_BRANCH_NORM1] || input_norms));
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
      ck_assert_msg(has[needed[i]], "%s has no %s", a->model_type, tri_weight_name(needed[i]));
  }
}
END_TEST

/* ---- single fields ---- */

static const struct {
  const member *base;
  const char *key, *value; /* value NULL: left out */
  tri_status status;
  const char *field;
} refused[] = {
    {llama, "model_type", NULL, TRI_INVALID_ARGUMENT, "model_type"},
    {llama, "model_type", "7", TRI_INVALID_ARGUMENT, "model_type"},
    {llama, "model_type", "\"mystery\"", TRI_UNSUPPORTED, "model_type"},
    {llama, "model_type", "\"\"", TRI_UNSUPPORTED, "model_type"},
    {llama, "architectures", "[\"LlamaForTokenClassification\"]", TRI_UNSUPPORTED, "architectures"},
    {llama, "architectures", "[\"GPT2LMHeadModel\"]", TRI_UNSUPPORTED, "architectures"},
    {llama, "architectures", "\"LlamaForCausalLM\"", TRI_INVALID_ARGUMENT, "architectures"},
    {llama, "architectures", "[]", TRI_INVALID_ARGUMENT, "architectures"},
    {llama, "architectures", "[1]", TRI_INVALID_ARGUMENT, "architectures"},
    {llama, "architectures", "[\"LlamaForCausalLM\",\"LlamaModel\"]", TRI_INVALID_ARGUMENT, "architectures"},
    {llama, "hidden_size", NULL, TRI_INVALID_ARGUMENT, "hidden_size"},
    {llama, "hidden_size", "null", TRI_INVALID_ARGUMENT, "hidden_size"},
    {llama, "num_hidden_layers", NULL, TRI_INVALID_ARGUMENT, "num_hidden_layers"},
    {llama, "num_attention_heads", NULL, TRI_INVALID_ARGUMENT, "num_attention_heads"},
    {llama, "vocab_size", NULL, TRI_INVALID_ARGUMENT, "vocab_size"},
    {llama, "num_key_value_heads", "3", TRI_OUT_OF_RANGE, "num_key_value_heads"},
    {llama, "num_key_value_heads", "16", TRI_OUT_OF_RANGE, "num_key_value_heads"},
    {llama, "num_attention_heads", "12", TRI_OUT_OF_RANGE, "num_attention_heads"}, /* 128 / 12 */
    {llama, "head_dim", "1025", TRI_OUT_OF_RANGE, "head_dim"},
    {llama, "head_dim", "15", TRI_OUT_OF_RANGE, "partial_rotary_factor"}, /* an odd head cannot rotate */
    {llama, "partial_rotary_factor", "0", TRI_OUT_OF_RANGE, "partial_rotary_factor"},
    {llama, "partial_rotary_factor", "0.19", TRI_OUT_OF_RANGE, "partial_rotary_factor"}, /* 3 of 16 */
    {llama, "dtype", "\"float64\"", TRI_UNSUPPORTED, "dtype"},
    {llama, "dtype", "\"int8\"", TRI_UNSUPPORTED, "dtype"},
    {llama, "dtype", "16", TRI_INVALID_ARGUMENT, "dtype"},
    {llama, "torch_dtype", "\"float8_e4m3fn\"", TRI_UNSUPPORTED, "dtype"},
    {llama, "torch_dtype", "{}", TRI_INVALID_ARGUMENT, "torch_dtype"},
    {llama, "hidden_act", "\"laplace\"", TRI_UNSUPPORTED, "hidden_act"},
    {llama, "hidden_act", "1", TRI_INVALID_ARGUMENT, "hidden_act"},
    {gpt2, "activation_function", "\"tanh\"", TRI_UNSUPPORTED, "hidden_act"},
    {gpt2, "activation_function", "[]", TRI_INVALID_ARGUMENT, "activation_function"},
    {gpt2, "scale_attn_weights", "\"no\"", TRI_INVALID_ARGUMENT, "scale_attn_weights"},
    {gpt2, "hidden_size_per_head", "8", TRI_UNKNOWN_FIELD, "hidden_size_per_head"},
    {gpt2, "add_cross_attention", "true", TRI_UNSUPPORTED, "add_cross_attention"},
    {llama, "is_encoder_decoder", "true", TRI_UNSUPPORTED, "is_encoder_decoder"},
    {llama, "pruned_heads", "{\"1\":[0]}", TRI_UNSUPPORTED, "pruned_heads"},
    {llama, "quantization_config", "{\"quant_method\":\"gptq\"}", TRI_UNSUPPORTED, "bits"},
    {llama, "quantization_config", "1", TRI_UNSUPPORTED, "quantization_config"},
    {llama, "compression_config", "{\"quant_method\":\"compressed-tensors\"}", TRI_UNSUPPORTED, "config_groups"},
    {llama, "sliding_window", "64", TRI_UNSUPPORTED, "sliding_window"},
    {llama, "num_experts", "8", TRI_UNSUPPORTED, "num_experts"},
    {llama, "logit_scale", "2.0", TRI_UNSUPPORTED, "logit_scale"},
    {llama, "n_embd", "64", TRI_UNKNOWN_FIELD, "n_embd"}, /* another family's key */
    {llama, "layer_norm_eps", "1e-6", TRI_UNKNOWN_FIELD, "layer_norm_eps"},
    {gpt_neox, "rms_norm_eps", "1e-6", TRI_UNKNOWN_FIELD, "rms_norm_eps"},
    {bert, "is_decoder", "true", TRI_UNSUPPORTED, "is_decoder"},
    {bert, "is_decoder", "1", TRI_INVALID_ARGUMENT, "is_decoder"},
    {albert, "is_decoder", "true", TRI_UNSUPPORTED, "is_decoder"},
    {roberta, "add_cross_attention", "true", TRI_UNSUPPORTED, "add_cross_attention"},
    {bert, "position_embedding_type", "\"relative_key\"", TRI_UNSUPPORTED, "position_embedding_type"},
    {albert, "position_embedding_type", "\"relative_key_query\"", TRI_UNSUPPORTED, "position_embedding_type"},
    {distilbert, "position_embedding_type", "1", TRI_UNSUPPORTED, "position_embedding_type"},
    {bert, "architectures", "[\"BertForMaskedLM\"]", TRI_UNSUPPORTED, "architectures"},
    {bert, "architectures", "[\"BertLMHeadModel\"]", TRI_UNSUPPORTED, "architectures"},
    {roberta, "architectures", "[\"BertModel\"]", TRI_UNSUPPORTED, "architectures"},
    {roberta, "architectures", "[\"RobertaForQuestionAnswering\"]", TRI_UNSUPPORTED, "architectures"},
    {roberta, "max_position_embeddings", "2", TRI_OUT_OF_RANGE, "max_position_embeddings"},
    {roberta, "pad_token_id", "600", TRI_OUT_OF_RANGE, "max_position_embeddings"},
    {bert, "embedding_size", "32", TRI_UNSUPPORTED, "embedding_size"},
    {distilbert, "type_vocab_size", "2", TRI_UNKNOWN_FIELD, "type_vocab_size"},
    {albert, "num_hidden_groups", "2", TRI_UNSUPPORTED, "num_hidden_groups"},
    {albert, "inner_group_num", "2", TRI_UNSUPPORTED, "inner_group_num"},
    {llama, "eos_token_id", "\"2\"", TRI_INVALID_ARGUMENT, "eos_token_id"},
    {llama, "eos_token_id", "-1", TRI_INVALID_ARGUMENT, "eos_token_id"},
    {llama, "eos_token_id", "4294967296", TRI_INVALID_ARGUMENT, "eos_token_id"},
    {llama, "eos_token_id", "[1,2.5]", TRI_INVALID_ARGUMENT, "eos_token_id"},
    {llama, "eos_token_id", "[[1]]", TRI_INVALID_ARGUMENT, "eos_token_id"},
    {llama, "eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", TRI_TOO_LARGE, "eos_token_id"},
    {llama, "bos_token_id", "\"1\"", TRI_INVALID_ARGUMENT, "bos_token_id"},
    {llama, "bos_token_id", "-5", TRI_INVALID_ARGUMENT, "bos_token_id"},
    /* rotary sections */
    {llama, "rope_parameters", "[]", TRI_INVALID_ARGUMENT, "rope_parameters"},
    {llama, "rope_scaling", "\"linear\"", TRI_INVALID_ARGUMENT, "rope_scaling"},
    {llama, "rope_scaling", "{\"type\":\"linear\"}", TRI_INVALID_ARGUMENT, "rope_scaling.factor"},
    {llama, "rope_scaling", "{\"type\":\"linear\",\"factor\":0.5}", TRI_OUT_OF_RANGE, "rope_scaling.factor"},
    {llama, "rope_scaling", "{\"type\":\"linear\",\"factor\":\"2\"}", TRI_INVALID_ARGUMENT, "rope_scaling.factor"},
    {llama, "rope_scaling", "{\"type\":\"linear\",\"factor\":2,\"twist\":1}", TRI_UNKNOWN_FIELD, "rope_scaling.twist"},
    {llama, "rope_parameters", "{\"rope_type\":\"default\",\"twist\":1}", TRI_UNKNOWN_FIELD, "rope_parameters.twist"},
    {llama, "rope_parameters", "{\"full_attention\":{\"rope_type\":\"default\"}}", TRI_UNKNOWN_FIELD,
     "rope_parameters.full_attention"},
    {llama, "rope_scaling", "{\"type\":\"spiral\"}", TRI_UNSUPPORTED, "rope_scaling.rope_type"},
    {llama, "rope_scaling", "{\"type\":\"mrope\",\"factor\":2}", TRI_UNSUPPORTED, "rope_scaling.rope_type"},
    {llama, "rope_scaling", "{\"rope_type\":3,\"factor\":2}", TRI_INVALID_ARGUMENT, "rope_scaling.rope_type"},
    {llama, "rope_scaling", "{\"type\":\"dynamic\"}", TRI_INVALID_ARGUMENT, "rope_scaling.factor"},
    {llama, "rope_scaling", "{\"type\":\"yarn\"}", TRI_INVALID_ARGUMENT, "rope_scaling.factor"},
    {llama, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":0}", TRI_OUT_OF_RANGE,
     "rope_scaling.beta_fast"},
    {llama, "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,\"truncate\":1}", TRI_INVALID_ARGUMENT,
     "rope_scaling.truncate"},
    {llama, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8}", TRI_INVALID_ARGUMENT,
     "rope_scaling.low_freq_factor"},
    {llama, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1}", TRI_INVALID_ARGUMENT,
     "rope_scaling.high_freq_factor"},
    {llama, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":3}",
     TRI_OUT_OF_RANGE, "rope_scaling.high_freq_factor"},
    {llama, "rope_scaling", "{\"type\":\"longrope\",\"factor\":2}", TRI_INVALID_ARGUMENT, "rope_scaling.short_factor"},
    {llama, "rope_scaling", "{\"type\":\"longrope\",\"factor\":2,\"short_factor\":[1,1,1,1,1,1,1,1]}",
     TRI_INVALID_ARGUMENT, "rope_scaling.long_factor"},
    {llama, "rope_scaling",
     "{\"type\":\"longrope\",\"factor\":2,\"short_factor\":[1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,1]}",
     TRI_INVALID_ARGUMENT, "rope_scaling.short_factor"},
    {llama, "rope_scaling",
     "{\"type\":\"longrope\",\"factor\":2,\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,0]}",
     TRI_OUT_OF_RANGE, "rope_scaling.long_factor"},
    {llama, "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2,\"original_max_position_embeddings\":1e300}",
     TRI_OUT_OF_RANGE, "rope_scaling.original_max_position_embeddings"},
    {llama, "original_max_position_embeddings", "9223372036854775807", TRI_OUT_OF_RANGE,
     "original_max_position_embeddings"},
    {llama, "original_max_position_embeddings", "\"4096\"", TRI_OUT_OF_RANGE, "original_max_position_embeddings"},
};

START_TEST(refused_by_name) {
  refuse(refused[_i].base, CHANGES({refused[_i].key, refused[_i].value}), refused[_i].status, refused[_i].field);
}
END_TEST

START_TEST(not_a_config) {
  static const char *const texts[] = {"", "[]", "1", "null", "\"llama\"", "{\"model_type\":\"llama\""};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    tri_model_config c;
    tri_error err = {0};
    ck_assert_int_eq(tri_model_config_parse(texts[i], strlen(texts[i]), NULL, 0, (tri_config_rules){0}, &c, &err),
                     TRI_CORRUPT);
    ck_assert_int_eq(err.status, TRI_CORRUPT);
  }
}
END_TEST

START_TEST(bookkeeping_is_ignored) {
  tri_model_config plain = accept(llama, none),
                   c = accept(llama, CHANGES({"transformers_version", "\"4.40\""}, {"use_cache", "true"},
                                             {"initializer_range", "0.02"}, {"attention_dropout", "0.0"},
                                             {"pretraining_tp", "2"}, {"_name_or_path", "\"x\""},
                                             {"_some_private_note", "{\"a\":[1]}"}, {"pad_token_id", "null"},
                                             {"rope_scaling", "null"}, {"pruned_heads", "{}"},
                                             {"is_encoder_decoder", "false"}, {"id2label", "{\"0\":\"A\"}"},
                                             {"sliding_window", "null"} /* unknown, but says nothing */));
  ck_assert_int_eq(c.hidden_size, plain.hidden_size);
  ck_assert_mem_eq(c.attention.rope.inv_freq, plain.attention.rope.inv_freq, sizeof c.attention.rope.inv_freq);
}
END_TEST

START_TEST(values_reach_their_fields) {
  tri_model_config c =
      accept(llama, CHANGES({"dtype", "\"bfloat16\""}, {"bos_token_id", "1"}, {"eos_token_id", "[2,7]"},
                            {"tie_word_embeddings", "true"}, {"attention_bias", "true"}, {"mlp_bias", "true"},
                            {"head_dim", "32"}, {"hidden_act", "\"gelu\""}));
  ck_assert_str_eq(c.arch->model_type, "llama");
  ck_assert(c.hidden_size == 128 && c.num_layers == 4 && c.attention.num_heads == 8 && c.attention.num_kv_heads == 4);
  ck_assert(c.mlp.intermediate_size == 352 && c.vocab_size == 1000 && c.max_position_embeddings == 512);
  ck_assert(c.attention.head_dim == 32 && c.attention.rope.rotary_dim == 32 && c.norm.eps == 1e-5);
  ck_assert(c.dtype == TRI_BF16 && c.head.tie_word_embeddings && c.attention.bias && c.attention.o_bias && c.mlp.bias);
  ck_assert(c.mlp.act == TRI_ACT_GELU_ERF && c.mlp.gated && c.norm.kind == TRI_NORM_RMS &&
            c.attention.position == TRI_POS_ROPE);
  ck_assert_double_eq_tol(c.attention.scale, 1 / sqrt(32), 1e-15);
  ck_assert(c.bos_token_id == 1 && c.num_eos_token_ids == 2 && c.eos_token_ids[0] == 2 && c.eos_token_ids[1] == 7);

  c = accept(llama, CHANGES({"num_key_value_heads", NULL}, {"bos_token_id", "null"}, {"eos_token_id", NULL}));
  ck_assert(c.attention.num_kv_heads == 8 && c.attention.head_dim == 16 && c.bos_token_id == -1 &&
            c.num_eos_token_ids == 0);
  ck_assert(!c.attention.bias && !c.attention.o_bias && !c.mlp.bias && !c.head.tie_word_embeddings &&
            c.attention.rope_theta == 10000);
  ck_assert(isnan(c.generation.temperature) && c.generation.top_k == -1);

  c = accept(gpt2, CHANGES({"n_inner", "null"}));
  ck_assert(c.hidden_size == 64 && c.attention.num_heads == 8 && c.num_layers == 4 && c.mlp.intermediate_size == 256);
  ck_assert(c.norm.kind == TRI_NORM_LAYER && c.attention.position == TRI_POS_LEARNED &&
            c.max_position_embeddings == 256);
  ck_assert(c.head.tie_word_embeddings && c.attention.bias && c.attention.o_bias && c.mlp.bias &&
            c.mlp.act == TRI_ACT_GELU_TANH);
  ck_assert_double_eq_tol(c.attention.scale, 1 / sqrt(8), 1e-15);
  c = accept(gpt2,
             CHANGES({"scale_attn_weights", "false"}, {"scale_attn_by_inverse_layer_idx", "true"}, {"n_inner", "200"}));
  ck_assert(c.attention.scale == 1 && c.attention.scale_by_layer && c.mlp.intermediate_size == 200);

  c = accept(gpt_neox, none);
  ck_assert(c.norm.parallel_residual && c.attention.rope.rotary_dim == 2 && c.attention.bias &&
            c.mlp.act == TRI_ACT_GELU_ERF);
  c = accept(gpt_neox, CHANGES({"use_parallel_residual", "false"}, {"rotary_pct", "0.5"}, {"rotary_emb_base", "5000"},
                               {"attention_bias", "false"}));
  ck_assert(!c.norm.parallel_residual && c.attention.rope.rotary_dim == 4 && c.attention.rope_theta == 5000 &&
            !c.attention.bias && !c.attention.o_bias);
}
END_TEST

static tri_model_config of_class(const member *base, const char *name) {
  char list[100];
  snprintf(list, sizeof list, "[\"%s\"]", name);
  return accept(base, CHANGES({"architectures", list}, {"id2label", "{\"0\":\"A\",\"1\":\"B\",\"2\":\"C\"}"}));
}

/* What a class ends with. */
START_TEST(encoders) {
  static const struct {
    const member *base;
    const char *name;
    bool pooler, sequence, token;
    tri_act act;
  } classes[] = {
      {bert, "BertModel", true, false, false, TRI_ACT_TANH},
      {bert, "BertForSequenceClassification", true, true, false, TRI_ACT_TANH},
      {bert, "BertForTokenClassification", false, false, true, TRI_ACT_TANH},
      {roberta, "RobertaModel", true, false, false, TRI_ACT_TANH},
      {roberta, "RobertaForSequenceClassification", true, true, false, TRI_ACT_TANH},
      {roberta, "RobertaForTokenClassification", false, false, true, TRI_ACT_TANH},
      {distilbert, "DistilBertModel", false, false, false, TRI_ACT_RELU},
      {distilbert, "DistilBertForSequenceClassification", true, true, false, TRI_ACT_RELU},
      {distilbert, "DistilBertForTokenClassification", false, false, true, TRI_ACT_RELU},
      {albert, "AlbertModel", true, false, false, TRI_ACT_TANH},
      {albert, "AlbertForSequenceClassification", true, true, false, TRI_ACT_TANH},
      {albert, "AlbertForTokenClassification", false, false, true, TRI_ACT_TANH},
  };
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    tri_model_config c = of_class(classes[i].base, classes[i].name);
    bool classifies = classes[i].sequence || classes[i].token;
    ck_assert_msg(c.encoder && c.head.has_pooler == classes[i].pooler && c.head.sequence_head == classes[i].sequence &&
                      c.head.token_head == classes[i].token && c.head.has_classifier == classifies &&
                      c.head.num_labels == (classifies ? 3 : 0) && c.head.pool_act == classes[i].act &&
                      c.head.pooling == (classes[i].pooler ? TRI_POOL_FIRST : TRI_POOL_NONE),
                  "%s", classes[i].name);
    ck_assert(!c.head.tie_word_embeddings && c.norm.place == TRI_NORM_SUM && c.embed.norm && c.norm.no_final);
    ck_assert(c.shared_layers == (classes[i].base == albert) && c.embed.projected == (classes[i].base == albert));
  }
}
END_TEST

START_TEST(encoder_fields) {
  tri_model_config c = accept(roberta, none);
  ck_assert(c.embed.position_offset == 2 && c.max_position_embeddings == 512);
  c = accept(roberta, CHANGES({"pad_token_id", "0"}));
  ck_assert(c.embed.position_offset == 1 && c.max_position_embeddings == 513);
  c = accept(bert, CHANGES({"architectures", NULL}, {"position_embedding_type", "\"absolute\""}));
  ck_assert(c.head.has_pooler && !c.head.has_classifier && c.embed.position_offset == 0 &&
            c.embed.type_vocab_size == 2);
  c = accept(bert, CHANGES({"architectures", "[\"BertForSequenceClassification\"]"}));
  ck_assert_int_eq(c.head.num_labels, 2);
  c = accept(bert, CHANGES({"architectures", "[\"BertForSequenceClassification\"]"}, {"num_labels", "7"}));
  ck_assert_int_eq(c.head.num_labels, 7);
  refuse(bert, CHANGES({"architectures", "[\"BertForTokenClassification\"]"}, {"num_labels", "0"}), TRI_OUT_OF_RANGE,
         "num_labels");
  refuse(bert, CHANGES({"architectures", "[\"BertForTokenClassification\"]"}, {"id2label", "{}"}), TRI_OUT_OF_RANGE,
         "num_labels");
  c = accept(albert, CHANGES({"embedding_size", "64"}));
  ck_assert(c.embed.projected && c.embed.projects_last && c.embed.size == 64);
  c = accept(distilbert, none);
  ck_assert(c.hidden_size == 64 && c.num_layers == 4 && c.mlp.intermediate_size == 176 &&
            c.mlp.act == TRI_ACT_GELU_ERF);
}
END_TEST

START_TEST(activations) {
  static const struct {
    const char *name;
    tri_act act;
  } acts[] = {{"relu", TRI_ACT_RELU},
              {"gelu", TRI_ACT_GELU_ERF},
              {"gelu_new", TRI_ACT_GELU_TANH},
              {"gelu_pytorch_tanh", TRI_ACT_GELU_TANH},
              {"silu", TRI_ACT_SILU},
              {"swish", TRI_ACT_SILU},
              {"quick_gelu", TRI_ACT_QUICK_GELU}};
  for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
    char value[40];
    snprintf(value, sizeof value, "\"%s\"", acts[i].name);
    ck_assert_int_eq(accept(llama, CHANGES({"hidden_act", value})).mlp.act, acts[i].act);
    ck_assert_int_eq(accept(gpt2, CHANGES({"activation_function", value})).mlp.act, acts[i].act);
  }
}
END_TEST

/* ---- rotary kinds against their formulas ---- */

enum { DIM = 16, HALF = DIM / 2 }; /* the llama base has heads of 16 */

static double base_freq(double theta, int i) { return exp(-log(theta) * (2.0 * i / DIM)); }

static void check_freqs(const float *got, const double *want, const char *what) {
  for (int i = 0; i < HALF; i++)
    ck_assert_msg(fabs(got[i] - want[i]) <= 5e-7 * want[i], "%s: inv_freq[%d] is %.9g, not %.9g", what, i, got[i],
                  want[i]);
}

/* The same section in both spellings: as `rope_scaling` beside `rope_theta`, and as `rope_parameters` with it inside.
 */
static void both(const char *theta, const char *inside, tri_model_config c[2]) {
  char old[2048], new[2048];
  snprintf(old, sizeof old, "{%s}", inside);
  snprintf(new, sizeof new, "{\"rope_theta\":%s,%s}", theta, inside);
  c[0] = accept(llama, CHANGES({"rope_theta", theta}, {"rope_scaling", old}));
  c[1] = accept(llama, CHANGES({"rope_parameters", new}));
  ck_assert_double_eq(c[0].attention.rope_theta, c[1].attention.rope_theta);
  ck_assert_int_eq(c[0].attention.rope.kind, c[1].attention.rope.kind);
  ck_assert_int_eq(c[0].attention.rope.rotary_dim, DIM);
  ck_assert_int_eq(c[1].attention.rope.rotary_dim, DIM);
  ck_assert_int_eq(c[0].attention.rope.original_max_len, c[1].attention.rope.original_max_len);
  ck_assert_float_eq(c[0].attention.rope.attention_scale, c[1].attention.rope.attention_scale);
  ck_assert_mem_eq(c[0].attention.rope.inv_freq, c[1].attention.rope.inv_freq, sizeof c[0].attention.rope.inv_freq);
  ck_assert_mem_eq(c[0].attention.rope.inv_freq_long, c[1].attention.rope.inv_freq_long,
                   sizeof c[0].attention.rope.inv_freq_long);
}

START_TEST(rope_default_and_linear) {
  tri_model_config c[2];
  double want[HALF];
  both("500000.0", "\"rope_type\":\"default\"", c);
  for (int i = 0; i < HALF; i++) want[i] = base_freq(500000, i);
  check_freqs(c[0].attention.rope.inv_freq, want, "default");
  ck_assert_int_eq(c[0].attention.rope.kind, TRI_ROPE_FIXED);
  ck_assert_float_eq(c[0].attention.rope.attention_scale, 1);
  both("10000", "\"type\":\"linear\",\"factor\":4.0", c);
  for (int i = 0; i < HALF; i++) want[i] = base_freq(10000, i) / 4;
  check_freqs(c[0].attention.rope.inv_freq, want, "linear");
  ck_assert_int_eq(c[0].attention.rope.kind, TRI_ROPE_FIXED);
}
END_TEST

START_TEST(rope_dynamic) {
  tri_model_config c[2];
  double want[HALF];
  both("10000", "\"type\":\"dynamic\",\"factor\":2.0", c);
  for (int i = 0; i < HALF; i++) want[i] = base_freq(10000, i);
  check_freqs(c[0].attention.rope.inv_freq, want, "dynamic");
  ck_assert_int_eq(c[0].attention.rope.kind, TRI_ROPE_DYNAMIC);
  ck_assert(c[0].attention.rope.base == 10000 && c[0].attention.rope.factor == 2 &&
            c[0].attention.rope.original_max_len == 512);
  both("10000", "\"type\":\"dynamic\",\"factor\":2.0,\"original_max_position_embeddings\":128", c);
  ck_assert_int_eq(c[0].attention.rope.original_max_len, 128);
}
END_TEST

START_TEST(rope_llama3) {
  tri_model_config c[2];
  double want[HALF];
  int kept = 0, slowed = 0, mixed = 0;
  both("10000",
       "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
       "\"original_max_position_embeddings\":128",
       c);
  for (int i = 0; i < HALF; i++) {
    double f = base_freq(10000, i), turns = 128 * f / (2 * M_PI); /* full turns over the original length */
    double share = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / (4 - 1);
    share == 0 ? slowed++ : share == 1 ? kept++ : mixed++;
    want[i] = f * share + f / 8 * (1 - share);
  }
  ck_assert(kept && slowed && mixed); /* the parameters reach all three ranges */
  check_freqs(c[0].attention.rope.inv_freq, want, "llama3");
  ck_assert_int_eq(c[0].attention.rope.kind, TRI_ROPE_FIXED);
}
END_TEST

static double ramp(double i, double low, double high) { return fmin(fmax((i - low) / (high - low), 0), 1); }

START_TEST(rope_yarn) {
  tri_model_config c[2];
  double want[HALF];
  for (int truncate = 1; truncate >= 0; truncate--) {
    char section[300];
    snprintf(section, sizeof section,
             "\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":256,\"beta_fast\":16,"
             "\"beta_slow\":2%s",
             truncate ? "" : ",\"truncate\":false");
    both("10000", section, c);
    /* The (fractional) index of the pair that makes `turns` full turns over the original length. */
    double index[2];
    for (int k = 0; k < 2; k++) index[k] = HALF * log(256 / (2 * M_PI * (k ? 2 : 16))) / log(10000);
    double low = truncate ? floor(index[0]) : index[0], high = truncate ? ceil(index[1]) : index[1];
    for (int i = 0; i < HALF; i++) {
      double slow = ramp(i, fmax(low, 0), fmin(high, DIM - 1)), f = base_freq(10000, i);
      want[i] = f * (1 - slow) + f / 4 * slow;
    }
    check_freqs(c[0].attention.rope.inv_freq, want, truncate ? "yarn" : "yarn without truncation");
    ck_assert_float_eq_tol(c[0].attention.rope.attention_scale, 0.1 * log(4) + 1, 1e-6);
  }
  both("10000", "\"rope_type\":\"yarn\",\"factor\":4.0,\"attention_factor\":0.75", c);
  ck_assert_float_eq(c[0].attention.rope.attention_scale, 0.75f);
  both("10000", "\"rope_type\":\"yarn\",\"factor\":4.0,\"mscale\":0.7,\"mscale_all_dim\":1.3", c);
  ck_assert_float_eq_tol(c[0].attention.rope.attention_scale, (0.07 * log(4) + 1) / (0.13 * log(4) + 1), 1e-6);
  both("10000", "\"rope_type\":\"yarn\",\"factor\":1.0", c);
  ck_assert_float_eq(c[0].attention.rope.attention_scale, 1);
}
END_TEST

START_TEST(rope_longrope) {
  static const char factors[] = "\"short_factor\":[1,1.1,1.2,1.3,1.4,1.5,1.6,1.7],\"long_factor\":[1,2,3,4,5,6,7,8]";
  tri_model_config c[2];
  double brief[HALF], extended[HALF];
  for (int i = 0; i < HALF; i++) {
    brief[i] = base_freq(10000, i) / (1 + 0.1 * i);
    extended[i] = base_freq(10000, i) / (1 + i);
  }
  char section[500];
  snprintf(section, sizeof section, "\"rope_type\":\"longrope\",\"original_max_position_embeddings\":128,%s", factors);
  both("10000", section, c);
  check_freqs(c[0].attention.rope.inv_freq, brief, "longrope short");
  check_freqs(c[0].attention.rope.inv_freq_long, extended, "longrope long");
  ck_assert_int_eq(c[0].attention.rope.kind, TRI_ROPE_BY_LENGTH);
  ck_assert_int_eq(c[0].attention.rope.original_max_len, 128);
  ck_assert_float_eq_tol(c[0].attention.rope.attention_scale, sqrt(1 + log(4) / log(128)), 1e-6); /* 512 / 128 */
  snprintf(section, sizeof section, "\"type\":\"su\",\"factor\":2,\"attention_factor\":1.25,%s", factors);
  both("10000", section, c);
  ck_assert_float_eq(c[0].attention.rope.attention_scale, 1.25f);
  /* Phi's place for the original length: beside the section. */
  snprintf(section, sizeof section, "{\"type\":\"longrope\",%s}", factors);
  tri_model_config beside =
      accept(llama, CHANGES({"rope_scaling", section}, {"original_max_position_embeddings", "128"}));
  ck_assert_int_eq(beside.attention.rope.original_max_len, 128);
  ck_assert_float_eq_tol(beside.attention.rope.attention_scale, sqrt(1 + log(4) / log(128)), 1e-6);
}
END_TEST

START_TEST(partial_rotary_in_both_spellings) {
  tri_model_config a = accept(gpt_neox, CHANGES({"rotary_pct", "0.5"}, {"rotary_emb_base", "5000"}));
  tri_model_config b = accept(
      gpt_neox,
      CHANGES({"rope_parameters", "{\"partial_rotary_factor\":0.5,\"rope_theta\":5000,\"rope_type\":\"default\"}"}));
  ck_assert_int_eq(a.attention.rope.rotary_dim, 4);
  ck_assert_int_eq(b.attention.rope.rotary_dim, 4);
  ck_assert_mem_eq(a.attention.rope.inv_freq, b.attention.rope.inv_freq, sizeof a.attention.rope.inv_freq);
}
END_TEST

START_TEST(dtype_in_both_spellings) {
  ck_assert_int_eq(accept(llama, CHANGES({"torch_dtype", "\"float16\""})).dtype, TRI_F16);
  ck_assert_int_eq(accept(llama, CHANGES({"dtype", "\"float16\""})).dtype, TRI_F16);
  ck_assert_int_eq(accept(llama, CHANGES({"dtype", "null"}, {"torch_dtype", "\"bfloat16\""})).dtype, TRI_BF16);
  ck_assert_int_eq(accept(llama, none).dtype, TRI_F32);
}
END_TEST

/* ---- generation_config.json ---- */

START_TEST(generation_defaults) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_int_eq(
      parse(llama, CHANGES({"eos_token_id", "2"}),
            "{\"temperature\":0.6,\"top_p\":0.9,\"top_k\":50,\"repetition_penalty\":1.1,\"do_sample\":true,"
            "\"eos_token_id\":[3,4],\"transformers_version\":\"5\",\"something_new\":{}}",
            &c, &err),
      TRI_OK);
  ck_assert(c.generation.temperature == 0.6 && c.generation.top_p == 0.9 && c.generation.top_k == 50 &&
            c.generation.repetition_penalty == 1.1);
  ck_assert(c.generation.do_sample && c.num_eos_token_ids == 2 && c.eos_token_ids[0] == 3 && c.eos_token_ids[1] == 4);
  ck_assert_int_eq(parse(llama, CHANGES({"eos_token_id", "2"}), "{}", &c, &err), TRI_OK);
  ck_assert(c.num_eos_token_ids == 1 && c.eos_token_ids[0] == 2 && isnan(c.generation.top_p) &&
            !c.generation.do_sample);
}
END_TEST

START_TEST(bad_generation_configs) {
  static const struct {
    const char *text;
    tri_status status;
    const char *field;
  } bad[] = {
      {"{\"eos_token_id\":-1}", TRI_INVALID_ARGUMENT, "eos_token_id"},
      {"{\"eos_token_id\":\"x\"}", TRI_INVALID_ARGUMENT, "eos_token_id"},
      {"{\"temperature\":\"hot\"}", TRI_INVALID_ARGUMENT, "temperature"},
      {"{\"temperature\":-1}", TRI_OUT_OF_RANGE, "temperature"},
      {"{\"top_p\":2}", TRI_OUT_OF_RANGE, "top_p"},
      {"{\"top_k\":1.5}", TRI_INVALID_ARGUMENT, "top_k"},
      {"{\"top_k\":-7}", TRI_OUT_OF_RANGE, "top_k"},
      {"{\"repetition_penalty\":0}", TRI_OUT_OF_RANGE, "repetition_penalty"},
      {"{\"repetition_penalty\":101}", TRI_OUT_OF_RANGE, "repetition_penalty"}, /* more than a request may say */
      {"{\"do_sample\":1}", TRI_INVALID_ARGUMENT, "do_sample"},
      {"[]", TRI_CORRUPT, "generation_config.json"},
      {"{", TRI_CORRUPT, ""},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tri_model_config c;
    tri_error err = {0};
    tri_status st = parse(llama, none, bad[i].text, &c, &err);
    ck_assert_msg(st == bad[i].status, "%s: %s", bad[i].text, tri_status_name(st));
    ck_assert_str_eq(err.field, bad[i].field);
  }
}
END_TEST

/* ---- folders ---- */

/* Every family's real configuration is read, and refused by name with one field more that could mean something. */
/* Returns whether a family is another one under a second model_type: all of its tables are the same. */
static bool is_second_name(const tri_arch *a, const tri_arch *of) {
  static const char *const names[][2] = {{"minimax", "minimax_m2"}, {"gte", "new"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(a->model_type, names[i][0]) && !strcmp(of->model_type, names[i][1]))
      return a->keys == of->keys && a->tensors == of->tensors && a->finish == of->finish;
  return false;
}

START_TEST(every_checkpoint_of_the_tests) {
  static const char more[] = "\"mystery_factor\": 2.5,";
  size_t families = 0, met = 0;
  bool seen[128] = {false};
  while (tri_arch_list[families]) families++;
  ck_assert_uint_le(families, sizeof seen / sizeof *seen);
  DIR *folder = opendir(TRI_TEST_DATA "/checkpoints");
  ck_assert_ptr_nonnull(folder);
  for (struct dirent *entry; (entry = readdir(folder));) {
    char path[1024], text[16384];
    snprintf(path, sizeof path, TRI_TEST_DATA "/checkpoints/%s/config.json", entry->d_name);
    FILE *f = fopen(path, "r");
    if (!f) continue; /* no folder of a checkpoint */
    size_t n = fread(text, 1, sizeof text - sizeof more, f);
    fclose(f);
    tri_model_config c;
    tri_error err = {0};
    ck_assert_msg(tri_model_config_parse(text, n, NULL, 0, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s: %s", path,
                  err.message);
    ck_assert(c.encoder || c.num_eos_token_ids > 0);
    for (size_t i = 0; i < families; i++)
      if ((tri_arch_list[i] == c.arch || is_second_name(tri_arch_list[i], c.arch)) && !seen[i]) seen[i] = true, met++;
    char *brace = memchr(text, '{', n);
    ck_assert_ptr_nonnull(brace);
    memmove(brace + sizeof more, brace + 1, n - (size_t)(brace + 1 - text));
    memcpy(brace + 1, more, sizeof more - 1);
    tri_error_clear(&err);
    ck_assert_int_eq(tri_model_config_parse(text, n + sizeof more - 1, NULL, 0, strict, &c, &err), TRI_UNKNOWN_FIELD);
    ck_assert_str_eq(err.field, "mystery_factor");
    ck_assert_msg(strstr(err.message, "mystery_factor"), "%s", err.message);
  }
  closedir(folder);
  ck_assert_msg(met == families, "%zu of %zu families have a checkpoint", met, families);
  tri_model_config c;
  tri_error err = {0};
  ck_assert_int_eq(tri_model_config_load(TRI_TEST_DATA "/no such folder", (tri_config_rules){0}, &c, &err),
                   TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "no such folder: nothing is downloaded"));
}
END_TEST

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  ck_assert_int_eq(fclose(f), 0);
}

/* What is wrong with a file of a folder is said with the file's path. */
START_TEST(the_file_at_fault) {
#define FOLDER TRI_TEST_SCRATCH "/config"
  static const char config[] = "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":4,\"n_head\":8,\"vocab_size\":509}";
  static const struct {
    const char *config, *generation, *message;
  } cases[] = {
      {config, "{\"temperature\":\"hot\"}", FOLDER "/generation_config.json: temperature must be a number"},
      {config, "[]", FOLDER "/generation_config.json: not an object"},
      {config, "{", FOLDER "/generation_config.json: JSON line 1"},
      {config, "version https://git-lfs.github.com/spec/v1\n", FOLDER "/generation_config.json is a Git LFS pointer"},
      {"[]", "{}", FOLDER "/config.json: not an object"},
      {"{\"model_type\":\"gpt2\"}", "{}", FOLDER "/config.json: there is no hidden_size"},
      {"{\"model_type\":\"mamba\"}", "{}",
       FOLDER "/config.json: model_type \"mamba\" is not supported: docs/models.md lists those that are"},
  };
  ck_assert(!mkdir(FOLDER, 0755) || errno == EEXIST);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_model_config c;
    tri_error err = {0};
    write_text(FOLDER "/config.json", cases[i].config);
    write_text(FOLDER "/generation_config.json", cases[i].generation);
    ck_assert_int_ne(tri_model_config_load(FOLDER, (tri_config_rules){0}, &c, &err), TRI_OK);
    ck_assert_msg(!strncmp(err.message, cases[i].message, strlen(cases[i].message)), "%s", err.message);
  }
  unlink(FOLDER "/config.json");
  unlink(FOLDER "/generation_config.json");
  rmdir(FOLDER);
#undef FOLDER
}
END_TEST

/* Numbers of a range are said in full. */
START_TEST(test_whole_numbers) {
  tri_model_config c;
  tri_error err = {0};
  static const char text[] = "{\"model_type\":\"llama\",\"hidden_size\":-5}";
  ck_assert_int_eq(tri_model_config_parse(text, strlen(text), NULL, 0, (tri_config_rules){0}, &c, &err),
                   TRI_OUT_OF_RANGE);
  ck_assert_str_eq(err.message, "hidden_size is -5, the range is 1 to 1048576");
}
END_TEST

Suite *suite_config(void) {
  Suite *s = suite_create("config");
  TCase *c = tcase_create("families");
  tcase_add_test(c, every_family_is_found);
  tcase_add_test(c, bad_values_of_every_familys_own_keys);
  tcase_add_loop_test(c, bad_values_of_common_keys, 0, 9);
  tcase_add_test(c, family_tables);
  suite_add_tcase(s, c);
  c = tcase_create("fields");
  tcase_add_test(c, test_whole_numbers);
  tcase_add_loop_test(c, refused_by_name, 0, sizeof refused / sizeof *refused);
  tcase_add_test(c, not_a_config);
  tcase_add_test(c, bookkeeping_is_ignored);
  tcase_add_test(c, values_reach_their_fields);
  tcase_add_test(c, encoders);
  tcase_add_test(c, encoder_fields);
  tcase_add_test(c, activations);
  tcase_add_test(c, dtype_in_both_spellings);
  tcase_add_test(c, partial_rotary_in_both_spellings);
  suite_add_tcase(s, c);
  c = tcase_create("rope");
  tcase_add_test(c, rope_default_and_linear);
  tcase_add_test(c, rope_dynamic);
  tcase_add_test(c, rope_llama3);
  tcase_add_test(c, rope_yarn);
  tcase_add_test(c, rope_longrope);
  suite_add_tcase(s, c);
  c = tcase_create("files");
  tcase_add_test(c, generation_defaults);
  tcase_add_test(c, bad_generation_configs);
  tcase_add_test(c, every_checkpoint_of_the_tests);
  tcase_add_test(c, the_file_at_fault);
  suite_add_tcase(s, c);
  return s;
}
