/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a worker or a coordinator would send them on the group socket. What unpacks must pack again; what is
 * refused must say why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/replica.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
  if (!ok) abort();
}

static void try_one(const uint8_t *data, size_t size) {
  static tri_replica_msg m;
  tri_buf one = {0}, two = {0};
  tri_arena *a = NULL;
  tri_error err = {0};
  check(tri_arena_create(4096, &a) == TRI_OK);
  tri_status st = tri_replica_msg_unpack(data, size, a, &m, &err);
  check(st == TRI_OK || (err.status == st && err.message[0]));
  if (!st && !tri_replica_msg_pack(&m, &one)) {
    check(tri_replica_msg_unpack(one.data, one.len, a, &m, &err) == TRI_OK);
    check(tri_replica_msg_pack(&m, &two) == TRI_OK && one.len == two.len);
  }
  tri_arena_destroy(a);
  tri_buf_free(&one);
  tri_buf_free(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try_one(data, size);
  /* A frame to a worker may hold several messages. */
  size_t used = 0;
  tri_error err = {0};
  while (size && tri_wire_first(data, size, &used, &err) == TRI_OK) {
    check(used > 0 && used <= size);
    try_one(data, used);
    data += used;
    size -= used;
  }
  check(!size || err.message[0]);
  return 0;
}
