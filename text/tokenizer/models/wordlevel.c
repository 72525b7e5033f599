/* SPDX-License-Identifier: Apache-2.0 */
/* The WordLevel model: a word is a token, or unknown. */
#include "base/mem.h"
#include "text/tokenizer/models/model.h"

typedef struct wordlevel {
  const tok_vocab *vocab;
  uint32_t unk; /* TOK_NO_ID: a text with an unknown word is refused */
} wordlevel;

/* An unk_token that the vocabulary does not have is no error here, as in the reference: only a text that needs it is
 * refused. */
static tri_status wordlevel_load(const tok_field *f, tok_vocab *vocab, void **model, tri_error *err) {
  const char *text;
  size_t len;
  TRI_CHECK(tok_field_object(f, "type vocab unk_token", err));
  tok_field tokens = tok_field_get(f, "vocab"), unk = tok_field_get(f, "unk_token");
  TRI_CHECK(tok_vocab_load(vocab, &tokens, err));
  TRI_CHECK(tok_field_string(&unk, &text, &len, err));
  wordlevel *w = tri_calloc(1, sizeof *w);
  if (!w) return tok_field_no_memory(f, err);
  *w = (wordlevel){.vocab = vocab, .unk = tok_vocab_find(vocab, text, len)};
  *model = w;
  return TRI_OK;
}

static tri_status wordlevel_work_create(const void *model, void **work) {
  (void)model;
  *work = NULL;
  return TRI_OK;
}

static tri_status wordlevel_encode(const void *model, void *work, const char *word, size_t len, tok_ids *out) {
  const wordlevel *w = model;
  (void)work;
  uint32_t id = tok_vocab_find(w->vocab, word, len);
  if (id == TOK_NO_ID) id = w->unk;
  return id == TOK_NO_ID ? TRI_NOT_FOUND : tok_ids_push(out, id);
}

const tok_model_type tok_model_wordlevel = {
    .name = "WordLevel",
    .load = wordlevel_load,
    .destroy = tri_free,
    .work_create = wordlevel_work_create,
    .work_destroy = tri_free,
    .encode = wordlevel_encode,
};
