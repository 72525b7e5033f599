/* SPDX-License-Identifier: Apache-2.0 */
/* A render: a template's variables go in, and its text comes out with the spans of foreign bytes.
 *
 * Every byte of every string carries whether it comes from a foreign variable, such as a client's messages. The marks
 * follow their bytes through slices, filters and concatenation; in the end they become the spans in which a tokenizer
 * recognises no special tokens. A message that spells one thereby stays text.
 *
 * The variables lie in a scope of their own below the template's: `set` makes a new name over a variable and changes
 * none. */
#include "base/wait.h"
#include "text/jinja/exec.h"

/* Notes the spans that foreign bytes make. */
static tri_status take_spans(const jbuf *b, tri_jinja_output *out) {
  out->num_spans = 0;
  for (size_t at = 0; at < b->n;) {
    size_t from = at;
    uint8_t mark = b->marks[at];
    while (at < b->n && b->marks[at] == mark) at++;
    if (!mark) continue;
    TRI_CHECK(tri_array_reserve(&out->spans, out->num_spans, &out->cap_spans, 1, sizeof *out->spans));
    out->spans[out->num_spans++] = (tri_span){from, at};
  }
  return TRI_OK;
}

/* Makes the nulls of a list's objects soft. */
static void soften(jv list) {
  for (size_t i = 0; j_is(list, J_LIST) && i < list.list->n; i++) {
    jv item = list.list->items[i];
    for (size_t k = 0; j_is(item, J_MAP) && k < item.map->n; k++)
      if (j_is(item.map->pairs[k].value, J_NONE)) item.map->pairs[k].value = j_soft_none();
  }
}

static void set_variables(jx *x, const tri_jinja_input *in) {
  for (size_t i = 0; i < in->num_variables && j_ok(x); i++) {
    const tri_jinja_variable *v = &in->variables[i];
    x->own = v->own;
    if (v->json) {
      jv made = j_of_json(x, v->json, v->foreign);
      if (v->soft_nulls && j_ok(x)) soften(made);
      j_set(x, v->name, made);
    } else if (v->text) {
      j_set(x, v->name, j_text(x, v->text));
    } else {
      j_set(x, v->name, j_none());
    }
  }
}

static tri_status no_memory(tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, TRI_JINJA_LIMIT, "no memory for a chat template's text");
}

tri_status tri_jinja_render(const tri_jinja *t, const tri_jinja_input *in, tri_jinja_output *out, tri_error *err) {
  jx x = {.err = err, .now_s = in->now_s, .tables = &j_tables};
  jscope top;
  jbuf text;
  x.deadline_ns = tri_thread_cpu_ns() + TRI_JINJA_MOST_MS * INT64_C(1000000);
  if (tri_arena_create(1 << 16, &x.arena) != TRI_OK) return no_memory(err);
  text = j_begin(&x);
  x.out = &text;
  j_push(&x, &top);
  set_variables(&x, in);
  jscope body; /* what the template sets lies over its variables */
  j_push(&x, &body);
  j_run(&x, &t->body);
  out->text.len = 0;
  if (j_ok(&x)) x.st = tri_buf_append(&out->text, text.n ? text.s : "", text.n);
  if (j_ok(&x)) x.st = take_spans(&text, out);
  tri_arena_destroy(x.arena);
  return x.st == TRI_NO_MEMORY ? no_memory(err) : x.st;
}

void tri_jinja_output_free(tri_jinja_output *o) {
  tri_buf_free(&o->text);
  tri_free(o->spans);
  *o = (tri_jinja_output){0};
}
