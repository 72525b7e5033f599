/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/sentence.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json.h"

/* modules.json lists the stages that make a vector. Only those that this program does are taken (transformer, pooling,
 * Dense layers, normalization, in this order), because any other one would change the vectors without an error. */
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
    {"pooling_mode_lasttoken", "lasttoken", TRI_POOL_LAST},
};
enum { NUM_POOLINGS = sizeof poolings / sizeof *poolings };

struct reader {
  tri_sentence_config *out;
  tri_pooling wish;
  const char *mode; /* that was found; NULL: none */
  int64_t width;    /* of what a Dense module reads */
  bool normalized;
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
      "the pooling %.40s is not supported, only cls, mean and lasttoken are (--pooling takes one of them all the same)",
      name);
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

/* ---- Dense ---- */

/* A class of torch.nn, with its modules before it. */
static tri_status read_activation(const tri_json *root, tri_act *out, tri_error *err) {
  static const struct {
    const char *name;
    tri_act act;
  } acts[] = {{"Identity", TRI_ACT_NONE},
              {"Tanh", TRI_ACT_TANH},
              {"ReLU", TRI_ACT_RELU},
              {"GELU", TRI_ACT_GELU_ERF},
              {"SiLU", TRI_ACT_SILU}};
  static const char key[] = "activation_function";
  const tri_json *v = tri_json_get(root, key);
  const char *name = tri_json_as_str(v, NULL), *dot = name ? strrchr(name, '.') : NULL;
  *out = TRI_ACT_TANH; /* sentence-transformers' own default */
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  for (size_t i = 0; name && i < sizeof acts / sizeof *acts; i++)
    if (!strcmp(dot ? dot + 1 : name, acts[i].name)) {
      *out = acts[i].act;
      return TRI_OK;
    }
  return tri_fail(err, TRI_UNSUPPORTED, key,
                  "%s \"%.60s\" is not supported, only Identity, Tanh, ReLU, GELU and SiLU are", key,
                  name ? name : "?");
}

static tri_status read_features(const tri_json *root, const char *key, int64_t *out, tri_error *err) {
  enum { MOST = 1 << 20 };
  if (tri_json_as_int(tri_json_get(root, key), out) && *out >= 1 && *out <= MOST) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s must be a number from 1 to %d", key, MOST);
}

static tri_status read_dense(const tri_json *root, struct reader *r, tri_dense_config *d) {
  const tri_json *bias = tri_json_get(root, "bias");
  d->bias = true;
  TRI_CHECK(read_features(root, "in_features", &d->in, r->err));
  TRI_CHECK(read_features(root, "out_features", &d->out, r->err));
  if (tri_json_kind_of(bias) != TRI_JSON_NULL && !tri_json_as_bool(bias, &d->bias))
    return tri_fail(r->err, TRI_INVALID_ARGUMENT, "bias", "bias must be true or false");
  if (d->in != r->width)
    return tri_fail(r->err, TRI_OUT_OF_RANGE, "in_features", "in_features is %lld, and what comes has %lld numbers",
                    (long long)d->in, (long long)r->width);
  return read_activation(root, &d->act, r->err);
}

/* Its numbers are read with the model's weights (tri_sentence_add_weights). */
static tri_status read_dense_file(const char *dir, const char *folder, struct reader *r) {
  tri_json_doc *doc = NULL;
  char name[128];
  int i = r->out->dense[0].on + r->out->dense[1].on;
  tri_dense_config *d = &r->out->dense[i];
  if (i == TRI_MAX_DENSE)
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json", "modules.json has more than %d Dense modules",
                    TRI_MAX_DENSE);
  snprintf(name, sizeof name, "%s/config.json", folder);
  tri_status st = read_object(dir, name, &doc, r->err);
  if (st == TRI_NOT_FOUND)
    return tri_fail(r->err, TRI_CORRUPT, name, "modules.json names %s, which is not there", name);
  if (st == TRI_OK) {
    st = read_dense(tri_json_root(doc), r, d);
    if (st != TRI_OK) tri_error_in_file(r->err, name);
  }
  tri_json_free(doc);
  d->on = true;
  r->width = d->out;
  snprintf(d->path, sizeof d->path, "%s", folder);
  return st;
}

tri_status tri_sentence_add_weights(const char *dir, const tri_model_config *c, tri_checkpoint *ckpt, tri_error *err) {
  for (int i = 0; i < tri_num_dense(c); i++) {
    char path[4096 + 128], prefix[sizeof TRI_DENSE_PREFIX + 16];
    snprintf(path, sizeof path, "%.4095s/%s/model.safetensors", dir, c->sentence.dense[i].path);
    snprintf(prefix, sizeof prefix, TRI_DENSE_PREFIX "%d.", i);
    TRI_CHECK(tri_checkpoint_add(ckpt, path, prefix, err));
  }
  return TRI_OK;
}

/* ---- modules.json ---- */

/* Returns whether a module may have this number: after a transformer and a pooling come Dense layers and, last, a
 * normalization. */
static bool is_in_order(const struct reader *r, size_t i, const char *kind) {
  if (i < 2) return !strcmp(kind, i ? "Pooling" : "Transformer");
  return !r->normalized && (!strcmp(kind, "Dense") || !strcmp(kind, "Normalize"));
}

