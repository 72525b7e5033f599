/* SPDX-License-Identifier: Apache-2.0 */
/* How a model wants its text made: special ids, which stand in config.json or generation_config.json, and the latter's
 * defaults of sampling and beam search. */
#include <string.h>

#include "runtime/model/arch.h"

static tri_status read_eos(const tri_json *root, tri_model_config *c, tri_error *err) {
  const tri_json *eos = tri_json_get(root, "eos_token_id");
  bool list = tri_json_kind_of(eos) == TRI_JSON_ARRAY;
  size_t n = list ? tri_json_size(eos) : eos && tri_json_kind_of(eos) != TRI_JSON_NULL;
  if (!n) return TRI_OK;
  if (n > TRI_MAX_STOP_IDS)
    return tri_fail(err, TRI_TOO_LARGE, "eos_token_id", "%zu end-of-sequence ids, the limit is %d", n,
                    TRI_MAX_STOP_IDS);
  c->num_eos_token_ids = 0;
  for (size_t i = 0; i < n; i++) {
    int64_t id;
    if (!tri_json_as_int(list ? tri_json_at(eos, i) : eos, &id) || id < 0 || id > UINT32_MAX)
      return tri_fail(err, TRI_INVALID_ARGUMENT, "eos_token_id", "eos_token_id must be a token id or a list of them");
    c->eos_token_ids[c->num_eos_token_ids++] = (uint32_t)id;
  }
  return TRI_OK;
}

static tri_status read_token_id(const tri_json *root, const char *key, int64_t *out, tri_error *err) {
  const tri_json *v = tri_json_get(root, key);
  if (tri_json_kind_of(v) != TRI_JSON_NULL && (!tri_json_as_int(v, out) || *out < 0 || *out > UINT32_MAX))
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a token id", key);
  return TRI_OK;
}

/* A list of lists of token ids. */
static tri_status read_bad_words(const tri_json *root, tri_model_config *c, tri_error *err) {
  static const char key[] = "bad_words_ids";
  const tri_json *list = tri_json_get(root, key);
  if (tri_json_kind_of(list) == TRI_JSON_NULL) return TRI_OK;
  size_t n = tri_json_size(list);
  if (n > TRI_MAX_STOP_IDS)
    return tri_fail(err, TRI_TOO_LARGE, key, "%zu %s, the limit is %d", n, key, TRI_MAX_STOP_IDS);
  c->num_bad_token_ids = 0;
  for (size_t i = 0; i < n; i++) {
    const tri_json *word = tri_json_at(list, i);
    int64_t id;
    if (tri_json_size(word) != 1 || !tri_json_as_int(tri_json_at(word, 0), &id) || id < 0 || id >= c->vocab_size)
      return tri_fail(err, TRI_UNSUPPORTED, key, "%s[%zu] is not a list of one token id: only those are supported", key,
                      i);
    c->bad_token_ids[c->num_bad_token_ids++] = (uint32_t)id;
  }
  return TRI_OK;
}

/* Ids of special meaning, which stand in config.json, in generation_config.json or in both. */
tri_status tri_config_special_ids(const tri_json *root, tri_model_config *c, tri_error *err) {
  TRI_CHECK(read_token_id(root, "bos_token_id", &c->bos_token_id, err));
  TRI_CHECK(read_eos(root, c, err));
  TRI_CHECK(read_bad_words(root, c, err));
  if (!c->seq2seq.on) return TRI_OK;
  TRI_CHECK(read_token_id(root, "decoder_start_token_id", &c->seq2seq.decoder_start_token_id, err));
  return read_token_id(root, "forced_bos_token_id", &c->seq2seq.forced_bos_token_id, err);
}

/* false, true or "never" */
static tri_status read_early_stopping(const tri_json *root, tri_model_config *c, tri_error *err) {
  const tri_json *v = tri_json_get(root, "early_stopping");
  const char *name = tri_json_as_str(v, NULL);
  bool on;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_as_bool(v, &on))
    c->generation.early_stopping = on ? TRI_EARLY_TRUE : TRI_EARLY_FALSE;
  else if (name && !strcmp(name, "never"))
    c->generation.early_stopping = TRI_EARLY_NEVER;
  else
    return tri_fail(err, TRI_INVALID_ARGUMENT, "early_stopping", "early_stopping must be true, false or \"never\"");
  return TRI_OK;
}

/* Rows of TRI_SAMPLING_NUMBERS whose absence leaves the value to the model (MODEL) become keys of the file; FIXED and
 * OPEN ones are a request's alone. */
#define KEY(context, type, name, option, least, most, def, absent, sampler, help) KEY_##absent(type, name, least, most)
#define KEY_FIXED(type, name, least, most)
#define KEY_OPEN(type, name, least, most)
#define KEY_MODEL(type, name, least, most) KEY_##type(name, least, most),
#define KEY_F64(name, least, most) TRI_NUM_KEY(#name, generation.name, least, most)
#define KEY_I64(name, least, most) TRI_INT_KEY(#name, generation.name, least, most)

tri_status tri_config_generation(const tri_json *root, tri_model_config *c, tri_error *err) {
  static const tri_config_key keys[] = {
      TRI_SAMPLING_NUMBERS(KEY, ) /* within a request's limits */
      TRI_INT_KEY("num_beams", generation.num_beams, 1, 1 << 16),
      TRI_NUM_KEY("length_penalty", generation.length_penalty, -100, 100),
      TRI_BOOL_KEY("do_sample", generation.do_sample),
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const tri_json *v = tri_json_get(root, keys[i].name);
    if (tri_json_kind_of(v) != TRI_JSON_NULL) TRI_CHECK(tri_config_set(c, &keys[i], v, err));
  }
  TRI_CHECK(read_early_stopping(root, c, err));
  return tri_config_special_ids(root, c, err);
}
