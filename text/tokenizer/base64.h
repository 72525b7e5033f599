/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 with its padding, as files of tokenizers hold bytes. */
#ifndef TRI_TEXT_TOKENIZER_BASE64_H
#define TRI_TEXT_TOKENIZER_BASE64_H

#include "base/buf.h"

/* Appends the bytes to out. TRI_CORRUPT: *bad is the first character that is none, or len where len is no multiple of
 * 4. */
tri_status tok_base64(const char *s, size_t len, tri_buf *out, size_t *bad);

#endif
