/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/served_model.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/core.h"
#include "base/log.h"
#include "runtime/model/folder.h"
#include "runtime/model/sentence.h"

static tri_status open_tokenizer(const char *dir, tri_served_model *m, tri_error *err) {
  const char *file = tri_tokenizer_file(dir);
  tri_error why = {0};
  tri_status st = file ? tri_tokenizer_load_folder(dir, &m->tokenizer, &why) : TRI_NOT_FOUND;
  if (st == TRI_OK) {
    tri_log(TRI_LOG_INFO, "coordinator", "the tokenizer is read from %s/%s", dir, file);
    if (tri_tokenizer_vocab_size(m->tokenizer) > m->config.vocab_size)
      tri_log(TRI_LOG_WARN, "coordinator", "the tokenizer has %u tokens, the model %lld: texts with others are refused",
              (unsigned)tri_tokenizer_vocab_size(m->tokenizer), (long long)m->config.vocab_size);
    return TRI_OK;
  }
  if (st != TRI_NOT_FOUND) {
    *err = why;
    return st;
  }
  const char *input = m->config.encoder ? "texts" : "prompts";
  m->other_tokenizer = file ? file : tri_folder_other_tokenizer(dir);
  if (m->other_tokenizer)
    tri_log(TRI_LOG_WARN, "coordinator",
            "%s/tokenizer.json is missing: %s must come as token_ids, for %s is not read%s%s. Make one out of it "
            "with transformers' AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
            dir, input, m->other_tokenizer, file ? ": " : "", why.message);
  else
    tri_log(TRI_LOG_WARN, "coordinator", "%s/tokenizer.json is missing: %s must come as token_ids", dir, input);
  return TRI_OK;
}

static bool has_twice(const tri_opt_list *names, const char **name) {
  for (size_t i = 0; i < names->count; i++)
    for (size_t k = 0; k < i; k++)
      if (!strcmp(*name = names->items[i], names->items[k])) return true;
  return false;
}

static tri_status take_names(const tri_serve_options *o, tri_served_model *m, tri_error *err) {
  const tri_opt_list *names = &o->served_model_name;
  if (names->count > TRI_CORE_MAX_NAMES)
    return tri_fail(err, TRI_TOO_LARGE, "served_model_name", "--served-model-name: %zu names, the limit is %d",
                    names->count, TRI_CORE_MAX_NAMES);
  for (size_t i = 0; i < names->count; i++)
    if (!*names->items[i] || strlen(names->items[i]) >= sizeof m->name)
      return tri_fail(err, TRI_INVALID_ARGUMENT, "served_model_name",
                      "--served-model-name: a name has 1 to %zu bytes, not %zu", sizeof m->name - 1,
                      strlen(names->items[i]));
  const char *twice;
  if (has_twice(names, &twice))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "served_model_name", "--served-model-name has %s twice", twice);
  if (!names->count)
    tri_model_folder_name(o->model, m->name);
  else
    snprintf(m->name, sizeof m->name, "%s", names->items[0]);
  if (names->count > 1) m->other_names = (tri_opt_list){names->items + 1, names->count - 1};
  return TRI_OK;
}

tri_status tri_served_model_open(const tri_serve_options *o, tri_served_model *m, tri_error *err) {
  TRI_CHECK(tri_model_config_load(o->model, TRI_CONFIG_RULES(o), &m->config, err));
  tri_model_config_warn(&m->config, "coordinator");
  TRI_CHECK(tri_model_config_pool(o->model, (tri_pooling)o->pooling, &m->config, err));
  if (m->config.head.has_classifier)
    TRI_CHECK(tri_labels_load(o->model, (size_t)m->config.head.num_labels, &m->labels, err));
  if (m->config.encoder && !m->config.head.has_classifier) TRI_CHECK(tri_prompts_load(o->model, &m->prompts, err));
  TRI_CHECK(open_tokenizer(o->model, m, err));
  if (!m->config.encoder && !m->config.num_eos_token_ids)
    tri_log(TRI_LOG_WARN, "coordinator",
            "%s names no end-of-sequence token (eos_token_id of config.json or generation_config.json, eos_token of "
            "tokenizer_config.json): only max_tokens and stops of requests end an answer",
            o->model);
  m->max_prompt = o->max_model_len ? o->max_model_len : tri_model_config_length(&m->config);
  /* Most encoders take a text in one step. */
  int64_t step = o->max_num_batched_tokens; /* 0: the replicas decide */
  if (tri_model_config_takes_whole(&m->config) && step && m->max_prompt > step) m->max_prompt = step;
  return take_names(o, m, err);
}

void tri_served_model_close(tri_served_model *m) {
  tri_tokenizer_destroy(m->tokenizer);
  tri_labels_free(&m->labels);
  tri_prompts_free(&m->prompts);
}
