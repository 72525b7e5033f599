/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of a tokenizer that was read, for the harnesses of its files. */
#ifndef TRI_TESTS_FUZZ_TOKENIZER_USE_H
#define TRI_TESTS_FUZZ_TOKENIZER_USE_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

/* Decoding may meet a limit, the whole text and the stream alike but not at the same place. */
static void check_stream(const tri_tokenizer *t, const uint32_t *ids, size_t count) {
  char *whole = NULL;
  const char *piece;
  size_t len, at = 0, n;
  tri_detokenizer *d = NULL;
  if (tri_tokenizer_decode(t, ids, count, false, &whole, &len) != TRI_OK) return;
  if (tri_detokenizer_create(t, false, &d) != TRI_OK) abort();
  for (size_t i = 0; i <= count; i++) {
    tri_status st = i < count ? tri_detokenizer_push(d, ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    if (st != TRI_OK || n > len - at || memcmp(whole + at, piece, n) != 0) abort();
    at += n;
  }
  if (at != len) abort();
  tri_detokenizer_destroy(d);
  tri_free(whole);
}

static void use_ids(const tri_tokenizer *t, const uint32_t *ids, size_t count) {
  uint32_t first[64];
  for (size_t i = 0; i < count; i++)
    if (!tri_tokenizer_token(t, ids[i])) abort();
  check_stream(t, ids, count);
  for (count = 0; count < 64; count++) {
    first[count] = (uint32_t)(count * 7 % tri_tokenizer_vocab_size(t));
    if (!tri_tokenizer_token(t, first[count])) break;
  }
  check_stream(t, first, count);
}

/* Ids exist, and are as many as there may be at most; a text decodes whole and in pieces alike. */
static void use_tokenizer(const tri_tokenizer *t) {
  static const char text[] = "Hello, ab ab\n 12\t<s> \xc3\xa9\xf0\x9f\x98\x80\xff end";
  tri_span foreign = {3, sizeof text - 5};
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count, len = sizeof text - 1, second = 0;
  if (tri_tokenizer_scratch_create(t, &s) != TRI_OK) return;
  if (tri_tokenizer_encode(t, s, text, len, true, 1000, &ids, &count) == TRI_OK) use_ids(t, ids, count);
  if (tri_tokenizer_encode_spans(t, s, text, len, &foreign, 1, false, 9, &ids, &count) == TRI_OK && count > 9) abort();
  tri_status st = tri_tokenizer_encode_pair(t, s, text, len, text, 5, 1000, &ids, &count, &second);
  if ((st == TRI_UNSUPPORTED) == tri_tokenizer_has_pairs(t)) abort();
  if (st == TRI_OK && second > count) abort();
  for (size_t i = 0; st == TRI_OK && i < count; i++)
    if (!tri_tokenizer_token(t, ids[i])) abort();
  tri_tokenizer_scratch_destroy(s);
}

/* A refusal says why. */
static void use_result(tri_status st, tri_tokenizer *t, const tri_error *err) {
  if (st == TRI_OK)
    use_tokenizer(t);
  else if (err->status == TRI_OK || !err->message[0])
    abort();
  tri_tokenizer_destroy(t);
}

#endif
