/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in the Hugging Face tokenizer.json format, and in the formats of tekken.json, tiktoken and SentencePiece.
 *
 * A tokenizer is immutable after loading and may be used from many threads at once, each with a scratch of its own.
 * Text is bytes; invalid UTF-8 on input is replaced by U+FFFD as a decoder with errors="replace" would. */
#ifndef TRI_TEXT_TOKENIZER_TOKENIZER_H
#define TRI_TEXT_TOKENIZER_TOKENIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/status.h"

typedef struct tri_tokenizer tri_tokenizer;
typedef struct tri_tokenizer_scratch tri_tokenizer_scratch; /* per thread: regex match data, merge heap, word cache */
typedef struct tri_detokenizer tri_detokenizer;             /* per sequence: incremental decoding */

/* Reads a tokenizer.json of at most 256 MiB. What would change ids and is not supported (a model, normalizer,
 * pre-tokenizer, post-processor or decoder type) is refused by name. */
tri_status tri_tokenizer_load(const char *path, tri_tokenizer **out, tri_error *err);
/* The same from memory (len bytes of JSON text). */
tri_status tri_tokenizer_parse(const char *json, size_t len, tri_tokenizer **out, tri_error *err);
void tri_tokenizer_destroy(tri_tokenizer *t); /* NULL is fine */

/* Returns the file of a model's folder that its tokenizer is read from, the first that is there of tokenizer.json,
 * tekken.json, tiktoken.model, tokenizer.model, spiece.model and sentencepiece.bpe.model; "tokenizer.ggml", the keys,
 * of a GGUF file; NULL: it has none. */
const char *tri_tokenizer_file(const char *dir);
/* Reads it. Of the other files than tokenizer.json also counts what config.json (the family), tokenizer_config.json and
 * added_tokens.json say, where they are there. TRI_NOT_FOUND: there is no such file, or it is not
 * read for this family. */
tri_status tri_tokenizer_load_folder(const char *dir, tri_tokenizer **out, tri_error *err);

/* The same from memory. */
typedef struct tri_tokenizer_texts {
  const char *file; /* its name, which says the format */
  const char *data;
  size_t len;
  const char *config; /* the text of config.json and so on; NULL: there is none */
  size_t config_len;
  const char *tokenizer_config;
  size_t tokenizer_config_len;
  const char *added_tokens;
  size_t added_tokens_len;
} tri_tokenizer_texts;
tri_status tri_tokenizer_parse_texts(const tri_tokenizer_texts *x, tri_tokenizer **out, tri_error *err);

/* Returns a hash of the texts that it was read from: two that differ are of two tokenizers. */
uint64_t tri_tokenizer_hash(const tri_tokenizer *t);
/* One more than the largest id. */
uint32_t tri_tokenizer_vocab_size(const tri_tokenizer *t);
/* The token's text as it stands in the vocabulary (byte-level alphabet for BPE); NULL for an unused id. Borrowed. */
const char *tri_tokenizer_token(const tri_tokenizer *t, uint32_t id);
/* Puts the bytes that the token stands for in the middle of a text into out, and returns how many: a part of a
 * character perhaps, the name of a special token, nothing of an unused id. Of a token that is longer than cap bytes in
 * the vocabulary the beginning. */
size_t tri_tokenizer_token_bytes(const tri_tokenizer *t, uint32_t id, char *out, size_t cap);
/* The same of a token that a text begins with, of which some decoders take a space away. TRI_NO_MEMORY or TRI_OK. */
tri_status tri_tokenizer_first_bytes(const tri_tokenizer *t, uint32_t id, char *out, size_t cap, size_t *len);
bool tri_tokenizer_id(const tri_tokenizer *t, const char *token, size_t len, uint32_t *id);
bool tri_tokenizer_is_special(const tri_tokenizer *t, uint32_t id);

/* The scratch refers to the tokenizer, which must outlive it. */
tri_status tri_tokenizer_scratch_create(const tri_tokenizer *t, tri_tokenizer_scratch **out);
void tri_tokenizer_scratch_destroy(tri_tokenizer_scratch *s); /* NULL is fine */

