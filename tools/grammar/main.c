/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme grammar`: what becomes of a JSON Schema, a regular expression, a GBNF grammar or a list of texts where
 * answers must fit it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/options/options.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "runtime/grammar/choice.h"
#include "runtime/grammar/gbnf.h"
#include "runtime/grammar/instance.h"
#include "runtime/grammar/regex.h"
#include "runtime/grammar/schema.h"

enum { MOST_SCHEMA = 256 << 10, MOST_BYTES = 64 << 20, MOST_INSTANCES = 1000, DRAWN = 200 };

struct grammar_options {
  int64_t instances;
  uint64_t seed;
  bool white_space, json;
  const char *regex, *gbnf, *choice;
};

static const tri_option table[] = {
    {TRI_OPT(struct grammar_options, instances), .name = "instances", .min = 0, .max = MOST_INSTANCES, .fallback = "3",
     .help = "made-up answers to show"},
    {TRI_OPT(struct grammar_options, seed), .name = "seed", .fallback = "0", .help = "of these answers"},
    {TRI_OPT(struct grammar_options, white_space), .name = "white-space", .fallback = "true",
     .help = "white space may come between tokens of JSON"},
    {TRI_OPT(struct grammar_options, regex), .name = "regex", .metavar = "RE",
     .help = "a regular expression that answers match, instead of a schema"},
    {TRI_OPT(struct grammar_options, gbnf), .name = "gbnf", .metavar = "FILE",
     .help = "file with a GBNF grammar, instead of a schema"},
    {TRI_OPT(struct grammar_options, choice), .name = "choice", .metavar = "TEXTS",
     .help = "the texts that answers may be, with commas between them, instead of a schema"},
    {TRI_OPT(struct grammar_options, json), .name = "json", .help = "print one JSON object"},
};

static int fail(const tri_error *err, tri_status st) {
  fprintf(stderr, "trireme grammar: %s%s%s\n", err->field[0] ? err->field : "", err->field[0] ? ": " : "",
          err->message[0] ? err->message : tri_status_text(st));
  return tri_exit_code(st);
}

static double cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static tri_status print_instance(tri_configs *c, uint64_t *seed, bool json, bool is_first) {
  tri_buf text = {0}, line = {0};
  tri_status st = tri_grammar_instance(c, seed, DRAWN, &text);
  if (st == TRI_OK && json) {
    if (!is_first) tri_text_add(&line, ",", 1);
    tri_json_add_string(&line, text.len ? text.data : "", text.len);
  }
  if (st == TRI_OK && (text.failed || line.failed)) st = TRI_NO_MEMORY;
  const tri_buf *shown = json ? &line : &text;
  if (st == TRI_OK && shown->len) fwrite(shown->data, 1, shown->len, stdout);
  if (st == TRI_OK && !json) putchar('\n');
  tri_buf_free(&text);
  tri_buf_free(&line);
  return st;
}

static tri_status show(const struct grammar_options *o, const tri_net *net, double ms, tri_error *err) {
  tri_configs *c = NULL;
  uint64_t seed = o->seed;
  tri_status st = tri_configs_create(net, MOST_BYTES, &c);
  if (st != TRI_OK) return st;
  if (o->json)
    printf("{\"kept\":true,\"compile_ms\":%.3f,\"states\":%u,\"bytes\":%zu,\"instances\":[", ms,
           tri_net_num_states(net) - 1, tri_net_bytes(net));
  else
    printf("Answers can be made to fit. Compiled in %.3f ms of CPU time: %u states, %zu bytes.\n", ms,
           tri_net_num_states(net) - 1, tri_net_bytes(net));
  for (int64_t i = 0; i < o->instances && st == TRI_OK; i++) {
    st = print_instance(c, &seed, o->json, !i);
    if (st == TRI_NO_CAPACITY) tri_fail(err, st, "", "an answer needs more than %d MiB", MOST_BYTES >> 20);
  }
  if (o->json) printf("]}\n");
  tri_configs_destroy(c);
  return st;
}

/* ---- what answers must fit ---- */

static tri_status compile_schema(const struct grammar_options *o, const char *path, double *begun, tri_net **net,
                                 tri_error *err) {
  tri_schema_options schema = {.no_white_space = !o->white_space};
  tri_json_doc *doc;
  TRI_CHECK(tri_json_read_input(path, MOST_SCHEMA, &doc, err));
  *begun = cpu_ms();
  tri_status st = tri_schema_compile(tri_json_root(doc), &schema, net, err);
  tri_json_free(doc);
  return st;
}

static tri_status compile_gbnf(const char *path, double *begun, tri_net **net, tri_error *err) {
  char *text;
  size_t len;
  TRI_CHECK(tri_json_read_text(path, TRI_GBNF_MAX_BYTES, &text, &len, err));
  *begun = cpu_ms();
  tri_status st = tri_gbnf_compile(text, len, net, err);
  tri_free(text);
  return st;
}

/* Texts with commas between them. */
static tri_status compile_choice(const char *list, tri_net **net, tri_error *err) {
  size_t num = 1;
  for (const char *s = list; *s; s++) num += *s == ',';
  tri_choice_text *texts = tri_calloc(num, sizeof *texts);
  if (!texts) return TRI_NO_MEMORY;
  for (size_t i = 0; i < num; i++) {
    texts[i] = (tri_choice_text){list, strcspn(list, ",")};
    list += texts[i].len + 1;
  }
  tri_status st = tri_choice_compile(texts, num, net, err);
  tri_free(texts);
  return st;
}

static tri_status compile(const struct grammar_options *o, const char *path, double *begun, tri_net **net,
                          tri_error *err) {
  int given = (path != NULL) + (o->regex != NULL) + (o->gbnf != NULL) + (o->choice != NULL);
  *begun = cpu_ms();
  if (given > 1)
    return tri_fail(err, TRI_USAGE, "", "only one of FILE, --regex, --gbnf and --choice can be what answers must fit");
  if (o->regex) return tri_regex_compile(o->regex, strlen(o->regex), net, err);
  if (o->gbnf) return compile_gbnf(o->gbnf, begun, net, err);
  if (o->choice) return compile_choice(o->choice, net, err);
  return compile_schema(o, path, begun, net, err);
}

int main(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme grammar",
      .usage = "[OPTION]... [FILE]",
      TRI_OPTIONS(table),
      .summary =
          "Says whether answers can be made to fit a JSON Schema, a regular expression, a GBNF grammar or one of some "
          "texts, what it costs, and shows made-up ones. FILE, or the standard input, has the schema. Exit code 3 if "
          "something cannot be kept, with the place where it is.",
      .epilog = "Example:\n  echo '{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}' | trireme "
                "grammar\n  trireme grammar --regex '[A-Z]{2}-[0-9]{1,4}'\n",
      .max_args = 1,
      .version = "trireme grammar " TRIREME_VERSION,
  };
  struct grammar_options o = {0};
  tri_options *parsed = NULL;
  tri_net *net = NULL;
  tri_error err = {0};
  double begun;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  tri_status st = compile(&o, tri_options_arg(parsed, 0), &begun, &net, &err);
  if (st == TRI_OK) st = show(&o, net, cpu_ms() - begun, &err);
  code = st == TRI_OK ? TRI_EXIT_OK : fail(&err, st);
  tri_net_destroy(net);
  tri_options_free(parsed);
  return tri_stdout_end(spec.program, code);
}
