/* SPDX-License-Identifier: Apache-2.0 */
/* A request from options and from JSON lines, by one table.
 *
 * request_table is the list of options, whose limits and help come from the protocol's fields of the same names. A
 * member of a line is looked up there with _ for -, and a plain value is written as text and stored as the option would
 * be: one set of limits, one set of messages. Fields with a form of their own (lists, texts, ids) have readers.
 *
 * Memory: a line's request starts as a copy of the defaults and shares their lists. A reader that replaces one
 * allocates it and sets both the owner (ids, bias, stop_text...) and the view in `r`; owners start as NULL, so
 * cli_request_free frees what the line has brought and nothing of the defaults. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cli.h"
#include "client/cli/request.h"
#include "comm/wire/client.h"
#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/text.h"

enum { MAX_STOP = TRI_WIRE_MAX_STOP, MAX_STOP_IDS = TRI_WIRE_MAX_STOP_IDS, MAX_IDS = TRI_WIRE_MAX_MESSAGE / 4 };
_Static_assert(sizeof(((cli_request *)0)->stops) / sizeof(trireme_string) == MAX_STOP,
               "as many stop strings as the protocol has");
_Static_assert(sizeof(((cli_request *)0)->stop_ids) / sizeof(uint32_t) == MAX_STOP_IDS,
               "as many stop ids as the protocol has");

static const char *const disconnect_names[] = {"cancel", "continue", NULL};
static const char *const early_names[] = {"false", "true", "never", NULL};

#define R(m) TRI_OPT(cli_request, m)
#define NUMBER(context, type, name_, option, least, most, def, absent, sampler, help_)                                 \
  {R(r.name_), .name = (option), .fallback = FALLBACK_##absent(def)},
#define FALLBACK_FIXED(def) #def
#define FALLBACK_OPEN(def) NULL
#define FALLBACK_MODEL(def) NULL

/* Limits and help of the numbers come from the protocol's own table. */
static const tri_option request_table[] = {
    TRI_SAMPLING_NUMBERS(NUMBER, ) /* and what is no plain number: */
    {R(r.seed), .name = "seed", .no_letters = true, .metavar = "N"},
    {R(r.early_stopping), .name = "early-stopping", .choices = early_names,
     .help = "when a beam search ends that has found enough texts"},
    {R(r.logprobs), .name = "logprobs", .alias = "top-logprobs"},
    {R(stop), .name = "stop", .help = "text that ends the answer"},
    {R(stop_token_ids), .name = "stop-token-ids", .metavar = "ID,ID,...", .help = "tokens that end the answer"},
    {R(allowed_token_ids), .name = "allowed-token-ids", .metavar = "ID,ID,...",
     .help = "only these tokens are generated; default: all"},
    {R(json_schema), .name = "json-schema", .metavar = "FILE",
     .help = "the answer is JSON that fits the schema in this file, up to 256 KiB"},
    {R(r.json_object), .name = "json-object", .help = "the answer is a JSON object"},
    {R(logit_bias), .name = "logit-bias", .metavar = "ID=BIAS",
     .help = "number to add to the logit of a token [-100 to 100]"},
    {R(r.ignore_eos), .name = "ignore-eos", .help = "continue after an end-of-sequence token"},
    {R(r.echo), .name = "echo", .help = "begin with the prompt"},
    {R(add_special_tokens), .name = "add-special-tokens", .fallback = "true",
     .help = "add the tokenizer's special tokens around the prompt; turn this off if the prompt has them"},
    {R(stream), .name = "stream", .fallback = "true", .help = "print the text as it is generated"},
    {R(on_disconnect), .name = "on-disconnect", .choices = disconnect_names, .fallback = "cancel",
     .help = "what happens to the request when this program ends"},
    {R(cache), .name = "cache", .fallback = "true",
     .help = "use the server's response cache, if it has one, and store the answer there"},
    {R(r.cache_salt), .name = "cache-salt", .metavar = "TEXT",
     .help = "share cached answers only with requests of the same salt; up to 128 bytes"},
    {R(token_ids), .name = "token-ids", .metavar = "ID,ID,...", .help = "the prompt as token ids"},
    {R(r.model), .name = "model", .metavar = "NAME", .help = "model to use, if several names are served"},
    {R(r.request_id), .name = "request-id", .metavar = "HEX",
     .help = "32 hexadecimal digits; submitting them again gives the same job"},
};
enum { NUM_REQUEST_OPTIONS = sizeof request_table / sizeof *request_table };

