/* SPDX-License-Identifier: Apache-2.0 */
/* The log's line of a request that was refused, which the coordinator may never have heard of. It has words of the form
 * KEY=VALUE, and of what was asked the method and the path alone: a query or a body may hold what is private.
 *
 * A client chooses all of these values. The id was checked when it was taken (gw_id_given), the path is made printable
 * here, and neither can forge a second line. Lines are counted in windows of one second that begin with a line, not
 * with the clock's second. */
#include <stdio.h>
#include <string.h>

#include "client/gateway/gateway.h"
#include "base/log.h"
#include "base/wait.h"

enum { LINES_A_SECOND = 20, PATH_BYTES = 120, NS_PER_S = 1000000000 };

/* Returns whether there is room for another line; a client that sends many wrong requests does not fill a disk with
 * them. */
static bool has_room(gw_access *a, int64_t now) {
  if (now - a->second >= NS_PER_S) {
    if (a->left_out) tri_log(TRI_LOG_INFO, "request", "%u more requests were refused in that second", a->left_out);
    *a = (gw_access){.second = now};
  }
  bool room = a->lines < LINES_A_SECOND;
  if (room)
    a->lines++;
  else
    a->left_out++;
  return room;
}

/* The path, with '?' for what a line of a log may not have. */
static void copy_path(const http_conn *c, char out[PATH_BYTES]) {
  http_str path = http_parser_path(http_conn_request(c));
  size_t n = path.len < PATH_BYTES ? path.len : PATH_BYTES - 1;
  for (size_t i = 0; i < n; i++) out[i] = path.s[i] > ' ' && path.s[i] < 0x7f ? path.s[i] : '?';
  out[n] = '\0';
  if (!n) snprintf(out, PATH_BYTES, "-");
}

static const char *method_of(const http_conn *c) {
  static const char *const names[] = {
      [HTTP_GET] = "GET", [HTTP_HEAD] = "HEAD", [HTTP_POST] = "POST", [HTTP_OPTIONS] = "OPTIONS"};
  unsigned m = (unsigned)http_conn_request(c)->method;
  return m < sizeof names / sizeof *names && names[m] ? names[m] : "-";
}

/* The id is read out of the answer's own header lines, so that the log has what the client got, also an id drawn for
 * this answer alone. */
void gw_access_log(gateway *g, const http_conn *c, int status, const char *fields) {
  static const char name[] = "X-Request-Id: ";
  const char *id = fields ? strstr(fields, name) : NULL;
  char path[PATH_BYTES], peer[HTTP_PEER_BYTES];
  if (status < 400 || !has_room(&g->access, tri_now_ns())) return;
  id = id ? id + sizeof name - 1 : "-";
  copy_path(c, path);
  http_conn_peer(c, peer);
  tri_log(TRI_LOG_INFO, "request", "id=%.*s from=%s method=%s path=%s status=%d", (int)strcspn(id, "\r\n"), id, peer,
          method_of(c), path, status);
}
