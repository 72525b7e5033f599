/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stack/call.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the connection ---- */

call *call_open(int port, const char *bytes, size_t len) {
  struct sockaddr_in to = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  call *c = calloc(1, sizeof *c);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  c->left = -1;
  ck_assert_int_ge(c->fd, 0);
  ck_assert_msg(!connect(c->fd, (struct sockaddr *)&to, sizeof to), "%s",
                strerror(errno)); /* the kernel's backlog has room */
  ck_assert_int_eq(tri_buf_append(&c->out, bytes, len), TRI_OK);
  ck_assert_int_eq(tri_buf_reserve(&c->body, 1), TRI_OK);
  c->body.data[0] = '\0';
  return c;
}

void call_close(call *c) {
  if (!c) return;
  close(c->fd);
  tri_buf_free(&c->out);
  tri_buf_free(&c->in);
  tri_buf_free(&c->body);
  free(c);
}

void call_field(const call *c, const char *name, char *out, size_t cap) {
  size_t n = strlen(name);
  out[0] = '\0';
  for (const char *p = c->in.data; p && p < c->in.data + c->head_len;) {
    const char *end = memmem(p, (size_t)(c->in.data + c->head_len - p), "\r\n", 2);
    if (!end) return;
    if ((size_t)(end - p) > n && p[n] == ':' && !strncasecmp(p, name, n)) {
      const char *value = p + n + 1 + strspn(p + n + 1, " ");
      snprintf(out, cap, "%.*s", (int)(end - value), value);
    }
    p = end + 2;
  }
}

static void add_body(call *c, size_t n) {
  ck_assert_int_eq(tri_buf_reserve(&c->body, n + 1), TRI_OK);
  memcpy(c->body.data + c->body.len, c->in.data + c->read, n);
  c->body.len += n;
  c->body.data[c->body.len] = '\0';
  c->read += n;
  if (c->left >= 0) c->left -= (long)n;
}

static bool read_head(call *c) {
  char text[64];
  const char *end = c->in.len ? memmem(c->in.data, c->in.len, "\r\n\r\n", 4) : NULL;
  if (!end) return false;
  c->head_len = c->read = (size_t)(end - c->in.data) + 4;
  ck_assert_int_eq(sscanf(c->in.data, "HTTP/1.%*d %d", &c->status), 1);
  call_field(c, "Transfer-Encoding", text, sizeof text);
  c->chunked = !strcmp(text, "chunked");
  call_field(c, "Content-Length", text, sizeof text);
  if (*text && !c->chunked) c->left = atol(text);
  if (c->chunked) c->left = 0;
  return true;
}

/* Takes what is there of a chunk, or the line with the next one's length. */
static bool read_chunk(call *c) {
  size_t have = c->in.len - c->read;
  if (c->left > 0) {
    size_t n = have < (size_t)c->left ? have : (size_t)c->left;
    if (!n) return false;
    add_body(c, n);
    return true;
  }
  size_t before = c->body.len && !c->left ? 2 : 0; /* the end of the line of the one before */
  const char *at = c->in.data + c->read + before;
  if (have < before + 3 || !memmem(at, have - before, "\r\n", 2)) return false;
  char *end;
  c->left = strtol(at, &end, 16);
  c->read = (size_t)(end - c->in.data) + 2;
  c->whole = c->left == 0;
  return !c->whole;
}

static void take(call *c) {
  if (!c->status && !read_head(c)) return;
  if (c->chunked) {
    while (!c->whole && read_chunk(c)) {
    }
    return;
  }
  size_t have = c->in.len - c->read, n = c->left >= 0 && have > (size_t)c->left ? (size_t)c->left : have;
  add_body(c, n);
  c->whole = !c->left;
}