/* Names of the protocol have _ where options have -. */
static const tri_wire_field *limit_of(const char *name) {
  size_t n;
  const tri_wire_field *f = tri_wire_fields(&n);
  for (size_t i = 0; i < n; i++) {
    const char *a = f[i].name, *b = name;
    for (; *a && (*a == *b || (*a == '_' && *b == '-')); a++) b++;
    if (!*a && !*b) return &f[i];
  }
  return NULL;
}

size_t cli_request_options(tri_option table[CLI_REQUEST_OPTIONS_MAX], size_t offset) {
  _Static_assert((int)NUM_REQUEST_OPTIONS <= (int)CLI_REQUEST_OPTIONS_MAX, "room for all");
  for (size_t i = 0; i < NUM_REQUEST_OPTIONS; i++) {
    table[i] = request_table[i];
    table[i].offset += offset;
    table[i].group = "Request";
    const tri_wire_field *f = limit_of(table[i].name);
    if (!f || table[i].type == TRI_OPT_LIST) continue;
    table[i].help = f->help;
    if (table[i].type == TRI_OPT_SIZE) continue; /* the seed: all of 64 bits */
    table[i].min = f->min;
    table[i].max = f->max;
    table[i].not_zero = !strcmp(f->name, "max_tokens"); /* -1 is all that fits, and no text has 0 tokens */
  }
  return NUM_REQUEST_OPTIONS;
}

void cli_request_init(cli_request *q) {
  *q = (cli_request){.stream = true, .add_special_tokens = true, .cache = true};
  trireme_request_init(&q->r);
}

void cli_request_free(cli_request *q) {
  tri_free(q->ids);
  tri_free(q->allowed);
  tri_free(q->bias);
  tri_free(q->prompt);
  tri_free(q->model);
  tri_free(q->request_id);
  tri_free(q->cache_salt);
  tri_free(q->schema);
  for (int i = 0; i < MAX_STOP; i++) tri_free(q->stop_text[i]);
}

/* ---- from options ---- */

static bool parse_id(const char **text, uint32_t *out) {
  char *end;
  if (**text < '0' || **text > '9') return false;
  unsigned long long v = strtoull(*text, &end, 10);
  *text = end;
  *out = (uint32_t)v;
  return v <= UINT32_MAX;
}

/* "1,2,3" into out; NULL out only counts. */
static bool parse_ids(const char *text, uint32_t *out, size_t cap, size_t *count) {
  size_t n = 0;
  uint32_t id;
  for (;; text++) {
    if (!parse_id(&text, &id) || (out && n >= cap)) return false;
    if (out) out[n] = id;
    n++;
    if (*text != ',') break;
  }
  *count = n;
  return !*text;
}

tri_status cli_parse_ids(const char *option, const char *text, uint32_t **out, size_t *count, tri_error *err) {
  size_t n;
  if (!parse_ids(text, NULL, 0, &n))
    return tri_fail(err, TRI_INVALID_ARGUMENT, option, "--%s needs ids with commas between them, not \"%.60s\"", option,
                    text);
  *out = tri_malloc(n, sizeof **out);
  if (!*out) return TRI_NO_MEMORY;
  parse_ids(text, *out, n, count);
  return TRI_OK;
}

static tri_status option_ids(cli_request *q, tri_error *err) {
  size_t n;
  if (q->token_ids) {
    TRI_CHECK(cli_parse_ids("token-ids", q->token_ids, &q->ids, &n, err));
    q->r.token_ids = q->ids;
    q->r.num_token_ids = n;
  }
  if (q->stop_token_ids) {
    if (!parse_ids(q->stop_token_ids, q->stop_ids, MAX_STOP_IDS, &n))
      return tri_fail(err, TRI_INVALID_ARGUMENT, "stop-token-ids",
                      "--stop-token-ids needs at most %d ids with commas between them, not \"%.60s\"", MAX_STOP_IDS,
                      q->stop_token_ids);
    q->r.stop_token_ids = q->stop_ids;
    q->r.num_stop_token_ids = n;
  }
  if (q->allowed_token_ids) {
    TRI_CHECK(cli_parse_ids("allowed-token-ids", q->allowed_token_ids, &q->allowed, &n, err));
    q->r.allowed_token_ids = q->allowed;
    q->r.num_allowed_token_ids = n;
  }
  return TRI_OK;
}

