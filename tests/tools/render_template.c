/* SPDX-License-Identifier: Apache-2.0 */
/* Renders chat templates for comparison with jinja2.
 *
 *   render_template <LINES.jsonl     a line for each: {"template": TEXT, "variables": {...}, "now": SECONDS}
 *
 * Prints a line for each: {"text": TEXT}, or {"error": {"kind": KIND, "message": TEXT}}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "base/mem.h"
#include "text/jinja/jinja.h"

enum { MOST_VARIABLES = 64 };

struct variables {
  tri_jinja_variable list[MOST_VARIABLES];
  size_t n;
};

static tri_status add(void *ctx, const char *key, const tri_json *value) {
  struct variables *v = ctx;
  if (v->n == MOST_VARIABLES) return TRI_OVERFLOW;
  v->list[v->n++] = (tri_jinja_variable){.name = key, .json = value, .foreign = !strcmp(key, "messages")};
  return TRI_OK;
}

/* Prints the line of b, with an object that is open, and empties it. */
static void print(tri_buf *b, const char *end) {
  tri_text_printf(b, "%s\n", end);
  if (!b->failed) fwrite(b->data, 1, b->len, stdout);
  tri_buf_free(b);
}

static void print_error(const tri_error *err) {
  tri_buf b = {0};
  tri_json_open(&b, NULL, '{');
  tri_json_open(&b, "error", '{');
  tri_json_put_word(&b, "kind", err->field);
  tri_json_put_word(&b, "message", err->message);
  print(&b, "}}");
}

static void print_text(const tri_jinja_output *out) {
  tri_buf b = {0};
  tri_json_open(&b, NULL, '{');
  tri_json_put_text(&b, "text", out->text.data ? out->text.data : "", out->text.len);
  print(&b, "}");
}

static tri_status render(const tri_json *line, tri_jinja_output *out, tri_error *err) {
  struct variables v = {.n = 0};
  tri_jinja *t = NULL;
  tri_jinja_input in = {.variables = v.list};
  size_t len = 0;
  const char *source = tri_json_as_str(tri_json_get(line, "template"), &len);
  if (!source) return tri_fail(err, TRI_CORRUPT, "template", "a line has no template");
  tri_json_get_int(line, "now", &in.now_s);
  tri_status st = tri_json_each(tri_json_get(line, "variables"), add, &v);
  in.num_variables = v.n;
  if (st == TRI_OK) st = tri_jinja_parse(source, len, &t, err);
  if (st == TRI_OK) st = tri_jinja_render(t, &in, out, err);
  tri_jinja_free(t);
  return st;
}

int main(void) {
  char *line = NULL;
  size_t cap = 0;
  tri_jinja_output out = {0};
  for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
    tri_json_doc *doc = NULL;
    tri_error err = {0};
    tri_status st = tri_json_parse(line, (size_t)n, &doc, &err);
    if (st == TRI_OK) st = render(tri_json_root(doc), &out, &err);
    if (st == TRI_OK)
      print_text(&out);
    else
      print_error(&err);
    tri_json_free(doc);
  }
  free(line); /* getline's */
  tri_jinja_output_free(&out);
  return 0;
}
