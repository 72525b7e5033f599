/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows in a tri_buf, UTF-8, and words. A function that adds returns no status: once memory is out, the
 * buffer has failed, and adds nothing more. The caller looks at b->failed when the text is whole, and frees the buffer
 * with tri_buf_free. */
#ifndef TRI_BASE_TEXT_H
#define TRI_BASE_TEXT_H

#include "base/buf.h"

/* Adds len bytes; b->data has a zero after them, which b->len does not count. */
void tri_text_add(tri_buf *b, const char *s, size_t len);
void tri_text_printf(tri_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns the bytes of the UTF-8 sequence at s (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF), of which
 * `left` bytes are there, one at least; 0: there is none. */
size_t tri_utf8_length(const char *s, size_t left);
/* Returns how many bytes from s on are UTF-8. */
size_t tri_utf8_prefix(const char *s, size_t len);

/* Returns whether a text is a token of HTTP (RFC 9110, 5.6.2), such as a header's name: letters, digits and
 * !#$%&'*+-.^_`|~. */
bool tri_text_is_token(const char *s, size_t len);

bool tri_text_ends_with(const char *s, const char *end);

/* Returns whether a word is one of several, which have a space between them. */
bool tri_has_word(const char *words, const char *word);

#endif
