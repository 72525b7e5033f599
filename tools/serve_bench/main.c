/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme bench serve` and `throughput`: their options, and a load after the other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/mem.h"
#include "base/standard_output.h"
#include "base/version.h"

static const char *const distributions[] = {"fixed", "uniform", "normal", NULL};

static const tri_option bench_table[] = {
    {TRI_OPT(bench_options, num_prompts), .name = "num-prompts", .min = 1, .max = BENCH_MAX_PROMPTS, .fallback = "200",
     .group = "Load", .help = "requests in all, or at each rate"},
    {TRI_OPT(bench_options, num_turns), .name = "num-turns", .min = 1, .max = 1000, .fallback = "1", .group = "Load",
     .help = "turns of a chat: each prompt is the chat so far and new random tokens, and is sent when the previous "
             "answer is complete; --num-prompts counts all turns"},
    {TRI_OPT(bench_options, request_rate), .name = "request-rate", .min = 0.001, .max = INFINITY, .fallback = "inf",
     .metavar = "PER_SECOND", .group = "Load", .help = "arrivals a second, as a Poisson process; inf: all at once"},
    {TRI_OPT(bench_options, request_rates), .name = "request-rates", .metavar = "RATE,RATE,...", .group = "Load",
     .help = "run a load at each of these rates, one after the other, with a line for each"},
    {TRI_OPT(bench_options, load_seconds), .name = "load-seconds", .max = 86400, .fallback = "0", .group = "Load",
     .help = "duration of a load, which sets the number of requests from the rate; 0: --num-prompts requests"},
    {TRI_OPT(bench_options, max_concurrency), .name = "max-concurrency", .min = 0, .max = 65536, .fallback = "0",
     .group = "Load", .help = "most requests at a time; 0: no limit"},
    {TRI_OPT(bench_options, random_input_len), .name = "random-input-len", .min = 1, .max = BENCH_MAX_LEN,
     .fallback = "128", .group = "Load", .help = "tokens of a random prompt"},
    {TRI_OPT(bench_options, distribution), .name = "input-len-distribution", .choices = distributions,
     .fallback = "fixed", .group = "Load",
     .help =
         "lengths of random prompts: fixed: --random-input-len; uniform: between --min-input-len and --max-input-len; "
         "normal: around their middle, with a sixth of their distance as the standard deviation, clipped to them"},
    {TRI_OPT(bench_options, min_input_len), .name = "min-input-len", .min = 1, .max = BENCH_MAX_LEN, .fallback = "5",
     .group = "Load", .help = "tokens of the shortest prompt, for uniform and normal"},
    {TRI_OPT(bench_options, max_input_len), .name = "max-input-len", .min = 1, .max = BENCH_MAX_LEN, .fallback = "500",
     .group = "Load", .help = "tokens of the longest prompt, for uniform and normal"},
    {TRI_OPT(bench_options, input_len_file), .name = "input-len-file", .metavar = "FILE", .group = "Load",
     .help = "file with the lengths of random prompts, one a line, used in turn"},
    {TRI_OPT(bench_options, random_output_len), .name = "random-output-len", .min = 1, .max = 1048576,
     .fallback = "128", .group = "Load", .help = "tokens to generate (max_tokens)"},
    {TRI_OPT(bench_options, prompt_file), .name = "prompt-file", .metavar = "FILE", .group = "Load",
     .help =
         "file with prompts, in the form of trireme submit --file, or of embed --file for an encoder, used in turn"},
    {TRI_OPT(bench_options, ignore_eos), .name = "ignore-eos", .fallback = "true", .group = "Load",
     .help = "generate the full length, past end-of-sequence tokens"},
    {TRI_OPT(bench_options, temperature), .name = "temperature", .min = 0, .max = 100, .fallback = "0", .group = "Load",
     .help = "sampling temperature"},
    {TRI_OPT(bench_options, seed), .name = "seed", .no_letters = true, .fallback = "0", .metavar = "N", .group = "Load",
     .help = "seed of prompts, their lengths and arrivals; lengths are the same at every rate, token ids are not"},
    {TRI_OPT(bench_options, floors), .name = "floors", .fallback = "true", .group = "Load",
     .help = "first have the workers measure their machines, if nothing runs, to show the limits next to the figures"},
    {TRI_OPT(bench_options, json), .name = "json",
     .help = "print one JSON object, or one for each rate and a last one"},
    CLI_CONNECTION_OPTIONS(bench_options, connection),
};

/* ---- what the options ask for ---- */

/* Refuses options that the others leave without a meaning, instead of ignoring them. */
static int check_lengths(const bench_options *o, const tri_options *parsed) {
  bool range = o->distribution != BENCH_FIXED;
  bool ends = tri_options_given(parsed, "min-input-len") || tri_options_given(parsed, "max-input-len");
  bool one = tri_options_given(parsed, "random-input-len");
  const char *program = "trireme bench";
  if (range + (o->input_len_file != NULL) + (o->prompt_file != NULL) > 1)
    return cli_usage(program, "--input-len-distribution, --input-len-file and --prompt-file exclude each other");
  if (ends && !range)
    return cli_usage(program,
                     "--min-input-len and --max-input-len belong to --input-len-distribution uniform or normal");
  if (one && (range || o->input_len_file))
    return cli_usage(program, "--random-input-len is one length for all prompts");
  if (o->min_input_len > o->max_input_len)
    return cli_usage(program, "--min-input-len %lld is more than --max-input-len %lld", (long long)o->min_input_len,
                     (long long)o->max_input_len);
  return TRI_EXIT_OK;
}

/* A turn is sent when the answer before it is complete, so that arrivals cannot follow a rate; and a chat that is cut
 * short would have fewer turns than the figures count with. */
static int check_turns(const bench_options *o, const tri_options *parsed) {
  const char *program = "trireme bench";
  if (o->num_turns == 1) return TRI_EXIT_OK;
  if (o->prompt_file || o->request_rates || o->load_seconds > 0 || tri_options_given(parsed, "request-rate"))
    return cli_usage(program, "--num-turns excludes --prompt-file, --request-rate, --request-rates and --load-seconds");
  if (o->num_prompts % o->num_turns)
    return cli_usage(program, "--num-prompts %lld makes no whole chats of --num-turns %lld", (long long)o->num_prompts,
                     (long long)o->num_turns);
  return TRI_EXIT_OK;
}

static int set_lengths(bench_run *b) {
  const bench_options *o = b->o;
  tri_error err = {0};
  b->lengths = (bench_lengths){.distribution = (bench_distribution)o->distribution,
                               .fixed = (uint32_t)o->random_input_len,
                               .min = (uint32_t)o->min_input_len,
                               .max = (uint32_t)o->max_input_len};
  tri_status st = o->input_len_file ? bench_lengths_read(&b->lengths, o->input_len_file, &err) : TRI_OK;
  if (st == TRI_OUT_OF_RANGE) return cli_usage("trireme bench", "%s", err.message);
  if (st != TRI_OK) return cli_failed("trireme bench", "%s", err.message[0] ? err.message : tri_status_text(st));
  b->ids = tri_malloc(bench_lengths_longest(&b->lengths), sizeof *b->ids);
  return b->ids ? TRI_EXIT_OK : cli_failed("trireme bench", "%s", tri_status_text(TRI_NO_MEMORY));
}

/* strtod also takes "inf" and "nan", which are no rates of a list. */
static int parse_rates(bench_run *b, const char *text) {
  for (const char *at = text;; at++) {
    char *end;
    double rate = strtod(at, &end);
    if (end == at || !isfinite(rate) || rate < 0.001 || (*end && *end != ','))
      return cli_usage("trireme bench", "--request-rates: \"%s\" is no list of rates like 50,100,200", text);
    if (b->num_rates == BENCH_MAX_RATES)
      return cli_usage("trireme bench", "--request-rates: more than %d rates", BENCH_MAX_RATES);
    b->rates[b->num_rates++] = rate;
    if (!*end) return TRI_EXIT_OK;
    at = end;
  }
}

static size_t num_requests(const bench_options *o, double rate) {
  return o->load_seconds > 0 ? (size_t)fmax(1, round(rate * o->load_seconds)) : (size_t)o->num_prompts;
}

static int set_rates(bench_run *b, const tri_options *parsed) {
  const bench_options *o = b->o;
  b->rates[0] = o->request_rate;
  if (o->request_rates && tri_options_given(parsed, "request-rate"))
    return cli_usage("trireme bench", "--request-rate and --request-rates exclude each other");
  if (o->load_seconds > 0 && tri_options_given(parsed, "num-prompts"))
    return cli_usage("trireme bench", "--num-prompts and --load-seconds exclude each other");
  if (!o->request_rates)
    b->num_rates = 1;
  else if (parse_rates(b, o->request_rates) != TRI_EXIT_OK)
    return TRI_EXIT_USAGE;
  for (size_t i = 0; i < b->num_rates; i++) {
    double num = b->rates[i] * o->load_seconds;
    if (o->load_seconds > 0 && !isfinite(num))
      return cli_usage("trireme bench", "--load-seconds needs a --request-rate: all at once takes no time");
    if (num > BENCH_MAX_PROMPTS)
      return cli_usage("trireme bench", "%g requests in %g s are more than %d", num, o->load_seconds,
                       BENCH_MAX_PROMPTS);
  }
  return TRI_EXIT_OK;
}

/* ---- the model that is served ---- */

/* An encoder generates nothing: what says how it should is a misunderstanding. */
static int check_encoder(const bench_run *b, const tri_options *parsed) {
  static const char *const generating[] = {"random-output-len", "ignore-eos", "temperature", "num-turns"};
  for (size_t i = 0; i < sizeof generating / sizeof *generating; i++) {
    trireme_error error = {.code = "unsupported"};
    if (!tri_options_given(parsed, generating[i])) continue;
    snprintf(error.field, sizeof error.field, "%s", generating[i]);
    snprintf(error.message, sizeof error.message,
             "the model served here, \"%.100s\", is an encoder: it generates nothing, so that --%s has no meaning",
             b->model, generating[i]);
    return cli_refused(&error);
  }
  return TRI_EXIT_OK;
}

/* A part of the requests would be refused, and the others measured. */
static int check_longest(const bench_run *b) {
  uint64_t longest = bench_lengths_longest(&b->lengths), turns = (uint64_t)b->o->num_turns;
  if (turns > 1) longest = bench_longest_chat(b, (size_t)b->o->num_prompts);
  trireme_error error = {.code = "too_large", .field = "token_ids"};
  if (b->o->prompt_file || !b->max_model_len || longest <= b->max_model_len) return TRI_EXIT_OK;
  snprintf(error.message, sizeof error.message, "%s of up to %llu tokens: the limit is max_model_len %llu",
           turns > 1 ? "chats" : "random prompts", (unsigned long long)longest, (unsigned long long)b->max_model_len);
  return cli_refused(&error);
}

static int ask_model(bench_run *b, const tri_options *parsed) {
  trireme_event e;
  int code = cli_ask_status(b->c, (int)b->o->connection.connect_timeout_ms, &e);
  if (code) return code;
  b->encoder = cli_is_encoder(&e.status);
  b->classify = b->encoder && !strcmp(e.status.task, "classify");
  b->vocab_size = e.status.vocab_size;
  b->max_model_len = e.status.max_model_len;
  snprintf(b->model, sizeof b->model, "%s", e.status.model);
  snprintf(b->task, sizeof b->task, "%s", e.status.task);
  code = b->encoder ? check_encoder(b, parsed) : TRI_EXIT_OK;
  return code ? code : check_longest(b);
}

/* ---- the run ---- */

/* Returns the exit code of a load that has been reported. */
static int say_what_failed(const bench_load *l) {
  if (l->interrupted)
    fprintf(stderr, "trireme: interrupted with %zu of %zu requests done: the results are partial\n", l->finished,
            l->num);
  if (l->failed)
    fprintf(stderr, "trireme: %zu of %zu requests failed; the first: %s\n", l->failed, l->num, l->first_error.message);
  return l->interrupted || l->failed ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}

static int run_one(bench_run *b, size_t i, bench_figures *f) {
  bench_load l = {0};
  bench_cost before = {0};
  bench_ask_cost(b, &before);
  int code = bench_load_run(b, i, num_requests(b->o, b->rates[i]), &l);
  if (!code) {
    bench_take_cost(b, &before, &l);
    code = bench_figure_out(&l, f) == TRI_OK ? TRI_EXIT_OK : TRI_EXIT_FAILED;
  }
  if (!code) {
    if (b->o->request_rates)
      bench_report_row(b, &l, f, i == 0);
    else
      bench_report(b, &l, f);
    code = say_what_failed(&l);
  }
  bench_load_free(&l);
  return code;
}

/* A load of which requests fail does not keep the next one from running. */
static int run_loads(bench_run *b) {
  bench_figures all[BENCH_MAX_RATES] = {0};
  int code = TRI_EXIT_OK;
  size_t done = 0;
  for (; done < b->num_rates && !cli_signal; done++) {
    int one = run_one(b, done, &all[done]);
    if (one != TRI_EXIT_OK) code = one;
    if (!(all[done].seconds > 0)) return code; /* it was not measured */
  }
  if (b->o->request_rates && done) bench_report_saturation(b, all, done);
  return done ? code : TRI_EXIT_FAILED;
}

/* All that can be refused (options, files, the model that is served) is refused before anything is measured. */
static int run(bench_run *b, const tri_options *parsed) {
  size_t most = 0;
  int code = check_lengths(b->o, parsed);
  if (!code) code = check_turns(b->o, parsed);
  if (!code) code = set_lengths(b);
  if (!code) code = set_rates(b, parsed);
  if (!code) code = bench_prompts_open(b);
  if (!code) code = cli_connect(&b->o->connection, &b->c);
  if (!code) code = ask_model(b, parsed);
  for (size_t i = 0; i < b->num_rates; i++)
    if (num_requests(b->o, b->rates[i]) > most) most = num_requests(b->o, b->rates[i]);
  if (!code) code = bench_prompts_read(b, most);
  if (code) return code;
  cli_catch_signals();
  if (b->o->floors) bench_ask_floors(b);
  return run_loads(b);
}

static int load_command(int argc, char **argv, const char *kind, const tri_options_spec *spec) {
  bench_options o = {0};
  bench_run b = {.o = &o, .kind = kind};
  tri_options *parsed = NULL;
  int code = tri_options_main(spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  code = run(&b, parsed);
  trireme_close(b.c);
  bench_prompts_free(&b.prompts);
  bench_lengths_free(&b.lengths);
  tri_free(b.ids);
  tri_options_free(parsed);
  return code;
}

static int serve(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme bench serve",
      .version = "trireme bench serve " TRIREME_VERSION,
      TRI_OPTIONS(bench_table),
      .summary =
          "Sends requests to a running coordinator as many users would, and reports their latencies. A generative "
          "model gets prompts; an encoder gets texts to embed or to classify.",
      .epilog =
          "TTFT: time to the first token; TPOT: time per token after it; ITL: time between two events of a stream.\n"
          "With a rate, TTFT and the end-to-end latency start at the planned arrival, even if --max-concurrency or a\n"
          "busy client delayed the request; with all requests at once, they start when it is sent. Saturated: answers\n"
          "came at less than 95 % of the offered rate. A load should last much longer than one request.\n\n"
          "Examples:\n"
          "  trireme bench serve --num-prompts 500 --request-rate 10\n"
          "  trireme bench serve --max-concurrency 64 --random-input-len 512 --random-output-len 256 --json\n"
          "  trireme bench serve --prompt-file prompts.jsonl --no-ignore-eos\n"
          "  trireme bench serve --num-prompts 640 --num-turns 10 --random-input-len 64\n"
          "  trireme bench serve --request-rates 50,100,200 --load-seconds 10 --input-len-distribution uniform\n"};
  return load_command(argc, argv, "serve", &spec);
}

static int throughput(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme bench throughput",
      .version = "trireme bench throughput " TRIREME_VERSION,
      TRI_OPTIONS(bench_table),
      .summary = "Sends a running coordinator all requests at once, and reports the throughput.",
      .epilog = "Example:\n  trireme bench throughput --num-prompts 1000 --random-output-len 256\n"};
  return load_command(argc, argv, "throughput", &spec);
}

/* One program: `trireme bench` tells it by its name which of the two it is. */
int main(int argc, char **argv) {
  const char *name = argc > 0 ? argv[0] : "", *last = strrchr(name, '/');
  bool all_at_once = !strcmp(last ? last + 1 : name, "trireme-bench-throughput");
  return tri_stdout_end("trireme", all_at_once ? throughput(argc, argv) : serve(argc, argv));
}
