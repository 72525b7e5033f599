/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a client or a coordinator would send them: both unpackers of the client protocol. What unpacks must pack
 * again and unpack to the same bytes; what is refused must say why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
  if (!ok) abort();
}

static void try_client(const uint8_t *data, size_t size, tri_buf *one, tri_buf *two) {
  static tri_client_msg m;
  tri_arena *a = NULL;
  tri_error err = {0};
  uint64_t id = 0;
  check(tri_arena_create(4096, &a) == TRI_OK);
  tri_status st = tri_client_msg_unpack(data, size, a, &m, &id, &err);
  check(st == TRI_OK || (err.status == st && err.message[0]));
  if (!st && !tri_client_msg_pack(&m, one)) {
    check(tri_client_msg_unpack(one->data, one->len, a, &m, &id, &err) == TRI_OK);
    check(tri_client_msg_pack(&m, two) == TRI_OK && one->len == two->len && !memcmp(one->data, two->data, one->len));
  }
  tri_arena_destroy(a);
}

static void try_server(const uint8_t *data, size_t size, tri_buf *one, tri_buf *two) {
  static tri_server_msg m;
  tri_arena *a = NULL;
  tri_error err = {0};
  check(tri_arena_create(4096, &a) == TRI_OK);
  tri_status st = tri_server_msg_unpack(data, size, a, &m, &err);
  check(st == TRI_OK || (err.status == st && err.message[0]));
  if (!st && !tri_server_msg_pack(&m, one)) {
    check(tri_server_msg_unpack(one->data, one->len, a, &m, &err) == TRI_OK);
    /* A NaN may change its payload on the way through float and double, so the bytes are not compared. */
    check(tri_server_msg_pack(&m, two) == TRI_OK && one->len == two->len);
  }
  tri_arena_destroy(a);
}

/* A frame from the server may hold several messages: each as a client would find it. */
static void try_frame(const uint8_t *data, size_t size, tri_buf *one, tri_buf *two) {
  tri_error err = {0};
  size_t used = 0;
  while (size && tri_wire_first(data, size, &used, &err) == TRI_OK) {
    check(used > 0 && used <= size);
    try_server(data, used, one, two);
    data += used;
    size -= used;
  }
  check(!size || err.message[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_buf one = {0}, two = {0};
  try_client(data, size, &one, &two);
  try_server(data, size, &one, &two);
  try_frame(data, size, &one, &two);
  tri_buf_free(&one);
  tri_buf_free(&two);
  return 0;
}
