#include "runtime/tokenizer/buffer.h"

#include <string.h>

#include "runtime/base/mem.h"

/* The capacity that holds len + extra elements: at least half as much again as before, so that appends are amortised.
 */
static tri_status grown(size_t len, size_t cap, size_t extra, size_t *out) {
  size_t need, more;
  if (!tri_size_add(len, extra, &need)) return TRI_OVERFLOW;
  if (!tri_size_add(cap, cap / 2 + 64, &more)) more = need;
  *out = need > more ? need : more;
  return TRI_OK;
}

tri_status tok_buf_reserve(tok_buf *b, size_t extra) {
  if (b->max && (b->len > b->max || extra > b->max - b->len)) return TRI_TOO_LARGE;
  if (b->cap - b->len >= extra) return TRI_OK;
  size_t cap;
  tri_status st = grown(b->len, b->cap, extra, &cap);
  if (st != TRI_OK) return st;
  char *data = tri_malloc(cap, 1);
  if (!data) return TRI_NO_MEMORY;
  if (b->len) memcpy(data, b->data, b->len);
  tri_free(b->data);
  b->data = data;
  b->cap = cap;
  return TRI_OK;
}

tri_status tok_buf_append(tok_buf *b, const char *s, size_t n) {
  tri_status st = tok_buf_reserve(b, n);
  if (st != TRI_OK || !n) return st;
  memcpy(b->data + b->len, s, n);
  b->len += n;
  return TRI_OK;
}

void tok_buf_free(tok_buf *b) {
  tri_free(b->data);
  *b = (tok_buf){0};
}

tri_status tok_ids_append(tok_ids *ids, const uint32_t *from, size_t n) {
  if (n > ids->max - ids->len) return TRI_TOO_LARGE;
  if (!n) return TRI_OK;
  if (ids->cap - ids->len < n) {
    size_t cap;
    tri_status st = grown(ids->len, ids->cap, n, &cap);
    if (st != TRI_OK) return st;
    uint32_t *data = tri_malloc(cap, sizeof *data);
    if (!data) return TRI_NO_MEMORY;
    if (ids->len) memcpy(data, ids->data, ids->len * sizeof *data);
    tri_free(ids->data);
    ids->data = data;
    ids->cap = cap;
  }
  memcpy(ids->data + ids->len, from, n * sizeof *from);
  ids->len += n;
  return TRI_OK;
}

tri_status tok_ids_push(tok_ids *ids, uint32_t id) { return tok_ids_append(ids, &id, 1); }

void tok_ids_free(tok_ids *ids) {
  tri_free(ids->data);
  *ids = (tok_ids){0};
}
