/* SPDX-License-Identifier: Apache-2.0 */
/* The end-of-sequence token that tokenizer_config.json names: chats of many fine-tunes end with it, where config.json
 * and generation_config.json have the base model's. The token is a text there, and its id is looked for in three
 * places, the cheapest first: tokenizer_config.json's own table, the added tokens of tokenizer.json, and its
 * vocabulary. tokenizer.json may have tens of megabytes, so that only the two members are parsed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/arch.h"

enum { MOST_CONFIG = 16 << 20, MOST_TOKENIZER = 256 << 20 };

typedef struct search {
  const char *text;
  int64_t id; /* -1: not found */
} search;

static const char *content_of(const tri_json *token) {
  const char *text = tri_json_as_str(token, NULL);
  return text ? text : tri_json_get_str(token, "content");
}

/* An entry of added_tokens_decoder: the id is its key. */
static tri_status look_at_entry(void *ctx, const char *key, const tri_json *token) {
  search *s = ctx;
  char *end;
  const char *text = content_of(token);
  long long id = strtoll(key, &end, 10);
  if (text && !strcmp(text, s->text) && *key && !*end) s->id = id;
  return TRI_OK;
}

/* Looks in a list of tokenizer.json: the added tokens, or a Unigram's vocabulary, whose ids are places. */
static void look_in_list(search *s, const tri_json *list, bool added) {
  for (size_t i = 0; i < tri_json_size(list) && s->id < 0; i++) {
    const tri_json *entry = tri_json_at(list, i);
    const char *text = added ? content_of(entry) : tri_json_as_str(tri_json_at(entry, 0), NULL);
    if (!text || strcmp(text, s->text) != 0) continue;
    s->id = (int64_t)i;
    if (added && !tri_json_get_int(entry, "id", &s->id)) s->id = -1;
  }
}

/* Reads one member of tokenizer.json; the vocabulary only where the token is none of the added ones. */
static tri_status look_in_member(search *s, const char *file, size_t len, const char *key) {
  tri_json_doc *doc = NULL;
  size_t n;
  const char *value = tri_json_find_member(file, len, key, &n);
  if (!value || s->id >= 0) return TRI_OK;
  tri_status st = tri_json_parse_file(value, n, &doc, NULL);
  const tri_json *root = tri_json_root(doc), *vocab = tri_json_get(root, "vocab");
  if (tri_json_kind_of(root) == TRI_JSON_ARRAY) look_in_list(s, root, true);
  if (tri_json_kind_of(vocab) == TRI_JSON_ARRAY) look_in_list(s, vocab, false);
  if (tri_json_kind_of(vocab) == TRI_JSON_OBJECT) tri_json_get_int(vocab, s->text, &s->id);
  tri_json_free(doc);
  return st == TRI_NO_MEMORY ? st : TRI_OK;
}

static tri_status look_in_tokenizer(search *s, const char *dir) {
  char path[4200], *text = NULL;
  size_t len;
  snprintf(path, sizeof path, "%s/tokenizer.json", dir);
  tri_status st = tri_json_read_text(path, MOST_TOKENIZER, &text, &len, NULL);
  if (st == TRI_OK) st = look_in_member(s, text, len, "added_tokens");
  if (st == TRI_OK) st = look_in_member(s, text, len, "model");
  tri_free(text);
  return st == TRI_NO_MEMORY ? st : TRI_OK;
}

static void add(tri_model_config *c, int64_t id) {
  for (int i = 0; i < c->num_eos_token_ids; i++)
    if (c->eos_token_ids[i] == (uint32_t)id) return;
  if (id >= 0 && id < c->vocab_size && c->num_eos_token_ids < TRI_MAX_STOP_IDS)
    c->eos_token_ids[c->num_eos_token_ids++] = (uint32_t)id;
}

/* Finds a token's id; *id is -1 where there is none. */
static tri_status find(const char *dir, const tri_json *config, const char *text, int64_t *id) {
  search s = {.text = text, .id = -1};
  tri_json_each(tri_json_get(config, "added_tokens_decoder"), look_at_entry, &s);
  tri_status st = s.id < 0 ? look_in_tokenizer(&s, dir) : TRI_OK;
  *id = s.id;
  return st;
}

tri_status tri_config_token_id(const char *dir, const char *text, int64_t *id) { return find(dir, NULL, text, id); }

tri_status tri_config_end_token(const char *dir, tri_model_config *c) {
  char path[4200];
  tri_json_doc *doc = NULL;
  int64_t id = -1, channel = -1;
  snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
  tri_status st = tri_json_read_file(path, MOST_CONFIG, &doc, NULL);
  const tri_json *root = tri_json_root(doc);
  const char *text = content_of(tri_json_get(root, "eos_token"));
  if (text) st = find(dir, root, text, &id);
  /* In an answer of channels <|end|> ends a message, and another one follows it. */
  if (id >= 0 && !strcmp(text, "<|end|>")) st = find(dir, root, "<|channel|>", &channel);
  if (id >= 0 && channel < 0) add(c, id);
  tri_json_free(doc);
  return st == TRI_NO_MEMORY ? st : TRI_OK;
}
