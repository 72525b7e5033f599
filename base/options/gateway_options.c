/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options/gateway_options.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"

/* Those of chat_calls_by_name, of which a supervisor refuses what is none. */
static const char *const tool_parsers[] = {"auto",     "none",        "hermes",  "mistral", "llama",
                                           "function", "qwen3_coder", "harmony", NULL};
static const char *const reasoning_parsers[] = {"none", "think", NULL};

/* Names that vLLM has for those that do the same. */
static const char other_tool_parsers[] =
    "llama3_json=llama llama4_json=llama qwen3_xml=qwen3_coder step3p5=qwen3_coder openai=harmony";
static const char other_reasoning_parsers[] = "qwen3=think deepseek_r1=think step3p5=think";

#define S tri_gateway_options
const tri_option tri_gateway_option_table[] = {
    {TRI_OPT(S, listen), .name = "http", .metavar = "[ADDR:]PORT", .group = "HTTP",
     .help = "address of OpenAI's HTTP API; ADDR is 127.0.0.1 by default, PORT 0 is any free port"},
    {TRI_OPT(S, api_key_file), .name = "api-key-file", .metavar = "FILE", .group = "HTTP",
     .help = "file of API keys, one NAME KEY a line, that only its owner may read (chmod 600); requests must send one "
             "of the keys. SIGHUP reads it again"},
    {TRI_OPT(S, http_open), .name = "http-open", .group = "HTTP",
     .help = "listen on an address other than loopback without API keys: everyone who can reach it may send requests"},
    {TRI_OPT(S, cors_origins), .name = "cors-origin", .metavar = "ORIGIN", .group = "HTTP",
     .help = "web pages of this origin (https://app.example, or * for any) may use the API from a browser"},
    {TRI_OPT(S, reject_unknown_fields), .name = "reject-unknown-fields", .group = "HTTP",
     .help = "refuse unknown fields of a request; by default they are ignored and listed in a header"},
    {TRI_OPT(S, max_body), .name = "http-max-body", .min = 1024, .max = 1 << 30, .fallback = "4MiB", .metavar = "BYTES",
     .group = "HTTP", .help = "largest body of a request"},
    {TRI_OPT(S, max_connections), .name = "http-max-connections", .min = 1, .max = 100000, .fallback = "4096",
     .group = "HTTP", .help = "connections at a time"},
    {TRI_OPT(S, sse_ping), .name = "sse-ping", .min = 0, .max = 3600, .fallback = "30", .metavar = "S", .group = "HTTP",
     .help = "send a comment on a stream that has been silent this long; 0: never"},
    {TRI_OPT(S, drain_delay), .name = "http-drain-delay", .min = 0, .max = 3600, .fallback = "0", .metavar = "S",
     .group = "HTTP", .help = "seconds after SIGTERM in which requests are still accepted, while /health says 503"},
    {TRI_OPT(S, drain_timeout), .name = "http-drain-timeout", .min = 0, .max = 86400, .fallback = "30", .metavar = "S",
     .group = "HTTP", .help = "seconds after that for running requests to finish"},
    {TRI_OPT(S, metrics_prefix), .name = "metrics-prefix", .fallback = "trireme", .metavar = "NAME", .group = "HTTP",
     .help = "prefix of the names in /metrics; vllm suits vLLM's dashboards"},
    {TRI_OPT(S, metrics_only), .name = "metrics-only", .group = "HTTP",
     .help = "serve only /metrics, /health, /ready, /live and /version"},
    {TRI_OPT(S, chat_template), .name = "chat-template", .metavar = "FILE", .group = "Chat",
     .help = "file with a chat template to use instead of the model's, with the model's special tokens"},
    {TRI_OPT(S, parse_special), .name = "parse-special-in-input", .group = "Chat",
     .help = "parse special tokens in messages; by default they are plain text, so that no message can end its turn"},
    {TRI_OPT(S, tool_parser), .name = "tool-parser", .choices = tool_parsers, .also = other_tool_parsers,
     .fallback = "auto", .group = "Chat", .help = "format of tool calls; auto: by the chat template"},
    {TRI_OPT(S, reasoning_parser), .name = "reasoning-parser", .choices = reasoning_parsers,
     .also = other_reasoning_parsers, .fallback = "none", .group = "Chat",
     .help = "think: text between <think> and </think> becomes reasoning_content"},
    {TRI_OPT(S, workers), .name = "http-workers", .min = 1, .max = 64, .fallback = "2", .group = "Chat",
     .help = "threads that render chat templates and tokenize"},
};
#undef S
const size_t tri_gateway_option_count = sizeof tri_gateway_option_table / sizeof *tri_gateway_option_table;

