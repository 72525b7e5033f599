/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: each construct as jinja2 renders it, where foreign text lies, and what a hostile template may take.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "base/wait.h"
#include "text/jinja/jinja.h"

Suite *suite_jinja(void);

enum { MOST_VARIABLES = 32 };

struct variables {
  tri_jinja_variable list[MOST_VARIABLES];
  size_t n;
};

static tri_status add(void *ctx, const char *key, const tri_json *value) {
  struct variables *v = ctx;
  ck_assert_uint_lt(v->n, MOST_VARIABLES);
  v->list[v->n++] =
      (tri_jinja_variable){.name = key, .json = value, .foreign = !strcmp(key, "messages"), .own = "role"};
  return TRI_OK;
}

static tri_status render(const char *source, const struct variables *v, int64_t now, tri_jinja_output *out,
                         tri_error *err) {
  tri_jinja *t = NULL;
  tri_jinja_input in = {.variables = v->list, .num_variables = v->n, .now_s = now};
  tri_status st = tri_jinja_parse(source, strlen(source), &t, err);
  if (st == TRI_OK) st = tri_jinja_render(t, &in, out, err);
  tri_jinja_free(t);
  return st;
}

/* ---- jinja2's own texts ---- */

static void check_case(const tri_json *line, const struct variables *v, tri_jinja_output *out) {
  size_t source_len, len = 0;
  const char *source = tri_json_as_str(tri_json_get(line, "template"), &source_len);
  const tri_json *want = tri_json_get(line, "want");
  const char *text = tri_json_as_str(tri_json_get(want, "text"), &len);
  int64_t now = 0;
  tri_error err = {0};
  tri_json_get_int(line, "now", &now);
  tri_status st = render(source, v, now, out, &err);
  if (!text) {
    if (st == TRI_OK) ck_abort_msg("%s: \"%.*s\" where jinja2 fails", source, (int)out->text.len, out->text.data);
    if (!err.field[0] || !err.message[0]) ck_abort_msg("%s: an error without words", source);
    return;
  }
  if (st != TRI_OK) ck_abort_msg("%s: %s", source, err.message);
  if (out->text.len != len || memcmp(out->text.data, text, len) != 0)
    ck_abort_msg("%s: \"%.*s\", not \"%s\"", source, (int)out->text.len, out->text.data, text);
}

/* The first line of the file has the variables, each other one a template and what jinja2 makes of it. */
START_TEST(as_jinja2) {
  FILE *f = fopen(TRI_SOURCE "/tests/jinja/cases.jsonl", "re");
  char *line = NULL;
  size_t cap = 0;
  int cases = 0;
  struct variables v = {.n = 0};
  tri_json_doc *first = NULL, *doc = NULL;
  tri_jinja_output out = {0};
  ck_assert_ptr_nonnull(f);
  for (ssize_t n; (n = getline(&line, &cap, f)) > 0; cases++) {
    tri_json_doc **to = cases ? &doc : &first;
    ck_assert_int_eq(tri_json_parse(line, (size_t)n, to, NULL), TRI_OK);
    if (cases)
      check_case(tri_json_root(doc), &v, &out);
    else
      tri_json_each(tri_json_get(tri_json_root(first), "variables"), add, &v);
    tri_json_free(doc);
    doc = NULL;
  }
  ck_assert_int_gt(cases, 800);
  free(line); /* getline's */
  fclose(f);
  tri_json_free(first);
  tri_jinja_output_free(&out);
}
END_TEST

/* ---- where text comes from ---- */

