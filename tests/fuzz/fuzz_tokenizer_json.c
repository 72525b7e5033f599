/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as tokenizer.json: refused with a reason, or a tokenizer that encodes, and decodes whole and in pieces
 * alike. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

static void use(const tri_tokenizer *t) {
  static const char text[] = "Hello, ab ab\n 12\t<s> \xc3\xa9\xf0\x9f\x98\x80\xff end";
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count;
  if (tri_tokenizer_scratch_create(t, &s) != TRI_OK) return;
  if (tri_tokenizer_encode(t, s, text, sizeof text - 1, true, 1000, &ids, &count) == TRI_OK) {
    for (size_t i = 0; i < count; i++)
      if (!tri_tokenizer_token(t, ids[i])) abort();
    check_stream(t, ids, count);
    uint32_t first[64];
    for (count = 0; count < 64; count++) {
      first[count] = (uint32_t)(count * 7 % tri_tokenizer_vocab_size(t));
      if (!tri_tokenizer_token(t, first[count])) break;
    }
    check_stream(t, first, count);
  }
  size_t second = 0;
  tri_status st = tri_tokenizer_encode_pair(t, s, text, sizeof text - 1, text, 5, 1000, &ids, &count, &second);
  if ((st == TRI_UNSUPPORTED) == tri_tokenizer_has_pairs(t)) abort();
  if (st == TRI_OK && second > count) abort();
  for (size_t i = 0; st == TRI_OK && i < count; i++)
    if (!tri_tokenizer_token(t, ids[i])) abort();
  tri_tokenizer_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  if (tri_tokenizer_parse((const char *)data, size, &t, &err) == TRI_OK)
    use(t);
  else if (err.status == TRI_OK || !err.message[0])
    abort(); /* a refusal without a reason */
  tri_tokenizer_destroy(t);
  return 0;
}