/* Others would change the vectors. */
static tri_status read_module(const char *dir, const tri_json *module, size_t i, struct reader *r) {
  static const char package[] = "sentence_transformers.";
  const char *type = tri_json_get_str(module, "type"), *path = tri_json_get_str(module, "path");
  const char *dot = type ? strrchr(type, '.') : NULL;
  if (!dot || !path || strlen(path) >= sizeof r->out->dense->path || strchr(path, '/') || !strcmp(path, ".."))
    return tri_fail(r->err, TRI_CORRUPT, "modules.json", "modules.json: module %zu has no type and path", i);
  if (strncmp(type, package, sizeof package - 1) != 0 || !is_in_order(r, i, dot + 1))
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json",
                    "modules.json: module %zu is %.100s, which is not supported here: only Transformer, Pooling, Dense "
                    "and Normalize are, in this order",
                    i, type);
  if (i == 0 && *path)
    return tri_fail(r->err, TRI_UNSUPPORTED, "modules.json",
                    "modules.json: the transformer lies in %s: only one beside modules.json is supported", path);
  if (i == 1) return read_pooling_file(dir, path, r);
  if (!strcmp(dot + 1, "Dense")) return read_dense_file(dir, path, r);
  r->out->normalize = r->normalized = i > 1;
  return TRI_OK;
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

static tri_status read_folder(const char *dir, tri_pooling wish, int64_t width, tri_sentence_config *out,
                              tri_error *err) {
  tri_json_doc *modules = NULL;
  tri_sentence_config s = {.on = true};
  struct reader r = {.out = &s, .wish = wish, .width = width, .err = err};
  tri_status st = read_object(dir, "modules.json", &modules, err);
  if (st == TRI_NOT_FOUND) return TRI_OK;
  TRI_TRY(st);
  TRI_TRY(read_modules(dir, tri_json_root(modules), &r));
  TRI_TRY(read_transformer_file(dir, &s, err));
  *out = s;
cleanup:
  tri_json_free(modules);
  return st;
}

/* ---- what a decoder is for ---- */

static tri_status read_token(const tri_json *root, const char *key, int64_t vocab_size, tri_sentence_use *out,
                             tri_error *err) {
  int64_t id;
  if (!tri_json_as_int(tri_json_get(root, key), &id) || id < 0 || id >= vocab_size)
    return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s must be an id below %lld", key, (long long)vocab_size);
  out->tokens[out->num_tokens++] = id;
  return TRI_OK;
}

static tri_status read_logit_score(const char *dir, const char *folder, int64_t vocab_size, tri_sentence_use *out,
                                   tri_error *err) {
  static const char no[] = "false_token_id", yes[] = "true_token_id";
  tri_json_doc *doc = NULL;
  char name[128];
  snprintf(name, sizeof name, "%.64s/config.json", folder);
  tri_status st = read_object(dir, name, &doc, err);
  if (st == TRI_NOT_FOUND) return tri_fail(err, TRI_CORRUPT, name, "modules.json names %s, which is not there", name);
  const tri_json *root = tri_json_root(doc);
  if (st == TRI_OK && tri_json_kind_of(tri_json_get(root, no)) != TRI_JSON_NULL)
    st = read_token(root, no, vocab_size, out, err);
  if (st == TRI_OK) st = read_token(root, yes, vocab_size, out, err);
  if (st != TRI_OK) tri_error_in_file(err, name);
  tri_json_free(doc);
  return st;
}

tri_status tri_sentence_use_read(const char *dir, int64_t vocab_size, tri_sentence_use *out, tri_error *err) {
  tri_json_doc *doc = NULL;
  *out = (tri_sentence_use){0};
  tri_status st = read_object(dir, "modules.json", &doc, err);
  if (st == TRI_NOT_FOUND) return TRI_OK;
  const tri_json *second = tri_json_at(tri_json_root(doc), 1);
  const char *type = tri_json_get_str(second, "type"), *path = tri_json_get_str(second, "path");
  const char *dot = type ? strrchr(type, '.') : NULL;
  out->pools = dot && !strcmp(dot, ".Pooling");
  if (st == TRI_OK && dot && path && !strchr(path, '/') && strcmp(path, "..") != 0 && !strcmp(dot, ".LogitScore"))
    st = read_logit_score(dir, path, vocab_size, out, err);
  tri_json_free(doc);
  return st;
}

/* ---- pooling ---- */

/* The pooling is, in this order, the wish's, that of modules.json, the model's own pooler, and the mean, of a decoder's
 * family the last state. */
tri_status tri_model_config_pool(const char *dir, tri_pooling wish, tri_model_config *c, tri_error *err) {
  bool free_choice = c->encoder && !c->head.has_classifier;
  if (!free_choice && wish != TRI_POOL_NONE)
    return tri_fail(err, TRI_UNSUPPORTED, "pooling", "pooling is for encoders without a classifier");
  if (!free_choice) return TRI_OK;
  TRI_CHECK(read_folder(dir, wish, c->hidden_size, &c->sentence, err));
  tri_pooling said = wish == TRI_POOL_NONE ? c->sentence.pooling : wish;
  if (said == TRI_POOL_NONE && c->head.has_pooler) return TRI_OK;
  tri_pooling usual = c->attention.causal ? TRI_POOL_LAST : TRI_POOL_MEAN;
  c->head.pooling = said == TRI_POOL_NONE ? usual : said;
  c->head.has_pooler = false; /* its tensors are then of no use */
  return TRI_OK;
}
