/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/models/model.h"

#include <string.h>

static const tok_model_type *const models[] = {&tok_model_bpe, &tok_model_wordpiece, &tok_model_unigram,
                                               &tok_model_wordlevel};

tri_status tok_model_find(const tok_field *f, const tok_model_type **out, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_OBJECT) return tok_field_wrong(f, "an object", err);
  tok_field type = tok_field_get(f, "type");
  const char *name = NULL;
  if (!tok_field_is_null(&type)) TRI_CHECK(tok_field_string(&type, &name, NULL, err));
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    const char *telltale = models[i]->telltale;
    bool is_it = name ? strcmp(models[i]->name, name) == 0 : telltale && tri_json_get(f->node, telltale);
    if (!is_it) continue;
    *out = models[i];
    return TRI_OK;
  }
  if (name) return tok_field_unsupported_type(f, name, "tokenizer model", err);
  return tok_field_fail(&type, TRI_CORRUPT, err, "the model has no type and cannot be guessed");
}
