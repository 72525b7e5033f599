/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/text.h"
#include "text/tokenizer/files/files.h"

static tri_status no_memory(tri_error *err) { return tri_fail(err, TRI_NO_MEMORY, "", "no memory for the tokenizer"); }

/* Parts are read from the text that tokenizer.json would have for them: its readers are the only ones. */
static tri_status parse(const char *text, size_t len, tri_json_doc **doc, tri_error *err) {
  tri_status st = tri_json_parse(text, len, doc, NULL);
  return st == TRI_OK ? st : no_memory(err);
}

static void add_template(tri_buf *b, const char *key, const char *letters, bool has_first, bool has_last) {
  bool begun = false;
  tri_text_printf(b, ",\"%s\":[", key);
  for (const char *c = letters; *c; c++) {
    if ((*c == 'b' && !has_first) || (*c == 'e' && !has_last)) continue;
    const char *what = *c == 'A' || *c == 'B' ? "Sequence" : "SpecialToken";
    tri_text_printf(b, "%s{\"%s\":{\"id\":\"%c\",\"type_id\":0}}", begun ? "," : "", what, *c);
    begun = true;
  }
  tri_text_printf(b, "]");
}

tri_status tok_rules_around(tri_tokenizer *t, const char *single, const char *pair, uint32_t first, uint32_t last,
                            tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_buf b = {0};
  tri_status st;
  tri_text_printf(&b, "{\"type\":\"TemplateProcessing\"");
  add_template(&b, "single", single, first != TOK_NO_ID, last != TOK_NO_ID);
  add_template(&b, "pair", pair, first != TOK_NO_ID, last != TOK_NO_ID);
  tri_text_printf(&b, ",\"special_tokens\":{\"b\":{\"ids\":[%u]},\"e\":{\"ids\":[%u]}}}", first, last);
  if (!b.len)
    st = no_memory(err); /* what could not grow is empty */
  else
    st = parse(b.data, b.len, &doc, err);
  if (st == TRI_OK) {
    tok_field f = tok_field_root(tri_json_root(doc));
    st = tok_postprocessor_load(&t->postprocessor, &f, (uint32_t)t->vocab.size, err);
  }
  tri_json_free(doc);
  tri_buf_free(&b);
  return st;
}

tri_status tok_rules_decoder(tri_tokenizer *t, const char *json, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_status st = parse(json, strlen(json), &doc, err);
  if (st == TRI_OK) {
    tok_field f = tok_field_root(tri_json_root(doc));
    st = tok_decoder_load(&t->decoder, &f, &t->vocab, &t->added, err);
  }
  tri_json_free(doc);
  return st;
}
