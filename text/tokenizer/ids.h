/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays of token ids. Memory is kept when one is emptied. */
#ifndef TRI_TEXT_TOKENIZER_IDS_H
#define TRI_TEXT_TOKENIZER_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Ids with the caller's limit built in: the push that would exceed it fails with TRI_TOO_LARGE, which is how a hostile
 * text stops every loop above. */
typedef struct tok_ids {
  uint32_t *data;
  size_t len, cap, max;
  bool fills; /* an append that would exceed max first fills up what is left */
} tok_ids;

/* After TRI_TOO_LARGE the ids are as they were, or, with `fills`, full. */
tri_status tok_ids_push(tok_ids *ids, uint32_t id);
tri_status tok_ids_append(tok_ids *ids, const uint32_t *from, size_t n);
void tok_ids_free(tok_ids *ids);

#endif
