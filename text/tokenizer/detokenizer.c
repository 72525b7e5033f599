/* SPDX-License-Identifier: Apache-2.0 */
/* Ids back to text: whole, and as they come. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/unicode.h"

struct tri_detokenizer {
  const tri_tokenizer *tokenizer;
  bool skip_special;
  tok_decode_stream stream;
  tri_buf out;
  tri_buf earlier; /* text of the ids before that the stream still holds back */
};

/* Puts an id into a stream, or leaves it out. */
static tri_status push_id(const tri_tokenizer *t, tok_decode_stream *s, uint32_t id, bool skip_special, tri_buf *out) {
  const tok_entry *e = tok_vocab_at(&t->vocab, id);
  if (!e) return TRI_OUT_OF_RANGE;
  return skip_special && e->skipped ? TRI_OK : tok_decode_push(&t->decoder, s, id, out);
}

tri_status tri_tokenizer_decode(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                                char **text, size_t *len) {
  tok_decode_stream stream = {0};
  tri_buf out = {0};
  tri_status st;
  TRI_TRY(tok_decode_stream_init(&t->decoder, &stream));
  for (size_t i = 0; i < count; i++) TRI_TRY(push_id(t, &stream, ids[i], skip_special, &out));
  TRI_TRY(tok_decode_finish(&stream, &out));
  TRI_TRY(tri_buf_append(&out, "", 1));
  *text = out.data;
  *len = out.len - 1;
  out = (tri_buf){0};
cleanup:
  tok_decode_stream_free(&stream);
  tri_buf_free(&out);
  return st;
}

/* Decodes the token alone, where it begins a text. If that is an end of its bytes in the middle of one, decoders took
 * something off its front. */
tri_status tri_tokenizer_first_bytes(const tri_tokenizer *t, uint32_t id, char *out, size_t cap, size_t *len) {
  char *text = NULL;
  size_t n = 0;
  *len = tri_tokenizer_token_bytes(t, id, out, cap);
  tri_status st = tri_tokenizer_decode(t, &id, 1, false, &text, &n);
  /* A token of bytes is another text alone, and keeps its bytes. */
  bool shorter = st == TRI_OK && n < *len && !memcmp(out + *len - n, text, n);
  if (shorter) {
    memmove(out, text, n);
    *len = n;
  }
  tri_free(text);
  return st == TRI_NO_MEMORY ? st : TRI_OK;
}

tri_status tri_detokenizer_create(const tri_tokenizer *t, bool skip_special, tri_detokenizer **out) {
  tri_detokenizer *d = tri_calloc(1, sizeof *d);
  if (!d) return TRI_NO_MEMORY;
  d->tokenizer = t;
  d->skip_special = skip_special;
  tri_status st = tri_buf_reserve(&d->out, 256);
  if (st == TRI_OK) st = tok_decode_stream_init(&t->decoder, &d->stream);
  if (st != TRI_OK) {
    tri_detokenizer_destroy(d);
    return st;
  }
  *out = d;
  return TRI_OK;
}

/* ---- ids before ---- */

/* How many tokens with a text the decoders need to see to be in the middle of one: those that treat the beginning of a
 * text otherwise look at its first token, or take off a space or few. */
enum { TOKENS_BEFORE = 16, MOST_BEFORE = 4096 };

static bool is_byte_token(const tok_entry *e) { return e->len == 6 && !memcmp(e->text, "<0x", 3) && e->text[5] == '>'; }

/* Returns where the ids begin that are enough: not within a run of byte tokens, which is a text as a whole alone. */
static size_t enough_before(const tri_detokenizer *d, const uint32_t *ids, size_t count) {
  size_t from = count, seen = 0;
  while (from && count - from < MOST_BEFORE) {
    const tok_entry *e = tok_vocab_at(&d->tokenizer->vocab, ids[from - 1]);
    bool shown = e && !(d->skip_special && e->skipped);
    if (shown && seen >= TOKENS_BEFORE && !is_byte_token(e)) break;
    seen += shown;
    from--;
  }
  return from;
}

/* Two streams read the earlier ids: d->stream, which then continues with the answer, and one that ends here. Their
 * outputs differ by what d->stream still keeps, an unfinished character for instance. That text, `earlier`, belongs to
 * the prompt and is taken off the first pieces. */
tri_status tri_detokenizer_after(tri_detokenizer *d, const uint32_t *ids, size_t count) {
  size_t from = enough_before(d, ids, count);
  tok_decode_stream alone = {0};
  tri_status st;
  d->out.len = d->earlier.len = 0;
  TRI_TRY(tok_decode_stream_init(&d->tokenizer->decoder, &alone));
  for (size_t i = from; i < count; i++) {
    st = push_id(d->tokenizer, &d->stream, ids[i], d->skip_special, &d->out);
    if (st == TRI_OK) st = push_id(d->tokenizer, &alone, ids[i], d->skip_special, &d->earlier);
    if (st != TRI_OK && st != TRI_OUT_OF_RANGE) goto cleanup;
  }
  d->earlier.len = 0; /* both have given the same; what is left is what the stream holds back */
  st = tok_decode_finish(&alone, &d->earlier);
cleanup:
  tok_decode_stream_free(&alone);
  return st;
}

/* Takes the text of the ids before off the beginning of what has come. What has become another character together with
 * the answer is the answer's. */
static void leave_out_earlier(tri_detokenizer *d) {
  size_t done = 0, n, m;
  while (done < d->out.len && done < d->earlier.len) {
    uint32_t c = tok_utf8_decode(d->out.data + done, &n);
    if (c != tok_utf8_decode(d->earlier.data + done, &m) || n != m) break;
    done += n;
  }
  bool differs = done < d->out.len;
  if (done) memmove(d->out.data, d->out.data + done, d->out.len - done);
  d->out.len -= done;
  d->earlier.len -= done;
  if (done && d->earlier.len) memmove(d->earlier.data, d->earlier.data + done, d->earlier.len);
  if (differs) d->earlier.len = 0;
}

/* ---- ids as they come ---- */

tri_status tri_detokenizer_push(tri_detokenizer *d, uint32_t id, const char **text, size_t *len) {
  d->out.len = 0;
  TRI_CHECK(push_id(d->tokenizer, &d->stream, id, d->skip_special, &d->out));
  if (d->earlier.len) leave_out_earlier(d);
  *text = d->out.data;
  *len = d->out.len;
  return TRI_OK;
}

tri_status tri_detokenizer_finish(tri_detokenizer *d, const char **text, size_t *len) {
  d->out.len = 0;
  TRI_CHECK(tok_decode_finish(&d->stream, &d->out));
  if (d->earlier.len) leave_out_earlier(d);
  d->earlier.len = 0;
  *text = d->out.data;
  *len = d->out.len;
  return TRI_OK;
}

void tri_detokenizer_destroy(tri_detokenizer *d) {
  if (!d) return;
  tok_decode_stream_free(&d->stream);
  tri_buf_free(&d->out);
  tri_buf_free(&d->earlier);
  tri_free(d);
}
