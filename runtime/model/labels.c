/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"

enum { MAX_CONFIG_BYTES = 4 << 20 };

void tri_labels_free(tri_labels *l) {
  for (size_t i = 0; l->names && i < l->count; i++) tri_free(l->names[i]);
  tri_free(l->names);
  *l = (tri_labels){0};
}

struct reader {
  tri_labels *labels;
  tri_error *err;
};

/* "12": "NAME" */
static tri_status read_name(void *ctx, const char *key, const tri_json *value) {
  struct reader *r = ctx;
  char *end;
  bool digits = key[0] >= '0' && key[0] <= '9';
  unsigned long long i = strtoull(key, &end, 10);
  size_t len = 0;
  const char *name = tri_json_as_str(value, &len);
  if (!digits || *end || i >= r->labels->count)
    return tri_fail(r->err, TRI_OUT_OF_RANGE, "id2label", "id2label has the key \"%.40s\", the labels are 0 to %zu",
                    key, r->labels->count - 1);
  if (!name || len > TRI_LABEL_BYTES)
    return tri_fail(r->err, TRI_INVALID_ARGUMENT, "id2label", "id2label[%llu] must be a text of at most %d bytes", i,
                    TRI_LABEL_BYTES);
  tri_free(r->labels->names[i]); /* "1" and "01" */
  r->labels->names[i] = tri_strndup(name, len);
  return r->labels->names[i] ? TRI_OK : TRI_NO_MEMORY;
}

/* Names are in the order of tri_problem. A file without the key leaves SINGLE, which is 0. */
static tri_status read_problem(const tri_json *root, tri_problem *out, tri_error *err) {
  static const char *const names[] = {"single_label_classification", "multi_label_classification", "regression"};
  const tri_json *v = tri_json_get(root, "problem_type");
  const char *name = tri_json_as_str(v, NULL);
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  for (int i = 0; name && i < 3; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *out = (tri_problem)i;
    return TRI_OK;
  }
  return tri_fail(err, TRI_UNSUPPORTED, "problem_type", "problem_type \"%.60s\" is not known", name ? name : "?");
}

/* Labels that are tokens have their texts as names, where id2label has no others. */
static tri_status name_tokens(const tri_json *tokens, tri_labels *l) {
  for (size_t i = 0; i < l->count && i < tri_json_size(tokens); i++) {
    size_t len = 0;
    const char *text = tri_json_as_str(tri_json_at(tokens, i), &len);
    if (l->names[i] || !text || len > TRI_LABEL_BYTES) continue;
    if (!(l->names[i] = tri_strndup(text, len))) return TRI_NO_MEMORY;
  }
  return TRI_OK;
}

/* Names first, defaults for the gaps after: a file may name some of the labels. */
static tri_status read_root(const tri_json *root, size_t count, tri_labels *out, tri_error *err) {
  tri_labels l = {.count = count, .names = tri_calloc(count, sizeof *l.names)};
  const tri_json *names = tri_json_get(root, "id2label");
  struct reader r = {&l, err};
  char text[40];
  tri_status st = l.names ? TRI_OK : TRI_NO_MEMORY;
  TRI_TRY(st);
  if (tri_json_kind_of(names) != TRI_JSON_NULL && tri_json_kind_of(names) != TRI_JSON_OBJECT)
    TRI_TRY(tri_fail(err, TRI_INVALID_ARGUMENT, "id2label", "id2label must be an object of number to name"));
  TRI_TRY(tri_json_each(names, read_name, &r));
  TRI_TRY(read_problem(root, &l.problem, err));
  TRI_TRY(name_tokens(tri_json_get(root, "classifier_from_token"), &l));
  for (size_t i = 0; i < count; i++) {
    if (l.names[i]) continue;
    snprintf(text, sizeof text, "LABEL_%zu", i);
    if (!(l.names[i] = tri_strdup(text))) TRI_TRY(TRI_NO_MEMORY);
  }
  *out = l;
  l = (tri_labels){0};
cleanup:
  tri_labels_free(&l);
  return st == TRI_NO_MEMORY ? tri_fail(err, st, "id2label", "no memory for %zu labels", count) : st;
}

tri_status tri_labels_load(const char *dir, size_t count, tri_labels *out, tri_error *err) {
  tri_json_doc *doc = NULL;
  char path[4096];
  snprintf(path, sizeof path, "%s/config.json", dir);
  TRI_CHECK(tri_json_read_file(path, MAX_CONFIG_BYTES, &doc, err));
  tri_status st = read_root(tri_json_root(doc), count, out, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
  tri_json_free(doc);
  return st;
}
