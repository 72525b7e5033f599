/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of sentence-transformers: which pooling, normalization and length their files ask for, and what is refused.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/prompts.h"
#include "runtime/model/sentence.h"

Suite *suite_sentence(void);

static const char dir[] = TRI_TEST_SCRATCH "/sentence";
static const char *const files[] = {"modules.json",
                                    "1_Pooling/config.json",
                                    "sentence_bert_config.json",
                                    "sentence_roberta_config.json",
                                    "config_sentence_transformers.json",
                                    "config.json",
                                    "tokenizer.json",
                                    "2_Dense/config.json",
                                    "3_Dense/config.json",
                                    "1_LogitScore/config.json"};
static const char *const folders[] = {"1_Pooling", "2_Dense", "3_Dense", "1_LogitScore"};

static void clear(void) {
  char path[4096];
  mkdir(dir, 0700);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, folders[i]);
    mkdir(path, 0700);
  }
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    unlink(path);
  }
}

static void put(const char *name, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

static const char bert[] =
    "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\",\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":128,\"vocab_size\":100,\"max_position_embeddings\":512,"
    "\"type_vocab_size\":2,\"layer_norm_eps\":1e-12,\"hidden_act\":\"gelu\"}";
#define MODULE(i, path, type) "{\"idx\":" #i ",\"name\":\"" #i "\",\"path\":\"" path "\",\"type\":\"" type "\"}"
#define OLD "sentence_transformers.models."
#define TWO MODULE(0, "", OLD "Transformer") "," MODULE(1, "1_Pooling", OLD "Pooling")
#define MODES(cls, mean, max)                                                                                          \
  "{\"word_embedding_dimension\":64,\"pooling_mode_cls_token\":" #cls ",\"pooling_mode_mean_tokens\":" #mean           \
  ",\"pooling_mode_max_tokens\":" #max ",\"pooling_mode_mean_sqrt_len_tokens\":false}"

/* Reads a folder with these files (NULL: without). */
static tri_status read_with(const char *modules, const char *pooling, tri_pooling wish, tri_model_config *c,
                            tri_error *err) {
  *err = (tri_error){0};
  clear();
  if (modules) put("modules.json", modules);
  if (pooling) put("1_Pooling/config.json", pooling);
  ck_assert_msg(tri_model_config_parse(bert, strlen(bert), NULL, 0, (tri_config_rules){0}, c, err) == TRI_OK, "%s",
                err->message);
  return tri_model_config_pool(dir, wish, c, err);
}

static tri_model_config accept(const char *modules, const char *pooling, tri_pooling wish) {
  tri_model_config c;
  tri_error err;
  ck_assert_msg(read_with(modules, pooling, wish, &c, &err) == TRI_OK, "%s", err.message);
  return c;
}

START_TEST(test_pooling) {
  tri_model_config c =
      accept("[" TWO "," MODULE(2, "2_Normalize", OLD "Normalize") "]", MODES(false, true, false), TRI_POOL_NONE);
  ck_assert(c.sentence.on && c.sentence.normalize && c.head.pooling == TRI_POOL_MEAN && !c.head.has_pooler);
  c = accept("[" TWO "]", MODES(true, false, false), TRI_POOL_NONE);
  ck_assert(!c.sentence.normalize && c.head.pooling == TRI_POOL_FIRST && !c.head.has_pooler); /* not BERT's pooler */
  c = accept("[" MODULE(0, "", "sentence_transformers.base.modules.transformer.Transformer") "," MODULE(
                 1, "1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling") "]",
             "{\"embedding_dimension\":64,\"pooling_mode\":\"cls\",\"include_prompt\":true}", TRI_POOL_NONE);
  ck_assert(c.head.pooling == TRI_POOL_FIRST && !c.head.has_pooler);
  c = accept("[" TWO "]", "{\"pooling_mode\":\"lasttoken\"}", TRI_POOL_NONE);
  ck_assert(c.head.pooling == TRI_POOL_LAST && !c.head.has_pooler);
}
END_TEST

/* Without modules.json nothing changes, whatever else lies there. */
START_TEST(test_other_folders) {
  tri_model_config c = accept(NULL, MODES(false, true, false), TRI_POOL_NONE);
  ck_assert(!c.sentence.on && c.head.has_pooler && c.head.pooling == TRI_POOL_FIRST);
  ck_assert_int_eq(tri_model_config_length(&c), 512);
}
END_TEST

/* An option wins, over a pooling that is not supported, too. */
START_TEST(test_wishes) {
  tri_model_config c = accept("[" TWO "]", MODES(false, true, false), TRI_POOL_FIRST);
  ck_assert(c.head.pooling == TRI_POOL_FIRST && c.sentence.pooling == TRI_POOL_MEAN);
  c = accept("[" TWO "]", MODES(false, false, true), TRI_POOL_MEAN);
  ck_assert(c.head.pooling == TRI_POOL_MEAN && c.sentence.pooling == TRI_POOL_NONE);
  c = accept("[" TWO "]", NULL, TRI_POOL_MEAN);
  ck_assert(c.head.pooling == TRI_POOL_MEAN);
}
END_TEST

START_TEST(test_refused) {
  static const char mean[] = MODES(false, true, false);
  static const struct {
    const char *modules, *pooling;
    tri_status status;
    const char *words;
  } cases[] = {
      {"[" TWO "," MODULE(2, "2_WordWeights", OLD "WordWeights") "]", mean, TRI_UNSUPPORTED, "models.WordWeights"},
      {"[" TWO "," MODULE(2, "2_LayerNorm", OLD "LayerNorm") "]", mean, TRI_UNSUPPORTED, "models.LayerNorm"},
      {"[" TWO "," MODULE(2, "", OLD "Normalize") "," MODULE(3, "", OLD "Normalize") "]", mean, TRI_UNSUPPORTED,
       "module 3"},
      {"[" MODULE(0, "", OLD "Transformer") "," MODULE(1, "", OLD "Normalize") "]", mean, TRI_UNSUPPORTED,
       "models.Normalize"},
      {"[" MODULE(0, "", OLD "CLIPModel") "]", mean, TRI_UNSUPPORTED, "models.CLIPModel"},
      {"[" MODULE(0, "", "custom_code.Transformer") "," MODULE(1, "1_Pooling", OLD "Pooling") "]", mean,
       TRI_UNSUPPORTED, "custom_code.Transformer"},
      {"[" MODULE(0, "0_Transformer", OLD "Transformer") "," MODULE(1, "1_Pooling", OLD "Pooling") "]", mean,
       TRI_UNSUPPORTED, "0_Transformer"},
      {"[" MODULE(0, "", OLD "Transformer") "," MODULE(1, "../up", OLD "Pooling") "]", mean, TRI_CORRUPT, "module 1"},
      {"[" MODULE(0, "", OLD "Transformer") "]", mean, TRI_UNSUPPORTED, "no Pooling"},
      {"{}", mean, TRI_CORRUPT, "list"},
      {"[1]", mean, TRI_CORRUPT, "module 0"},
      {"[" TWO "]", NULL, TRI_CORRUPT, "1_Pooling/config.json"},
      {"[" TWO "]", MODES(false, false, true), TRI_UNSUPPORTED, "pooling max"},
      {"[" TWO "]", MODES(false, false, false), TRI_INVALID_ARGUMENT, "no pooling"},
      {"[" TWO "]", MODES(true, true, false), TRI_UNSUPPORTED, "cls and by mean"},
      {"[" TWO "]", MODES(1, false, false), TRI_INVALID_ARGUMENT, "pooling_mode_cls_token"},
      {"[" TWO "]", "{\"pooling_mode_max_tokens\":true}", TRI_UNSUPPORTED, "pooling max"},
      {"[" TWO "]", "{\"pooling_mode_new_tokens\":true}", TRI_UNSUPPORTED, "pooling new_tokens"},
      {"[" TWO "]", "{\"pooling_mode\":\"weightedmean\"}", TRI_UNSUPPORTED, "pooling weightedmean"},
      {"[" TWO "]", "{\"pooling_mode\":[\"mean\",\"cls\"]}", TRI_INVALID_ARGUMENT, "must be a name"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_model_config c;
    tri_error err;
    tri_status st = read_with(cases[i].modules, cases[i].pooling, TRI_POOL_NONE, &c, &err);
    ck_assert_msg(st == cases[i].status, "case %zu: %s: %s", i, tri_status_text(st), err.message);
    ck_assert_msg(strstr(err.message, cases[i].words) != NULL, "case %zu: %s", i, err.message);
  }
}
END_TEST

static tri_status with_file(const char *name, const char *text, tri_model_config *c, tri_error *err) {
  accept("[" TWO "]", MODES(false, true, false), TRI_POOL_NONE);
  *err = (tri_error){0};
  ck_assert_int_eq(tri_model_config_parse(bert, strlen(bert), NULL, 0, (tri_config_rules){0}, c, err), TRI_OK);
  put(name, text);
  return tri_model_config_pool(dir, TRI_POOL_NONE, c, err);
}

START_TEST(test_lengths) {
  static const struct {
    const char *file, *text;
    int64_t length; /* 0: refused */
    const char *field;
  } cases[] = {
      {"sentence_bert_config.json", "{\"max_seq_length\":256,\"do_lower_case\":false}", 256, ""},
      {"sentence_roberta_config.json", "{\"max_seq_length\":128}", 128, ""},
      {"sentence_bert_config.json", "{\"max_seq_length\":null,\"transformer_task\":\"feature-extraction\"}", 512, ""},
      {"sentence_bert_config.json", "{\"max_seq_length\":1000}", 512, ""},
      {"sentence_bert_config.json", "{\"max_seq_length\":0}", 0, "max_seq_length"},
      {"sentence_bert_config.json", "{\"max_seq_length\":\"256\"}", 0, "max_seq_length"},
      {"sentence_bert_config.json", "{\"do_lower_case\":true}", 0, "do_lower_case"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_model_config c;
    tri_error err;
    tri_status st = with_file(cases[i].file, cases[i].text, &c, &err);
    ck_assert_msg((st == TRI_OK) == (cases[i].length > 0), "case %zu: %s", i, err.message);
    ck_assert_str_eq(err.field, cases[i].field);
    if (st == TRI_OK) ck_assert_int_eq(tri_model_config_length(&c), cases[i].length);
  }
}
END_TEST

/* ---- Dense modules ---- */

#define DENSE(i) MODULE(i, #i "_Dense", OLD "Dense")
#define NORM(i) MODULE(i, #i "_Normalize", OLD "Normalize")
#define IDENTITY "\"torch.nn.modules.linear.Identity\""

/* Reads a folder whose Dense modules have these files (NULL: without). */
static tri_status read_dense(const char *modules, const char *first, const char *second, tri_model_config *c,
                             tri_error *err) {
  accept("[" TWO "]", MODES(false, true, false), TRI_POOL_NONE);
  *err = (tri_error){0};
  ck_assert_int_eq(tri_model_config_parse(bert, strlen(bert), NULL, 0, (tri_config_rules){0}, c, err), TRI_OK);
  put("modules.json", modules);
  if (first) put("2_Dense/config.json", first);
  if (second) put("3_Dense/config.json", second);
  return tri_model_config_pool(dir, TRI_POOL_NONE, c, err);
}

START_TEST(test_dense) {
  static const char wide[] =
      "{\"in_features\":64,\"out_features\":96,\"bias\":false,\"activation_function\":" IDENTITY "}",
                    back[] = "{\"in_features\":96,\"out_features\":32,"
                             "\"activation_function\":\"torch.nn.modules.activation.GELU\"}";
  tri_model_config c;
  tri_error err;
  tri_status st = read_dense("[" TWO "," DENSE(2) "," DENSE(3) "," NORM(4) "]", wide, back, &c, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  const tri_dense_config *d = c.sentence.dense;
  ck_assert(tri_num_dense(&c) == 2 && c.sentence.normalize && c.head.pooling == TRI_POOL_MEAN);
  ck_assert(d[0].in == 64 && d[0].out == 96 && !d[0].bias && d[0].act == TRI_ACT_NONE && !strcmp(d[0].path, "2_Dense"));
  ck_assert(d[1].in == 96 && d[1].out == 32 && d[1].bias && d[1].act == TRI_ACT_GELU_ERF);
  ck_assert_int_eq(tri_model_config_width(&c), 32);
}
END_TEST

START_TEST(test_dense_refused) {
#define SAYS(in, out, more) "{\"in_features\":" in ",\"out_features\":" out more "}"
  static const char one[] = "[" TWO "," DENSE(2) "]";
  static const struct {
    const char *modules, *file;
    tri_status status;
    const char *field;
  } cases[] = {
      {one, NULL, TRI_CORRUPT, "2_Dense/config.json"},
      {one, "{", TRI_CORRUPT, "2_Dense/config.json"},
      {one, SAYS("64", "0", ""), TRI_OUT_OF_RANGE, "out_features"},
      {one, SAYS("64", "2000000", ""), TRI_OUT_OF_RANGE, "out_features"},
      {one, SAYS("\"64\"", "8", ""), TRI_OUT_OF_RANGE, "in_features"},
      {one, SAYS("65", "8", ""), TRI_OUT_OF_RANGE, "in_features"},
      {one, SAYS("64", "8", ",\"bias\":1"), TRI_INVALID_ARGUMENT, "bias"},
      {one, SAYS("64", "8", ",\"activation_function\":\"torch.nn.Softplus\""), TRI_UNSUPPORTED, "activation_function"},
      {one, SAYS("64", "8", ",\"activation_function\":3"), TRI_UNSUPPORTED, "activation_function"},
      {"[" TWO "," DENSE(2) "," DENSE(2) "," DENSE(2) "]", SAYS("64", "64", ""), TRI_UNSUPPORTED, "modules.json"},
      {"[" TWO "," NORM(2) "," DENSE(2) "]", SAYS("64", "64", ""), TRI_UNSUPPORTED, "modules.json"},
      {"[" TWO "," NORM(2) "," NORM(3) "]", SAYS("64", "64", ""), TRI_UNSUPPORTED, "modules.json"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_model_config c;
    tri_error err;
    tri_status st = read_dense(cases[i].modules, cases[i].file, NULL, &c, &err);
    ck_assert_msg(st == cases[i].status && !strcmp(err.field, cases[i].field), "case %zu: %s, %s: %s", i,
                  tri_status_text(st), err.field, err.message);
  }
}
END_TEST

/* ---- decoders ---- */

#define QWEN3                                                                                                          \
  "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":64,"                             \
  "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"                       \
  "\"intermediate_size\":128,\"vocab_size\":100,\"eos_token_id\":7"

/* Loads a decoder's folder with these files (NULL: without), and settles its pooling. */
static tri_status load_decoder(const char *more, const char *modules, const char *file, const char *text,
                               tri_model_config *c, tri_error *err) {
  char config[1024];
  *err = (tri_error){0};
  clear();
  snprintf(config, sizeof config, QWEN3 "%s}", more);
  put("config.json", config);
  if (modules) put("modules.json", modules);
  if (file) put(file, text);
  tri_status st = tri_model_config_load(dir, (tri_config_rules){0}, c, err);
  return st == TRI_OK ? tri_model_config_pool(dir, TRI_POOL_NONE, c, err) : st;
}

#define SCORE MODULE(1, "1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore")
#define SCORED "[" MODULE(0, "", OLD "Transformer") "," SCORE "]"

/* The class generates; what the folder is for, its modules say. */
START_TEST(test_decoders) {
  static const char last[] = "{\"pooling_mode_lasttoken\":true}", pooling[] = "1_Pooling/config.json";
  tri_model_config c;
  tri_error err;
  ck_assert_int_eq(load_decoder("", NULL, NULL, NULL, &c, &err), TRI_OK);
  ck_assert(!c.encoder && c.attention.causal && !c.head.has_classifier);
  ck_assert_int_eq(load_decoder("", "[" MODULE(0, "", OLD "Transformer") "]", NULL, NULL, &c, &err), TRI_OK);
  ck_assert(!c.encoder);
  ck_assert_int_eq(load_decoder("", "[" TWO "," NORM(2) "]", pooling, last, &c, &err), TRI_OK);
  ck_assert(c.encoder && c.attention.causal && c.head.pooling == TRI_POOL_LAST && c.sentence.normalize);
  ck_assert_int_eq(load_decoder("", "[" TWO "]", pooling, MODES(false, true, false), &c, &err), TRI_OK);
  ck_assert(c.encoder && c.attention.causal && c.head.pooling == TRI_POOL_MEAN && !c.sentence.normalize);
}
END_TEST

START_TEST(test_logit_scores) {
  static const char file[] = "1_LogitScore/config.json";
  tri_model_config c;
  tri_error err;
  ck_assert_int_eq(load_decoder("", SCORED, file, "{\"true_token_id\":9,\"false_token_id\":4}", &c, &err), TRI_OK);
  ck_assert(c.encoder && c.attention.causal && c.head.has_classifier && c.head.sequence_head);
  ck_assert(c.head.num_labels == 2 && c.head.class_tokens[0] == 4 && c.head.class_tokens[1] == 9);
  ck_assert(c.head.pooling == TRI_POOL_LAST && !c.head.classifier_bias);
  ck_assert_int_eq(load_decoder("", SCORED, file, "{\"true_token_id\":9,\"false_token_id\":null}", &c, &err), TRI_OK);
  ck_assert(c.head.num_labels == 1 && c.head.class_tokens[0] == 9);
  static const struct {
    const char *text;
    tri_status status;
    const char *field;
  } cases[] = {
      {NULL, TRI_CORRUPT, "1_LogitScore/config.json"},
      {"{}", TRI_OUT_OF_RANGE, "true_token_id"},
      {"{\"true_token_id\":100}", TRI_OUT_OF_RANGE, "true_token_id"},
      {"{\"true_token_id\":9,\"false_token_id\":-1}", TRI_OUT_OF_RANGE, "false_token_id"},
      {"{\"true_token_id\":9,\"false_token_id\":\"no\"}", TRI_OUT_OF_RANGE, "false_token_id"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_status st = load_decoder("", SCORED, cases[i].text ? file : NULL, cases[i].text, &c, &err);
    ck_assert_msg(st == cases[i].status && !strcmp(err.field, cases[i].field), "case %zu: %s: %s", i, err.field,
                  err.message);
  }
}
END_TEST

/* Tokens are texts, which the folder's tokenizer knows, or ids. */
START_TEST(test_class_tokens) {
  static const char tokenizer[] = "{\"added_tokens\":[{\"id\":8,\"content\":\"<yes>\"}],"
                                  "\"model\":{\"vocab\":{\"no\":3,\"yes\":5,\"far\":100}}}";
  static const struct {
    const char *more;
    tri_status status;
    const char *field;
    int64_t first, second;
  } cases[] = {
      {"[\"no\",\"yes\"],\"is_original_qwen3_reranker\":true", TRI_OK, "", 3, 5},
      {"[\"no\",\"<yes>\"]", TRI_OK, "", 3, 8},
      {"[11,\"yes\"]", TRI_OK, "", 11, 5},
      {"[\"no\",\"maybe\"]", TRI_NOT_FOUND, "classifier_from_token", 0, 0},
      {"[\"no\",\"far\"]", TRI_NOT_FOUND, "classifier_from_token", 0, 0},
      {"[\"no\"]", TRI_INVALID_ARGUMENT, "classifier_from_token", 0, 0},
      {"\"no\"", TRI_INVALID_ARGUMENT, "classifier_from_token", 0, 0},
      {"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", TRI_INVALID_ARGUMENT, "classifier_from_token", 0, 0},
      {"[3,100]", TRI_OUT_OF_RANGE, "classifier_from_token", 0, 0},
      {"[3,-1]", TRI_OUT_OF_RANGE, "classifier_from_token", 0, 0},
      {"[3,1.5]", TRI_OUT_OF_RANGE, "classifier_from_token", 0, 0},
      {"[3,4,5],\"is_original_qwen3_reranker\":true", TRI_INVALID_ARGUMENT, "is_original_qwen3_reranker", 0, 0},
      {"[3,4],\"is_original_qwen3_reranker\":1", TRI_INVALID_ARGUMENT, "is_original_qwen3_reranker", 0, 0},
      {"null,\"is_original_qwen3_reranker\":true", TRI_INVALID_ARGUMENT, "is_original_qwen3_reranker", 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char more[256];
    tri_model_config c;
    tri_error err;
    snprintf(more, sizeof more, ",\"classifier_from_token\":%s", cases[i].more);
    tri_status st = load_decoder(more, NULL, "tokenizer.json", tokenizer, &c, &err);
    ck_assert_msg(st == cases[i].status && !strcmp(err.field, cases[i].field), "case %zu: %s: %s", i, err.field,
                  err.message);
    if (st != TRI_OK) continue;
    ck_assert(c.encoder && c.head.num_labels == 2 && c.head.pooling == TRI_POOL_LAST);
    ck_assert(c.head.class_tokens[0] == cases[i].first && c.head.class_tokens[1] == cases[i].second);
  }
}
END_TEST

/* ---- prompts ---- */

START_TEST(test_prompts) {
  static const char file[] = "config_sentence_transformers.json";
  tri_prompts p;
  tri_error err = {0};
  clear();
  ck_assert(tri_prompts_load(dir, &p, &err) == TRI_OK && !p.count && !p.usual);
  tri_prompts_free(&p);
  put(file, "{\"prompts\":{\"query\":\"Instruct: find\\nQuery: \",\"document\":\"\"},\"default_prompt_name\":null,"
            "\"similarity_fn_name\":\"cosine\"}");
  ck_assert(tri_prompts_load(dir, &p, &err) == TRI_OK && p.count == 2 && !p.usual);
  ck_assert_str_eq(tri_prompts_find(&p, "query", 5), "Instruct: find\nQuery: ");
  ck_assert_str_eq(tri_prompts_find(&p, "document", 8), "");
  ck_assert_ptr_null(tri_prompts_find(&p, "quer", 4));
  tri_prompts_free(&p);
  put(file, "{\"prompts\":{\"q\":\"query: \"},\"default_prompt_name\":\"q\"}");
  ck_assert_int_eq(tri_prompts_load(dir, &p, &err), TRI_OK);
  ck_assert_str_eq(p.usual, "query: ");
  tri_prompts_free(&p);
  static const struct {
    const char *text;
    tri_status status;
    const char *field;
  } cases[] = {
      {"{", TRI_CORRUPT, "config_sentence_transformers.json"},
      {"[]", TRI_CORRUPT, "config_sentence_transformers.json"},
      {"{\"prompts\":[\"q\"]}", TRI_INVALID_ARGUMENT, "prompts"},
      {"{\"prompts\":{\"q\":1}}", TRI_INVALID_ARGUMENT, "prompts"},
      {"{\"prompts\":{\"q\":\"a\\u0000b\"}}", TRI_INVALID_ARGUMENT, "prompts"},
      {"{\"prompts\":{\"q\":\"\"},\"default_prompt_name\":\"p\"}", TRI_INVALID_ARGUMENT, "default_prompt_name"},
      {"{\"default_prompt_name\":7}", TRI_INVALID_ARGUMENT, "default_prompt_name"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put(file, cases[i].text);
    err = (tri_error){0};
    tri_status st = tri_prompts_load(dir, &p, &err);
    ck_assert_msg(st == cases[i].status && !strcmp(err.field, cases[i].field), "case %zu: %s: %s", i, err.field,
                  err.message);
  }
}
END_TEST

Suite *suite_sentence(void) {
  Suite *suite = suite_create("sentence");
  TCase *t = tcase_create("sentence");
  tcase_add_test(t, test_pooling);
  tcase_add_test(t, test_other_folders);
  tcase_add_test(t, test_wishes);
  tcase_add_test(t, test_refused);
  tcase_add_test(t, test_lengths);
  tcase_add_test(t, test_dense);
  tcase_add_test(t, test_dense_refused);
  tcase_add_test(t, test_decoders);
  tcase_add_test(t, test_logit_scores);
  tcase_add_test(t, test_class_tokens);
  tcase_add_test(t, test_prompts);
  suite_add_tcase(suite, t);
  return suite;
}
