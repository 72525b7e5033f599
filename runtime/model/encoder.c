/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders: a family's, or a decoder's family that its class, its folder or a key makes one. A decoder's states are
 * then the result, of which each token's has seen those before it; its head for the vocabulary goes. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "runtime/model/arch.h"
#include "runtime/model/sentence.h"

/* Labels have names in id2label; without them and without a number there are two. */
static tri_status read_labels(const tri_json *root, tri_model_config *c, tri_error *err) {
  const tri_json *names = tri_json_get(root, "id2label");
  double n = tri_json_kind_of(names) == TRI_JSON_OBJECT ? (double)tri_json_size(names) : 2;
  TRI_CHECK(tri_config_number(root, "num_labels", 1, 1 << 20, &n, err));
  if (n != floor(n) || n < 1 || n > 1 << 20)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_labels", "%.15g labels, the range is 1 to %d", n, 1 << 20);
  c->head.num_labels = (int64_t)n;
  return TRI_OK;
}

static const char *class_of(const tri_json *root) {
  return tri_json_as_str(tri_json_at(tri_json_get(root, "architectures"), 0), NULL);
}

tri_status tri_config_encoder(tri_model_config *c, const tri_json *root, tri_error *err) {
  const char *name = class_of(root);
  if (c->attention.position != TRI_POS_ROPE)
    TRI_CHECK(tri_config_must_be(root, "position_embedding_type", "absolute", err));
  c->head.sequence_head = name && tri_text_ends_with(name, "ForSequenceClassification");
  c->head.token_head = name && tri_text_ends_with(name, "ForTokenClassification");
  c->head.has_classifier = c->head.classifier_bias = c->head.sequence_head || c->head.token_head;
  c->head.tie_word_embeddings = false; /* there is no head to share the embedding */
  return c->head.has_classifier ? read_labels(root, c, err) : TRI_OK;
}

/* ---- of a decoder ---- */

/* The ends of a decoder's class: of one that generates, and of those that end with its states. */
static const char *const generating[] = {"ForCausalLM", "LMHeadModel"};
static const char *const ending[] = {"Model", "TextModel", "ForSequenceClassification"};

/* Returns whether name is `stem`, of so many bytes, and one of the ends without a head for the vocabulary. */
static bool ends_with_states(const char *name, const char *stem, size_t len) {
  if (strncmp(name, stem, len) != 0) return false;
  for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
    if (!strcmp(name + len, ending[i])) return true;
  return false;
}

bool tri_arch_is_headless(const tri_arch *a, const char *name) {
  if (a->defaults.encoder || a->defaults.seq2seq.on) return false;
  for (const char *const *n = a->class_names; *n; n++)
    for (size_t i = 0; i < sizeof generating / sizeof *generating; i++)
      if (tri_text_ends_with(*n, generating[i]) && ends_with_states(name, *n, strlen(*n) - strlen(generating[i])))
        return true;
  return false;
}

static tri_status become_encoder(tri_model_config *c, tri_error *err) {
  if (c->encoder) return TRI_OK;
  if (c->seq2seq.on || c->embed.projected)
    return tri_fail(err, TRI_UNSUPPORTED, "architectures", "model_type %s cannot serve as an encoder",
                    c->arch->model_type);
  c->encoder = true;
  c->head.tokens_are_tied = c->head.tie_word_embeddings;
  c->head.tie_word_embeddings = c->head.bias = false;
  return TRI_OK;
}

/* Makes the rows of some tokens in the head for the vocabulary a classifier. */
static tri_status classify_by_tokens(tri_model_config *c, int64_t n, tri_error *err) {
  TRI_CHECK(become_encoder(c, err));
  c->head.num_class_tokens = c->head.num_labels = n;
  c->head.has_classifier = c->head.sequence_head = true;
  c->head.pooling = TRI_POOL_LAST;
  return TRI_OK;
}