size_t tri_gateway_options_copy(tri_option *table, size_t offset) {
  for (size_t i = 0; i < tri_gateway_option_count; i++) {
    table[i] = tri_gateway_option_table[i];
    table[i].offset += offset;
  }
  return tri_gateway_option_count;
}

/* ---- origins ---- */

enum { ORIGIN_BYTES = 256 };

/* SCHEME://HOST[:PORT], as browsers send it. */
static bool is_origin(const char *s) {
  const char *host = strstr(s, "://");
  size_t len = strlen(s);
  for (size_t i = 0; i < len; i++)
    if (s[i] <= ' ' || s[i] > '~') return false;
  return host && host > s && host[3] && !strchr(host + 3, '/') && len <= ORIGIN_BYTES;
}

typedef tri_status (*take_origin)(void *ctx, const char *origin, tri_error *err);

static tri_status one_origin(const char *s, take_origin take, void *ctx, tri_error *err) {
  if (s && (!strcmp(s, "*") || is_origin(s))) return take ? take(ctx, s, err) : TRI_OK;
  return tri_fail(err, TRI_USAGE, "cors-origin",
                  "--cors-origin needs an origin like https://app.example or https://app.example:8443, or *, not "
                  "\"%.80s\"",
                  s ? s : "a list of something else");
}

static tri_status listed_origins(const char *text, take_origin take, void *ctx, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_status st;
  if (tri_json_parse(text, strlen(text), &doc, NULL) != TRI_OK ||
      tri_json_kind_of(tri_json_root(doc)) != TRI_JSON_ARRAY)
    TRI_TRY(one_origin(text, take, ctx, err));
  const tri_json *list = tri_json_root(doc);
  for (size_t i = 0; i < tri_json_size(list); i++)
    TRI_TRY(one_origin(tri_json_as_str(tri_json_at(list, i), NULL), take, ctx, err));
  st = TRI_OK;
cleanup:
  tri_json_free(doc);
  return st;
}

tri_status tri_gateway_each_origin(const tri_gateway_options *o, take_origin take, void *ctx, tri_error *err) {
  for (size_t i = 0; i < o->cors_origins.count; i++) {
    const char *text = o->cors_origins.items[i];
    TRI_CHECK(*text == '[' ? listed_origins(text, take, ctx, err) : one_origin(text, take, ctx, err));
  }
  return TRI_OK;
}

/* ---- the address ---- */

/* "8000", "0.0.0.0:8000", "[::1]:8000". */
static tri_status parse(const char *text, tri_gateway_place *out, tri_error *err) {
  const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
  size_t len = colon ? (size_t)(colon - text) : 0;
  char *end;
  long n = strtol(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || *end || n > 65535)
    return tri_fail(err, TRI_USAGE, "http", "--http needs [ADDR:]PORT, not \"%.80s\"", text);
  const char *from = text;
  if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
    from++;
    len -= 2;
  }
  if (len >= sizeof out->address) return tri_fail(err, TRI_USAGE, "http", "\"%.80s\" is no address of numbers", text);
  snprintf(out->address, sizeof out->address, "%.*s", (int)len, from);
  if (!len) snprintf(out->address, sizeof out->address, "127.0.0.1");
  struct in_addr v4;
  struct in6_addr v6;
  if (inet_pton(AF_INET, out->address, &v4) != 1 && inet_pton(AF_INET6, out->address, &v6) != 1)
    return tri_fail(err, TRI_USAGE, "http", "--http: \"%.60s\" is no address of numbers, as 127.0.0.1 or [::1]",
                    out->address);
  out->port = (int)n;
  return TRI_OK;
}

static bool is_loopback(const char *address) {
  struct in_addr v4;
  struct in6_addr v6;
  if (inet_pton(AF_INET, address, &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, address, &v6) == 1 && !memcmp(&v6, &in6addr_loopback, sizeof v6);
}

tri_status tri_gateway_place_make(const tri_gateway_options *o, tri_gateway_place *out, tri_error *err) {
  if (!o->listen) return tri_fail(err, TRI_USAGE, "http", "--http is missing");
  TRI_CHECK(parse(o->listen, out, err));
  out->loopback = is_loopback(out->address);
  if (!out->loopback && !o->api_key_file && !o->http_open)
    return tri_fail(err, TRI_USAGE, "http",
                    "everyone who can reach %s could use the model: give --api-key-file, or --http-open", out->address);
  return TRI_OK;
}