static tri_status option_schema(cli_request *q, tri_error *err) {
  size_t len;
  if (!q->json_schema) return TRI_OK;
  TRI_CHECK(tri_json_read_text(q->json_schema, TRI_WIRE_MAX_CONSTRAINT, &q->schema, &len, err));
  q->r.json_schema = q->schema;
  q->r.json_schema_len = len;
  return TRI_OK;
}

static tri_status option_bias(cli_request *q, tri_error *err) {
  if (!q->logit_bias.count) return TRI_OK;
  q->bias = tri_calloc(q->logit_bias.count, sizeof *q->bias);
  if (!q->bias) return TRI_NO_MEMORY;
  for (size_t i = 0; i < q->logit_bias.count; i++) {
    const char *text = q->logit_bias.items[i];
    char *end;
    bool ok = parse_id(&text, &q->bias[i].id) && *text == '=';
    double v = ok ? strtod(text + 1, &end) : 0;
    if (!ok || end == text + 1 || *end || !(v >= -100 && v <= 100))
      return tri_fail(err, TRI_INVALID_ARGUMENT, "logit-bias",
                      "--logit-bias needs ID=BIAS with a bias of -100 to 100, not \"%.60s\"", q->logit_bias.items[i]);
    q->bias[i].bias = (float)v;
  }
  q->r.logit_bias = q->bias;
  q->r.num_logit_bias = q->logit_bias.count;
  return TRI_OK;
}

/* Options are positive where the library's members are negative (--no-cache turns `cache` off, no_cache is set): the
 * table has the first ones, and here they are turned. */
tri_status cli_request_finish(cli_request *q, const tri_options *parsed, tri_error *err) {
  q->r.has_seed = tri_options_given(parsed, "seed");
  q->r.no_stream = !q->stream;
  q->r.no_special_tokens = !q->add_special_tokens;
  q->r.no_cache = !q->cache;
  q->r.continue_on_disconnect = q->on_disconnect == TRI_DISCONNECT_CONTINUE;
  if (q->stop.count > MAX_STOP)
    return tri_fail(err, TRI_OUT_OF_RANGE, "stop", "%zu stop texts; allowed are 0 to %d", q->stop.count, MAX_STOP);
  for (size_t i = 0; i < q->stop.count; i++) {
    size_t len = strlen(q->stop.items[i]);
    if (!len || len > TRI_WIRE_MAX_STOP_BYTES)
      return tri_fail(err, TRI_OUT_OF_RANGE, "stop", "--stop has %zu bytes; allowed are 1 to %d", len,
                      TRI_WIRE_MAX_STOP_BYTES);
    q->stops[i] = (trireme_string){q->stop.items[i], len};
  }
  q->r.stop = q->stops;
  q->r.num_stop = q->stop.count;
  TRI_CHECK(option_ids(q, err));
  TRI_CHECK(option_schema(q, err));
  return option_bias(q, err);
}

/* ---- from JSON ---- */

tri_status cli_wrong(tri_error *err, const char *key, const char *wanted) {
  return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be %s", key, wanted);
}

/* len NULL: the text ends with NUL, so that it may have none within. */
static tri_status json_string(const tri_json *v, const char *key, char **owned, const char **out, size_t *len,
                              tri_error *err) {
  size_t n;
  const char *s = tri_json_as_str(v, &n);
  if (!s) return cli_wrong(err, key, "a string");
  if (!len && strlen(s) != n) return cli_wrong(err, key, "a string without NUL");
  tri_free(*owned);
  *owned = tri_strndup(s, n);
  if (!*owned) return TRI_NO_MEMORY;
  *out = *owned;
  if (len) *len = n;
  return TRI_OK;
}

static tri_status json_ids(const tri_json *v, const char *key, uint32_t *out, size_t count, tri_error *err) {
  for (size_t i = 0; i < count; i++) {
    int64_t id;
    if (!tri_json_as_int(tri_json_at(v, i), &id) || id < 0 || id > UINT32_MAX)
      return cli_wrong(err, key, "an array of token ids");
    out[i] = (uint32_t)id;
  }
  return TRI_OK;
}

tri_status cli_read_ids(const tri_json *v, const char *key, size_t most, uint32_t **out, size_t *count,
                        tri_error *err) {
  size_t n = tri_json_size(v);
  if (tri_json_kind_of(v) != TRI_JSON_ARRAY || n > most) return cli_wrong(err, key, "an array of token ids");
  tri_free(*out);
  *out = tri_malloc(n, sizeof **out);
  *count = n;
  return *out ? json_ids(v, key, *out, n, err) : TRI_NO_MEMORY;
}

