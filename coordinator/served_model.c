/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/served_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/model/folder.h"
#include "runtime/model/sentence.h"

static tri_status open_tokenizer(const char *dir, tri_served_model *m, tri_error *err) {
  char path[4200];
  snprintf(path, sizeof path, "%s/tokenizer.json", dir);
  if (!access(path, F_OK)) return tri_tokenizer_load(path, &m->tokenizer, err);
  m->other_tokenizer = tri_folder_other_tokenizer(dir);
  if (m->other_tokenizer)
    tri_log(TRI_LOG_WARN, "coordinator",
            "%s is missing: prompts must come as token_ids, for %s is not read. Make one out of it with transformers' "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
            path, m->other_tokenizer);
  else
    tri_log(TRI_LOG_WARN, "coordinator", "%s is missing: prompts must come as token_ids", path);
  return TRI_OK;
}

static tri_status take_name(const tri_serve_options *o, tri_served_model *m) {
  char *copy = tri_strdup(o->model);
  if (!copy) return TRI_NO_MEMORY;
  for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/';) copy[--n] = '\0';
  const char *slash = strrchr(copy, '/'), *name = slash ? slash + 1 : copy;
  if (o->served_model_name) name = o->served_model_name;
  snprintf(m->name, sizeof m->name, "%s", name);
  tri_free(copy);
  return TRI_OK;
}

tri_status tri_served_model_open(const tri_serve_options *o, tri_served_model *m, tri_error *err) {
  TRI_CHECK(tri_model_config_load_by(o->model, TRI_CONFIG_RULES(o), &m->config, err));
  tri_model_config_warn(&m->config, "coordinator");
  TRI_CHECK(tri_model_config_pool(o->model, (tri_pooling)o->pooling, &m->config, err));
  if (m->config.head.has_classifier)
    TRI_CHECK(tri_labels_load(o->model, (size_t)m->config.head.num_labels, &m->labels, err));
  TRI_CHECK(open_tokenizer(o->model, m, err));
  m->max_prompt = o->max_model_len ? o->max_model_len : tri_model_config_length(&m->config);
  /* An encoder takes a text in one step. */
  int64_t step = o->max_num_batched_tokens; /* 0: the groups decide */
  if (m->config.encoder && step && m->max_prompt > step) m->max_prompt = step;
  return take_name(o, m);
}

void tri_served_model_close(tri_served_model *m) {
  tri_tokenizer_destroy(m->tokenizer);
  tri_labels_free(&m->labels);
}
