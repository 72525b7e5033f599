/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/answer_grammars.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/model_folder.h"
#include "text/tokenizer/tokenizer.h"

static const size_t GRAMMARS_BYTES = (size_t)256 << 20;

/* Special tokens are no text, and an id that ends an answer may not come as one. */
static bool is_text(const tri_tokenizer *t, const tri_model_config *m, uint32_t id) {
  for (int i = 0; i < m->num_eos_token_ids; i++)
    if (m->eos_token_ids[i] == id) return false;
  return !tri_tokenizer_is_special(t, id);
}

/* Lists the tokens that are text. Their bytes follow one another in `bytes`, which moves while it grows: pointers into
 * it are made last. */
static tri_status list(const tri_tokenizer *t, const tri_model_config *m, uint32_t num, tri_buf *bytes,
                       tri_token_bytes *tokens, size_t *count) {
  char text[TRI_VOCABULARY_TOKEN];
  *count = 0;
  for (uint32_t id = 0; id < num; id++) {
    size_t len = is_text(t, m, id) ? tri_tokenizer_token_bytes(t, id, text, sizeof text) : 0;
    if (!len) continue;
    TRI_CHECK(tri_buf_append(bytes, text, len));
    tokens[(*count)++] = (tri_token_bytes){.id = id, .len = (uint32_t)len};
  }
  const uint8_t *at = (const uint8_t *)bytes->data;
  for (size_t i = 0; i < *count; i++) {
    tokens[i].bytes = at;
    at += tokens[i].len;
  }
  return TRI_OK;
}

static tri_status read_vocabulary(const char *folder, const tri_model_config *m, tri_vocabulary **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_tokenizer *t = NULL;
  tri_buf bytes = {0};
  tri_token_bytes *tokens = NULL;
  char path[TRI_MODEL_FOLDER];
  size_t count;
  uint32_t size = (uint32_t)m->vocab_size;
  TRI_TRY(tri_model_folder_find(folder, path, err));
  TRI_TRY(tri_tokenizer_load_folder(path, &t, err));
  uint32_t num = tri_tokenizer_vocab_size(t) < size ? tri_tokenizer_vocab_size(t) : size;
  if (!(tokens = tri_calloc(num ? num : 1, sizeof *tokens))) TRI_TRY(TRI_NO_MEMORY);
  TRI_TRY(list(t, m, num, &bytes, tokens, &count));
  TRI_TRY(tri_vocabulary_create(tokens, count, size, out, err));
cleanup:
  tri_free(tokens);
  tri_buf_free(&bytes);
  tri_tokenizer_destroy(t);
  return st;
}

static tri_status make(tri_answer_grammars *g, tri_error *err) {
  TRI_CHECK(read_vocabulary(g->folder, g->model, &g->vocabulary, err));
  return tri_grammar_cache_create(g->vocabulary, GRAMMARS_BYTES, &g->cache);
}

static tri_grammar_cache *open_cache(tri_grammar_source *source) {
  tri_answer_grammars *g = (tri_answer_grammars *)source;
  tri_error err = {0};
  int64_t start = tri_now_ns();
  if (g->tried) return g->cache;
  g->tried = true;
  tri_status st = make(g, &err);
  if (st == TRI_OK)
    tri_log(TRI_LOG_INFO, "worker", "answers can be constrained: the tokens' tables take %zu bytes, made in %.0f ms",
            tri_vocabulary_bytes(g->vocabulary), (double)(tri_now_ns() - start) / 1e6);
  else
    tri_log(TRI_LOG_WARN, "worker", "answers cannot be constrained: %s",
            err.message[0] ? err.message : tri_status_text(st));
  return g->cache;
}

tri_status tri_answer_grammars_start(tri_answer_grammars *g, const char *folder, const tri_model_config *m,
                                     tri_waker *ready) {
  if (g->maker) return TRI_OK;
  g->source.open = open_cache;
  g->folder = folder;
  g->model = m;
  TRI_CHECK(tri_mask_maker_create(ready, &g->maker));
  tri_status st = tri_mask_maker_start(g->maker);
  if (st == TRI_OK) return TRI_OK;
  tri_mask_maker_destroy(g->maker);
  g->maker = NULL;
  return st;
}

void tri_answer_grammars_free(tri_answer_grammars *g) {
  tri_mask_maker_destroy(g->maker);
  tri_grammar_cache_destroy(g->cache);
  tri_vocabulary_destroy(g->vocabulary);
  *g = (tri_answer_grammars){.tried = false};
}
