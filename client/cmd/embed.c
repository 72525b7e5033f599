/* SPDX-License-Identifier: Apache-2.0 */
/* trireme embed and trireme classify: their options. */
#include <string.h>

#include "client/cmd/cmd.h"
#include "base/kinds.h"
#include "base/mem.h"
#include "base/version.h"

static const char *const activations[] = {"none", "softmax", "sigmoid", NULL};

#define O(m) TRI_OPT(cmd_embed_options, m)
/* The options that both have. */
#define REQUEST_OPTIONS                                                                                                \
  {O(request.text), .name = "text", .metavar = "TEXT", .help = "the input"},                                           \
      {O(request.text_pair), .name = "text-pair", .metavar = "TEXT",                                                   \
       .help = "a second text after it, for models of pairs"},                                                         \
      {O(token_ids), .name = "token-ids", .metavar = "ID,ID,...", .help = "the input as token ids"},                   \
      {O(request.truncate), .name = "truncate",                                                                        \
       .help = "cut a text with more tokens than max_model_len at its end, instead of refusing it"},                   \
      {O(request.model), .name = "model", .metavar = "NAME", .help = "model to use, if several names are served"},     \
      {O(cache), .name = "cache", .fallback = "true",                                                                  \
       .help = "use the server's response cache, if it has one, and store the answer there"},                          \
      {O(request.cache_salt), .name = "cache-salt", .metavar = "TEXT",                                                 \
       .help = "share cached answers only with requests of the same salt; up to 128 bytes"},                           \
      {O(request.priority), .name = "priority", .min = -2147483648.0,                                                  \
       .max = 2147483647,   .fallback = "0",    .help = "lower runs first"},                                           \
      {O(request.deadline_ms), .name = "deadline-ms", .max = 604800000, .fallback = "0",                               \
       .help = "give up after this many milliseconds; 0: never"},                                                      \
      {O(json), .name = "json", .help = "print a JSON object for each input instead of text"},                         \
      {O(file), .name = "file", .metavar = "FILE", .group = "Many inputs",                                             \
       .help = "file with a JSON object a line, {\"text\": ..., any request field}; - is the standard input"},         \
      {O(output), .name = "output", .metavar = "FILE", .group = "Many inputs",                                         \
       .help = "file for the answers, in the order of the input; overwritten unless --resume is given. Default: the "  \
               "standard output"},                                                                                     \
      {O(resume), .name = "resume", .group = "Many inputs",                                                            \
       .help = "with --json: continue an earlier --output; inputs that have an answer there are not sent again"},      \
      {O(progress), .name = "progress", .fallback = "true", .group = "Many inputs",                                    \
       .help = "with --output: show a progress bar on a terminal, and a summary at the end"},                          \
      {O(concurrency),         .name = "concurrency",       .min = 1, .max = 65536, .fallback = "64",                  \
       .group = "Many inputs", .help = "requests at a time"},                                                          \
      CLI_CONNECTION_OPTIONS(cmd_embed_options, connection), CLI_RECONNECT_OPTION(cmd_embed_options, connection)

static const tri_option embed_options[] = {
    {O(request.prompt_name), .name = "prompt-name", .metavar = "NAME",
     .help = "put this prompt of the model's folder before the text; \"\": none"},
    {O(request.pooling), .name = "pooling", .choices = tri_pooling_names,
     .help = "require this pooling; the server's option of the same name decides which it is"},
    {O(request.normalize), .name = "normalize",
     .help = "normalize vectors to length 1; default: as the model's folder says"},
    REQUEST_OPTIONS,
};

static const tri_option classify_options[] = {
    {O(request.activation), .name = "activation", .choices = activations,
     .help = "function from logits to scores; default: by the checkpoint's problem_type"},
    {O(top_k), .name = "top-k", .max = 1048576, .fallback = "0",
     .help = "labels to print; 0: all for a text, the best for a token"},
    REQUEST_OPTIONS,
};

