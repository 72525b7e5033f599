/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that the parser takes or refuses (tests/data/http-requests.txt, and limits), whole and in pieces. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/http_parse.h"
#include "base/hash.h"
#include "base/mem.h"

Suite *suite_http_parse(void);

enum { BODY_LIMIT = 1000, REQUEST_BYTES = 128 * 1024, NUM_REQUESTS = 47 };

/* A request as bytes, and what became of it. */
typedef struct text {
  char *s;
  size_t len;
} text;
typedef struct result {
  int statuses[4]; /* of each request: 200 where it was taken; 0: nothing yet */
  int num;
  char body[256]; /* of the last one */
  char path[256];
} result;

static int hex(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

static size_t unescape(const char *s, size_t len, char *out) {
  size_t n = 0;
  for (size_t i = 0; i < len; i++) {
    char c = s[i];
    if (c == '\\') {
      c = s[++i];
      if (c == 'r') c = '\r';
      if (c == 'n') c = '\n';
      if (c == 't') c = '\t';
      if (c == '0') c = '\0';
      if (c == 'x') {
        c = (char)(hex(s[i + 1]) * 16 + hex(s[i + 2]));
        i += 2;
      }
    } else if (c == '{') {
      char *star;
      size_t times = strtoul(s + i + 1, &star, 10), from = (size_t)(star + 1 - s);
      i = (size_t)((const char *)memchr(s + from, '}', len - from) - s);
      for (; times; times--) n += unescape(s + from, i - from, out + n);
      continue;
    }
    out[n++] = c;
  }
  return n;
}

static void copy(char out[256], const char *s, size_t len) {
  if (len > 255) len = 255;
  if (len) memcpy(out, s, len);
  out[len] = '\0';
}

/* Gives a parser a text in pieces: of that length, or of 1 to so many bytes. */
static result parse(text t, size_t piece, uint64_t *rng) {
  http_parser p;
  result r = {0};
  http_parser_init(&p, BODY_LIMIT);
  for (size_t at = 0; at < t.len && r.num < 4;) {
    size_t n = piece;
    if (rng) n = 1 + (size_t)(tri_splitmix64(rng) % piece);
    if (n > t.len - at) n = t.len - at;
    for (size_t end = at + n, used; r.num < 4;) {
      http_outcome outcome = http_parse(&p, t.s + at, end - at, &used);
      at += used;
      if (outcome == HTTP_MORE) {
        ck_assert_uint_eq(at, end);
        break;
      }
      if (outcome == HTTP_HEAD_DONE) continue;
      if (outcome == HTTP_REFUSED) {
        ck_assert(p.why && p.why[0]);
        r.statuses[r.num++] = p.status;
        ck_assert_int_eq(http_parse(&p, "x", 1, &used), HTTP_REFUSED); /* it stays so */
        goto over;
      }
      http_str path = http_parser_path(&p);
      copy(r.path, path.s, path.len);
      copy(r.body, p.body.data, p.body.len);
      r.statuses[r.num++] = 200;
      http_parser_reset(&p);
    }
  }
over:
  http_parser_free(&p);
  return r;
}

/* However it is cut. */
static result parse_all_ways(text t, uint64_t *rng) {
  result whole = parse(t, t.len ? t.len : 1, NULL), bytes = parse(t, 1, NULL);
  ck_assert_msg(!memcmp(&whole, &bytes, sizeof whole), "byte by byte it is another request");
  for (int i = 0; i < 20; i++) {
    result cut = parse(t, 1 + (size_t)i * 7, rng);
    ck_assert_msg(!memcmp(&whole, &cut, sizeof whole), "in pieces it is another request");
  }
  return whole;
}

static bool wanted(const char *list, const result *r) {
  int a = 0, b = 0;
  if (sscanf(list, "%d/%d", &a, &b) == 2) return r->num == 1 && (r->statuses[0] == a || r->statuses[0] == b);
  if (sscanf(list, "%d %d", &a, &b) == 2) return r->num == 2 && r->statuses[0] == a && r->statuses[1] == b;
  return sscanf(list, "%d", &a) == 1 && r->num == 1 && r->statuses[0] == a;
}

START_TEST(the_table) {
  char line[4096], *bytes = tri_malloc(REQUEST_BYTES, 1);
  FILE *f = fopen(TRI_SOURCE "/tests/data/http-requests.txt", "r");
  uint64_t rng = 1;
  int count = 0;
  ck_assert(f && bytes);
  while (fgets(line, sizeof line, f)) {
    char *status = strstr(line, " | "), *request = status ? strstr(status + 3, " | ") : NULL;
    if (line[0] == '#' || !request) continue;
    request[0] = '\0';
    request += 3;
    text t = {bytes, unescape(request, strcspn(request, "\n"), bytes)};
    result r = parse_all_ways(t, &rng);
    ck_assert_msg(wanted(status + 3, &r), "%s: %d answers, the first %d", line, r.num, r.statuses[0]);
    count++;
  }
  fclose(f);
  tri_free(bytes);
  ck_assert_int_eq(count, NUM_REQUESTS);
}
END_TEST

static result parse_text(const char *s) {
  uint64_t rng = 2;
  char *bytes = tri_malloc(REQUEST_BYTES, 1);
  ck_assert_ptr_nonnull(bytes);
  text t = {bytes, unescape(s, strlen(s), bytes)};
  result r = parse_all_ways(t, &rng);
  tri_free(bytes);
  return r;
}

START_TEST(limits) {
  static const struct {
    int status;
    const char *request;
  } cases[] = {
      {200, "GET /{2047*a} HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"},
      {414, "GET /{2048*a} HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"},
      {414, "GET /{9999*a}"},
      {200, "GET / HTTP/1.1\\r\\nHost: a\\r\\n{63*X: a\\r\\n}\\r\\n"},
      {431, "GET / HTTP/1.1\\r\\nHost: a\\r\\n{64*X: a\\r\\n}\\r\\n"},
      {200, "GET / HTTP/1.1\\r\\nHost: a\\r\\nX: {16352*a}\\r\\n\\r\\n"},
      {431, "GET / HTTP/1.1\\r\\nHost: a\\r\\nX: {16353*a}\\r\\n\\r\\n"},
      {413, "POST / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 1001\\r\\n\\r\\n"},
      {413, "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n3e9\\r\\n"},
      {413,
       "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n{1001*1\\r\\na\\r\\n}0\\r\\n\\r\\n"},
      {200,
       "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n{255*1\\r\\na\\r\\n}0\\r\\n\\r\\n"},
      {400, "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: "
            "chunked\\r\\n\\r\\n{199*1;"
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\\r\\n"
            "a\\r\\n}0\\r\\n\\r\\n"},
      {400, "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n{65*X: a\\r\\n}\\r\\n"},
      {400, "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\nX: {16384*a}\\r\\n\\r\\n"},
      {400, "POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\nbad trailer\\r\\n\\r\\n"},
      {400, "GET / HTTP/1.1\\r\\nHost: a b\\r\\n\\r\\n"},
      {400, "GET / HTTP/1.1\\r\\nHost: a\\r\\nAuthorization: x\\r\\nAuthorization: y\\r\\n\\r\\n"},
      {417, "POST / HTTP/1.1\\r\\nHost: a\\r\\nExpect: wonders\\r\\n\\r\\n"},
      {400, "GET http://a/ HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"},
      {405, "DELETE / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"},
      {200, "OPTIONS / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n"},
      {200, "\\r\\nGET / HTTP/1.0\\r\\n\\r\\n"},
      {400, "\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    result r = parse_text(cases[i].request);
    ck_assert_msg(r.num == 1 && r.statuses[0] == cases[i].status, "%.60s: %d, not %d", cases[i].request, r.statuses[0],
                  cases[i].status);
  }
}
END_TEST

START_TEST(bodies) {
  result r = parse_text("POST /a?b=c HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: Chunked\\r\\n\\r\\n"
                        "3;x=\"y\"\\r\\nabc\\r\\nA\\r\\n0123456789\\r\\n00\\r\\nX: y\\r\\n\\r\\n");
  ck_assert_str_eq(r.body, "abc0123456789");
  ck_assert_str_eq(r.path, "/a");
  r = parse_text("POST /a HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\n\\r\\nabc\\r\\nGET /b "
                 "HTTP/1.1\\r\\nHost:\\r\\n\\r\\n");
  ck_assert_int_eq(r.num, 2);
  ck_assert_str_eq(r.path, "/b");
}
END_TEST

static bool stays(const char *version, const char *connection) {
  char request[256];
  size_t used;
  http_parser p;
  http_parser_init(&p, BODY_LIMIT);
  int n = snprintf(request, sizeof request, "GET / HTTP/%s\r\nHost: a\r\nConnection: %s\r\nX:  y \r\n\r\n", version,
                   connection);
  ck_assert_int_eq(http_parse(&p, request, (size_t)n, &used), HTTP_HEAD_DONE);
  ck_assert_int_eq(used, n);
  http_str x = http_parser_field(&p, "x");
  ck_assert_msg(x.len == 1 && *x.s == 'y', "a header's value");
  ck_assert_ptr_null(http_parser_field(&p, "y").s);
  bool keep = p.keep_alive;
  http_parser_free(&p);
  return keep;
}

START_TEST(keep_alive) {
  ck_assert(stays("1.1", ""));
  ck_assert(stays("1.1", "upgrade"));
  ck_assert(!stays("1.1", "upgrade , CLOSE"));
  ck_assert(!stays("1.0", ""));
  ck_assert(stays("1.0", "Keep-Alive,x"));
}
END_TEST

START_TEST(expects) {
  static const char with[] = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n";
  static const char without[] = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n";
  size_t used;
  http_parser p;
  http_parser_init(&p, BODY_LIMIT);
  ck_assert_int_eq(http_parse(&p, with, sizeof with - 1, &used), HTTP_HEAD_DONE);
  ck_assert(p.expects_continue);
  http_parser_reset(&p);
  ck_assert_int_eq(http_parse(&p, without, sizeof without - 1, &used), HTTP_HEAD_DONE);
  ck_assert(!p.expects_continue);
  ck_assert_int_eq(http_parse(&p, NULL, 0, &used), HTTP_REQUEST_DONE);
  http_parser_free(&p);
}
END_TEST

Suite *suite_http_parse(void) {
  Suite *s = suite_create("http_parse");
  TCase *c = tcase_create("requests");
  tcase_add_test(c, the_table);
  tcase_add_test(c, limits);
  tcase_add_test(c, bodies);
  tcase_add_test(c, keep_alive);
  tcase_add_test(c, expects);
  suite_add_tcase(s, c);
  return s;
}
