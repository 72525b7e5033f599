/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a string of JSON, byte by byte: characters in UTF-8 but control characters, quotes and backslashes, and
 * escapes, of which each text has one spelling: \", \\, \b, \f, \n, \r, \t, and \u00.. of other control characters. */
#ifndef TRI_RUNTIME_GRAMMAR_TEXT_STATES_H
#define TRI_RUNTIME_GRAMMAR_TEXT_STATES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tri_text_state {
  TRI_TEXT_BEFORE, /* a character, or the closing quote */
  TRI_TEXT_REST_1, /* so many bytes of a character are left */
  TRI_TEXT_REST_2,
  TRI_TEXT_REST_3,
  TRI_TEXT_AFTER_E0, /* first bytes after which not all second ones may come */
  TRI_TEXT_AFTER_ED,
  TRI_TEXT_AFTER_F0,
  TRI_TEXT_AFTER_F4,
  TRI_TEXT_ESCAPE,
  TRI_TEXT_U,
  TRI_TEXT_U0,
  TRI_TEXT_U00,
  TRI_TEXT_LOW,  /* \u000 */
  TRI_TEXT_HIGH, /* \u001 */
  TRI_TEXT_STATES,
  TRI_TEXT_OUT = TRI_TEXT_STATES /* the byte may not come, as a quote before a character, which ends the text */
} tri_text_state;

tri_text_state tri_text_next(tri_text_state at, uint8_t byte);
/* Writes a character as the inside of a string has it; returns the bytes, at most 6. c: no surrogate. */
int tri_text_spell(uint32_t c, char out[6]);

#endif