static tri_status json_token_ids(cli_request *q, const char *key, const tri_json *v, tri_error *err) {
  tri_status st = cli_read_ids(v, key, MAX_IDS, &q->ids, &q->r.num_token_ids, err);
  q->r.token_ids = q->ids;
  return st;
}

static tri_status json_allowed_ids(cli_request *q, const char *key, const tri_json *v, tri_error *err) {
  tri_status st = cli_read_ids(v, key, TRI_WIRE_MAX_ALLOWED_IDS, &q->allowed, &q->r.num_allowed_token_ids, err);
  q->r.allowed_token_ids = q->allowed;
  if (st != TRI_OK) return st;
  return tri_sampling_check_allowed(q->r.num_allowed_token_ids, err);
}

/* A schema stands in a line as it is. */
static tri_status json_schema(cli_request *q, const char *key, const tri_json *v, tri_error *err) {
  tri_buf text = {0};
  tri_json_kind kind = tri_json_kind_of(v);
  if (kind != TRI_JSON_OBJECT && kind != TRI_JSON_BOOL) return cli_wrong(err, key, "a JSON Schema");
  tri_json_add_value(&text, v, false);
  if (text.failed) return TRI_NO_MEMORY;
  tri_free(q->schema);
  q->schema = text.data;
  q->r.json_schema = text.data;
  q->r.json_schema_len = text.len;
  return TRI_OK;
}

static tri_status json_stop_ids(cli_request *q, const tri_json *v, tri_error *err) {
  size_t n = tri_json_size(v);
  if (tri_json_kind_of(v) != TRI_JSON_ARRAY) return cli_wrong(err, "stop_token_ids", "an array of token ids");
  if (n > MAX_STOP_IDS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "stop_token_ids", "stop_token_ids has %zu ids; allowed are 0 to %d", n,
                    MAX_STOP_IDS);
  q->r.stop_token_ids = q->stop_ids;
  q->r.num_stop_token_ids = n;
  return json_ids(v, "stop_token_ids", q->stop_ids, n, err);
}

static tri_status json_stop(cli_request *q, const tri_json *v, tri_error *err) {
  bool array = tri_json_kind_of(v) == TRI_JSON_ARRAY;
  size_t n = array ? tri_json_size(v) : 1;
  if (n > MAX_STOP)
    return tri_fail(err, TRI_OUT_OF_RANGE, "stop", "stop has %zu texts; allowed are 0 to %d", n, MAX_STOP);
  for (size_t i = 0; i < n; i++)
    TRI_CHECK(
        json_string(array ? tri_json_at(v, i) : v, "stop", &q->stop_text[i], &q->stops[i].s, &q->stops[i].len, err));
  q->r.stop = q->stops;
  q->r.num_stop = n;
  return TRI_OK;
}

typedef struct bias_reader {
  cli_request *q;
  tri_error *err;
} bias_reader;

static tri_status json_one_bias(void *ctx, const char *key, const tri_json *value) {
  bias_reader *b = ctx;
  double v;
  trireme_logit_bias *out = &b->q->bias[b->q->r.num_logit_bias];
  if (!parse_id(&key, &out->id) || *key || !tri_json_as_num(value, &v))
    return cli_wrong(b->err, "logit_bias", "an object of token id to number");
  out->bias = (float)v;
  b->q->r.num_logit_bias++;
  return TRI_OK;
}

static tri_status json_bias(cli_request *q, const tri_json *v, tri_error *err) {
  if (tri_json_kind_of(v) != TRI_JSON_OBJECT) return cli_wrong(err, "logit_bias", "an object of token id to number");
  tri_free(q->bias);
  q->bias = tri_calloc(tri_json_size(v) + 1, sizeof *q->bias);
  if (!q->bias) return TRI_NO_MEMORY;
  q->r.logit_bias = q->bias;
  q->r.num_logit_bias = 0;
  return tri_json_each(v, json_one_bias, &(bias_reader){q, err});
}

