/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a template, with the rules for white space around blocks.
 *
 * A begin or an end carries no text. What a `-` or `+` next to it does to the white space has been done when the
 * parser sees it. */
#ifndef TRI_TEXT_JINJA_LEXER_H
#define TRI_TEXT_JINJA_LEXER_H

#include "text/jinja/ast.h"

typedef enum jtoken_kind {
  JT_DATA, /* text between blocks */
  JT_BLOCK_BEGIN,
  JT_BLOCK_END,
  JT_VARIABLE_BEGIN,
  JT_VARIABLE_END,
  JT_NAME,
  JT_STRING,
  JT_INT,
  JT_FLOAT,
  JT_OPERATOR, /* text */
  JT_END,
} jtoken_kind;

typedef struct jtoken {
  jtoken_kind kind;
  int line;
  const char *s; /* of DATA, NAME, OPERATOR, and of a STRING what it stands for */
  size_t n;
  int64_t i;
  double f;
} jtoken;

typedef struct jtokens {
  jtoken *items;
  size_t n, cap;
} jtokens;

/* Cuts a template into tokens, the last of which is END. Their texts are in the arena. */
tri_status j_lex(const char *source, size_t len, tri_arena *arena, jtokens *out, tri_error *err);

#endif
