/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme eval`: its options, and what they ask of the clusters. */
#include <string.h>

#include "tools/eval/eval.h"
#include "base/mem.h"
#include "base/standard_output.h"
#include "base/version.h"

static const char program[] = "trireme eval";
enum { MOST_TOKENS = 1 << 20 };

static const tri_option eval_table[] = {
    {TRI_OPT(eval_options, text), .name = "text", .metavar = "FILE",
     .help = "file with the text, or - for the standard input"},
    {TRI_OPT(eval_options, model), .name = "model", .metavar = "DIR",
     .help = "folder of the served model, for its tokenizer; without it the text must fit into the model's context"},
    {TRI_OPT(eval_options, window), .name = "window", .min = 2, .max = MOST_TOKENS, .fallback = "1024",
     .help = "tokens of a window; by default no more than the model's context"},
    {TRI_OPT(eval_options, stride), .name = "stride", .min = 0, .max = MOST_TOKENS, .fallback = "0",
     .help = "tokens from the beginning of a window to that of the next, less than --window; 0: half of a window"},
    {TRI_OPT(eval_options, concurrency), .name = "concurrency", .min = 1, .max = EVAL_MOST_IN_FLIGHT, .fallback = "16",
     .help = "requests in flight to each cluster"},
    {TRI_OPT(eval_options, json), .name = "json", .help = "print one JSON object"},
    {TRI_OPT(eval_options, against), .name = "against", .metavar = "ADDRESS", .group = "Comparison",
     .help = "address of a second coordinator, with the same tokenizer, to compare with"},
    {TRI_OPT(eval_options, against_server_key), .name = "against-server-key", .metavar = "KEY", .group = "Comparison",
     .help = "its public key; default: that of --server-key"},
    {TRI_OPT(eval_options, prompt_tokens), .name = "prompt-tokens", .min = 1, .max = MOST_TOKENS, .fallback = "32",
     .group = "Comparison", .help = "tokens of each window's beginning that both continue greedily"},
    {TRI_OPT(eval_options, max_tokens), .name = "max-tokens", .min = 0, .max = MOST_TOKENS, .fallback = "64",
     .group = "Comparison", .help = "tokens of a continuation; 0: no continuations"},
    CLI_CONNECTION_OPTIONS(eval_options, connection),
    CLI_RECONNECT_OPTION(eval_options, connection),
};

/* ---- what can be refused ---- */

static int check_options(const eval_options *o, const tri_options *parsed) {
  static const char *const comparing[] = {"against-server-key", "prompt-tokens", "max-tokens"};
  if (!o->text) return cli_usage(program, "--text says which file has the text");
  for (size_t i = 0; i < sizeof comparing / sizeof *comparing; i++)
    if (!o->against && tri_options_commanded(parsed, comparing[i]))
      return cli_usage(program, "--%s has no meaning without --against", comparing[i]);
  if (o->stride >= o->window)
    return cli_usage(program,
                     "--stride %lld must be less than --window %lld: a token is predicted from those before it",
                     (long long)o->stride, (long long)o->window);
  return TRI_EXIT_OK;
}

/* Models with other tokens would see another text. */
static int check_same_tokens(const eval_side *sides) {
  const eval_side *a = &sides[0], *b = &sides[1];
  if (a->tokenizer != b->tokenizer)
    return eval_side_cannot(b, "its tokenizer.json is not the one of %.120s: the same text has other tokens",
                            a->endpoint);
  if (a->vocab_size && b->vocab_size && a->vocab_size != b->vocab_size)
    return eval_side_cannot(b, "its vocabulary has %llu ids, and that of %.120s has %llu",
                            (unsigned long long)b->vocab_size, a->endpoint, (unsigned long long)a->vocab_size);
  return TRI_EXIT_OK;
}

/* Returns the tokens of the longest prompt that a cluster takes: one less than its context, also where no answer is
 * asked for. 0: not known. */
static size_t longest_prompt(const eval_side *s) { return s->max_model_len ? (size_t)s->max_model_len - 1 : 0; }

/* Returns why a cluster cannot have these windows and continuations, as an exit code. */
static int check_lengths(const eval_side *s, const eval_plan *p) {
  unsigned long long limit = s->max_model_len;
  if (!limit) return TRI_EXIT_OK;
  if (p->window >= limit)
    return eval_side_cannot(s, "--window %zu: the limit is %llu, one less than max_model_len", p->window, limit - 1);
  if (p->max_tokens && p->prompt_tokens + p->max_tokens > limit)
    return eval_side_cannot(s, "--prompt-tokens %zu and --max-tokens %zu: the limit for both is max_model_len %llu",
                            p->prompt_tokens, p->max_tokens, limit);
  return TRI_EXIT_OK;
}

/* ---- the run ---- */

static int make_plan(const eval_options *o, const tri_options *parsed, const eval_side *sides, size_t num,
                     eval_plan *p) {
  bool usual = !tri_options_given(parsed, "window");
  p->compare = num == 2;
  p->window = (size_t)o->window;
  for (size_t i = 0; i < num; i++)
    if (usual && longest_prompt(&sides[i]) && p->window > longest_prompt(&sides[i]))
      p->window = longest_prompt(&sides[i]);
  p->stride = o->stride ? (size_t)o->stride : p->window / 2;
  p->prompt_tokens = (size_t)o->prompt_tokens;
  p->max_tokens = p->compare ? (size_t)o->max_tokens : 0;
  p->concurrency = (size_t)o->concurrency;
  if (p->window < 2 || p->stride >= p->window)
    return eval_side_cannot(&sides[0],
                            "--stride %zu must be less than a window, of which %zu tokens fit into the context",
                            p->stride, p->window);
  int code = TRI_EXIT_OK;
  for (size_t i = 0; i < num && !code; i++) code = check_lengths(&sides[i], p);
  return code;
}

static int open_sides(const eval_options *o, eval_side *sides, size_t num) {
  cli_connection second = o->connection;
  second.endpoint = o->against;
  if (o->against_server_key) second.server_key = o->against_server_key;
  for (size_t i = 0; i < num; i++) sides[i].named = num == 2;
  int code = eval_side_open(&sides[0], &o->connection);
  if (!code && num == 2) code = eval_side_open(&sides[1], &second);
  if (!code && num == 2) code = check_same_tokens(sides);
  return code;
}

static int run(const eval_options *o, const tri_options *parsed, eval_side *sides, size_t num) {
  eval_plan plan = {0};
  char *text = NULL;
  uint32_t *ids = NULL;
  size_t len = 0;
  int code = check_options(o, parsed);
  if (!code) code = eval_read_text(o->text, &text, &len);
  if (!code) code = open_sides(o, sides, num);
  if (!code) code = make_plan(o, parsed, sides, num, &plan);
  if (!code) code = eval_tokens(&sides[0], o->model, text, len, &ids, &plan.tokens);
  if (!code && plan.tokens < 2)
    code = cli_usage(program, "%s has %zu token: the first one is not predicted, so that there must be 2", o->text,
                     plan.tokens);
  if (!code) {
    plan.ids = ids;
    plan.num_windows = eval_num_windows(plan.tokens, plan.window, plan.stride);
    cli_catch_signals();
    code = eval_ask(sides, num, &plan);
  }
  if (!code) eval_report(o, &plan, sides, num);
  tri_free(text);
  tri_free(ids);
  return code;
}

int main(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme eval",
      .usage = "[MODEL] --text FILE [OPTION]...",
      TRI_OPTIONS(eval_table),
      .arg_option = "model",
      .version = "trireme eval " TRIREME_VERSION,
      .config_file = true,
      .summary = "Measures the perplexity of a running cluster's model over a text, and with --against how far two "
                 "clusters agree, such as those of a model and its quantized form.",
      .epilog =
          "Each token but the first is predicted once: a window predicts those that the one before it has not "
          "reached,\n"
          "from at least --window less --stride tokens. Teacher-forced agreement compares both models at every place\n"
          "of the text, after the text's own tokens. Greedy agreement compares how both continue the beginning\n"
          "of each window; it counts nothing from the first difference on.\n\n"
          "Examples:\n"
          "  trireme eval DIR --text book.txt\n"
          "  trireme eval DIR --text book.txt --against ipc:///tmp/int8.sock --json\n"};
  eval_options o = {0};
  eval_side sides[2] = {{0}};
  tri_options *parsed = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return tri_stdout_end(program, code);
  code = run(&o, parsed, sides, o.against ? 2 : 1);
  eval_side_close(&sides[0]);
  eval_side_close(&sides[1]);
  tri_options_free(parsed);
  return tri_stdout_end(program, code);
}
