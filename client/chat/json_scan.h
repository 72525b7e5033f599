/* SPDX-License-Identifier: Apache-2.0 */
/* One value of JSON (RFC 8259), byte by byte, and in bounded memory: a byte that no such value has there is refused as
 * it comes. Lone surrogates, bytes that are not UTF-8 and deep nesting are refused, too: clients send a value back, and
 * tri_json takes it then, also inside an object of tags. */
#ifndef TRI_CLIENT_CHAT_JSON_SCAN_H
#define TRI_CLIENT_CHAT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH = 63, JSON_SCAN_MISSING = JSON_SCAN_DEPTH + 1 };

/* All zeros before the first byte. */
typedef struct json_scan {
  int state;
  unsigned depth;
  uint64_t objects;        /* bit i: bracket i is that of an object */
  bool in_key;             /* the string is a key */
  unsigned more;           /* bytes of the character, or digits of the escape, that are to come */
  unsigned char low, high; /* the next byte of the character lies between them */
  unsigned code;           /* of the escape */
  bool pair;               /* it is the second half of a character */
  const char *word;        /* what is to come of true, false or null */
} json_scan;

/* Returns whether some value continues with this byte; white space may stand around it. */
bool json_scan_byte(json_scan *s, char c);
/* Writes what completes the value to out[JSON_SCAN_MISSING], a quote and brackets, and returns how many bytes these
 * are: 0 where it is whole. -1: it cannot end here, as in a key, in an escape, or after a comma. Nor does an object
 * before its first member: that there is something in it tells it from text. */
int json_scan_missing(const json_scan *s, char *out);

static inline bool json_is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

#endif
