/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/sentence.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json.h"

/* modules.json lists the stages that make a vector. Only those that this program does are taken (transformer, pooling,
 * normalization, in this order), because any other one, such as a Dense layer, would change the vectors without an
 * error. */
enum { MAX_FILE_BYTES = 1 << 20 };

/* Poolings as 1_Pooling/config.json says them: a switch for each, or in later versions one name. */
static const struct {
  const char *key, *name;
  tri_pooling pooling; /* NONE: not supported */
} poolings[] = {
    {"pooling_mode_cls_token", "cls", TRI_POOL_FIRST},
    {"pooling_mode_mean_tokens", "mean", TRI_POOL_MEAN},
    {"pooling_mode_max_tokens", "max", TRI_POOL_NONE},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", TRI_POOL_NONE},
    {"pooling_mode_weightedmean_tokens", "weightedmean", TRI_POOL_NONE},
    {"pooling_mode_lasttoken", "lasttoken", TRI_POOL_NONE},
};
enum { NUM_POOLINGS = sizeof poolings / sizeof *poolings };

struct reader {
  tri_sentence_config *out;
  tri_pooling wish;
  const char *mode; /* that was found; NULL: none */
  int num_modes;
  tri_error *err;
};

/* Notes one of the poolings that a file asks for. key: in the file. With a wish (--pooling) all that the file says is
 * accepted, as the wish replaces it. */
static tri_status add_pooling(struct reader *r, const char *key, const char *name, tri_pooling pooling) {
  r->out->pooling = pooling;
  if (r->wish != TRI_POOL_NONE) return TRI_OK;
  if (r->mode)
    return tri_fail(r->err, TRI_UNSUPPORTED, key,
                    "pools by %s and by %s, one vector after the other: that is not supported", r->mode, name);
  r->mode = name;
  if (pooling != TRI_POOL_NONE) return TRI_OK;
  return tri_fail(
      r->err, TRI_UNSUPPORTED, key,
      "the pooling %.40s is not supported, only cls and mean are (--pooling takes one of them all the same)", name);
}

static tri_status read_switch(void *ctx, const char *key, const tri_json *value) {
  static const char prefix[] = "pooling_mode_";
  struct reader *r = ctx;
  bool on = false;
  if (strncmp(key, prefix, sizeof prefix - 1) != 0) return TRI_OK;
  if (!tri_json_as_bool(value, &on))
    return tri_fail(r->err, TRI_INVALID_ARGUMENT, key, "%.60s must be true or false", key);
  if (!on) return TRI_OK;
  for (int i = 0; i < NUM_POOLINGS; i++)
    if (!strcmp(key, poolings[i].key)) return add_pooling(r, key, poolings[i].name, poolings[i].pooling);
  return add_pooling(r, key, key + sizeof prefix - 1, TRI_POOL_NONE);
}

static tri_status read_pooling(struct reader *r, const tri_json *root) {
  static const char key[] = "pooling_mode";
  const tri_json *mode = tri_json_get(root, key);
  const char *name = tri_json_as_str(mode, NULL);
  if (tri_json_kind_of(mode) == TRI_JSON_NULL) {
    TRI_CHECK(tri_json_each(root, read_switch, r));
    if (r->mode || r->wish != TRI_POOL_NONE) return TRI_OK;
    return tri_fail(r->err, TRI_INVALID_ARGUMENT, key, "says no pooling");
  }
  if (!name) return tri_fail(r->err, TRI_INVALID_ARGUMENT, key, "%s must be a name", key);
  for (int i = 0; i < NUM_POOLINGS; i++)
    if (!strcmp(name, poolings[i].name)) return add_pooling(r, key, name, poolings[i].pooling);
  return add_pooling(r, key, name, TRI_POOL_NONE);
}

/* Reads DIR/NAME as an object. TRI_NOT_FOUND leaves *err as it was. */
static tri_status read_object(const char *dir, const char *name, tri_json_doc **doc, tri_error *err) {
  tri_error why = {0};
  char path[4096 + 256];
  snprintf(path, sizeof path, "%.4095s/%s", dir, name);
  tri_status st = tri_json_read_file(path, MAX_FILE_BYTES, doc, &why);
  if (st == TRI_NOT_FOUND) return st;
  return st == TRI_OK ? st : tri_fail(err, st, name, "%s", why.message);
}

static tri_status read_pooling_file(const char *dir, const char *folder, struct reader *r) {
  tri_json_doc *doc = NULL;
  char name[128];
  snprintf(name, sizeof name, "%s/config.json", folder);
  tri_status st = read_object(dir, name, &doc, r->err);
  if (st == TRI_NOT_FOUND && r->wish == TRI_POOL_NONE)
    st = tri_fail(r->err, TRI_CORRUPT, name, "modules.json names %s, which is not there", name);
  else if (st == TRI_OK) {
    st = read_pooling(r, tri_json_root(doc));
    if (st != TRI_OK) tri_error_in_file(r->err, name);
  }
  tri_json_free(doc);
  return st == TRI_NOT_FOUND ? TRI_OK : st;
}