/* Numbers, booleans and choices go through the option of the same name. */
static tri_status json_option(cli_request *q, const tri_option *o, const char *key, const tri_json *v, tri_error *err) {
  char text[64];
  int64_t i;
  double x;
  bool b;
  bool wants_int = o->type == TRI_OPT_INT64 || o->type == TRI_OPT_SIZE;
  if (o->type == TRI_OPT_BOOL)
    return tri_json_as_bool(v, (bool *)(void *)((char *)q + o->offset)) ? TRI_OK : cli_wrong(err, key, "true or false");
  if (!strcmp(o->name, "logprobs") && tri_json_as_bool(v, &b)) {
    q->r.logprobs = b ? 0 : -1;
    return TRI_OK;
  }
  if (wants_int) {
    TRI_CHECK(tri_json_read_int(v, key, &i, err));
    snprintf(text, sizeof text, "%lld", (long long)i);
  } else if (o->type == TRI_OPT_NUM) {
    TRI_CHECK(tri_json_read_num(v, key, &x, err));
    snprintf(text, sizeof text, "%.17g", x);
  } else {
    const char *s = tri_json_as_str(v, NULL);
    if (tri_json_as_bool(v, &b)) s = b ? "true" : "false";
    if (!s || strlen(s) >= sizeof text) return cli_wrong(err, key, "a string");
    snprintf(text, sizeof text, "%s", s);
  }
  tri_error e = {0};
  tri_status st = tri_option_store(o, q, text, &e);
  if (st == TRI_OK) return TRI_OK;
  size_t name = strlen(o->name);
  if (!strncmp(e.message, "--", 2) && !strncmp(e.message + 2, o->name, name)) /* said of the line's own spelling */
    return tri_fail(err, st, key, "%s%s", key, e.message + 2 + name);
  return tri_fail(err, st, key, "%s", e.message);
}

static const tri_option *find_option(const tri_option *table, size_t n, const char *key) {
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < 2; k++) {
      const char *a = k ? table[i].alias : table[i].name, *b = key;
      if (!a) continue;
      for (; *a && (*a == *b || (*a == '-' && *b == '_')); a++) b++;
      if (!*a && !*b) return &table[i];
    }
  return NULL;
}

/* A text, or token ids; both also as the one element of an array. */
static tri_status json_prompt(cli_request *q, const tri_json *v, tri_error *err) {
  if (tri_json_kind_of(v) == TRI_JSON_ARRAY && tri_json_kind_of(tri_json_at(v, 0)) != TRI_JSON_INT) {
    if (tri_json_size(v) != 1)
      return tri_fail(err, TRI_UNSUPPORTED, "prompt", "prompt has %zu elements; a line has one prompt",
                      tri_json_size(v));
    v = tri_json_at(v, 0);
  }
  if (tri_json_kind_of(v) == TRI_JSON_ARRAY) return json_token_ids(q, "prompt", v, err);
  return json_string(v, "prompt", &q->prompt, &q->r.prompt, &q->r.prompt_len, err);
}

typedef struct json_reader {
  cli_request *q;
  const cli_unknown *unknown;
  tri_option table[CLI_REQUEST_OPTIONS_MAX];
  size_t count;
  tri_error *err;
} json_reader;

static tri_status json_field(void *ctx, const char *key, const tri_json *v) {
  json_reader *j = ctx;
  cli_request *q = j->q;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (!strcmp(key, "prompt")) return json_prompt(q, v, j->err);
  if (!strcmp(key, "model")) return json_string(v, key, &q->model, &q->r.model, NULL, j->err);
  if (!strcmp(key, "request_id")) return json_string(v, key, &q->request_id, &q->r.request_id, NULL, j->err);
  if (!strcmp(key, "cache_salt")) return json_string(v, key, &q->cache_salt, &q->r.cache_salt, NULL, j->err);
  if (!strcmp(key, "token_ids")) return json_token_ids(q, key, v, j->err);
  if (!strcmp(key, "allowed_token_ids")) return json_allowed_ids(q, key, v, j->err);
  if (!strcmp(key, "json_schema")) return json_schema(q, key, v, j->err);
  if (!strcmp(key, "stop_token_ids")) return json_stop_ids(q, v, j->err);
  if (!strcmp(key, "stop")) return json_stop(q, v, j->err);
  if (!strcmp(key, "logit_bias")) return json_bias(q, v, j->err);
  if (!strcmp(key, "messages"))
    return tri_fail(
        j->err, TRI_UNSUPPORTED, key,
        "messages need the model's chat template: trireme template makes a prompt of them, and trireme serve "
        "takes them over HTTP");
  const tri_option *o = find_option(j->table, j->count, key);
  if (!o && j->unknown) return j->unknown->take(j->unknown->ctx, key, v, j->err);
  if (!o) return cli_unknown_field(key, j->err);
  if (!strcmp(o->name, "seed")) q->r.has_seed = true;
  return json_option(q, o, key, v, j->err);
}

