/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/models/pieces.h"

static bool is_listed(const tok_piece *p) { return p->kind == TOK_PIECE_NORMAL || p->kind == TOK_PIECE_USER; }

static tri_status refuse(tri_status st, const tok_piece *p, size_t id, const tok_field *f, tri_error *err) {
  tok_field piece = tok_field_at(f, id);
  if (st == TRI_NO_MEMORY) return tok_field_no_memory(f, err);
  return tok_field_fail(&piece, TRI_CORRUPT, err, "%.*s is there twice", (int)(p->len < 64 ? p->len : 64), p->text);
}

tri_status tok_pieces_add(const tok_pieces *p, tok_vocab *vocab, const tok_field *f, tri_error *err) {
  if (!p->count || p->count > TOK_MAX_IDS)
    return tok_field_fail(f, TRI_OUT_OF_RANGE, err, "%zu tokens, must be 1..%d", p->count, TOK_MAX_IDS);
  for (size_t i = 0; i < p->count; i++) {
    const tok_piece *piece = &p->list[i];
    if (!piece->text) continue;
    tri_status st = is_listed(piece) ? tok_vocab_add(vocab, piece->text, piece->len, (uint32_t)i)
                                     : tok_vocab_add_unlisted(vocab, piece->text, piece->len, (uint32_t)i);
    if (st != TRI_OK) return refuse(st, piece, i, f, err);
  }
  return TRI_OK;
}

tri_status tok_user_pieces_build(tok_user_pieces *u, const tok_pieces *p, const tok_field *f, tri_error *err) {
  tok_vocab found = {0};
  tri_status st = TRI_OK;
  for (size_t i = 0; i < p->count; i++) {
    const tok_piece *piece = &p->list[i];
    if (piece->kind != TOK_PIECE_USER) continue;
    if (!found.texts) TRI_TRY(tok_vocab_init(&found));
    TRI_TRY(tok_vocab_add(&found, piece->text, piece->len, (uint32_t)i));
  }
  if (found.texts) TRI_TRY(tok_trie_build(&u->trie, &found));
cleanup:
  tok_vocab_free(&found);
  if (st == TRI_NO_MEMORY) return tok_field_no_memory(f, err);
  if (st != TRI_OK) tok_field_fail(f, st, err, "a token exceeds %d bytes or all are too many", TOK_TRIE_LONGEST);
  return st;
}

void tok_user_pieces_free(tok_user_pieces *u) { tok_trie_free(&u->trie); }
