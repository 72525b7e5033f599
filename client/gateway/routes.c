/* SPDX-License-Identifier: Apache-2.0 */
/* From a path to who answers, and all that is refused before a body is read.
 *
 * The order of why_not is a matter of what an answer reveals: without a key a client gets the open paths alone, and
 * does not learn which others there are. Host is checked next, then path, method, the gateway's end, and the form of
 * the body. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client/gateway/gateway.h"

static void (*const answers[GW_NUM_PATHS])(gateway *g, http_conn *c) = {
    [GW_PATH_COMPLETIONS] = gw_completions,
    [GW_PATH_CHAT] = gw_chat,
    [GW_PATH_EMBEDDINGS] = gw_embeddings,
    [GW_PATH_TOKENIZE] = gw_tokenize,
    [GW_PATH_DETOKENIZE] = gw_detokenize,
    [GW_PATH_MODELS] = gw_models,
    [GW_PATH_ONE_MODEL] = gw_one_model,
    [GW_PATH_HEALTH] = gw_health,
    [GW_PATH_READY] = gw_health,
    [GW_PATH_LIVE] = gw_live,
    [GW_PATH_VERSION] = gw_version,
    [GW_PATH_METRICS] = gw_metrics,
    [GW_PATH_ROOT] = gw_root,
};

/* Parameters after the type, as charset, are not looked at: JSON is UTF-8. */
static bool is_json(http_str type) {
  static const char json[] = "application/json";
  const size_t len = sizeof json - 1;
  if (type.len < len || strncasecmp(type.s, json, len)) return false;
  return type.len == len || type.s[len] == ';' || type.s[len] == ' ';
}

/* A body is read as it is sent. */
static bool is_plain(http_str encoding) {
  static const char identity[] = "identity";
  return !encoding.len ||
         (encoding.len == sizeof identity - 1 && !strncasecmp(encoding.s, identity, sizeof identity - 1));
}

/* A page of another origin whose name was made to point here sends its own name as Host: without keys, that is all that
 * tells it apart. Addresses and localhost are no such names. */
static bool is_own_name(http_str host) {
  static const char local[] = "localhost";
  const size_t len = sizeof local - 1;
  if (!host.len) return true;
  if (host.len >= len && !strncasecmp(host.s, local, len)) return host.len == len || host.s[len] == ':';
  for (size_t i = 0; i < host.len; i++)
    if (*host.s != '[' && host.s[i] != ':' && host.s[i] != '.' && (host.s[i] < '0' || host.s[i] > '9')) return false;
  return true;
}

/* Says which path there is not, and which ones there are. */
static void respond_no_path(const gateway *g, http_conn *c) {
  enum { SHOWN = 100 };
  http_str path = http_parser_path(http_conn_request(c));
  bool is_long = path.len > SHOWN;
  tri_buf paths = {0}, words = {0};
  gw_paths_text(g, &paths);
  tri_text_printf(&words, "there is no such path: %.*s%s; the paths are %.*s", is_long ? SHOWN : (int)path.len, path.s,
                  is_long ? "..." : "", (int)paths.len, paths.data ? paths.data : "");
  tri_text_add(&words, "", 1);
  gw_respond_error(c, &(oai_error){404, "not_found", "", words.failed ? "there is no such path" : words.data});
  tri_buf_free(&paths);
  tri_buf_free(&words);
}

static oai_error why_not(const gateway *g, const http_parser *p, const gw_path *r) {
  char name[GW_KEY_NAME];
  bool allowed = (r && r->open) || gw_keys_allow(g->keys, http_parser_field(p, "authorization"), name);
  if (!allowed) return (oai_error){401, "permission", "", "the API key is missing or wrong"};
  if (g->loopback && !g->keys && !is_own_name(http_parser_field(p, "host")))
    return (oai_error){403, "permission", "Host",
                       "the gateway listens on loopback, and Host is another name: with --api-key-file it may be any"};
  if (!r) return (oai_error){404, "not_found", "", "there is no such path"};
  if (p->method == HTTP_OPTIONS && !g->origins)
    return (oai_error){405, "unsupported", "", "no pages of other origins may ask here: --cors-origin names them"};
  if (!(r->methods & 1u << p->method))
    return (oai_error){405, "unsupported", "",
                       r->methods == 1 << HTTP_POST ? "this path takes POST" : "this path takes GET"};
  if (g->refusing && !r->open) return (oai_error){503, "draining", "", "the gateway is shutting down"};
  if (p->method == HTTP_POST && !is_json(http_parser_field(p, "content-type")))
    return (oai_error){415, "unsupported", "Content-Type", "Content-Type must be application/json"};
  if (p->method == HTTP_POST && !is_plain(http_parser_field(p, "content-encoding")))
    return (oai_error){415, "unsupported", "Content-Encoding",
                       "Content-Encoding must be identity: bodies that are compressed are not read"};
  return (oai_error){0};
}

