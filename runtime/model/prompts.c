/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/prompts.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static const char file[] = "config_sentence_transformers.json";

void tri_prompts_free(tri_prompts *p) {
  for (size_t i = 0; i < p->count; i++) {
    tri_free(p->names[i]);
    tri_free(p->texts[i]);
  }
  tri_free(p->names);
  tri_free(p->texts);
  *p = (tri_prompts){0};
}

const char *tri_prompts_find(const tri_prompts *p, const char *name, size_t len) {
  for (size_t i = 0; i < p->count; i++)
    if (strlen(p->names[i]) == len && !memcmp(p->names[i], name, len)) return p->texts[i];
  return NULL;
}

struct reader {
  tri_prompts *prompts;
  tri_error *err;
};

static tri_status read_prompt(void *ctx, const char *key, const tri_json *value) {
  struct reader *r = ctx;
  tri_prompts *p = r->prompts;
  size_t len = 0;
  const char *text = tri_json_as_str(value, &len);
  if (!text || memchr(text, 0, len))
    return tri_fail(r->err, TRI_INVALID_ARGUMENT, "prompts", "prompts.%.60s must be a text", key);
  if (len > TRI_PROMPT_BYTES || strlen(key) > TRI_PROMPT_NAME_BYTES)
    return tri_fail(r->err, TRI_TOO_LARGE, "prompts", "prompts.%.60s has %zu bytes, the limit is %d, of its name %d",
                    key, len, TRI_PROMPT_BYTES, TRI_PROMPT_NAME_BYTES);
  char *name = tri_strdup(key), *copy = tri_strndup(text, len);
  if (!name || !copy) {
    tri_free(name);
    tri_free(copy);
    return tri_fail(r->err, TRI_NO_MEMORY, "prompts", "no memory for prompts");
  }
  p->names[p->count] = name;
  p->texts[p->count++] = copy;
  return TRI_OK;
}

static tri_status read_usual(const tri_json *root, tri_prompts *p, tri_error *err) {
  static const char key[] = "default_prompt_name";
  const tri_json *v = tri_json_get(root, key);
  size_t len = 0;
  const char *name = tri_json_as_str(v, &len);
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  p->usual = name ? tri_prompts_find(p, name, len) : NULL;
  if (p->usual) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s \"%.60s\" is none of the prompts", key, name ? name : "?");
}

static tri_status read_root(const tri_json *root, tri_prompts *out, tri_error *err) {
  const tri_json *all = tri_json_get(root, "prompts");
  size_t n = tri_json_size(all);
  struct reader r = {out, err};
  if (tri_json_kind_of(root) != TRI_JSON_OBJECT) return tri_fail(err, TRI_CORRUPT, file, "not an object");
  if (tri_json_kind_of(all) != TRI_JSON_NULL && tri_json_kind_of(all) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "prompts", "prompts must be an object of name to text");
  if (n > TRI_MOST_PROMPTS)
    return tri_fail(err, TRI_TOO_LARGE, "prompts", "%zu prompts, the limit is %d", n, TRI_MOST_PROMPTS);
  out->names = tri_calloc(n + 1, sizeof *out->names);
  out->texts = tri_calloc(n + 1, sizeof *out->texts);
  if (!out->names || !out->texts) return tri_fail(err, TRI_NO_MEMORY, "prompts", "no memory for prompts");
  TRI_CHECK(tri_json_each(all, read_prompt, &r));
  return read_usual(root, out, err);
}

tri_status tri_prompts_load(const char *dir, tri_prompts *out, tri_error *err) {
  tri_json_doc *doc = NULL;
  char path[4096 + 64];
  tri_error why = {0};
  *out = (tri_prompts){0};
  snprintf(path, sizeof path, "%.4095s/%s", dir, file);
  tri_status st = tri_json_read_file(path, MAX_FILE_BYTES, &doc, &why);
  if (st == TRI_NOT_FOUND) return TRI_OK;
  if (st != TRI_OK) return tri_fail(err, st, file, "%s", why.message);
  st = read_root(tri_json_root(doc), out, err);
  if (st != TRI_OK) {
    tri_error_in_file(err, path);
    tri_prompts_free(out);
  }
  tri_json_free(doc);
  return st;
}
