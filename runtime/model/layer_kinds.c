/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers of a model are of which kind: with a window, with experts, without rotation. A file names each layer's
 * kind (`layer_types`, `no_rope_layers`) or gives a rule; a list decides alone where there is one. */
#include <string.h>

#include "base/json/json.h"
#include "runtime/model/arch.h"

/* ---- windows and experts ---- */

/* A list of layer_types decides alone where there is one (read_layer_types); the rule of a family is for files without
 * it. */
void tri_config_local_layers(tri_model_config *c, const tri_json *root, int first, int step) {
  if (!c->attention.window || tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL) return;
  for (int l = first; l < c->num_layers; l += step) c->layer_flags[l] |= TRI_LAYER_LOCAL;
}

void tri_config_sparse_layers(tri_model_config *c, int first, int step) {
  for (int l = first; l < c->num_layers; l += step) c->layer_flags[l] |= TRI_LAYER_SPARSE;
}

static tri_status read_mlp_types(tri_model_config *c, const tri_json *list, const char *key, tri_error *err) {
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of %lld names", key, (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    const char *name = tri_json_as_str(tri_json_at(list, l), NULL);
    bool sparse = name && !strcmp(name, "sparse");
    if (!sparse && (!name || strcmp(name, "dense") != 0))
      return tri_fail(err, TRI_UNSUPPORTED, key, "%s[%zu] is \"%.40s\": only dense and sparse are supported", key, l,
                      name ? name : "?");
    if (sparse) c->layer_flags[l] |= TRI_LAYER_SPARSE;
  }
  return TRI_OK;
}

tri_status tri_config_dense_layers(tri_model_config *c, const tri_json *root, double dense, tri_error *err) {
  static const char key[] = "mlp_layer_types";
  const tri_json *list = tri_json_get(root, key);
  TRI_CHECK(tri_config_number(root, "first_k_dense_replace", 0, TRI_MAX_LAYERS, &dense, err));
  if (tri_json_kind_of(list) != TRI_JSON_NULL) return read_mlp_types(c, list, key, err);
  tri_config_sparse_layers(c, (int)dense, 1);
  return TRI_OK;
}

/* LOCAL are all layers but every Nth. */
static void local_but_every(tri_model_config *c, const tri_json *root, int64_t n) {
  if (!c->attention.window || tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL) return;
  for (int64_t l = 0; l < c->num_layers; l++)
    if ((l + 1) % n) c->layer_flags[l] |= TRI_LAYER_LOCAL;
}

/* One name per layer. */
static tri_status read_layer_types(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "layer_types";
  const tri_json *list = tri_json_get(root, key);
  if (tri_json_kind_of(list) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of %lld names", key, (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    const char *name = tri_json_as_str(tri_json_at(list, l), NULL);
    bool local = name && !strcmp(name, c->attention.chunked ? "chunked_attention" : "sliding_attention");
    bool indexed = name && c->attention.index_topk && !strcmp(name, "indexed_attention");
    if (!local && !indexed && (!name || strcmp(name, "full_attention")))
      return tri_fail(err, TRI_UNSUPPORTED, key,
                      "%s[%zu] is \"%.40s\": only full_attention and %s_attention are supported", key, l,
                      name ? name : "?", c->attention.chunked ? "chunked" : "sliding");
    if (local) c->layer_flags[l] |= TRI_LAYER_LOCAL;
    if (local && !c->attention.window)
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s[%zu] is %s, but there is no %s", key, l, name,
                      c->attention.chunked ? "attention_chunk_size" : "sliding_window");
  }
  return TRI_OK;
}

/* A number; words such as "LLLG" are understood where layer_types says the same. */
static tri_status read_pattern(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "sliding_window_pattern";
  const tri_json *v = tri_json_get(root, key);
  double n = (double)c->attention.global_every;
  bool listed = tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL;
  if (!c->attention.global_every || (listed && tri_json_as_str(v, NULL))) return TRI_OK;
  TRI_CHECK(tri_config_number(root, key, 1, TRI_MAX_LAYERS, &n, err));
  c->attention.global_every = (int64_t)n;
  local_but_every(c, root, c->attention.global_every);
  return TRI_OK;
}

/* ---- rotation ---- */

/* One number per layer: 0 for those that do not rotate. */
static tri_status read_no_rope_list(tri_model_config *c, const tri_json *list, const char *key, tri_error *err) {
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of %lld numbers", key, (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    int64_t rotates;
    if (!tri_json_as_int(tri_json_at(list, l), &rotates) || rotates < 0 || rotates > 1)
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s[%zu] must be 0 or 1", key, l);
    if (!rotates) c->layer_flags[l] |= TRI_LAYER_NO_ROPE;
  }
  return TRI_OK;
}

tri_status tri_config_no_rope_layers(tri_model_config *c, const tri_json *root, int every, tri_error *err) {
  static const char key[] = "no_rope_layers";
  const tri_json *list = tri_json_get(root, key);
  double n = every;
  TRI_CHECK(tri_config_number(root, "no_rope_layer_interval", 1, TRI_MAX_LAYERS, &n, err));
  bool empty = tri_json_kind_of(list) == TRI_JSON_ARRAY && !tri_json_size(list); /* as releases of Llama 4 have it */
  if (tri_json_kind_of(list) != TRI_JSON_NULL && !empty) return read_no_rope_list(c, list, key, err);
  for (int64_t l = (int64_t)n - 1; l < c->num_layers; l += (int64_t)n) c->layer_flags[l] |= TRI_LAYER_NO_ROPE;
  return TRI_OK;
}

tri_status tri_config_layer_kinds(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(read_layer_types(c, root, err));
  TRI_CHECK(read_pattern(c, root, err));
  if (c->attention.window_every) tri_config_local_layers(c, root, 0, c->attention.window_every);
  if (c->moe.all_layers) {
    c->moe.intermediate_size = c->mlp.intermediate_size;
    tri_config_sparse_layers(c, 0, 1);
  }
  for (int64_t l = 0; c->attention.global_no_rope && c->attention.window && l < c->num_layers; l++)
    if (!(c->layer_flags[l] & TRI_LAYER_LOCAL)) c->layer_flags[l] |= TRI_LAYER_NO_ROPE;
  return TRI_OK;
}
