#include "runtime/model/tok_decode.h"

#include <string.h>

#include "runtime/model/tok_bytelevel.h"
#include "runtime/model/tok_normalize.h"
#include "runtime/model/tok_unicode.h"

/* ---- steps ---- */

/* The bytes that a token's characters stand for. A token with a character outside the alphabet (an added one) is taken
 * as it is written, whole. */
static tri_status byte_level_piece(const char *text, size_t len, tok_buf *out) {
  size_t mark = out->len;
  tri_status st = tok_buf_reserve(out, len);
  if (st != TRI_OK) return st;
  for (size_t i = 0, n; i < len; i += n) {
    int byte = tok_bytelevel_byte(tok_utf8_decode(text + i, &n));
    if (byte < 0) {
      out->len = mark;
      return tok_buf_append(out, text, len);
    }
    out->data[out->len++] = (char)byte;
  }
  return TRI_OK;
}

/* ---- loading ---- */

typedef struct decoder_chain {
  tok_piece_fn steps[TOK_MAX_STEPS];
  size_t count;
} decoder_chain;

/* One row per type. load appends the type's steps. */
typedef struct decoder_type {
  const char *name;
  tri_status (*load)(decoder_chain *c, const tok_field *f, tri_error *err);
} decoder_type;

static tri_status load_byte_level(decoder_chain *c, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};
  tri_status st = tok_field_object(f, keys, err);
  if (st != TRI_OK) return st;
  /* ByteLevel joins all tokens, so what follows it would see the text as one token. */
  if (c->count) return tok_field_fail(f, TRI_UNSUPPORTED, err, "a decoder behind ByteLevel is not supported");
  c->steps[c->count++] = byte_level_piece;
  return TRI_OK;
}

static tri_status load_any(decoder_chain *c, const tok_field *f, tri_error *err);

static tri_status load_sequence(decoder_chain *c, const tok_field *f, tri_error *err) {
  static const char *const keys[] = {"type", "decoders", NULL};
  tri_status st;
  TRI_TRY(tok_field_object(f, keys, err));
  tok_field members = tok_field_get(f, "decoders");
  TRI_TRY(tok_field_array(&members, err));
  for (size_t i = 0; i < tri_json_size(members.node); i++) {
    tok_field member = tok_field_at(&members, i);
    TRI_TRY(load_any(c, &member, err));
  }
cleanup:
  return st;
}

static const decoder_type types[] = {
    {"ByteLevel", load_byte_level},
    {"Sequence", load_sequence},
};

static tri_status load_any(decoder_chain *c, const tok_field *f, tri_error *err) {
  const char *type;
  tri_status st = tok_field_type(f, &type, err);
  if (st != TRI_OK) return st;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, type)) return types[i].load(c, f, err);
  return tok_field_unsupported_type(f, type, "decoder", err);
}

/* One token through the chain; a and b take turns as a step's input and output. */
static tri_status make_piece(const decoder_chain *c, const tok_entry *e, tok_buf *a, tok_buf *b, tok_buf *out) {
  const char *text = e->text;
  size_t len = e->len;
  for (size_t i = 0; i < c->count; i++) {
    tok_buf *to = i & 1 ? b : a;
    to->len = 0;
    tri_status st = c->steps[i](text, len, to);
    if (st != TRI_OK) return st;
    text = to->data;
    len = to->len;
  }
  return tok_buf_append(out, text, len);
}

tri_status tok_decoder_load(tok_decoder *d, const tok_field *f, const tok_vocab *vocab, tri_error *err) {
  decoder_chain chain = {0};
  tok_buf a = {0}, b = {0};
  tri_status st;
  if (tok_field_is_null(f))
    d->spaced = true;
  else
    TRI_TRY(load_any(&chain, f, err));
  d->offsets = tri_calloc(vocab->size + 1, sizeof *d->offsets);
  st = d->offsets ? tok_buf_reserve(&d->pieces, 1) : TRI_NO_MEMORY;
  if (st != TRI_OK) goto cleanup;
  for (uint32_t id = 0; id < vocab->size; id++) {
    const tok_entry *e = tok_vocab_at(vocab, id);
    if (e) TRI_TRY(make_piece(&chain, e, &a, &b, &d->pieces));
    if (d->pieces.len > UINT32_MAX) {
      st = TRI_TOO_LARGE;
      goto cleanup;
    }
    d->offsets[id + 1] = (uint32_t)d->pieces.len;
  }
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  if (st == TRI_TOO_LARGE) tok_field_fail(f, st, err, "the vocabulary's text exceeds 4 GiB");
  tok_buf_free(&a);
  tok_buf_free(&b);
  return st;
}

void tok_decoder_free(tok_decoder *d) {
  tok_buf_free(&d->pieces);
  tri_free(d->offsets);
  *d = (tok_decoder){0};
}

/* ---- streaming ---- */

/* Takes from piece what completes (or spoils) the character in the tail. */
static tri_status complete_tail(tok_decode_stream *s, const char **piece, size_t *len, tok_buf *out) {
  size_t n;
  while (s->tail_len && *len) {
    s->tail[s->tail_len] = **piece;
    tok_utf8 kind = tok_utf8_step(s->tail, s->tail_len + 1, &n);
    if (kind == TOK_UTF8_INVALID) { /* the new byte does not continue it and begins something itself */
      s->tail_len = 0;
      return tok_buf_append(out, "\xef\xbf\xbd", 3);
    }
    s->tail_len++;
    (*piece)++;
    (*len)--;
    if (kind == TOK_UTF8_TRUNCATED) continue;
    n = s->tail_len;
    s->tail_len = 0;
    return tok_buf_append(out, s->tail, n);
  }
  return TRI_OK;
}

/* How many bytes at the end of s are an unfinished character. */
static size_t unfinished(const char *s, size_t n) {
  for (size_t back = 1; back <= 3 && back <= n; back++) {
    size_t len;
    unsigned char c = (unsigned char)s[n - back];
    if ((c & 0xc0) == 0x80) continue;
    return tok_utf8_step(s + n - back, back, &len) == TOK_UTF8_TRUNCATED ? back : 0;
  }
  return 0;
}

tri_status tok_decode_push(const tok_decoder *d, tok_decode_stream *s, uint32_t id, tok_buf *out) {
  const char *piece = d->pieces.data + d->offsets[id];
  size_t len = d->offsets[id + 1] - d->offsets[id], room;
  /* Each byte may become a replacement character. With the room made here, nothing below fails. */
  if (!tri_size_mul(len + sizeof s->tail + 1, 3, &room)) return TRI_OVERFLOW;
  tri_status st = tok_buf_reserve(out, room);
  if (st != TRI_OK) return st;
  if (d->spaced && s->begun) TRI_TRY(tok_buf_append(out, " ", 1));
  s->begun = true;
  TRI_TRY(complete_tail(s, &piece, &len, out));
  if (s->tail_len) return TRI_OK; /* the piece ended within the character */
  size_t keep = unfinished(piece, len);
  TRI_TRY(tok_utf8_append_lossy(out, piece, len - keep));
  memcpy(s->tail, piece + len - keep, keep);
  s->tail_len = keep;
cleanup:
  return st;
}

tri_status tok_decode_finish(tok_decode_stream *s, tok_buf *out) {
  tri_status st = tok_utf8_append_lossy(out, s->tail, s->tail_len);
  if (st == TRI_OK) *s = (tok_decode_stream){0};
  return st;
}
