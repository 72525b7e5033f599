/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss: experts with biases and a clamped gated activation, attention sinks, a sliding window in every second layer.
 */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_MOE,
                                      TRI_KEY_WINDOW,
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
                                      TRI_INT_KEY("experts_per_token", moe.top_k, 1, 256),
                                      TRI_NUM_KEY("swiglu_limit", moe.glu_limit, 1e-3, 1e6),
                                      TRI_IGNORED_KEYS("initial_context_length"), /* of the training */
                                      {0}};

/* All experts of a layer are one tensor, [experts, in, out]; columns of gate and up take turns. */
#define STACKED(n, w, p, f)                                                                                            \
  { .name = "layers.%d.mlp.experts." n, .weight = TRI_W_##w, .part = TRI_PART_##p, .flags = TRI_TENSOR_STACKED | (f) }

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULE("layers.%d.self_attn.sinks", SINKS),
    TRI_RULES_LLAMA_NORMS,
    TRI_RULE("layers.%d.mlp.router.weight", ROUTER),
    TRI_RULE("layers.%d.mlp.router.bias", ROUTER_BIAS),
    STACKED("gate_up_proj", EXPERT_UP, GATE_UP_INTERLEAVED, TRI_TENSOR_TRANSPOSED),
    STACKED("gate_up_proj_bias", EXPERT_UP_BIAS, GATE_UP_INTERLEAVED, 0),
    STACKED("down_proj", EXPERT_DOWN, WHOLE, TRI_TENSOR_TRANSPOSED),
    STACKED("down_proj_bias", EXPERT_DOWN_BIAS, WHOLE, 0),
    {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->mlp.act = TRI_ACT_SWIGLU_OAI; /* the file calls it silu */
  return TRI_OK;
}

const tri_arch tri_arch_gpt_oss = {
    .model_type = "gpt_oss",
    .class_names = {"GptOssForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.num_kv_heads = 8, .attention.head_dim = 64,
                 .attention.bias = true, .attention.o_bias = true, .attention.has_sinks = true, .attention.window = 128,
                 .attention.window_every = 2,
                 .moe = {.all_layers = true,
                         .num_experts = 128,
                         .top_k = 4,
                         .score = TRI_MOE_TOPK_SOFTMAX,
                         .router_bias = true,
                         .expert_bias = true,
                         .glu_limit = 7},
                 .attention.rope_theta = 150000, .max_position_embeddings = 131072},
    .finish = finish,
};
