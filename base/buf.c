/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <string.h>

#include "base/mem.h"

tri_status tri_array_reserve(void *array, size_t len, size_t *cap, size_t extra, size_t size) {
  size_t need, more;
  if (*cap - len >= extra) return TRI_OK;
  if (!tri_size_add(len, extra, &need)) return TRI_OVERFLOW;
  if (!tri_size_add(*cap, *cap / 2 + 64, &more) || more < need) more = need;
  void *old; /* *array has the type of its elements' pointer */
  memcpy(&old, array, sizeof old);
  void *grown = tri_grow(old, len, more, size);
  if (grown == NULL) return TRI_NO_MEMORY;
  memcpy(array, &grown, sizeof grown);
  *cap = more;
  return TRI_OK;
}

tri_status tri_buf_reserve(tri_buf *b, size_t extra) {
  if (b->max != 0 && (b->len > b->max || extra > b->max - b->len)) return TRI_TOO_LARGE;
  return tri_array_reserve(&b->data, b->len, &b->cap, extra, 1);
}

tri_status tri_buf_append(tri_buf *b, const void *s, size_t n) {
  tri_status st = tri_buf_reserve(b, n);
  if (st != TRI_OK || n == 0) return st;
  memcpy(b->data + b->len, s, n);
  b->len += n;
  return TRI_OK;
}

void tri_buf_free(tri_buf *b) {
  tri_free(b->data);
  *b = (tri_buf){0};
}
