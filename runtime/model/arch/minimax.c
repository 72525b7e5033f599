/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M2: Mixtral's experts, chosen by sigmoids with a bias that balances their load; queries and keys normed over
 * all heads; a part of each head rotates. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_LLAMA,
    TRI_KEYS_MOE,
    TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("rotary_dim", attention.rotary_dim, 2, TRI_MAX_ROTARY),
    TRI_INT_KEY("num_mtp_modules", extra_layers, 0, 64),
    TRI_READ_KEY("scoring_func"), /* this one and the next three: finish */
    TRI_READ_KEY("use_routing_bias"),
    TRI_READ_KEY("qk_norm_type"),
    TRI_READ_KEY("attn_type_list"),
    TRI_IGNORED_KEYS("use_mtp mtp_transformer_layers mlp_intermediate_size"), /* nothing reads them */
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULES_QK_NORM,
    TRI_RULES_LLAMA_NORMS,
    TRI_RULE("layers.%d.block_sparse_moe.gate.weight", ROUTER),
    TRI_RULE("layers.%d.block_sparse_moe.e_score_correction_bias", CHOICE_BIAS),
    TRI_RULES_EXPERTS("layers.%d.block_sparse_moe.experts.%d.", "w1", "w3", "w2"),
    {0},
};

/* Earlier models of the series have other kinds of attention in some layers, which their list says. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  const tri_json *kinds = tri_json_get(root, "attn_type_list");
  bool bias = true;
  TRI_CHECK(tri_config_must_be(root, "scoring_func", "sigmoid", err));
  TRI_CHECK(tri_config_must_be(root, "qk_norm_type", "per_layer", err));
  TRI_CHECK(tri_config_bool(root, "use_routing_bias", &bias, err));
  if (!bias) return tri_fail(err, TRI_UNSUPPORTED, "use_routing_bias", "use_routing_bias false is not supported");
  for (size_t l = 0; l < tri_json_size(kinds); l++) {
    double kind = 0;
    if (!tri_json_as_num(tri_json_at(kinds, l), &kind) || kind != 1)
      return tri_fail(err, TRI_UNSUPPORTED, "attn_type_list", "attn_type_list[%zu] is not 1, which is full attention",
                      l);
  }
  (void)c;
  return TRI_OK;
}

#define DEFAULTS                                                                                                       \
  TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.num_kv_heads = 8, .attention.head_dim = 128,                        \
                      .attention.qk_norm = TRI_QK_NORM_WHOLE, .attention.rope_theta = 5e6,                             \
                      .moe = {.all_layers = true,                                                                      \
                              .num_experts = 256,                                                                      \
                              .top_k = 8,                                                                              \
                              .score = TRI_MOE_SIGMOID,                                                                \
                              .renormalize = true,                                                                     \
                              .choice_bias = true},                                                                    \
                      .max_position_embeddings = 196608

const tri_arch tri_arch_minimax_m2 = {
    .model_type = "minimax_m2",
    .class_names = {"MiniMaxM2ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};

/* The first revision of MiniMax-M2 has the name of an earlier model, whose class is another. */
const tri_arch tri_arch_minimax = {
    .model_type = "minimax",
    .class_names = {"MiniMaxM2ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};
