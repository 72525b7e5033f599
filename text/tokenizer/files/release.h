/* SPDX-License-Identifier: Apache-2.0 */
/* A release's other files than its vocabulary's: the family is in config.json, and the rest in tokenizer_config.json
 * and added_tokens.json. Only tokenizer.json says all of it itself. */
#ifndef TRI_TEXT_TOKENIZER_FILES_RELEASE_H
#define TRI_TEXT_TOKENIZER_FILES_RELEASE_H

#include "base/json/json.h"
#include "text/tokenizer/added.h"

typedef struct tok_release {
  const tri_json *config; /* of tokenizer_config.json; NULL: there is none */
  const tri_json *added;  /* of added_tokens.json, {"text": id}; NULL: there is none */
  const char *types[2];   /* the model_type of config.json and that of its text_config; NULL: it has none */
  const char *file;       /* the vocabulary's, for errors */
} tok_release;

/* Added tokens with texts that the list has copies of. */
typedef struct tok_added_list {
  tok_added *data;
  size_t len, cap;
  tri_arena *texts;
} tok_added_list;

/* l is zeroed; tok_added_list_free is due also after a failure. */
tri_status tok_added_list_init(tok_added_list *l);
void tok_added_list_free(tok_added_list *l);
/* Adds a token that is matched in the text as it came. One with an id that the list has takes its place. */
tri_status tok_added_list_put(tok_added_list *l, const char *text, size_t len, uint32_t id, bool special);
/* Adds those of both files; of one that is in both the flags of tokenizer_config.json count. */
tri_status tok_added_list_read(tok_added_list *l, const tok_release *release, tri_error *err);
/* NULL: there is none with this id. */
tok_added *tok_added_list_at(const tok_added_list *l, uint32_t id);

/* Returns whether a family is one of these words. */
bool tok_release_is(const tok_release *release, const char *types);
/* The text of a token such as bos_token, a string or an object with its content; `otherwise` where there is none. */
const char *tok_release_token(const tok_release *release, const char *key, const char *otherwise);
/* A boolean of tokenizer_config.json; `otherwise` where it has none. */
bool tok_release_flag(const tok_release *release, const char *key, bool otherwise);

#endif
