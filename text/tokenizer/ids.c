/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/ids.h"

#include <string.h>

#include "base/mem.h"

/* The one place where a limit of tokens is checked; everything that makes ids goes through it. */
tri_status tok_ids_append(tok_ids *ids, const uint32_t *from, size_t n) {
  bool too_many = n > ids->max - ids->len;
  if (too_many && !ids->fills) return TRI_TOO_LARGE;
  if (too_many) n = ids->max - ids->len;
  if (n == 0) return too_many ? TRI_TOO_LARGE : TRI_OK;
  TRI_CHECK(tri_array_reserve(&ids->data, ids->len, &ids->cap, n, sizeof *ids->data));
  memcpy(ids->data + ids->len, from, n * sizeof *from);
  ids->len += n;
  return too_many ? TRI_TOO_LARGE : TRI_OK;
}

tri_status tok_ids_push(tok_ids *ids, uint32_t id) { return tok_ids_append(ids, &id, 1); }

void tok_ids_free(tok_ids *ids) {
  tri_free(ids->data);
  *ids = (tok_ids){0};
}
