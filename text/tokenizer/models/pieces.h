/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces: the tokens of a model that a file lists in order of their ids, each with a score or a rank, without merges
 * and without rules around them. Two models are made of them. */
#ifndef TRI_TEXT_TOKENIZER_MODELS_PIECES_H
#define TRI_TEXT_TOKENIZER_MODELS_PIECES_H

#include "text/tokenizer/models/model.h"
#include "text/tokenizer/trie.h"

/* The numbers are those of SentencePiece's files. */
typedef enum tok_piece_kind {
  TOK_PIECE_NORMAL = 1,
  TOK_PIECE_UNKNOWN = 2, /* what text without a piece becomes */
  TOK_PIECE_CONTROL = 3, /* is not made of text */
  TOK_PIECE_USER = 4,    /* is found before anything else, and is never a part of another piece */
  TOK_PIECE_UNUSED = 5,
  TOK_PIECE_BYTE = 6 /* "<0x00>".. */
} tok_piece_kind;

typedef struct tok_piece {
  const char *text; /* borrowed; NULL: the id gets its text elsewhere */
  size_t len;
  float score; /* higher ones are preferred */
  tok_piece_kind kind;
} tok_piece;

typedef struct tok_pieces {
  tok_piece *list; /* by id */
  size_t count;
  uint32_t unk;        /* TOK_NO_ID: there is none, and each text has pieces */
  bool byte_fallback;  /* text without a piece becomes its bytes, and all byte pieces are there */
  bool whole_words;    /* a word that is a piece stays one, whatever the scores say */
  uint32_t bytes[256]; /* the byte pieces; TOK_NO_ID: missing */
} tok_pieces;

/* Fills an empty vocabulary. Found are normal and user pieces alone. f names the list in errors. */
tri_status tok_pieces_add(const tok_pieces *p, tok_vocab *vocab, const tok_field *f, tri_error *err);

/* User pieces, to look for the longest one that a text begins with. */
typedef struct tok_user_pieces {
  tok_trie trie; /* without nodes where there are none */
} tok_user_pieces;
/* u is zeroed; tok_user_pieces_free is due also after a failure. */
tri_status tok_user_pieces_build(tok_user_pieces *u, const tok_pieces *p, const tok_field *f, tri_error *err);
void tok_user_pieces_free(tok_user_pieces *u);
/* Returns its length, 0 without one. */
static inline size_t tok_user_piece_at(const tok_user_pieces *u, const char *s, size_t n, uint32_t *id) {
  size_t found = 0;
  uint32_t node = TOK_TRIE_ROOT;
  for (size_t i = 0; u->trie.count && i < n; i++) {
    node = tok_trie_step(&u->trie, node, (unsigned char)s[i]);
    if (node == TOK_TRIE_NONE) break;
    if (u->trie.nodes[node].id == TOK_NO_ID) continue;
    *id = u->trie.nodes[node].id;
    found = i + 1;
  }
  return found;
}

/* unigram.c: the scores of a path's pieces are added, in single precision. bpe_pieces.c: neighbours become the piece
 * that they spell, always the one with the highest score and of equal ones the leftmost. Both refer to the vocabulary,
 * which tok_pieces_add has filled; p is not needed any more. */
tri_status tok_unigram_create(const tok_pieces *p, const tok_vocab *vocab, const tok_field *f, void **model,
                              tri_error *err);
tri_status tok_bpe_pieces_create(const tok_pieces *p, const tok_vocab *vocab, const tok_field *f, void **model,
                                 tri_error *err);
extern const tok_model_type tok_model_bpe_pieces;

#endif