void call_turn(call *c) {
  char part[65536];
  ssize_t n;
  while (c->sent < c->out.len &&
         (n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
    c->sent += (size_t)n;
  if (c->deaf || c->over) return;
  while ((n = recv(c->fd, part, sizeof part, MSG_DONTWAIT)) > 0) {
    ck_assert_int_eq(tri_buf_append(&c->in, part, (size_t)n), TRI_OK);
    take(c);
  }
  if (n < 0 && errno == EAGAIN) return;
  c->over = true;
  if (c->status && !c->chunked && c->left < 0) c->whole = true;
}

/* ---- JSON ---- */

typedef struct place {
  char path[256];
  char *why;
  size_t cap;
} place;

static bool say(const place *at, const json_t *have, const char *want) {
  char *text = have ? json_dumps(have, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  snprintf(at->why, at->cap, "%s: %.300s, not %s", at->path, text ? text : "nothing", want);
  free(text);
  return false;
}

static bool matches(const char *text, const char *pattern) {
  char inner[512];
  regex_t r;
  snprintf(inner, sizeof inner, "^(%.*s)$", (int)strlen(pattern) - 2, pattern + 1);
  ck_assert_msg(!regcomp(&r, inner, REG_EXTENDED | REG_NOSUB), "%s", inner);
  bool ok = !regexec(&r, text, 0, NULL, 0);
  regfree(&r);
  return ok;
}

static bool same_text(const place *at, const json_t *have, const char *want) {
  size_t n = strlen(want);
  if (!strcmp(want, "*")) return have || say(at, have, "anything");
  if (!strcmp(want, "#")) return json_is_number(have) || say(at, have, "a number");
  if (!strcmp(want, "<0"))
    return (json_is_number(have) && json_number_value(have) < 0) || say(at, have, "a number below 0");
  if (!json_is_string(have)) return say(at, have, want);
  bool ok = n > 2 && want[0] == '/' && want[n - 1] == '/' ? matches(json_string_value(have), want)
                                                          : !strcmp(json_string_value(have), want);
  return ok || say(at, have, want);
}

static bool same(place *at, const json_t *have, json_t *want);

static bool same_members(place *at, const json_t *have, json_t *want) {
  size_t len = strlen(at->path);
  const char *key;
  json_t *value;
  bool open = json_object_get(want, "...") != NULL;
  json_object_foreach(want, key, value) {
    if (!strcmp(key, "...")) continue;
    snprintf(at->path + len, sizeof at->path - len, ".%s", key);
    if (!same(at, json_object_get(have, key), value)) return false;
  }
  json_object_foreach((json_t *)(uintptr_t)have, key, value) {
    snprintf(at->path + len, sizeof at->path - len, ".%s", key);
    if (!open && !json_object_get(want, key)) return say(at, value, "nothing");
  }
  at->path[len] = '\0';
  return true;
}

static bool same_elements(place *at, const json_t *have, json_t *want) {
  size_t len = strlen(at->path), n = json_array_size(want);
  const char *last = n ? json_string_value(json_array_get(want, n - 1)) : NULL;
  bool open = last && !strcmp(last, "...");
  if (open) n--;
  for (size_t i = 0; i < n; i++) {
    snprintf(at->path + len, sizeof at->path - len, "[%zu]", i);
    if (!same(at, json_array_get(have, i), json_array_get(want, i))) return false;
  }
  at->path[len] = '\0';
  return open || json_array_size(have) == n || say(at, have, "as many elements");
}

static bool same(place *at, const json_t *have, json_t *want) {
  if (json_is_string(want)) return same_text(at, have, json_string_value(want));
  if (json_is_object(want)) return json_is_object(have) ? same_members(at, have, want) : say(at, have, "an object");
  if (json_is_array(want)) return json_is_array(have) ? same_elements(at, have, want) : say(at, have, "an array");
  bool ok = json_is_number(want) ? json_is_number(have) && json_number_value(have) == json_number_value(want)
                                 : json_equal(have, want);
  char *text = ok ? NULL : json_dumps(want, JSON_ENCODE_ANY);
  if (!ok) say(at, have, text);
  free(text);
  return ok;
}

const char *json_differs(const json_t *have, const char *want, char *why, size_t cap) {
  json_error_t error;
  char *text = strdup(want);
  for (char *p = text; *p; p++)
    if (*p == '\'') *p = '"';
  json_t *w = json_loads(text, JSON_DECODE_ANY, &error);
  ck_assert_msg(w != NULL, "%s: %s", want, error.text);
  place at = {.why = why, .cap = cap};
  bool ok = same(&at, have, w);
  json_decref(w);
  free(text);
  return ok ? NULL : why;
}
