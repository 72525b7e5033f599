/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "text/tokenizer/bytelevel.h"
#include "text/tokenizer/files/files.h"
#include "text/unicode/unicode.h"

enum { LONGEST_PIECE = 1 << 16 }; /* bytes */

tri_status tok_byte_pieces_init(tok_byte_pieces *p, size_t count) {
  TRI_CHECK(tri_arena_create(1 << 16, &p->texts));
  p->list = tri_calloc(count ? count : 1, sizeof *p->list);
  p->count = count;
  return p->list ? TRI_OK : TRI_NO_MEMORY;
}

void tok_byte_pieces_free(tok_byte_pieces *p) {
  tri_arena_destroy(p->texts);
  tri_free(p->list);
  *p = (tok_byte_pieces){0};
}

/* Scores are what is sorted by: ranks are below 2^24, where each has a float of its own. */
tri_status tok_byte_pieces_set(tok_byte_pieces *p, size_t rank, const char *bytes, size_t len) {
  if (rank >= p->count || len > LONGEST_PIECE) return TRI_OUT_OF_RANGE;
  if (p->list[rank].text) return TRI_INVALID_ARGUMENT;
  char *text = tri_arena_alloc(p->texts, 2 * len + 1, 1); /* the alphabet's characters have one or two bytes */
  if (!text) return TRI_NO_MEMORY;
  size_t n = 0;
  for (size_t i = 0; i < len; i++) n += tok_utf8_encode(tok_bytelevel_char((unsigned char)bytes[i]), text + n);
  p->list[rank] = (tok_piece){.text = text, .len = n, .score = -(float)rank, .kind = TOK_PIECE_NORMAL};
  return TRI_OK;
}

static tri_status check_bytes(const tok_vocab *v, const tok_field *f, tri_error *err) {
  for (unsigned b = 0; b < 256; b++) {
    char text[4];
    size_t n = tok_utf8_encode(tok_bytelevel_char((unsigned char)b), text);
    if (tok_vocab_find(v, text, n) == TOK_NO_ID)
      return tok_field_fail(f, TRI_CORRUPT, err, "the byte %u is no token: text could not always be encoded", b);
  }
  return TRI_OK;
}

/* The model sees ids: those below `before` are none of its own, and get their texts as added tokens. */
static tri_status add_model(tri_tokenizer *t, const tok_byte_pieces *p, uint32_t before, const tok_field *f,
                            tri_error *err) {
  tok_pieces all = {.count = p->count + before, .unk = TOK_NO_ID, .whole_words = true};
  tri_status st = TRI_NO_MEMORY;
  all.list = tri_calloc(all.count ? all.count : 1, sizeof *all.list);
  if (!all.list) goto cleanup;
  for (size_t i = 0; i < before; i++) all.list[i].kind = TOK_PIECE_CONTROL;
  for (size_t i = 0; i < p->count; i++) all.list[before + i] = p->list[i];
  for (size_t i = 0; i < 256; i++) all.bytes[i] = TOK_NO_ID;
  TRI_TRY(tok_pieces_add(&all, &t->vocab, f, err));
  TRI_TRY(check_bytes(&t->vocab, f, err));
  TRI_TRY(tok_bpe_pieces_create(&all, &t->vocab, f, &t->model, err));
  t->model_type = &tok_model_bpe_pieces;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  tri_free(all.list);
  return st;
}

tri_status tok_byte_pieces_take(tri_tokenizer *t, const tok_byte_pieces *p, uint32_t before, const tok_field *f,
                                const char *pattern, size_t pattern_len, const tok_field *pattern_field,
                                const tok_added_list *added, tri_error *err) {
  TRI_CHECK(tok_pretokenizer_of_bytes(&t->pretokenizer, pattern, pattern_len, pattern_field, err));
  TRI_CHECK(add_model(t, p, before, f, err));
  TRI_CHECK(tok_added_vocab_take(&t->added, added->data, added->len, &t->vocab, f, err));
  return tok_rules_decoder(t, "{\"type\":\"ByteLevel\"}", err);
}
