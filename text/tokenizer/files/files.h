/* SPDX-License-Identifier: Apache-2.0 */
/* Other files than tokenizer.json: each reader fills the parts of a tokenizer that is zeroed but for its empty
 * vocabulary. What the file leaves to a program of its release is in the reader's table, by the model's family. */
#ifndef TRI_TEXT_TOKENIZER_FILES_FILES_H
#define TRI_TEXT_TOKENIZER_FILES_FILES_H

#include "text/tokenizer/files/model_proto.h"
#include "text/tokenizer/files/release.h"
#include "text/tokenizer/tokenizer_impl.h"

/* TRI_NOT_FOUND: the file may be fine, but what its family adds to it is not known. */
typedef tri_status (*tok_file_reader)(tri_tokenizer *t, const char *data, size_t len, const tok_release *release,
                                      tri_error *err);
tri_status tok_tekken_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release, tri_error *err);
tri_status tok_tiktoken_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release,
                             tri_error *err);
tri_status tok_sentencepiece_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release,
                                  tri_error *err);

/* The tokens around a text, as a file says of itself. */
typedef struct tok_frame {
  bool has_bos, has_eos;
} tok_frame;
/* The same of pieces that come from elsewhere. A space is put before each stretch between added tokens. */
tri_status tok_sentencepiece_take(tri_tokenizer *t, const tok_model_proto *proto, const tok_frame *frame,
                                  tri_error *err);

/* ---- rules.c: parts that tokenizer.json would describe ---- */

/* The special tokens around texts: letters for the first token (b), the last one (e), the text (A) and the other one
 * of a pair (B), as in "bAe". A token without an id is left out. */
tri_status tok_rules_around(tri_tokenizer *t, const char *single, const char *pair, uint32_t first, uint32_t last,
                            tri_error *err);
/* A decoder as tokenizer.json has it. Runs when the vocabulary is complete. */
tri_status tok_rules_decoder(tri_tokenizer *t, const char *json, tri_error *err);

/* ---- byte_pieces.c: tokens of bytes, which merge by their ranks ---- */

typedef struct tok_byte_pieces {
  tok_piece *list; /* by rank; texts are in the byte-level alphabet */
  size_t count, cap;
  tri_arena *texts;
} tok_byte_pieces;

/* p is zeroed; tok_byte_pieces_free is due also after a failure. */
tri_status tok_byte_pieces_init(tok_byte_pieces *p, size_t count);
void tok_byte_pieces_free(tok_byte_pieces *p);
/* Sets a piece's bytes; TRI_INVALID_ARGUMENT: it has some. */
tri_status tok_byte_pieces_set(tok_byte_pieces *p, size_t rank, const char *bytes, size_t len);
/* Makes t's model, pre-tokenizer and added tokens: ids are ranks after `before`, and every byte must be a token. The
 * pattern cuts text into words; f names the list in errors, as do added_field and the pattern's. */
tri_status tok_byte_pieces_take(tri_tokenizer *t, const tok_byte_pieces *p, uint32_t before, const tok_field *f,
                                const char *pattern, size_t pattern_len, const tok_field *pattern_field,
                                const tok_added_list *added, tri_error *err);

#endif
