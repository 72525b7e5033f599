/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as text: limits hold, ids exist, and a stream's pieces are the whole text. The first byte picks a tokenizer
 * and options; the text's bytes are also used as ids, which cuts characters anywhere. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

/* Truncated, every text has ids, as many as there may be at most, unless there is no room for the special ones. */
static void check_truncated(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                            size_t limit) {
  const uint32_t *ids;
  size_t count, second;
  for (int pair = 0; pair <= tri_tokenizer_has_pairs(t); pair++) {
    tri_status st = tri_tokenizer_encode_truncated(t, s, text, len, pair ? text + len / 2 : NULL, len - len / 2, limit,
                                                   &ids, &count, &second);
    if (st != TRI_OK && (st != TRI_TOO_LARGE || !limit || limit > 8)) abort();
    if (st == TRI_OK && limit && (count > limit || second > count)) abort();
  }
}

/* Limits hold where some of the text is foreign, too; where all of it is, no special token is found. */
static void check_spans(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len, size_t limit) {
  const uint32_t *ids;
  size_t count;
  tri_span spans[] = {{len / 7, len / 5}, {len / 3, len / 2}}, all = {0, len};
  tri_status st = tri_tokenizer_encode_spans(t, s, text, len, spans, 2, false, limit, &ids, &count);
  if (st != TRI_OK && (st != TRI_TOO_LARGE || !limit)) abort();
  st = tri_tokenizer_encode_spans(t, s, text, len, &all, 1, false, limit, &ids, &count);
  if (st != TRI_OK && (st != TRI_TOO_LARGE || !limit)) abort();
  for (size_t i = 0; st == TRI_OK && i < count; i++)
    if (tri_tokenizer_is_special(t, ids[i])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The 256 characters of the byte-level alphabet, some merges, added tokens of each kind, NFC and the longer of the two
 * usual patterns. */
static const char head[] =
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
    "\"Split\","
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\","
    "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":"
    "\"ByteLevel\"},\"added_tokens\":["
    "{\"id\":260,\"content\":\"<s>\",\"special\":true,\"rstrip\":true},"
    "{\"id\":261,\"content\":\"<s\",\"special\":true,\"lstrip\":true},"
    "{\"id\":262,\"content\":\"wo\",\"single_word\":true}],\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab "
    "ab\",\"\\u0120 a\",\"- -\"],\"vocab\":{\"ab\":256,\"abab\":257,\"\\u0120a\":258,\"--\":259";

/* One of each other model, with the parts that usually come with it. */
static const char *const others[] = {
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},{\"type\":"
    "\"Replace\","
    "\"pattern\":{\"String\":\" "
    "\"},\"content\":\"_\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\"_\"},\"content\":\" "
    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
    "\"content\":\" \",\"start\":1,\"stop\":1}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\",\"fuse_unk\":true,"
    "\"byte_fallback\":true,\"merges\":[\"a b\",\"_ "
    "ab\"],\"vocab\":{\"<u>\":0,\"_\":1,\"a\":2,\"b\":3,\"ab\":4,\"_ab\":5,"
    "\"<0xC3>\":6,\"<0xA9>\":7,\"<0xF0>\":8,\"<0x9F>\":9,\"<0x98>\":10,\"<0x80>\":11,\"<0x41>\":12}}}",
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Nmt\"},{\"type\":"
    "\"Strip\"},{"
    "\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" "
    "\"}]},\"pre_tokenizer\":{\"type\":\"Metaspace\","
    "\"replacement\":\"_\",\"prepend_scheme\":\"first\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<u>\",0],[\"_\",-2],[\"a\",-3],["
    "\"b\",-4],"
    "[\"ab\",-5],[\"_ab\",-6],[\"<0xC3>\",-9],[\"<0xA9>\",-9],[\"é\",-4]]}}",
    "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{"
    "\"type\":"
    "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"added_tokens\":[{\"id\":9,\"content\":\" "
    "É\",\"lstrip\":true,\"rstrip\":"
    "true}],\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":9,\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"##ab\":3,\"'\":4,\"s\":5,\".\":6,\"do\":"
    "7,"
    "\"not .\":8}}}",
};
enum { TOKENIZERS = 1 + sizeof others / sizeof *others };

static tri_tokenizer *make_tokenizer(void) {
  static char json[1 << 14];
  size_t n = sizeof head - 1;
  memcpy(json, head, n);
  for (unsigned b = 0, next = 0x100; b < 256; b++) {
    bool printable = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
    unsigned c = printable ? b : next++;
    static const char hex[] = "0123456789abcdef";
    char item[32] = ",\"\\u0000\":";
    for (int k = 0; k < 4; k++) item[4 + k] = hex[c >> (12 - 4 * k) & 15];
    size_t m = strlen(item);
    item[m++] = (char)('0' + b / 100);
    item[m++] = (char)('0' + b / 10 % 10);
    item[m++] = (char)('0' + b % 10);
    const char *from = item + m - 3; /* JSON numbers have no leading zeros */
    size_t zeros = b < 10 ? 2 : b < 100 ? 1 : 0;
    memmove(item + m - 3, from + zeros, 3 - zeros);
    memcpy(json + n, item, m - zeros);
    n += m - zeros;
  }
  memcpy(json + n, "}}}", 3);
  tri_tokenizer *t = NULL;
  if (tri_tokenizer_parse(json, n + 3, &t, NULL) != TRI_OK) abort();
  return t;
}

static void check_stream(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip) {
  char *whole = NULL;
  const char *piece;
  size_t len, at = 0, n;
  tri_detokenizer *d = NULL;
  if (tri_tokenizer_decode(t, ids, count, skip, &whole, &len) != TRI_OK) abort();
  if (tri_detokenizer_create(t, skip, &d) != TRI_OK) abort();
  for (size_t i = 0; i <= count; i++) {
    tri_status st = i < count ? tri_detokenizer_push(d, ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    if (st != TRI_OK || n > len - at || memcmp(whole + at, piece, n) != 0) abort();
    if (n && ((unsigned char)piece[0] & 0xc0) == 0x80) abort();
    at += n;
  }
  if (at != len) abort();
  tri_detokenizer_destroy(d);
  tri_free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static tri_tokenizer *tokenizers[TOKENIZERS];
  static tri_tokenizer_scratch *scratches[TOKENIZERS];
  for (size_t i = 0; i < TOKENIZERS && !scratches[i]; i++) {
    if (!i)
      tokenizers[i] = make_tokenizer();
    else if (tri_tokenizer_parse(others[i - 1], strlen(others[i - 1]), &tokenizers[i], NULL) != TRI_OK)
      abort();
    if (tri_tokenizer_scratch_create(tokenizers[i], &scratches[i]) != TRI_OK) abort();
  }
  if (!size) return 0;
  const tri_tokenizer *t = tokenizers[data[0] >> 1 & 3];
  tri_tokenizer_scratch *s = scratches[data[0] >> 1 & 3];
  const uint32_t *ids;
  size_t count, limit = data[0] >> 3;
  const char *text = (const char *)data + 1;
  tri_status st = tri_tokenizer_encode(t, s, text, size - 1, data[0] & 1, limit, &ids, &count);
  if (st == TRI_OK) {
    if (limit && count > limit) abort();
    check_stream(t, ids, count, data[0] & 1);
  } else if (st != TRI_TOO_LARGE || !limit) {
    abort();
  }
  check_truncated(t, s, text, size - 1, limit);
  check_spans(t, s, text, size - 1, limit);
  uint32_t *soup = tri_malloc(size, sizeof *soup);
  if (!soup) return 0;
  for (size_t i = 0; i < size; i++) soup[i] = data[i] % tri_tokenizer_vocab_size(t);
  check_stream(t, soup, size, false);
  tri_free(soup);
  return 0;
}
