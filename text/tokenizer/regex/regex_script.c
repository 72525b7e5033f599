/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts that PCRE2 knows. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>

#include "text/tokenizer/regex/regex.h"

bool tok_regex_knows_script(const char *name) {
  char pattern[64];
  int code;
  PCRE2_SIZE at;
  int n = snprintf(pattern, sizeof pattern, "\\p{sc:%s}", name);
  if (n < 0 || n >= (int)sizeof pattern) return false;
  pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)n, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
  pcre2_code_free(re);
  return re != NULL;
}
