/* OLMoE: Llama with experts in every layer, queries and keys normed over all heads. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"OlmoeForCausalLM", NULL};

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_ROUTER,
                                      TRI_INT_KEY("num_experts", moe.num_experts, 1, 4096),
                                      TRI_INT_KEY("num_experts_per_tok", moe.top_k, 1, 256),
                                      TRI_BOOL_KEY("norm_topk_prob", moe.renormalize),
                                      TRI_BOOL_KEY("attention_bias", attention.bias),
                                      {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULE("layers.%d.self_attn.q_norm.weight", Q_NORM),
    TRI_RULE("layers.%d.self_attn.k_norm.weight", K_NORM),
    TRI_RULES_LLAMA_NORMS,
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err; /* clip_qkv is not in the table of keys: refused where it is not null */
  c->attention.o_bias = c->attention.bias;
  c->moe.intermediate_size = c->mlp.intermediate_size;
  tri_config_sparse_layers(c, 0, 1);
  return TRI_OK;
}

const tri_arch tri_arch_olmoe = {
    .model_type = "olmoe",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-5,
                 .attention.qk_norm = TRI_QK_NORM_WHOLE,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .moe = {.num_experts = 64, .top_k = 8, .score = TRI_MOE_SOFTMAX},
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 4096},
    .finish = finish,
};
