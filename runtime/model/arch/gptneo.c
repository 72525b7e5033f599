/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-Neo: learned positions, scores without a scale, a sliding window in the layers that the file calls local. */
#include <string.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("num_layers", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("num_heads", attention.num_heads, 1, 1 << 16),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_INT_KEY("window_size", attention.window, 1, 1 << 30),
    TRI_READ_KEY("attention_types"),  /* read by finish */
    TRI_READ_KEY("attention_layers"), /* the same written out */
    TRI_IGNORED_KEYS("embed_dropout resid_dropout"),
    TRI_KEYS_SUMMARY,
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("wte.weight", EMBED),
    TRI_RULE("wpe.weight", POSITIONS),
    TRI_RULES_NORM("h.%d.ln_1", NORM1),
    TRI_RULES_QKV("h.%d.attn.attention."),
    TRI_RULES_O("h.%d.attn.attention.out_proj"),
    TRI_RULES_NORM("h.%d.ln_2", NORM2),
    TRI_RULES_MLP("h.%d.mlp.c_fc", "h.%d.mlp.c_proj"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

/* attention_types: [[["global", "local"], 2], ...]: each list of kinds so many times over. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "attention_types";
  const tri_json *types = tri_json_get(root, key);
  int64_t layer = 0;
  for (size_t i = 0; i < tri_json_size(types); i++) {
    const tri_json *item = tri_json_at(types, i), *kinds = tri_json_at(item, 0);
    int64_t times = 0;
    if (tri_json_size(item) != 2 || !tri_json_as_int(tri_json_at(item, 1), &times) || times < 1 ||
        !tri_json_size(kinds))
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s[%zu] must be a list of kinds and a number", key, i);
    /* One layer too many is enough for the refusal below: `times` may be any number. */
    for (int64_t n = 0; n < times && layer <= c->num_layers; n++)
      for (size_t k = 0; k < tri_json_size(kinds); k++, layer++) {
        const char *kind = tri_json_as_str(tri_json_at(kinds, k), NULL);
        bool local = kind && !strcmp(kind, "local");
        if (!local && (!kind || strcmp(kind, "global")))
          return tri_fail(err, TRI_UNSUPPORTED, key, "%s: a layer is \"global\" or \"local\"", key);
        if (local && layer < c->num_layers) c->layer_flags[layer] |= TRI_LAYER_LOCAL;
      }
  }
  if (layer != c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s names %lld layers, num_layers is %lld", key, (long long)layer,
                    (long long)c->num_layers);
  c->attention.scale = 1;
  return TRI_OK;
}

const tri_arch tri_arch_gpt_neo = {
    .model_type = "gpt_neo",
    .class_names = {"GPTNeoForCausalLM"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"h.%d.attn.attention.bias", "h.%d.attn.attention.masked_bias"},
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .attention.o_bias = true, .mlp.bias = true,
                 .attention.window = 256, .attention.position = TRI_POS_LEARNED, .head.tie_word_embeddings = true,
                 .max_position_embeddings = 2048},
    .finish = finish,
};
