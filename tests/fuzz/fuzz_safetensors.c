/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors header. The first line is the number of bytes of data behind the header, the rest is the
 * header: refused with a reason, or tensors that lie inside the data, side by side. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const tri_st_tensor *t, size_t count, uint64_t data_len) {
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t elements = 1;
    if (t[i].rank < 0 || t[i].rank > TRI_ST_MAX_RANK || t[i].offset != at || t[i].bytes > data_len - at) abort();
    for (int k = 0; k < t[i].rank; k++) elements *= (uint64_t)t[i].shape[k];
    if (t[i].dtype < TRI_DTYPE_COUNT && elements * tri_dtype_size(t[i].dtype) != t[i].bytes) abort();
    if (strlen(t[i].name) > 1 << 20) abort();
    at += t[i].bytes;
  }
  if (at != data_len) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *line = memchr(data, '\n', size < 24 ? size : 24);
  uint64_t data_len = 0;
  size_t head = line ? (size_t)(line - data) + 1 : 0;
  for (size_t i = 0; i + 1 < head; i++) data_len = data_len * 10 + (data[i] & 15);
  tri_st_tensor *tensors = NULL;
  size_t count = 0;
  char *names = NULL;
  tri_error err = {0};
  if (tri_st_parse_header((const char *)data + head, size - head, data_len, &tensors, &count, &names, &err) == TRI_OK)
    check(tensors, count, data_len);
  else if (err.status == TRI_OK || !err.message[0] || tensors || names)
    abort(); /* a refusal without a reason, or with half a result */
  tri_free(tensors);
  tri_free(names);
  return 0;
}