static const tri_options_spec embed_spec = {
    .program = "trireme embed",
    .version = "trireme embed " TRIREME_VERSION,
    .usage = "[OPTION]... --text TEXT | --token-ids IDS | --file FILE",
    .summary = "Prints a vector for each input, as a line of numbers. The served model must be an encoder.",
    .epilog = "Examples:\n"
              "  trireme embed --text \"A sentence\" --normalize\n"
              "  trireme embed --file texts.jsonl --output vectors.jsonl --json --concurrency 256\n",
    TRI_OPTIONS(embed_options),
    .config_file = true};

static const tri_options_spec classify_spec = {
    .program = "trireme classify",
    .version = "trireme classify " TRIREME_VERSION,
    .usage = "[OPTION]... --text TEXT | --token-ids IDS | --file FILE",
    .summary = "Prints labels and scores, the best first, for each input or for each of its tokens. The served model "
               "must be a "
               "classifier.",
    .epilog = "Examples:\n"
              "  trireme classify --text \"What a day\" --top-k 1\n"
              "  trireme classify --file texts.jsonl --output labels.jsonl --json\n",
    TRI_OPTIONS(classify_options),
    .config_file = true};

/* Exactly one input; a text is UTF-8 and not empty. */
static int check(const cmd_embed_options *o) {
  const char *text = o->request.text;
  int ways = (text != NULL) + (o->token_ids != NULL) + (o->file != NULL);
  size_t len = text ? strlen(text) : 0, valid = tri_utf8_prefix(text ? text : "", len);
  const char *pair = o->request.text_pair;
  size_t pair_len = pair ? strlen(pair) : 0;
  if (ways != 1)
    return cli_usage(o->program, ways ? "--text, --token-ids and --file exclude each other"
                                      : "what is the input? --text, --token-ids or --file");
  if (o->output && !o->file) return cli_usage(o->program, "--output belongs to --file");
  if (o->resume && (!o->json || !o->output || !strcmp(o->output, "-")))
    return cli_usage(o->program,
                     "--resume belongs to --file with --output and --json: answers have their line's number");
  if (pair && !text) return cli_usage(o->program, "--text-pair belongs to --text");
  if (pair && !pair_len) return cli_usage(o->program, "text_pair is empty");
  if (pair && tri_utf8_prefix(pair, pair_len) < pair_len) return cli_usage(o->program, "text-pair is not UTF-8");
  if (valid < len) return cli_usage(o->program, "byte %zu of the text is not UTF-8", valid + 1);
  return text && !len ? cli_usage(o->program, "text is empty") : TRI_EXIT_OK;
}

static int run(const tri_options_spec *spec, bool classify, int argc, char **argv) {
  cmd_embed_options o = {.program = spec->program, .classify = classify};
  tri_options *parsed = NULL;
  tri_error err = {0};
  uint32_t *ids = NULL;
  trireme_embed_request_init(&o.request);
  int code = tri_options_main(spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  code = check(&o);
  o.request.keep_length = tri_options_given(parsed, "normalize") && !o.request.normalize;
  o.request.no_cache = !o.cache;
  o.request.text_len = o.request.text ? strlen(o.request.text) : 0;
  o.request.text_pair_len = o.request.text_pair ? strlen(o.request.text_pair) : 0;
  if (code == TRI_EXIT_OK && o.token_ids &&
      cli_parse_ids("token-ids", o.token_ids, &ids, &o.request.num_token_ids, &err))
    code = cli_usage(spec->program, "%s", err.message[0] ? err.message : tri_status_text(err.status));
  o.request.token_ids = ids;
  if (code == TRI_EXIT_OK) code = cmd_embed_run(&o);
  tri_free(ids);
  tri_options_free(parsed);
  return code;
}

int cmd_embed(int argc, char **argv) { return run(&embed_spec, false, argc, argv); }
int cmd_classify(int argc, char **argv) { return run(&classify_spec, true, argc, argv); }
