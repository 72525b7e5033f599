/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/decode.h"

#include <string.h>

#include "base/mem.h"

enum {
  MAX_PIECES = 256 << 20, /* bytes of all tokens' texts together, and what a stream may keep */
  MAX_PIECE_GROWTH = 64 << 10
};

/* ---- loading ---- */

/* One row per type. load fills in a step of the kind, and appends it. */
typedef struct decoder_type {
  tok_type type;
  tri_status (*load)(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err);
  const tok_decode_kind *kind;
} decoder_type;

/* The decoder owns what step has from here on, also on failure. */
static tri_status add_step(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  if (d->count == TOK_MAX_STEPS) {
    tok_decode_step_free(&step);
    return tok_field_fail(f, TRI_TOO_LARGE, err, "more than %d decoders", TOK_MAX_STEPS);
  }
  d->steps[d->count++] = step;
  return TRI_OK;
}

/* Two steps of one object. The first turns characters into bytes, token by token, and can be worked out while loading;
 * the second repairs UTF-8, for which it has to see neighbouring tokens: a character may be cut between them. */
static tri_status load_byte_level(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  TRI_CHECK(add_step(d, step, f, err));
  return add_step(d, (tok_decode_step){.kind = &tok_decode_repair}, f, err);
}

static tri_status load_replace(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  TRI_CHECK(tok_replace_load(f, &step.replace, err));
  return add_step(d, step, f, err);
}

static tri_status load_strip(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  const char *text;
  size_t len;
  tok_field content = tok_field_get(f, "content"), start = tok_field_get(f, "start"), stop = tok_field_get(f, "stop");
  TRI_CHECK(tok_field_char(&content, &text, &len, err));
  if (!*text) return tok_field_fail(&content, TRI_UNSUPPORTED, err, "stripping NULs is not supported");
  memcpy(step.character, text, len);
  TRI_CHECK(tok_field_count(&start, &step.start, err));
  TRI_CHECK(tok_field_count(&stop, &step.stop, err));
  return add_step(d, step, f, err);
}

static tri_status load_metaspace(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  TRI_CHECK(tok_metaspace_load(f, &step.metaspace, err));
  return add_step(d, step, f, err);
}

static tri_status read_affix(const tok_field *f, tri_buf *out, tri_error *err) {
  const char *text;
  size_t len;
  tri_status st = tok_field_string(f, &text, &len, err);
  return st == TRI_OK ? tri_buf_append(out, text, len) : st;
}

static tri_status load_wordpiece(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  bool cleanup_wanted = true;
  tri_status st;
  TRI_TRY(tok_field_bool(f, "cleanup", &cleanup_wanted, err));
  tok_field prefix = tok_field_get(f, "prefix");
  TRI_TRY(read_affix(&prefix, &step.affix, err));
  if (cleanup_wanted) TRI_TRY(tok_decode_load_cleanup(&step));
  return add_step(d, step, f, err);
cleanup:
  tok_decode_step_free(&step);
  return st;
}

static tri_status load_bpe(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  tok_field suffix = tok_field_get(f, "suffix");
  TRI_CHECK(read_affix(&suffix, &step.affix, err));
  if (!step.affix.len) return tok_field_fail(&suffix, TRI_UNSUPPORTED, err, "an empty suffix is not supported");
  return add_step(d, step, f, err);
}

static tri_status load_any(void *decoder, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_decoder *d, tok_decode_step step, const tok_field *f, tri_error *err) {
  (void)step;
  return tok_field_each(f, "decoders", load_any, d, err);
}

static const decoder_type types[] = {
    {{"ByteLevel", "add_prefix_space trim_offsets use_regex"}, load_byte_level, &tok_decode_byte_level},
    {{"ByteFallback", ""}, add_step, &tok_decode_byte_fallback},
    {{"Fuse", ""}, add_step, &tok_decode_fuse},
    {{"Replace", "pattern content"}, load_replace, &tok_decode_replace},
    {{"Strip", "content start stop"}, load_strip, &tok_decode_strip},
    {{"Metaspace", TOK_METASPACE_KEYS}, load_metaspace, &tok_decode_metaspace},
    {{"WordPiece", "prefix cleanup"}, load_wordpiece, &tok_decode_wordpiece},
    {{"BPEDecoder", "suffix"}, load_bpe, &tok_decode_bpe},
    {{"Sequence", "decoders"}, load_sequence, NULL},
};

