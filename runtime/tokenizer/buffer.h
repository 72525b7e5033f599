/* Growing byte and id buffers of the tokenizer. A buffer is reused: its memory stays when it is emptied. */
#ifndef TRI_RUNTIME_TOKENIZER_BUFFER_H
#define TRI_RUNTIME_TOKENIZER_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

typedef struct tok_buf {
  char *data;
  size_t len, cap;
  size_t max; /* beyond it TRI_TOO_LARGE, so that no chain of steps can blow a text up; 0: no limit */
} tok_buf;

/* Makes room for extra bytes behind len. */
tri_status tok_buf_reserve(tok_buf *b, size_t extra);
tri_status tok_buf_append(tok_buf *b, const char *s, size_t n);
void tok_buf_free(tok_buf *b);

/* Ids with the caller's limit built in: the push that would exceed it fails with TRI_TOO_LARGE, which is how a hostile
 * text stops every loop above. */
typedef struct tok_ids {
  uint32_t *data;
  size_t len, cap, max;
} tok_ids;

tri_status tok_ids_push(tok_ids *ids, uint32_t id);
tri_status tok_ids_append(tok_ids *ids, const uint32_t *from, size_t n);
void tok_ids_free(tok_ids *ids);

#endif
