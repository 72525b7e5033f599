/* SPDX-License-Identifier: Apache-2.0 */
/* X-Request-Id: the name that a client has given its request, or else one of the gateway's own. A given one is returned
 * as it is and goes into logs, so only visible ASCII is taken; another is as good as none. Those drawn have 128 random
 * bits, and need no counter that a restart would repeat. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "client/gateway/gateway.h"

bool gw_id_draw(char hex[GW_HEX_ID]) {
  unsigned char bytes[(GW_HEX_ID - 1) / 2];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
  return true;
}

http_str gw_id_given(const http_conn *c) {
  http_str id = http_parser_field(http_conn_request(c), "x-request-id");
  bool plain = id.len && id.len <= GW_MOST_GIVEN_ID;
  for (size_t i = 0; plain && i < id.len; i++) plain = id.s[i] > ' ' && id.s[i] < 0x7f;
  return plain ? id : (http_str){0};
}

/* A request that was refused before it had a name gets one for its answer alone. */
size_t gw_id_line(const http_conn *c, char *out, size_t cap) {
  const gw_exchange *x = c ? http_conn_data(c) : NULL;
  http_str id = c ? gw_id_given(c) : (http_str){0};
  char drawn[GW_ID] = "req-";
  out[0] = '\0';
  if (!id.len && x) id = (http_str){x->id, strlen(x->id)};
  if (!id.len && gw_id_draw(drawn + 4)) id = (http_str){drawn, strlen(drawn)};
  int n = id.len ? snprintf(out, cap, "X-Request-Id: %.*s\r\n", (int)id.len, id.s) : 0;
  return n > 0 && (size_t)n < cap ? (size_t)n : 0;
}

size_t gw_on_error_lines(void *ctx, const http_conn *c, char *out, size_t cap) {
  (void)ctx;
  return gw_id_line(c, out, cap);
}
