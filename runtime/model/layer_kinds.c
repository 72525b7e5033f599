/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers of a model are of which kind: with a window, with experts, without rotation. A file names each layer's
 * kind (`layer_types`, `no_rope_layers`) or gives a rule; a list decides alone where there is one. */
#include <string.h>

#include "base/json/json.h"
#include "runtime/model/arch.h"

/* Returns whether a list has an entry for each layer. It may have those of layers that are stored and left out, too. */
static bool is_by_layer(const tri_model_config *c, const tri_json *list) {
  size_t n = tri_json_size(list), own = (size_t)c->num_layers;
  return tri_json_kind_of(list) == TRI_JSON_ARRAY && (n == own || n == own + (size_t)c->extra_layers);
}

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
  if (!is_by_layer(c, list))
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
  if (!is_by_layer(c, list))
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

/* A number; words such as "LLLG" are understood where layer_types says the same. transformers writes 0 where there is
 * no window. */
static tri_status read_pattern(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "sliding_window_pattern";
  const tri_json *v = tri_json_get(root, key);
  double n = (double)c->attention.global_every;
  bool listed = tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL;
  if (!c->attention.global_every || (listed && tri_json_as_str(v, NULL))) return TRI_OK;
  TRI_CHECK(tri_config_number(root, key, c->attention.window ? 1 : 0, TRI_MAX_LAYERS, &n, err));
  c->attention.global_every = (int64_t)n;
  local_but_every(c, root, c->attention.global_every);
  return TRI_OK;
}

/* ---- rotation ---- */

/* One number per layer: 0 for those that do not rotate. */
static tri_status read_no_rope_list(tri_model_config *c, const tri_json *list, const char *key, tri_error *err) {
  if (!is_by_layer(c, list))
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

/* ---- numbers by layer ---- */

tri_status tri_config_by_kind(tri_model_config *c, const tri_json *root, const char *key, double min, double max,
                              double *global, double *local, tri_error *err) {
  const tri_json *v = tri_json_get(root, key);
  double *const of[] = {global, local};
  bool said[2] = {false, false};
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(v) != TRI_JSON_ARRAY) {
    TRI_CHECK(tri_config_read_number(key, v, min, max, global, err));
    *local = *global;
    return TRI_OK;
  }
  if (!is_by_layer(c, v))
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a number or a list of %lld numbers", key,
                    (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    int kind = c->layer_flags[l] & TRI_LAYER_LOCAL ? 1 : 0;
    double x;
    TRI_CHECK(tri_config_read_number(key, tri_json_at(v, l), min, max, &x, err));
    if (said[kind] && x != *of[kind])
      return tri_fail(err, TRI_UNSUPPORTED, key,
                      "%s[%zu] is %.15g: only %.15g, as in earlier layers of its kind, is supported", key, l, x,
                      *of[kind]);
    *of[kind] = x;
    said[kind] = true;
  }
  return TRI_OK;
}

/* Notes the limits of a layer: those of an earlier one, or new ones. */
static tri_status set_limits(tri_model_config *c, size_t layer, tri_glu_limits x, const char *key, tri_error *err) {
  int i = 0;
  while (i < c->num_glu_limits && (c->glu_limits[i].experts != x.experts || c->glu_limits[i].mlp != x.mlp)) i++;
  if (i == TRI_MAX_GLU_LIMITS)
    return tri_fail(err, TRI_UNSUPPORTED, key, "%s[%zu]: layers with more than %d different limits are not supported",
                    key, layer, TRI_MAX_GLU_LIMITS - 1);
  if (i == c->num_glu_limits) c->glu_limits[c->num_glu_limits++] = x;
  c->layer_glu_limits[layer] = (uint8_t)i;
  return TRI_OK;
}

static tri_status read_limit(const tri_json *list, const char *key, size_t layer, double *out, tri_error *err) {
  const tri_json *v = tri_json_at(list, layer);
  double x = 0;
  if (tri_json_kind_of(v) != TRI_JSON_NULL) TRI_CHECK(tri_config_read_number(key, v, 0, 1e6, &x, err));
  if (x > 0 && x < 1e-3)
    return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s[%zu] is %.15g, the range is 0.001 to 1e6", key, layer, x);
  *out = x;
  return TRI_OK;
}

tri_status tri_config_glu_limits(tri_model_config *c, const tri_json *root, const char *experts, const char *mlp,
                                 tri_error *err) {
  const char *const keys[] = {experts, mlp};
  const tri_json *lists[2];
  for (int i = 0; i < 2; i++) {
    lists[i] = tri_json_get(root, keys[i]);
    if (tri_json_kind_of(lists[i]) != TRI_JSON_NULL && !is_by_layer(c, lists[i]))
      return tri_fail(err, TRI_INVALID_ARGUMENT, keys[i], "%s must be a list of %lld numbers", keys[i],
                      (long long)c->num_layers);
  }
  c->num_glu_limits = 1;
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    tri_glu_limits x = {0, 0};
    TRI_CHECK(read_limit(lists[0], keys[0], l, &x.experts, err));
    TRI_CHECK(read_limit(lists[1], keys[1], l, &x.mlp, err));
    TRI_CHECK(set_limits(c, l, x, x.experts > 0 ? keys[0] : keys[1], err));
  }
  return TRI_OK;
}