tri_status cli_unknown_field(const char *key, tri_error *err) {
  char spelled[64];
  snprintf(spelled, sizeof spelled, "%.60s", key);
  for (char *c = spelled; *c; c++)
    if (*c == '_') *c = '-';
  int near = tri_nearest_name(spelled, (const char *)request_table + offsetof(tri_option, name), NUM_REQUEST_OPTIONS,
                              sizeof *request_table);
  if (near < 0) return tri_fail(err, TRI_UNKNOWN_FIELD, key, "there is no request field named \"%.60s\"", key);
  snprintf(spelled, sizeof spelled, "%s", request_table[near].name);
  for (char *c = spelled; *c; c++)
    if (*c == '-') *c = '_';
  return tri_fail(err, TRI_UNKNOWN_FIELD, key, "there is no request field named \"%.60s\"; did you mean %s?", key,
                  spelled);
}

bool cli_is_like_field(const char *key) {
  tri_error err = {0};
  cli_unknown_field(key, &err);
  return strstr(err.message, "did you mean") != NULL;
}

tri_status cli_request_json(const cli_request *defaults, const tri_json *object, const cli_unknown *unknown,
                            cli_request *out, tri_error *err) {
  *out = *defaults;
  /* Lists of the defaults stay theirs; the copies here are made anew when the line has its own. */
  out->ids = out->allowed = NULL;
  out->bias = NULL;
  out->prompt = out->model = out->request_id = out->cache_salt = out->schema = NULL;
  memset(out->stop_text, 0, sizeof out->stop_text);
  if (out->r.num_stop) out->r.stop = out->stops;
  if (out->r.num_stop_token_ids) out->r.stop_token_ids = out->stop_ids;
  if (tri_json_kind_of(object) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, NULL, "a line must be a JSON object like {\"prompt\": \"...\"}");
  json_reader j = {.q = out, .unknown = unknown, .err = err};
  j.count = cli_request_options(j.table, 0);
  TRI_CHECK(tri_json_each(object, json_field, &j));
  out->r.no_stream = !out->stream;
  out->r.no_special_tokens = !out->add_special_tokens;
  out->r.no_cache = !out->cache;
  out->r.continue_on_disconnect = out->on_disconnect == TRI_DISCONNECT_CONTINUE;
  if (!out->r.prompt && !out->r.token_ids)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "prompt", "prompt (or token_ids) is missing");
  if (out->r.prompt && out->r.token_ids)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "token_ids", "prompt and token_ids exclude each other");
  return TRI_OK;
}

/* ---- lines ---- */

int cli_open_lines(const char *program, const char *what, const char *file, const char *output, FILE **in) {
  struct stat from, to;
  *in = strcmp(file, "-") ? fopen(file, "re") : stdin;
  if (!*in) return cli_failed(program, "cannot open %s: %s", file, strerror(errno));
  if (fstat(fileno(*in), &from) || S_ISDIR(from.st_mode))
    return cli_failed(program, "%s is a folder, not a file of %s", file, what);
  if (output && strcmp(output, "-") && !stat(output, &to) && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
    return cli_usage(program, "--output %s is the file of %s itself", output, what);
  return TRI_EXIT_OK;
}

void cli_line_failed(const char *file, uint64_t line, const char *field, const char *message) {
  bool shown = cli_shows_field(field, message);
  fprintf(stderr, "trireme: %s:%llu: %s%s%s\n", file, (unsigned long long)line, shown ? field : "", shown ? ": " : "",
          message);
}

/* The parser knows one line and says "JSON line 1"; that is removed, as the message names the file's line. */
tri_status cli_parse_line(const char *line, size_t len, tri_json_doc **out, tri_error *err) {
  static const char prefix[] = "JSON line 1 ";
  size_t valid = tri_utf8_prefix(line, len);
  if (valid < len) return tri_fail(err, TRI_INVALID_ARGUMENT, "", "byte %zu of the line is not UTF-8", valid + 1);
  tri_status st = tri_json_parse(line, len, out, err);
  /* The file's lines are counted by its reader. */
  if (st != TRI_OK && !strncmp(err->message, prefix, sizeof prefix - 1)) {
    char rest[sizeof err->message];
    snprintf(rest, sizeof rest, "%s", err->message + sizeof prefix - 1);
    *err = (tri_error){0}; /* said anew */
    st = tri_fail(err, TRI_INVALID_ARGUMENT, "", "not JSON, %s", rest);
  }
  return st;
}
