/* SPDX-License-Identifier: Apache-2.0 */
/* CORS: pages of the origins that --cors-origin names may read answers. Without it browsers keep answers from them.
 *
 * An answer names the one origin that asked, and says so to caches with Vary; a star stands for all. Origins are
 * compared byte for byte, as browsers send them in one form. A preflight is answered before a key is looked for, since
 * browsers send none with it; the request that follows needs its key as any other. */
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/mem.h"

enum { MOST_ORIGINS = 64, MOST_NAMES = 1024 };

struct gw_origins {
  bool any;
  size_t num;
  char *names[MOST_ORIGINS];
};

void gw_origins_free(gw_origins *o) {
  if (!o) return;
  for (size_t i = 0; i < o->num; i++) tri_free(o->names[i]);
  tri_free(o);
}

static tri_status add(void *ctx, const char *origin, tri_error *err) {
  gw_origins *o = ctx;
  if (!strcmp(origin, "*")) {
    o->any = true;
    return TRI_OK;
  }
  if (o->num == MOST_ORIGINS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "cors-origin", "--cors-origin has more than %d origins", MOST_ORIGINS);
  o->names[o->num] = tri_strdup(origin);
  if (!o->names[o->num]) return tri_fail(err, TRI_NO_MEMORY, "cors-origin", "no memory");
  o->num++;
  return TRI_OK;
}

tri_status gw_origins_make(const tri_gateway_options *options, gw_origins **out, tri_error *err) {
  tri_status st = TRI_OK;
  if (!options->cors_origins.count) return TRI_OK;
  gw_origins *o = tri_calloc(1, sizeof *o);
  if (!o) return tri_fail(err, TRI_NO_MEMORY, "cors-origin", "no memory");
  TRI_TRY(tri_gateway_each_origin(options, add, o, err));
  *out = o;
  o = NULL;
cleanup:
  gw_origins_free(o);
  return st;
}

/* Returns the name that an answer allows: that of the request's origin, a star, or NULL. */
static const char *allowed(const gw_origins *o, http_str origin) {
  if (!origin.len) return NULL;
  if (o->any) return "*";
  for (size_t i = 0; i < o->num; i++)
    if (strlen(o->names[i]) == origin.len && !memcmp(o->names[i], origin.s, origin.len)) return o->names[i];
  return NULL;
}

/* An answer that depends on Origin says so also where it allows none: a cache must not give it to another origin. */
size_t gw_cors_lines(void *ctx, http_conn *c, char *out, size_t cap) {
  const gateway *g = ctx;
  const gw_origins *o = g->origins;
  out[0] = '\0';
  if (!o) return 0;
  const char *name = allowed(o, http_parser_field(http_conn_request(c), "origin"));
  int n = snprintf(out, cap, "%s%s%s%s", name ? "Access-Control-Allow-Origin: " : "", name ? name : "",
                   name ? "\r\nAccess-Control-Expose-Headers: X-Request-Id, X-Trireme-Ignored, Retry-After\r\n" : "",
                   o->any ? "" : "Vary: Origin\r\n");
  return n > 0 && (size_t)n < cap ? (size_t)n : 0;
}

/* Returns whether these are names of header fields with commas between them, and not too many. */
static bool are_names(http_str s) {
  for (size_t i = 0; i < s.len; i++)
    if (s.s[i] != ',' && s.s[i] != ' ' && !tri_text_is_token(s.s + i, 1)) return false;
  return s.len <= MOST_NAMES;
}

bool gw_cors_preflight(gateway *g, http_conn *c) {
  const http_parser *p = http_conn_request(c);
  char fields[MOST_NAMES + 256];
  http_str asked = http_parser_field(p, "access-control-request-headers");
  if (p->method != HTTP_OPTIONS || !g->origins || !http_parser_field(p, "access-control-request-method").len)
    return false;
  if (!allowed(g->origins, http_parser_field(p, "origin"))) {
    gw_respond_error(c, &(oai_error){403, "permission", "Origin", "the origin is none of --cors-origin"});
  } else if (!are_names(asked)) {
    gw_respond_error(c, &(oai_error){400, "invalid_argument", "Access-Control-Request-Headers",
                                     "Access-Control-Request-Headers is no list of names, or too long"});
  } else {
    snprintf(fields, sizeof fields,
             "Access-Control-Allow-Methods: GET, HEAD, POST\r\n%s%.*s%sAccess-Control-Max-Age: 600\r\n",
             asked.len ? "Access-Control-Allow-Headers: " : "", (int)asked.len, asked.len ? asked.s : "",
             asked.len ? "\r\n" : "");
    http_respond(c, 200, "text/plain", fields, "", 0);
  }
  return true;
}