static const struct origin {
  const char *source, *want; /* foreign bytes as they are, the template's own as dots */
} origins[] = {
    {"<{{ messages[0].content }}>", ".a<b>c."},
    {"{{ '<' + messages[0].content + '>' }}", ".a<b>c."},
    {"{{ '<' ~ messages[0].content ~ '>' }}", ".a<b>c."},
    {"{{ messages[0].content|upper }}!", "A<B>C."},
    {"{{ (' ' + messages[0].content + ' ')|trim }}", "a<b>c"},
    {"{{ messages[0].content[1:3] }}x", "<b."},
    {"{{ messages[0].content.replace('b', 'own') }}", "a<...>c"},
    {"{{ messages[0].content.split('<')|join('|') }}", "a.b>c"},
    {"{{ messages[0].content|tojson }}", ".a<b>c."},
    {"{% set x %}[{{ messages[0].content }}]{% endset %}{{ x }}", ".a<b>c."},
    {"{% macro m(t) %}({{ t }}){% endmacro %}{{ m(messages[0].content) }}", ".a<b>c."},
    {"{{ '%s!' % messages[0].content }}", "a<b>c."},
    {"{{ '{}!'.format(messages[0].content) }}", "a<b>c."},
    {"{{ '<' ~ messages[0].role ~ '>' }}", "......"}, /* its own member */
    {"{{ messages[0].name }}", "user"},
    {"{{ own }}", "...."},
    {"{% for c in messages[0].content %}{{ c }}-{% endfor %}", "a.<.b.>.c."},
    {"{{ [messages[0].content, 'x'] }}", "..a<b>c......."},
    {"{{ messages[0].content|length }}", "."},
};

START_TEST(foreign_bytes) {
  static const char json[] = "{\"messages\": [{\"role\": \"user\", \"name\": \"user\", \"content\": \"a<b>c\"}]}";
  tri_json_doc *doc = NULL;
  struct variables v = {.n = 0};
  tri_jinja_output out = {0};
  tri_error err = {0};
  const struct origin *o = &origins[_i];
  ck_assert_int_eq(tri_json_parse(json, strlen(json), &doc, NULL), TRI_OK);
  tri_json_each(tri_json_root(doc), add, &v);
  v.list[v.n++] = (tri_jinja_variable){.name = "own", .text = "mine"};
  ck_assert_msg(render(o->source, &v, 0, &out, &err) == TRI_OK, "%s", err.message);
  size_t from = 0;
  for (size_t s = 0; s < out.num_spans; s++) {
    ck_assert(out.spans[s].from >= from && out.spans[s].to > out.spans[s].from && out.spans[s].to <= out.text.len);
    memset(out.text.data + from, '.', out.spans[s].from - from);
    from = out.spans[s].to;
  }
  memset(out.text.data + from, '.', out.text.len - from);
  ck_assert_msg(out.text.len == strlen(o->want) && !memcmp(out.text.data, o->want, out.text.len), "%s: %.*s, not %s",
                o->source, (int)out.text.len, out.text.data, o->want);
  tri_json_free(doc);
  tri_jinja_output_free(&out);
}
END_TEST

/* ---- limits ---- */

/* Two lists that are larger than their memory, and two that nest. */
#define SHARED                                                                                                         \
  "{% set ns = namespace(x=[], y=[]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}"                          \
  "{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
#define NESTED                                                                                                         \
  "{% set ns = namespace(x=[], y=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}"                             \
  "{% set ns.y = [ns.y] %}{% endfor %}"
/* Something that is done with a text again and again. */
#define OF_EACH(text, what) "{% set s = " text " %}{% for i in range(99999) %}{% set x = " what " %}{% endfor %}"