/* Called before a body is read, so that what is refused costs no memory. A connection that was let through to a path
 * which is not open is trusted (http_conn_trust). */
void gw_on_head(void *ctx, http_conn *c) {
  const http_parser *p = http_conn_request(c);
  if (gw_cors_preflight(ctx, c)) return; /* it brings no key */
  const gw_path *r = gw_path_find(http_parser_path(p));
  if (r && !gw_path_exists(ctx, r)) r = NULL;
  oai_error e = why_not(ctx, p, r);
  if (e.status == 404)
    respond_no_path(ctx, c);
  else if (e.status == 405)
    gw_respond_error_with(c, &e, r->methods == 1 << HTTP_POST ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n");
  else if (e.status)
    gw_respond_error(c, &e);
  else if (!r->open)
    http_conn_trust(c);
}

void gw_on_request(void *ctx, http_conn *c) {
  gateway *g = ctx;
  const gw_path *r = gw_path_find(http_parser_path(http_conn_request(c)));
  /* A request for an answer of the model waits for a coordinator that is away; a question how it is hears that. */
  bool away = !g->client || (trireme_is_away(g->client) && http_conn_request(c)->method == HTTP_GET);
  if (!away || r->alone)
    answers[r - gw_paths](g, c);
  else
    gw_respond_no_coordinator(c);
}

void gw_on_answer(void *ctx, http_conn *c, int status, const char *fields) {
  const gw_path *r = gw_path_find(http_parser_path(http_conn_request(c)));
  gw_count_answer(ctx, r ? (unsigned)(r - gw_paths) : GW_NUM_PATHS, status);
  bool probe = r && r->open && status == 503; /* who asks whether it serves has an answer */
  if (!probe) gw_access_log(ctx, c, status, fields);
}

/* Without a reader the exchange is over, and its jobs are cancelled. */
void gw_on_gone(void *ctx, http_conn *c, http_gone why) {
  gateway *g = ctx;
  gw_exchange *x = http_conn_data(c);
  if (!x) return;
  g->counts.gone[why]++;
  x->conn = NULL;
  gw_exchange_close(x);
}

void gw_on_drained(void *ctx, http_conn *c) {
  gw_exchange *x = http_conn_data(c);
  (void)ctx;
  if (x && x->kind->drained) x->kind->drained(x);
}

void gw_on_cut(void *ctx, http_conn *c) {
  gw_exchange *x = http_conn_data(c);
  (void)ctx;
  if (x) gw_exchange_cut(x);
}

/* The HTTP server's own refusals, as of heads that cannot be parsed, in the form of all other errors. */
size_t gw_on_error(void *ctx, int status, const char *why, char *out, size_t cap) {
  const gateway *g = ctx;
  char large[96];
  tri_buf b = {0};
  const char *code = status >= 500 ? "unsupported" : "corrupt";
  if (status == 503) code = g->refusing ? "draining" : "no_capacity";
  if (status == 408) code = "timeout";
  if (status == 413 || status == 414 || status == 431) code = "too_large";
  if (status == 413) {
    snprintf(large, sizeof large, "%s of %zu bytes (--http-max-body)", why, (size_t)g->o.http.max_body);
    why = large;
  }
  oai_error_json(&b, &(oai_error){status, code, "", why});
  size_t n = b.failed || b.len > cap ? 0 : b.len;
  if (n) memcpy(out, b.data, n);
  tri_buf_free(&b);
  return n;
}
