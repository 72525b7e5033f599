/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/arch.h"

#include <string.h>

#include "runtime/model/sentence.h"

/* All families: the tables are objects of their own files, so that one file is all that a family needs. */
#define ARCHITECTURES(X)                                                                                               \
  X(albert)                                                                                                            \
  X(bart)                                                                                                              \
  X(bert)                                                                                                              \
  X(bloom)                                                                                                             \
  X(cohere)                                                                                                            \
  X(cohere2)                                                                                                           \
  X(deepseek_v2)                                                                                                       \
  X(deepseek_v3)                                                                                                       \
  X(deepseek_v32)                                                                                                      \
  X(distilbert)                                                                                                        \
  X(ernie4_5)                                                                                                          \
  X(ernie4_5_moe)                                                                                                      \
  X(exaone4)                                                                                                           \
  X(falcon)                                                                                                            \
  X(gemma)                                                                                                             \
  X(gemma2)                                                                                                            \
  X(gemma3_text)                                                                                                       \
  X(gemma4_text)                                                                                                       \
  X(glm4)                                                                                                              \
  X(glm4_moe)                                                                                                          \
  X(glm4_moe_lite)                                                                                                     \
  X(glm_moe_dsa)                                                                                                       \
  X(gpt2)                                                                                                              \
  X(gpt_bigcode)                                                                                                       \
  X(gpt_neo)                                                                                                           \
  X(gpt_neox)                                                                                                          \
  X(gpt_oss)                                                                                                           \
  X(gptj)                                                                                                              \
  X(gte)                                                                                                               \
  X(gte_v5)                                                                                                            \
  X(granite)                                                                                                           \
  X(granitemoe)                                                                                                        \
  X(hy_v3)                                                                                                             \
  X(kimi_k2)                                                                                                           \
  X(llama)                                                                                                             \
  X(llama4_text)                                                                                                       \
  X(marian)                                                                                                            \
  X(mimo_v2_flash)                                                                                                     \
  X(minimax)                                                                                                           \
  X(minimax_m2)                                                                                                        \
  X(ministral3)                                                                                                        \
  X(mistral)                                                                                                           \
  X(mistral4)                                                                                                          \
  X(mixtral)                                                                                                           \
  X(modernbert)                                                                                                        \
  X(nomic_bert)                                                                                                        \
  X(olmo2)                                                                                                             \
  X(olmo3)                                                                                                             \
  X(olmoe)                                                                                                             \
  X(opt)                                                                                                               \
  X(phi)                                                                                                               \
  X(phi3)                                                                                                              \
  X(phimoe)                                                                                                            \
  X(qwen2)                                                                                                             \
  X(qwen2_5_vl_text)                                                                                                   \
  X(qwen2_moe)                                                                                                         \
  X(qwen3)                                                                                                             \
  X(qwen3_moe)                                                                                                         \
  X(qwen3_vl_moe_text)                                                                                                 \
  X(qwen3_vl_text)                                                                                                     \
  X(roberta)                                                                                                           \
  X(seed_oss)                                                                                                          \
  X(smollm3)                                                                                                           \
  X(stablelm)                                                                                                          \
  X(starcoder2)                                                                                                        \
  X(step3p5)                                                                                                           \
  X(t5)                                                                                                                \
  X(xlm_roberta)

#define X(name) extern const tri_arch tri_arch_##name;
ARCHITECTURES(X)
#undef X

const tri_arch *const tri_arch_list[] = {
#define X(name) &tri_arch_##name,
    ARCHITECTURES(X)
#undef X
        NULL};

const tri_arch *tri_arch_find(const char *model_type) {
  for (const tri_arch *const *a = tri_arch_list; *a; a++)
    if (!strcmp((*a)->model_type, model_type)) return *a;
  return NULL;
}

