/* SPDX-License-Identifier: Apache-2.0 */
/* Values of config.json: the entry of a key, and its value read and checked as the entry says. */

#include <string.h>

#include "base/json/json.h"
#include "base/text.h"
#include "runtime/model/arch.h"

/* Keys that most families share. */
static const tri_config_key common_keys[] = {
    TRI_INT_KEY("hidden_size", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("num_hidden_layers", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("num_attention_heads", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("intermediate_size", mlp.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("vocab_size", vocab_size, 1, 1 << 28),
    TRI_INT_KEY("max_position_embeddings", max_position_embeddings, 1, 1 << 28),
    TRI_BOOL_KEY("tie_word_embeddings", head.tie_word_embeddings),
    TRI_NUM_KEY("rope_theta", attention.rope_theta, 1, 1e12),
    TRI_NUM_KEY("partial_rotary_factor", attention.partial_rotary_factor, 0, 1),
    TRI_READ_KEY("classifier_from_token"), /* this and the next are read by tri_config_decoder_use */
    TRI_READ_KEY("is_original_qwen3_reranker"),
    {0},
};

/* Written as what must hold, so that NaN is refused, too. */
static tri_status check_range(const char *key, double x, double min, double max, tri_error *err) {
  if (x >= min && x <= max) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s is %.15g, the range is %.15g to %.15g", key, x, min, max);
}

tri_status tri_config_read_number(const char *key, const tri_json *v, double min, double max, double *out,
                                  tri_error *err) {
  double x;
  TRI_CHECK(tri_json_read_num(v, key, &x, err));
  TRI_CHECK(check_range(key, x, min, max, err));
  *out = x;
  return TRI_OK;
}

static tri_status read_bool(const char *key, const tri_json *v, bool *out, tri_error *err) {
  if (tri_json_as_bool(v, out)) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be true or false", key);
}

/* Fields are offsets into *c. An `also` of 0 means none: at 0 lies a pointer, which no key sets. */
tri_status tri_config_set(tri_model_config *c, const tri_config_key *k, const tri_json *v, tri_error *err) {
  void *at = (char *)c + k->field;
  bool on = false;
  int64_t integer;
  switch (k->type) {
  case TRI_KEY_READ:
  case TRI_KEY_IGNORE: break;
  case TRI_KEY_OFF:
    TRI_CHECK(read_bool(k->name, v, &on, err));
    if (on)
      return tri_fail(err, TRI_UNSUPPORTED, k->name, "%s is not supported (--ignore-config-key %s)", k->name, k->name);
    break;
  case TRI_KEY_BOOL:
    TRI_CHECK(read_bool(k->name, v, at, err));
    if (k->also) *(bool *)((char *)c + k->also) = *(bool *)at;
    break;
  case TRI_KEY_INT:
    TRI_CHECK(tri_json_read_int(v, k->name, &integer, err));
    TRI_CHECK(check_range(k->name, (double)integer, k->min, k->max, err));
    *(int64_t *)at = integer;
    break;
  case TRI_KEY_NUM: return tri_config_read_number(k->name, v, k->min, k->max, at, err);
  }
  return TRI_OK;
}

/* A family's own row goes before the common one of the same key: it may have another range or field. */
const tri_config_key *tri_config_key_find(const tri_arch *arch, const char *key) {
  const tri_config_key *tables[] = {arch->keys, common_keys};
  for (int t = 0; t < 2; t++)
    for (const tri_config_key *k = tables[t]; k->name; k++)
      if (tri_has_word(k->name, key)) return k;
  return NULL;
}

tri_status tri_config_bool(const tri_json *root, const char *key, bool *out, tri_error *err) {
  const tri_json *v = tri_json_get(root, key);
  return tri_json_kind_of(v) == TRI_JSON_NULL ? TRI_OK : read_bool(key, v, out, err);
}

tri_status tri_config_number(const tri_json *root, const char *key, double min, double max, double *out,
                             tri_error *err) {
  const tri_json *v = tri_json_get(root, key);
  return tri_json_kind_of(v) == TRI_JSON_NULL ? TRI_OK : tri_config_read_number(key, v, min, max, out, err);
}

tri_status tri_config_must_be(const tri_json *root, const char *key, const char *word, tri_error *err) {
  const tri_json *v = tri_json_get(root, key);
  const char *is = tri_json_as_str(v, NULL);
  if (tri_json_kind_of(v) == TRI_JSON_NULL || (is && !strcmp(is, word))) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.40s\" is not supported, only \"%s\"", key, is ? is : "?", word);
}

tri_status tri_config_shared_experts(tri_model_config *c, const tri_json *root, const char *key, double absent,
                                     tri_error *err) {
  double experts = absent;
  TRI_CHECK(tri_config_number(root, key, 0, 1024, &experts, err));
  c->moe.shared_size = (int64_t)experts * c->moe.intermediate_size;
  c->moe.has_shared = c->moe.shared_size > 0;
  return TRI_OK;
}

tri_status tri_config_unscaled(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool scaled = true;
  TRI_CHECK(tri_config_bool(root, "scale_attn_weights", &scaled, err));
  if (!scaled) c->attention.scale = 1;
  return TRI_OK;
}