/* A transformer, a pooling and perhaps a normalization, one after the other: more would change the vectors. */
static tri_status read_module(const char *dir, const tri_json *module, size_t i, struct reader *r) {
  static const char *const kinds[] = {"Transformer", "Pooling", "Normalize"};
  static const char package[] = "sentence_transformers.";
  const char *type = tri_json_get_str(module, "type"), *path = tri_json_get_str(module, "path");
  const char *dot = type ? strrchr(type, '.') : NULL;
  if (!dot || !path || strlen(path) > 64 || strchr(path, '/') || !strcmp(path, ".."))
    return tri_fail(r->err, TRI_CORRUPT, "modules.json", "modules.json: module %zu has no type and path", i);
  if (i > 2 || strncmp(type, package, sizeof package - 1) != 0 || strcmp(dot + 1, kinds[i]) != 0)
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json",
                    "modules.json: module %zu is %.100s, which is not supported here: only Transformer, Pooling and "
                    "Normalize are, in this order",
                    i, type);
  if (i == 0 && *path)
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json",
                    "modules.json: the transformer lies in %s: only one beside modules.json is supported", path);
  if (i == 2) r->out->normalize = true;
  return i == 1 ? read_pooling_file(dir, path, r) : TRI_OK;
}

static tri_status read_modules(const char *dir, const tri_json *list, struct reader *r) {
  size_t n = tri_json_size(list);
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY)
    return tri_fail(r->err, TRI_CORRUPT, "modules.json", "modules.json must be a list of modules");
  for (size_t i = 0; i < n; i++) TRI_CHECK(read_module(dir, tri_json_at(list, i), i, r));
  if (n < 2)
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json",
                    "modules.json has no Pooling: a vector of each token is not supported");
  return TRI_OK;
}

static tri_status read_transformer(const tri_json *root, tri_sentence_config *out, tri_error *err) {
  const tri_json *most = tri_json_get(root, "max_seq_length");
  bool lower = false;
  if (tri_json_kind_of(most) != TRI_JSON_NULL &&
      (!tri_json_as_int(most, &out->max_seq_length) || out->max_seq_length < 1 || out->max_seq_length > 1 << 24))
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_seq_length", "max_seq_length must be a number from 1 to %d", 1 << 24);
  if (tri_json_as_bool(tri_json_get(root, "do_lower_case"), &lower) && lower)
    return tri_fail(err, TRI_UNSUPPORTED, "do_lower_case",
                    "do_lower_case is not supported: texts are tokenized as they stand");
  return TRI_OK;
}

/* The file's name has the transformer's family in it. */
static tri_status read_transformer_file(const char *dir, tri_sentence_config *out, tri_error *err) {
  static const char *const families[] = {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta"};
  tri_json_doc *doc = NULL;
  char name[64];
  tri_status st = TRI_NOT_FOUND;
  for (size_t i = 0; st == TRI_NOT_FOUND && i < sizeof families / sizeof *families; i++) {
    snprintf(name, sizeof name, "sentence_%s_config.json", families[i]);
    st = read_object(dir, name, &doc, err);
  }
  if (st == TRI_OK) {
    st = read_transformer(tri_json_root(doc), out, err);
    if (st != TRI_OK) tri_error_in_file(err, name);
  }
  tri_json_free(doc);
  return st == TRI_NOT_FOUND ? TRI_OK : st;
}

static tri_status read_folder(const char *dir, tri_pooling wish, tri_sentence_config *out, tri_error *err) {
  tri_json_doc *modules = NULL, *prompts = NULL;
  tri_sentence_config s = {.on = true};
  struct reader r = {.out = &s, .wish = wish, .err = err};
  tri_status st = read_object(dir, "modules.json", &modules, err);
  if (st == TRI_NOT_FOUND) return TRI_OK;
  TRI_TRY(st);
  TRI_TRY(read_modules(dir, tri_json_root(modules), &r));
  TRI_TRY(read_transformer_file(dir, &s, err));
  st = read_object(dir, "config_sentence_transformers.json", &prompts, err);
  if (st != TRI_NOT_FOUND) TRI_TRY(st);
  st = TRI_OK;
  s.has_prompt = tri_json_get_str(tri_json_root(prompts), "default_prompt_name") != NULL;
  *out = s;
cleanup:
  tri_json_free(modules);
  tri_json_free(prompts);
  return st;
}

/* The pooling is, in this order, the wish's, that of modules.json, the model's own pooler, and the mean. */
tri_status tri_model_config_pool(const char *dir, tri_pooling wish, tri_model_config *c, tri_error *err) {
  bool free_choice = c->encoder && !c->head.has_classifier;
  if (!free_choice && wish != TRI_POOL_NONE)
    return tri_fail(err, TRI_UNSUPPORTED, "pooling", "pooling is for encoders without a classifier");
  if (!free_choice) return TRI_OK;
  TRI_CHECK(read_folder(dir, wish, &c->sentence, err));
  tri_pooling said = wish == TRI_POOL_NONE ? c->sentence.pooling : wish;
  if (said == TRI_POOL_NONE && c->head.has_pooler) return TRI_OK;
  c->head.pooling = said == TRI_POOL_NONE ? TRI_POOL_MEAN : said;
  c->head.has_pooler = false; /* its tensors are then of no use */
  return TRI_OK;
}