/* Scores of a decoder's last state, and the Dense modules of a sentence-transformers folder (sentence.h). */
static const tri_tensor_rule ends[] = {
    {.name = "score.weight", .weight = TRI_W_CLASSIFIER, .if_field = TRI_IF(head.has_score)},
    {.name = TRI_DENSE_PREFIX "0.linear.weight", .weight = TRI_W_DENSE1, .if_field = TRI_IF(sentence.dense[0].on)},
    {.name = TRI_DENSE_PREFIX "0.linear.bias", .weight = TRI_W_DENSE1_BIAS, .if_field = TRI_IF(sentence.dense[0].bias)},
    {.name = TRI_DENSE_PREFIX "1.linear.weight", .weight = TRI_W_DENSE2, .if_field = TRI_IF(sentence.dense[1].on)},
    {.name = TRI_DENSE_PREFIX "1.linear.bias", .weight = TRI_W_DENSE2_BIAS, .if_field = TRI_IF(sentence.dense[1].bias)},
    {0},
};

const tri_tensor_rule *tri_rule_next(const tri_model_config *c, const tri_tensor_rule *rule) {
  const tri_tensor_rule *first = c->tensors ? c->tensors : c->arch->tensors, *next = rule ? rule + 1 : first;
  bool of_end = false;
  for (const tri_tensor_rule *e = ends; e->name; e++) of_end |= e == rule;
  if (!next->name && !of_end) next = ends;
  return next->name ? next : NULL;
}

/* Rows of TRI_WEIGHT_LIST, by id: the one list gives ids, names and properties, so that none of them can be missing. */
static const struct {
  const char *name;
  enum { MODEL, LAYER, DENSE, SPARSE, END } place;
  enum { PLAIN, GAIN, LINEAR } kind;
} weights[] = {
#define X(name, place, kind) [TRI_W_##name] = {#name, place, kind},
    TRI_WEIGHT_LIST(X)
#undef X
};

const char *tri_weight_name(tri_weight_id id) { return weights[id].name; }
bool tri_weight_is_per_layer(tri_weight_id id) { return weights[id].place != MODEL; }
bool tri_weight_is_gain(tri_weight_id id) { return weights[id].kind == GAIN; }
bool tri_weight_is_linear(tri_weight_id id) { return weights[id].kind == LINEAR; }
bool tri_weight_is_mlp(tri_weight_id id) { return weights[id].place >= DENSE; }

bool tri_weight_is_of_experts(tri_weight_id id) {
  return id == TRI_W_EXPERT_UP || id == TRI_W_EXPERT_UP_BIAS || id == TRI_W_EXPERT_DOWN || id == TRI_W_EXPERT_DOWN_BIAS;
}

/* A layer has either an MLP (DENSE) or experts (SPARSE). Both kinds may occur in one model, as where the first layers
 * have no experts. */
bool tri_weight_in_layer(const tri_model_config *c, tri_weight_id id, int layer) {
  bool dense = weights[id].place == DENSE, of_norm = id == TRI_W_NORM1 || id == TRI_W_NORM1_BIAS;
  if (of_norm) return !(c->layer_flags[layer] & TRI_LAYER_BARE);
  if (!dense && weights[id].place != SPARSE) return true;
  return dense == !(c->layer_flags[layer] & TRI_LAYER_SPARSE);
}

bool tri_act_from_name(const char *name, tri_act *out) {
  static const struct {
    const char *name;
    tri_act act;
  } acts[] = {
      {"relu", TRI_ACT_RELU},          {"gelu", TRI_ACT_GELU_ERF},       {"gelu_python", TRI_ACT_GELU_ERF},
      {"gelu_new", TRI_ACT_GELU_TANH}, {"gelu_fast", TRI_ACT_GELU_TANH}, {"gelu_pytorch_tanh", TRI_ACT_GELU_TANH},
      {"silu", TRI_ACT_SILU},          {"swish", TRI_ACT_SILU},          {"quick_gelu", TRI_ACT_QUICK_GELU},
  };
  for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
    if (!strcmp(acts[i].name, name)) {
      *out = acts[i].act;
      return true;
    }
  return false;
}
