/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of sentence-transformers: which pooling, normalization and length their files ask for, and what is refused.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/sentence.h"

Suite *suite_sentence(void);

static const char dir[] = TRI_TEST_SCRATCH "/sentence";
static const char *const files[] = {"modules.json",
                                    "1_Pooling/config.json",
                                    "sentence_bert_config.json",
                                    "sentence_roberta_config.json",
                                    "config_sentence_transformers.json",
                                    "config.json"};

static void clear(void) {
  char path[4096];
  mkdir(dir, 0700);
  snprintf(path, sizeof path, "%s/1_Pooling", dir);
  mkdir(path, 0700);
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
      {"[" TWO "," MODULE(2, "2_Dense", OLD "Dense") "]", mean, TRI_UNSUPPORTED, "models.Dense"},
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
      {"[" TWO "]", "{\"pooling_mode_lasttoken\":true}", TRI_UNSUPPORTED, "pooling lasttoken"},
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

START_TEST(test_prompts) {
  static const char file[] = "config_sentence_transformers.json";
  tri_model_config c;
  tri_error err;
  ck_assert_int_eq(with_file(file, "{\"prompts\":{},\"default_prompt_name\":null}", &c, &err), TRI_OK);
  ck_assert(!c.sentence.has_prompt);
  ck_assert_int_eq(with_file(file, "{\"prompts\":{\"q\":\"query: \"},\"default_prompt_name\":\"q\"}", &c, &err),
                   TRI_OK);
  ck_assert(c.sentence.has_prompt);
  ck_assert_int_ne(with_file(file, "{", &c, &err), TRI_OK);
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
  tcase_add_test(t, test_prompts);
  suite_add_tcase(suite, t);
  return suite;
}