static tri_status load_any(void *decoder, const tok_field *f, tri_error *err) {
  size_t i;
  TRI_CHECK(tok_field_type(f, types, sizeof types / sizeof *types, sizeof *types, "decoder", &i, err));
  return types[i].load(decoder, (tok_decode_step){.kind = types[i].kind}, f, err);
}

/* Every token through the leading steps, which look at one token alone: decoding an id then begins with a copy of its
 * piece. With a byte-level decoder only the repair of UTF-8 is left to do. MAX_PIECES keeps the offsets within 32
 * bits. */
static tri_status make_pieces(tok_decoder *d, const tok_vocab *vocab, const tok_added_vocab *added) {
  tok_decode_run run = {0};
  tri_status st = TRI_NO_MEMORY;
  size_t longest = 0;
  for (uint32_t id = 0; id < vocab->size; id++) {
    const tok_entry *e = tok_vocab_at(vocab, id);
    if (e && e->len > longest) longest = e->len; /* a normalized spelling is bounded by its token */
  }
  d->offsets = tri_calloc(vocab->size + 1, sizeof *d->offsets);
  if (!d->offsets) goto cleanup;
  TRI_TRY(tok_decode_run_init(&run, d->steps, d->leading, longest + MAX_PIECE_GROWTH));
  d->pieces.max = MAX_PIECES;
  TRI_TRY(tri_buf_reserve(&d->pieces, 1));
  run.out = &d->pieces;
  for (uint32_t id = 0; id < vocab->size; id++) {
    const tok_entry *e = tok_vocab_at(vocab, id);
    if (e) {
      const tok_added *a = tok_added_vocab_find(added, e->text, e->len);
      if (a && a->id != id) a = NULL; /* of two tokens with one spelling the one that is found */
      size_t len = e->len;
      const char *text = a ? tok_added_shown(a, &len) : e->text;
      TRI_TRY(tok_decode_text(&run, 0, text, len));
      TRI_TRY(tok_decode_end(&run, 0));
    }
    d->offsets[id + 1] = (uint32_t)d->pieces.len;
  }
cleanup:
  tok_decode_run_free(&run);
  return st;
}

tri_status tok_decoder_load(tok_decoder *d, const tok_field *f, const tok_vocab *vocab, const tok_added_vocab *added,
                            tri_error *err) {
  tri_status st;
  if (tok_field_is_null(f))
    d->spaced = true;
  else
    TRI_TRY(load_any(d, f, err));
  while (d->leading < d->count && d->steps[d->leading].kind->per_token) d->leading++;
  st = make_pieces(d, vocab, added);
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  if (st == TRI_TOO_LARGE) tok_field_fail(f, st, err, "the vocabulary's decoded text is too long");
  return st;
}

void tok_decoder_free(tok_decoder *d) {
  for (size_t i = 0; i < d->count; i++) tok_decode_step_free(&d->steps[i]);
  tri_buf_free(&d->pieces);
  tri_free(d->offsets);
  *d = (tok_decoder){0};
}

size_t tok_decode_inner(const tok_decoder *d, uint32_t id, char *out, size_t cap) {
  size_t len = d->offsets[id + 1] - d->offsets[id];
  if (len > cap) len = cap;
  memcpy(out, d->pieces.data + d->offsets[id], len);
  for (size_t i = d->leading; i < d->count; i++)
    if (d->steps[i].kind->inner) len = d->steps[i].kind->inner(&d->steps[i], out, len, cap);
  return len;
}

/* ---- streaming ---- */

tri_status tok_decode_stream_init(const tok_decoder *d, tok_decode_stream *s) {
  return tok_decode_run_init(&s->run, d->steps + d->leading, d->count - d->leading, MAX_PIECES);
}

void tok_decode_stream_free(tok_decode_stream *s) { tok_decode_run_free(&s->run); }

tri_status tok_decode_push(const tok_decoder *d, tok_decode_stream *s, uint32_t id, tri_buf *out) {
  s->run.out = out;
  if (d->spaced && s->begun) TRI_CHECK(tri_buf_append(out, " ", 1));
  s->begun = true;
  TRI_CHECK(tok_decode_text(&s->run, 0, d->pieces.data + d->offsets[id], d->offsets[id + 1] - d->offsets[id]));
  return tok_decode_end(&s->run, 0);
}

tri_status tok_decode_finish(tok_decode_stream *s, tri_buf *out) {
  s->run.out = out;
  s->begun = false;
  return tok_decode_end_all(&s->run);
}