/* Has encoding give up with TRI_ABORTED once *stop is true, which another thread may set; NULL: never. */
void tri_tokenizer_scratch_stop_at(tri_tokenizer_scratch *s, const atomic_bool *stop);

/* Ids of a text. *ids points into the scratch and stays valid until its next use. Added and special tokens that stand
 * in the text are recognised; add_special applies the post-processor's template. max_tokens 0 means no limit; beyond it
 * TRI_TOO_LARGE (encoding stops early, so that a hostile text costs no more than its limit). TRI_NO_CAPACITY: the
 * patterns would have to look at the text far more often than once. */
tri_status tri_tokenizer_encode(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                bool add_special, size_t max_tokens, const uint32_t **ids, size_t *count);

/* The same of a text parts of which are of foreign origin, such as the messages in a prompt: special tokens are not
 * recognised where their spelling has a byte of these spans, which are in order and apart from each other, and the
 * model makes none of text. Added tokens that are not special are recognised everywhere. */
tri_status tri_tokenizer_encode_spans(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                      const tri_span *spans, size_t num_spans, bool add_special, size_t max_tokens,
                                      const uint32_t **ids, size_t *count);

bool tri_tokenizer_has_pairs(const tri_tokenizer *t);
/* Ids of two texts with the template for pairs. *second: number of the first id of the second type, counted from 1; 0:
 * all are of the first. TRI_UNSUPPORTED without such a template. */
tri_status tri_tokenizer_encode_pair(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                     const char *pair, size_t pair_len, size_t max_tokens, const uint32_t **ids,
                                     size_t *count, size_t *second);

/* The same for a text (pair NULL) or a pair that may have too many ids: they lose their ends, and the special tokens
 * around them stay. Of a pair neither text loses ids while it has less than half, which is Hugging Face's
 * "longest_first". TRI_TOO_LARGE: there is no room for the special tokens. */
tri_status tri_tokenizer_encode_truncated(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text,
                                          size_t len, const char *pair, size_t pair_len, size_t max_tokens,
                                          const uint32_t **ids, size_t *count, size_t *second);

/* Ids of a text of which the end stays: the special tokens around it, where they are wanted, and its last ids, at most
 * max_tokens in all, which is truncation from the left in Hugging Face. TRI_TOO_LARGE: as above. */
tri_status tri_tokenizer_encode_end(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                    bool add_special, size_t max_tokens, const uint32_t **ids, size_t *count);

/* Text of ids, as Hugging Face's decode(): malloc-style ownership, free with tri_free; NUL-terminated, *len excludes
 * it. An id outside the vocabulary gives TRI_OUT_OF_RANGE. */
tri_status tri_tokenizer_decode(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                                char **text, size_t *len);

/* Incremental decoding: each push returns the bytes that became certain, never a part of a UTF-8 character. The pieces
 * together with finish() are exactly tri_tokenizer_decode of all ids. A push that fails for lack of memory spoils the
 * detokenizer; one with an id outside the vocabulary changes nothing. */
tri_status tri_detokenizer_create(const tri_tokenizer *t, bool skip_special, tri_detokenizer **out);
/* The ids that are pushed stand after these, which give no text: the pieces are what the text of all of them has after
 * that of these. Due before the first push; a failure spoils the detokenizer. */
tri_status tri_detokenizer_after(tri_detokenizer *d, const uint32_t *ids, size_t count);
/* *text points into the detokenizer and stays valid until its next use; *len may be 0. */
tri_status tri_detokenizer_push(tri_detokenizer *d, uint32_t id, const char **text, size_t *len);
/* Gives out what was held back (an unfinished character becomes U+FFFD); the detokenizer is as new. */
tri_status tri_detokenizer_finish(tri_detokenizer *d, const char **text, size_t *len);
void tri_detokenizer_destroy(tri_detokenizer *d); /* NULL is fine */

#endif