static const struct limit {
  const char *source, *words;
} limits[] = {
    {"{% for a in range(9999) %}{% for b in range(9999) %}{% set x = a + b %}{% endfor %}{% endfor %}", "steps"},
    {"{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "MiB"},
    {"{{ range(100000)|list * 100000 }}", "MiB"},
    {"{{ 'x' * 99999999 }}", "MiB"},
    {"{{ range(100001) }}", "ranges larger than 100000"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "deep"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
     "deep"},
    {"{{ 9223372036854775807 + 1 }}", "64 bits"},
    {"{{ 1e30|int }}", "64 bits"},
    {"{{ '1e30'|int }}", "64 bits"},
    {"{{ '99999999999999999999'|int }}", "64 bits"},
    {"{{ '9223372036854775808'|int }}", "64 bits"},
    {"{{ ('9' * 4000)|int }}", "64 bits"},
    {"{{ 9223372036854775807|round(-1) }}", "64 bits"},
    {"{{ '%d' % 1e30 }}", "64 bits"},
    {"{{ '%999d' % 1 * 99999 }}", "MiB"},
    {SHARED "{{ ns.x == ns.y }}", "steps"},
    {SHARED "{{ ns.x < ns.y }}", "steps"},
    {SHARED "{{ ns.x in [ns.y] }}", "steps"},
    {SHARED "{{ {'a': ns.x} == {'a': ns.y} }}", "steps"},
    {SHARED "{{ ns.x|tojson }}", "MiB"},
    {SHARED "{{ ns.x }}", "MiB"},
    {NESTED "{{ ns.x == ns.y }}", "deep"},
    {NESTED "{{ ns.x < ns.y }}", "deep"},
    {"{% set l = range(99999)|list %}{% for i in l %}{% set x = -1 in l %}{% endfor %}", "it takes"},
    {"{% set s = 'a' * 8000000 %}{% for i in range(99999) %}{% set x = 'b' in s %}{% endfor %}", "it takes"},
    {"{{ ('a' * 8000000 + 'b').rfind('a' * 1000000 + 'c') }}", "it takes"},
    {"{{ range(0, 10, 5)[::9223372036854775807] }}", "64 bits"},
    {"{{ 'a'.center(99999999999) }}", "MiB"},
    {"{% set s = 'a' * 4000000 %}{% set b = s ~ 'b' %}{% set c = s ~ 'c' %}"
     "{% for i in range(99999) %}{% set x = b == c %}{% endfor %}",
     "it takes"},
    {OF_EACH("'a' * 200000", "s.count('a')"), "it takes"},
    {OF_EACH("'a' * 200000", "s.replace('a', '')"), "it takes"},
    {OF_EACH("' ' * 4000000", "s.split()"), "it takes"},
};

/* A sanitizer makes steps so slow that the time may be over before the steps are. */
static bool names_limit(const char *message, const char *words) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  if (!strcmp(words, "steps") && strstr(message, "it takes")) return true;
#endif
  return strstr(message, words) != NULL;
}

