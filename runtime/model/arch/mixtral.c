/* Mixtral: Mistral with experts in every layer, the weights of the chosen ones summing to one. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"MixtralForCausalLM", NULL};

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_ROUTER,
                                      TRI_KEY_WINDOW,
                                      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
                                      TRI_INT_KEY("num_experts_per_tok", moe.top_k, 1, 256),
                                      {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_LLAMA_NORMS,
                                          TRI_RULE("layers.%d.block_sparse_moe.gate.weight", ROUTER),
                                          TRI_RULES_EXPERTS("layers.%d.block_sparse_moe.experts.%d.", "w1", "w3", "w2"),
                                          {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)err;
  c->moe.intermediate_size = c->mlp.intermediate_size;
  tri_config_sparse_layers(c, 0, 1);
  tri_config_local_layers(c, root, 0, 1);
  return TRI_OK;
}

const tri_arch tri_arch_mixtral = {
    .model_type = "mixtral",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-5,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .attention.num_kv_heads = 8,
                 .moe = {.num_experts = 8, .top_k = 2, .score = TRI_MOE_SOFTMAX, .renormalize = true},
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 4096 * 32},
    .finish = finish,
};