/* Ids as numbers; texts are looked up when the folder is known. */
static tri_status read_tokens(tri_model_config *c, const tri_json *list, tri_error *err) {
  static const char key[] = "classifier_from_token";
  size_t n = tri_json_size(list);
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || n < 2 || n > TRI_MAX_CLASS_TOKENS)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of 2 to %d tokens", key, TRI_MAX_CLASS_TOKENS);
  for (size_t i = 0; i < n; i++) {
    const tri_json *entry = tri_json_at(list, i);
    int64_t id = -1;
    if (!tri_json_as_str(entry, NULL) && (!tri_json_as_int(entry, &id) || id < 0 || id >= c->vocab_size))
      return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s[%zu] must be a token's text, or its id below %lld", key, i,
                      (long long)c->vocab_size);
    c->head.class_tokens[i] = id;
  }
  return classify_by_tokens(c, (int64_t)n, err);
}

tri_status tri_config_decoder_use(tri_model_config *c, const tri_json *root, tri_error *err) {
  const char *name = class_of(root);
  const tri_json *tokens = tri_json_get(root, "classifier_from_token");
  bool headless = name && tri_arch_is_headless(c->arch, name), original = false;
  bool by_tokens = tri_json_kind_of(tokens) != TRI_JSON_NULL;
  c->attention.causal = !c->encoder && !c->attention.bidirectional;
  TRI_CHECK(tri_config_bool(root, "is_original_qwen3_reranker", &original, err));
  if (original && tri_json_size(tokens) != 2)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "is_original_qwen3_reranker",
                    "is_original_qwen3_reranker needs classifier_from_token with two tokens");
  if (by_tokens && c->arch->defaults.encoder)
    return tri_fail(err, TRI_UNSUPPORTED, "classifier_from_token", "model_type %s has no logits of tokens",
                    c->arch->model_type);
  if (headless) TRI_CHECK(become_encoder(c, err));
  if (c->attention.bidirectional && !c->encoder)
    return tri_fail(err, TRI_UNSUPPORTED, "use_bidirectional_attention",
                    "use_bidirectional_attention is for encoders, and the class %.60s generates text",
                    name ? name : "?");
  if (by_tokens) return read_tokens(c, tokens, err);
  if (!headless || !tri_text_ends_with(name, "ForSequenceClassification")) return TRI_OK;
  c->head.has_classifier = c->head.sequence_head = c->head.has_score = true;
  c->head.pooling = TRI_POOL_LAST;
  return read_labels(root, c, err);
}

/* ---- of a folder ---- */

/* Looks up the tokens that were given as texts. */
static tri_status find_tokens(const char *dir, const tri_json *tokens, tri_model_config *c, tri_error *err) {
  for (int64_t i = 0; i < c->head.num_class_tokens; i++) {
    const char *text = tri_json_as_str(tri_json_at(tokens, (size_t)i), NULL);
    int64_t *id = &c->head.class_tokens[i];
    if (text && tri_config_token_id(dir, text, id) != TRI_OK)
      return tri_fail(err, TRI_NO_MEMORY, "classifier_from_token", "no memory for the tokenizer's files in %s", dir);
    if (*id < 0 || *id >= c->vocab_size)
      return tri_fail(err, TRI_NOT_FOUND, "classifier_from_token",
                      "\"%.60s\" is no token of the tokenizer in %s (an id will do, too)", text, dir);
  }
  return TRI_OK;
}

/* Classes and keys say it first. Else the modules of sentence-transformers do: a pooling, or a score of two tokens. */
tri_status tri_config_folder_use(const char *dir, const tri_json *root, tri_model_config *c, tri_error *err) {
  tri_sentence_use use;
  if (c->encoder || c->seq2seq.on) return find_tokens(dir, tri_json_get(root, "classifier_from_token"), c, err);
  TRI_CHECK(tri_sentence_use_read(dir, c->vocab_size, &use, err));
  if (use.pools) return become_encoder(c, err);
  if (!use.num_tokens) return TRI_OK;
  for (int i = 0; i < use.num_tokens; i++) c->head.class_tokens[i] = use.tokens[i];
  return classify_by_tokens(c, use.num_tokens, err);
}