START_TEST(limits_of_a_render) {
  struct variables v = {.n = 0};
  tri_jinja_output out = {0};
  tri_error err = {0};
  int64_t begin = tri_thread_cpu_ns();
  ck_assert_int_eq(render(limits[_i].source, &v, 0, &out, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.field, TRI_JINJA_LIMIT);
  ck_assert_msg(names_limit(err.message, limits[_i].words), "%s: %s", limits[_i].source, err.message);
  ck_assert_int_lt(tri_thread_cpu_ns() - begin, 2 * TRI_JINJA_MOST_MS * INT64_C(1000000));
  tri_jinja_output_free(&out);
}
END_TEST

/* A text is looked for in linear time: no limit is reached. */
static const char *const searches[][2] = {
    {"{{ ('a' * 1000000 + 'b') in 'a' * 8000000 }}", "False"},
    {"{{ ('a' * 8000000).count('a' * 4000000 + 'b') }}", "0"},
    {"{{ ('a' * 4000000 + 'c').split('a' * 2000000 + 'b')|length }}", "1"},
    {"{{ ('a' * 2000000).replace('a' * 1000000 + 'b', '')|length }}", "2000000"},
    {"{{ ('a' * 8000000).find('a' * 4000000 + 'b') }}", "-1"},
};

START_TEST(linear_search) {
  struct variables v = {.n = 0};
  tri_jinja_output out = {0};
  tri_error err = {0};
  ck_assert_msg(render(searches[_i][0], &v, 0, &out, &err) == TRI_OK, "%s: %s", searches[_i][0], err.message);
  ck_assert_uint_eq(out.text.len, strlen(searches[_i][1]));
  ck_assert_int_eq(memcmp(out.text.data, searches[_i][1], out.text.len), 0);
  tri_jinja_output_free(&out);
}
END_TEST

/* A template that nests is refused before the stack is used up. */
START_TEST(nesting) {
  enum { DEEP = 100000 };
  static const char *const pieces[][3] = {{"{{ ", "(", "1"},     {"{{ ", "[", "1"},       {"{{ ", "not ", "1"},
                                          {"{{ ", "-", "1"},     {"", "{% if 1 %}", "x"}, {"", "{% for x in y %}", "x"},
                                          {"{{ ", "x if ", "1"}, {"{{ x", "[x", ""},      {"{{ ", "{'a':", "1"},
                                          {"{% set ", "(", "x"}};
  const char *const *p = pieces[_i];
  size_t each = strlen(p[1]), n = strlen(p[0]);
  char *source = tri_calloc(n + DEEP * each + strlen(p[2]) + 1, 1);
  tri_jinja *t = NULL;
  tri_error err = {0};
  ck_assert_ptr_nonnull(source);
  memcpy(source, p[0], n);
  for (int i = 0; i < DEEP; i++, n += each) memcpy(source + n, p[1], each);
  strcpy(source + n, p[2]);
  ck_assert_int_ne(tri_jinja_parse(source, n + strlen(p[2]), &t, &err), TRI_OK);
  ck_assert_str_ne(err.message, "");
  tri_free(source);
}
END_TEST

/* Chains are parsed in a loop. Those that nest when they are evaluated are refused before the stack is used up. */
START_TEST(chains) {
  enum { LONG = 100000 };
  static const char *const pieces[][3] = {{"{{ a", "|list", " }}"},
                                          {"{{ 'a'", "|upper", " }}"},
                                          {"{% filter upper", "|upper", " %}x{% endfilter %}"},
                                          {"{% set x |upper", "|upper", " %}x{% endset %}"},
                                          {"{% for x in a", "|list", " %}{% endfor %}"},
                                          {"{{ a", "[0]", " }}"},
                                          {"{{ 1", "+1", " }}"}};
  struct variables v = {.n = 0};
  tri_jinja_output out = {0};
  tri_error err = {0};
  const char *const *p = pieces[_i];
  size_t each = strlen(p[1]), n = strlen(p[0]);
  char *source = tri_calloc(n + LONG * each + strlen(p[2]) + 1, 1);
  ck_assert_ptr_nonnull(source);
  memcpy(source, p[0], n);
  for (int i = 0; i < LONG; i++, n += each) memcpy(source + n, p[1], each);
  strcpy(source + n, p[2]);
  ck_assert_int_eq(render(source, &v, 0, &out, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.field, TRI_JINJA_LIMIT);
  ck_assert_ptr_nonnull(strstr(err.message, "nested too deeply"));
  tri_free(source);
  tri_jinja_output_free(&out);
}
END_TEST

START_TEST(errors_say_where) {
  struct variables v = {.n = 0};
  tri_jinja_output out = {0};
  tri_error err = {0};
  ck_assert_int_eq(render("{{ (-8) ** 0.5 }}", &v, 0, &out, &err), TRI_INVALID_ARGUMENT); /* a complex number */
  ck_assert_str_eq(err.field, TRI_JINJA_TYPE);
  err = (tri_error){0};
  ck_assert_int_eq(render("a\nb\n{{ x.y }}", &v, 0, &out, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, TRI_JINJA_UNDEFINED);
  ck_assert_str_eq(err.message, "line 3 of the chat template: 'x' is undefined");
  err = (tri_error){0};
  ck_assert_int_eq(render("{{ raise_exception('Only user and ' ~ 'assistant') }}", &v, 0, &out, &err),
                   TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, TRI_JINJA_RAISED);
  ck_assert_str_eq(err.message, "Only user and assistant"); /* for the client: in the template's own words */
  err = (tri_error){0};
  ck_assert_int_eq(render("x\n{% if %}", &v, 0, &out, &err), TRI_CORRUPT);
  ck_assert_str_eq(err.field, TRI_JINJA_SYNTAX);
  ck_assert_ptr_nonnull(strstr(err.message, "line 2 "));
  ck_assert_int_eq(tri_jinja_parse("\xff", 1, &(tri_jinja *){NULL}, &err), TRI_CORRUPT);
  tri_jinja_output_free(&out);
}
END_TEST

Suite *suite_jinja(void) {
  Suite *suite = suite_create("jinja");
  TCase *t = tcase_create("jinja");
  tcase_set_timeout(t, 120);
  tcase_add_test(t, as_jinja2);
  tcase_add_loop_test(t, foreign_bytes, 0, sizeof origins / sizeof *origins);
  tcase_add_loop_test(t, limits_of_a_render, 0, sizeof limits / sizeof *limits);
  tcase_add_loop_test(t, linear_search, 0, sizeof searches / sizeof *searches);
  tcase_add_loop_test(t, nesting, 0, 10);
  tcase_add_loop_test(t, chains, 0, 7);
  tcase_add_test(t, errors_say_where);
  suite_add_tcase(suite, t);
  return suite;
}
