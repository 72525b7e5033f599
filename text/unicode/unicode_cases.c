/* SPDX-License-Identifier: Apache-2.0 */
/* Upper and title case of one character, as Unicode's SpecialCasing has it where that is more than one. */
#include <string.h>
#include <utf8proc.h>

#include "text/unicode/unicode.h"

typedef struct case_text {
  uint32_t c;
  const char *upper, *title;
} case_text;

/* Those whose upper case is more than one character, in order. */
/* clang-format off */
static const case_text longer[] = {
    {0xdf, "SS", "Ss"}, {0x149, "\u02bcN", "\u02bcN"}, {0x1f0, "J\u030c", "J\u030c"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"}, {0x3b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x587, "\u0535\u0552", "\u0535\u0582"}, {0x1e96, "H\u0331", "H\u0331"}, {0x1e97, "T\u0308", "T\u0308"},
    {0x1e98, "W\u030a", "W\u030a"}, {0x1e99, "Y\u030a", "Y\u030a"}, {0x1e9a, "A\u02be", "A\u02be"},
    {0x1f50, "\u03a5\u0313", "\u03a5\u0313"}, {0x1f52, "\u03a5\u0313\u0300", "\u03a5\u0313\u0300"},
    {0x1f54, "\u03a5\u0313\u0301", "\u03a5\u0313\u0301"}, {0x1f56, "\u03a5\u0313\u0342", "\u03a5\u0313\u0342"},
    {0x1f80, "\u1f08\u0399", "\u1f88"}, {0x1f81, "\u1f09\u0399", "\u1f89"}, {0x1f82, "\u1f0a\u0399", "\u1f8a"},
    {0x1f83, "\u1f0b\u0399", "\u1f8b"}, {0x1f84, "\u1f0c\u0399", "\u1f8c"}, {0x1f85, "\u1f0d\u0399", "\u1f8d"},
    {0x1f86, "\u1f0e\u0399", "\u1f8e"}, {0x1f87, "\u1f0f\u0399", "\u1f8f"}, {0x1f88, "\u1f08\u0399", "\u1f88"},
    {0x1f89, "\u1f09\u0399", "\u1f89"}, {0x1f8a, "\u1f0a\u0399", "\u1f8a"}, {0x1f8b, "\u1f0b\u0399", "\u1f8b"},
    {0x1f8c, "\u1f0c\u0399", "\u1f8c"}, {0x1f8d, "\u1f0d\u0399", "\u1f8d"}, {0x1f8e, "\u1f0e\u0399", "\u1f8e"},
    {0x1f8f, "\u1f0f\u0399", "\u1f8f"}, {0x1f90, "\u1f28\u0399", "\u1f98"}, {0x1f91, "\u1f29\u0399", "\u1f99"},
    {0x1f92, "\u1f2a\u0399", "\u1f9a"}, {0x1f93, "\u1f2b\u0399", "\u1f9b"}, {0x1f94, "\u1f2c\u0399", "\u1f9c"},
    {0x1f95, "\u1f2d\u0399", "\u1f9d"}, {0x1f96, "\u1f2e\u0399", "\u1f9e"}, {0x1f97, "\u1f2f\u0399", "\u1f9f"},
    {0x1f98, "\u1f28\u0399", "\u1f98"}, {0x1f99, "\u1f29\u0399", "\u1f99"}, {0x1f9a, "\u1f2a\u0399", "\u1f9a"},
    {0x1f9b, "\u1f2b\u0399", "\u1f9b"}, {0x1f9c, "\u1f2c\u0399", "\u1f9c"}, {0x1f9d, "\u1f2d\u0399", "\u1f9d"},
    {0x1f9e, "\u1f2e\u0399", "\u1f9e"}, {0x1f9f, "\u1f2f\u0399", "\u1f9f"}, {0x1fa0, "\u1f68\u0399", "\u1fa8"},
    {0x1fa1, "\u1f69\u0399", "\u1fa9"}, {0x1fa2, "\u1f6a\u0399", "\u1faa"}, {0x1fa3, "\u1f6b\u0399", "\u1fab"},
    {0x1fa4, "\u1f6c\u0399", "\u1fac"}, {0x1fa5, "\u1f6d\u0399", "\u1fad"}, {0x1fa6, "\u1f6e\u0399", "\u1fae"},
    {0x1fa7, "\u1f6f\u0399", "\u1faf"}, {0x1fa8, "\u1f68\u0399", "\u1fa8"}, {0x1fa9, "\u1f69\u0399", "\u1fa9"},
    {0x1faa, "\u1f6a\u0399", "\u1faa"}, {0x1fab, "\u1f6b\u0399", "\u1fab"}, {0x1fac, "\u1f6c\u0399", "\u1fac"},
    {0x1fad, "\u1f6d\u0399", "\u1fad"}, {0x1fae, "\u1f6e\u0399", "\u1fae"}, {0x1faf, "\u1f6f\u0399", "\u1faf"},
    {0x1fb2, "\u1fba\u0399", "\u1fba\u0345"}, {0x1fb3, "\u0391\u0399", "\u1fbc"},
    {0x1fb4, "\u0386\u0399", "\u0386\u0345"}, {0x1fb6, "\u0391\u0342", "\u0391\u0342"},
    {0x1fb7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"}, {0x1fbc, "\u0391\u0399", "\u1fbc"},
    {0x1fc2, "\u1fca\u0399", "\u1fca\u0345"}, {0x1fc3, "\u0397\u0399", "\u1fcc"},
    {0x1fc4, "\u0389\u0399", "\u0389\u0345"}, {0x1fc6, "\u0397\u0342", "\u0397\u0342"},
    {0x1fc7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"}, {0x1fcc, "\u0397\u0399", "\u1fcc"},
    {0x1fd2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"}, {0x1fd3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x1fd6, "\u0399\u0342", "\u0399\u0342"}, {0x1fd7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {0x1fe2, "\u03a5\u0308\u0300", "\u03a5\u0308\u0300"}, {0x1fe3, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x1fe4, "\u03a1\u0313", "\u03a1\u0313"}, {0x1fe6, "\u03a5\u0342", "\u03a5\u0342"},
    {0x1fe7, "\u03a5\u0308\u0342", "\u03a5\u0308\u0342"}, {0x1ff2, "\u1ffa\u0399", "\u1ffa\u0345"},
    {0x1ff3, "\u03a9\u0399", "\u1ffc"}, {0x1ff4, "\u038f\u0399", "\u038f\u0345"},
    {0x1ff6, "\u03a9\u0342", "\u03a9\u0342"}, {0x1ff7, "\u03a9\u0342\u0399", "\u03a9\u0342\u0345"},
    {0x1ffc, "\u03a9\u0399", "\u1ffc"}, {0xfb00, "FF", "Ff"}, {0xfb01, "FI", "Fi"}, {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"}, {0xfb04, "FFL", "Ffl"}, {0xfb05, "ST", "St"}, {0xfb06, "ST", "St"},
    {0xfb13, "\u0544\u0546", "\u0544\u0576"}, {0xfb14, "\u0544\u0535", "\u0544\u0565"},
    {0xfb15, "\u0544\u053b", "\u0544\u056b"}, {0xfb16, "\u054e\u0546", "\u054e\u0576"},
    {0xfb17, "\u0544\u053d", "\u0544\u056d"}};
/* clang-format on */

static const case_text *find(uint32_t c) {
  size_t from = 0, to = sizeof longer / sizeof *longer;
  while (from < to) {
    size_t at = (from + to) / 2;
    if (longer[at].c == c) return &longer[at];
    if (longer[at].c < c)
      from = at + 1;
    else
      to = at;
  }
  return NULL;
}

static size_t copy(char *out, const char *text) {
  size_t n = strlen(text);
  memcpy(out, text, n);
  return n;
}

size_t tok_upper(uint32_t c, char out[TOK_CASE_BYTES]) {
  const case_text *more = find(c);
  if (more) return copy(out, more->upper);
  return tok_utf8_encode((uint32_t)utf8proc_toupper((utf8proc_int32_t)c), out);
}

size_t tok_title(uint32_t c, char out[TOK_CASE_BYTES]) {
  const case_text *more = find(c);
  if (more) return copy(out, more->title);
  return tok_utf8_encode((uint32_t)utf8proc_totitle((utf8proc_int32_t)c), out);
}

/* Letters that look like small ones and have no other case (Other_Lowercase). */
static bool is_like_lower(uint32_t c) {
  static const struct {
    uint32_t from, to;
  } ranges[] = {{0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},
                {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},
                {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
                {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},   {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0},
                {0x107b2, 0x107ba}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges && c >= ranges[i].from; i++)
    if (c <= ranges[i].to) return true;
  return false;
}

bool tok_is_cased(uint32_t c) {
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT: return true;
  default: break;
  }
  uint32_t lower[2];
  utf8proc_int32_t i = (utf8proc_int32_t)c;
  return tok_lower(c, lower) != 1 || lower[0] != c || utf8proc_toupper(i) != i || is_like_lower(c);
}

bool tok_is_case_ignorable(uint32_t c) {
  static const uint32_t inside_words[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                          0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  for (size_t i = 0; i < sizeof inside_words / sizeof *inside_words; i++)
    if (inside_words[i] == c) return true;
  switch (utf8proc_category((utf8proc_int32_t)c)) {
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_SK: return true;
  default: return false;
  }
}
