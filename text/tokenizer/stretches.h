/* SPDX-License-Identifier: Apache-2.0 */
/* Texts are cut before anything else looks at them, where a tokenizer's own program does that: into blocks, and these
 * where white space, or what lies between it, is too long. Each stretch is encoded by itself, which changes
 * the ids at its ends. */
#ifndef TRI_TEXT_TOKENIZER_STRETCHES_H
#define TRI_TEXT_TOKENIZER_STRETCHES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tok_stretches {
  size_t block, run; /* characters at most; block 0: texts are not cut */
} tok_stretches;

typedef struct tok_stretches_at {
  size_t in_block, in_run; /* characters so far */
  bool space;              /* the run is of white space */
} tok_stretches_at;

/* Returns the end of the stretch that begins at `from` (< len) in valid UTF-8. at is zeroed before the first one. */
size_t tok_stretch_end(const tok_stretches *s, tok_stretches_at *at, const char *text, size_t len, size_t from);

#endif
