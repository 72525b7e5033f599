/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/metaspace.h"

#include <string.h>

/* Early files have add_prefix_space alone: true is today's "always", false "never". */
static tri_status read_scheme(const tok_field *f, tok_prepend *out, tri_error *err) {
  static const char *const names[] = {
      [TOK_PREPEND_ALWAYS] = "always", [TOK_PREPEND_FIRST] = "first", [TOK_PREPEND_NEVER] = "never"};
  bool add = true;
  const char *name;
  tok_field scheme = tok_field_get(f, "prepend_scheme");
  TRI_CHECK(tok_field_bool(f, "add_prefix_space", &add, err));
  *out = add ? TOK_PREPEND_ALWAYS : TOK_PREPEND_NEVER;
  if (tok_field_is_null(&scheme)) return TRI_OK;
  TRI_CHECK(tok_field_string(&scheme, &name, NULL, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (tok_prepend)i;
    if (add || *out == TOK_PREPEND_NEVER) return TRI_OK;
    return tok_field_fail(&scheme, TRI_CORRUPT, err, "%s, but add_prefix_space is false", name);
  }
  return tok_field_fail(&scheme, TRI_UNSUPPORTED, err, "%.64s is not a prepend scheme", name);
}

tri_status tok_metaspace_load(const tok_field *f, tok_metaspace *m, tri_error *err) {
  const char *text;
  *m = (tok_metaspace){.split = true};
  tok_field replacement = tok_field_get(f, "replacement");
  TRI_CHECK(tok_field_char(&replacement, &text, &m->len, err));
  memcpy(m->replacement, text, m->len);
  TRI_CHECK(read_scheme(f, &m->scheme, err));
  return tok_field_bool(f, "split", &m->split, err);
}
