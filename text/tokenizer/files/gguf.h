/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer in the keys of a GGUF file: byte-level BPE, as the tokenizer.json that it was made of had it, or the
 * pieces of a SentencePiece file. */
#ifndef TRI_TEXT_TOKENIZER_FILES_GGUF_H
#define TRI_TEXT_TOKENIZER_FILES_GGUF_H

#include "base/gguf.h"
#include "text/tokenizer/tokenizer.h"

/* TRI_NOT_FOUND: the file has no tokenizer; TRI_UNSUPPORTED: one that is not read, by its name. */
tri_status tok_gguf_read(const tri_gguf *g, tri_tokenizer **out, tri_error *err);

#endif
