/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at those parts of a model's folder that the coordinator reads. */
#include <stdio.h>
#include <string.h>

#include "runtime/model/folder.h"
#include "runtime/model/labels.h"
#include "runtime/model/prompts.h"
#include "text/tokenizer/tokenizer.h"
#include "tools/plan/plan.h"

/* Says what a folder without a tokenizer that is read cannot serve. */
static void warn_of_no_tokenizer(const char *dir, const tri_model_config *c) {
  const char *other = tri_folder_other_tokenizer(dir);
  char unread[300] = "";
  if (other) snprintf(unread, sizeof unread, " (%s is not read)", other);
  fprintf(stderr, "trireme plan: warning: %s/tokenizer.json is missing%s: %s\n", dir, unread,
          c->encoder ? "texts must come as token_ids"
                     : "prompts must come as token_ids, and answers are token ids; no texts, chats or stop strings "
                       "are served");
}

/* A folder without one serves token ids. */
static tri_status check_tokenizer(const char *dir, const tri_model_config *c, tri_error *err) {
  const char *file = tri_tokenizer_file(dir);
  tri_tokenizer *t = NULL;
  if (!file) {
    warn_of_no_tokenizer(dir, c);
    return TRI_OK;
  }
  tri_status st = tri_tokenizer_load_folder(dir, &t, err);
  if (st == TRI_OK && tri_tokenizer_vocab_size(t) > c->vocab_size)
    fprintf(stderr,
            "trireme plan: warning: the tokenizer has %u tokens, the model %lld: texts with others are refused\n",
            (unsigned)tri_tokenizer_vocab_size(t), (long long)c->vocab_size);
  tri_tokenizer_destroy(t);
  if (st == TRI_OK && strcmp(file, "tokenizer.json") != 0)
    fprintf(stderr, "trireme plan: the tokenizer is read from %s\n", file);
  if (st != TRI_NOT_FOUND) return st;
  fprintf(stderr, "trireme plan: warning: %s must come as token_ids: %s\n", c->encoder ? "texts" : "prompts",
          err->message);
  *err = (tri_error){0};
  return TRI_OK;
}

tri_status plan_check_texts(const char *dir, const tri_model_config *c, tri_error *err) {
  tri_labels labels = {0};
  tri_prompts prompts = {0};
  if (c->head.has_classifier) TRI_CHECK(tri_labels_load(dir, (size_t)c->head.num_labels, &labels, err));
  tri_labels_free(&labels);
  if (c->encoder && !c->head.has_classifier) TRI_CHECK(tri_prompts_load(dir, &prompts, err));
  tri_prompts_free(&prompts);
  return check_tokenizer(dir, c, err);
}
