/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays: of bytes, and room in any other. Sizes are checked; what is there stays when memory is out. */
#ifndef TRI_BASE_BUF_H
#define TRI_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Bytes. A buffer is reused: its memory stays when len becomes 0. All zeros is an empty one. One thread uses a buffer;
 * tri_buf_free leaves an empty one, which may be used again. */
typedef struct tri_buf {
  char *data;
  size_t len, cap;
  size_t max;  /* beyond it TRI_TOO_LARGE, so that hostile input cannot grow it without end; 0: no limit */
  bool failed; /* of the functions of base/text.h, which return no status: the text is incomplete */
} tri_buf;

/* Makes room for `extra` bytes after len. */
tri_status tri_buf_reserve(tri_buf *b, size_t extra);
tri_status tri_buf_append(tri_buf *b, const void *s, size_t n);
void tri_buf_free(tri_buf *b);

/* Makes room for `extra` elements after the first `len` of an array: *array is a pointer to elements of `size` bytes,
 * from tri_malloc and the like or NULL, and *cap says how many fit. What moves grows by at least a half; the `len`
 * elements are kept, and those after them are zero then. */
tri_status tri_array_reserve(void *array, size_t len, size_t *cap, size_t extra, size_t size);

#endif
