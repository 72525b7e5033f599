/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures of GGUF files, as rows of tables. */
#include <stdio.h>
#include <string.h>

#include "runtime/model/gguf_model.h"

/* ---- names of tensors ---- */

/* Those that most architectures have. */
static const tri_gguf_name common[] = {
    {.from = "token_embd", .to = "embed_tokens"},
    {.from = "output_norm", .to = "norm"},
    {.from = "output", .to = "lm_head"},
    {.from = "attn_norm", .to = "input_layernorm"},
    {.from = "ffn_norm", .to = "post_attention_layernorm"},
    {.from = "attn_q", .to = "self_attn.q_proj"},
    {.from = "attn_k", .to = "self_attn.k_proj"},
    {.from = "attn_v", .to = "self_attn.v_proj"},
    {.from = "attn_output", .to = "self_attn.o_proj"},
    {.from = "attn_q_norm", .to = "self_attn.q_norm"},
    {.from = "attn_k_norm", .to = "self_attn.k_norm"},
    {.from = "ffn_gate", .to = "mlp.gate_proj"},
    {.from = "ffn_up", .to = "mlp.up_proj"},
    {.from = "ffn_down", .to = "mlp.down_proj"},
    {.from = "ffn_gate_inp", .to = "mlp.gate"},
    {.from = "ffn_gate_exps", .to = "mlp.experts.%d.gate_proj", .experts = true},
    {.from = "ffn_up_exps", .to = "mlp.experts.%d.up_proj", .experts = true},
    {.from = "ffn_down_exps", .to = "mlp.experts.%d.down_proj", .experts = true},
    {0},
};

static const tri_gguf_name llama[] = {
    {.from = "attn_q", .to = "self_attn.q_proj", .paired = true},
    {.from = "attn_k", .to = "self_attn.k_proj", .paired = true},
    {.from = "ffn_gate_inp", .to = "block_sparse_moe.gate"},
    {.from = "ffn_gate_exps", .to = "block_sparse_moe.experts.%d.w1", .experts = true},
    {.from = "ffn_up_exps", .to = "block_sparse_moe.experts.%d.w3", .experts = true},
    {.from = "ffn_down_exps", .to = "block_sparse_moe.experts.%d.w2", .experts = true},
    {0},
};

/* A norm before and after each branch. */
static const tri_gguf_name gemma2[] = {
    {.from = "post_attention_norm", .to = "post_attention_layernorm"},
    {.from = "ffn_norm", .to = "pre_feedforward_layernorm"},
    {.from = "post_ffw_norm", .to = "post_feedforward_layernorm"},
    {0},
};

static const tri_gguf_name olmo2[] = {
    {.from = "post_attention_norm", .to = "post_attention_layernorm"},
    {.from = "post_ffw_norm", .to = "post_feedforward_layernorm"},
    {0},
};

static const tri_gguf_name phi3[] = {
    {.from = "attn_qkv", .to = "self_attn.qkv_proj"},
    {.from = "ffn_up", .to = "mlp.gate_up_proj"},
    {0},
};

static const tri_gguf_name qwen2moe[] = {
    {.from = "ffn_gate_shexp", .to = "mlp.shared_expert.gate_proj"},
    {.from = "ffn_up_shexp", .to = "mlp.shared_expert.up_proj"},
    {.from = "ffn_down_shexp", .to = "mlp.shared_expert.down_proj"},
    {.from = "ffn_gate_inp_shexp", .to = "mlp.shared_expert_gate", .row = true},
    {0},
};

static const tri_gguf_name starcoder2[] = {
    {.from = "ffn_up", .to = "mlp.c_fc"},
    {.from = "ffn_down", .to = "mlp.c_proj"},
    {0},
};

static const tri_gguf_name none[] = {{0}};

/* ---- keys ---- */

static const tri_gguf_key no_keys[] = {{0}};

static const tri_gguf_key gemma_keys[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping", TRI_GGUF_NUMBER},
    {"final_logit_softcapping", "final_logit_softcapping", TRI_GGUF_NUMBER},
    {"rope.freq_base_swa", "rope_local_base_freq", TRI_GGUF_NUMBER},
    {"attention.sliding_window_pattern", "sliding_window_pattern", TRI_GGUF_INT},
    {"attention.scale", NULL, TRI_GGUF_NUMBER},
    {0},
};

static const tri_gguf_key granite_keys[] = {
    {"embedding_scale", "embedding_multiplier", TRI_GGUF_NUMBER},
    {"residual_scale", "residual_multiplier", TRI_GGUF_NUMBER},
    {"logit_scale", "logits_scaling", TRI_GGUF_NUMBER},
    {"attention.scale", "attention_multiplier", TRI_GGUF_NUMBER},
    {0},
};

static const tri_gguf_key cohere_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps", TRI_GGUF_NUMBER},
    {"logit_scale", "logit_scale", TRI_GGUF_NUMBER},
    {0},
};

static const tri_gguf_key starcoder2_keys[] = {
    {"attention.layer_norm_epsilon", "norm_epsilon", TRI_GGUF_NUMBER},
    {0},
};

/* num_local_experts and not num_experts: Mixtral's. */
static const tri_gguf_key mixtral_keys[] = {
    {"expert_count", "num_local_experts", TRI_GGUF_INT},
    {"expert_used_count", "num_experts_per_tok", TRI_GGUF_INT},
    {0},
};

static const tri_gguf_key moe_keys[] = {
    {"expert_count", "num_experts", TRI_GGUF_INT},
    {"expert_used_count", "num_experts_per_tok", TRI_GGUF_INT},
    {"expert_feed_forward_length", "moe_intermediate_size", TRI_GGUF_INT},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", TRI_GGUF_INT},
    {0},
};

static const tri_gguf_key olmoe_keys[] = {
    {"expert_count", "num_experts", TRI_GGUF_INT},
    {"expert_used_count", "num_experts_per_tok", TRI_GGUF_INT},
    {0},
};

/* ---- architectures ---- */

#define GELU "\"hidden_activation\":\"gelu_pytorch_tanh\""

static const tri_gguf_arch archs[] = {
    {.name = "llama",
     .model_type = "llama",
     .moe_type = "mixtral",
     .window_type = "mistral",
     .keys = mixtral_keys,
     .names = llama,
     .has_window = true},
    {.name = "qwen2", .model_type = "qwen2", .keys = no_keys, .names = none},
    {.name = "qwen3", .model_type = "qwen3", .keys = no_keys, .names = none},
    {.name = "qwen2moe", .model_type = "qwen2_moe", .keys = moe_keys, .names = qwen2moe, .may_be_dense = true},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .keys = moe_keys,
     .names = none,
     .renormalizes = true,
     .may_be_dense = true},
    {.name = "gemma", .model_type = "gemma", .members = GELU, .keys = no_keys, .names = none, .gains_of_one = true},
    {.name = "gemma2",
     .model_type = "gemma2",
     .members = GELU,
     .keys = gemma_keys,
     .names = gemma2,
     .gains_of_one = true,
     .has_window = true,
     .scaled_by_width = 46},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .members = GELU,
     .keys = gemma_keys,
     .names = gemma2,
     .gains_of_one = true,
     .has_window = true,
     .scaled_by_width = 62},
    {.name = "phi3", .model_type = "phi3", .keys = no_keys, .names = phi3, .has_window = true},
    {.name = "granite", .model_type = "granite", .keys = granite_keys, .names = llama},
    {.name = "olmo2", .model_type = "olmo2", .keys = no_keys, .names = olmo2},
    {.name = "olmoe", .model_type = "olmoe", .keys = olmoe_keys, .names = none},
    {.name = "command-r", .model_type = "cohere", .keys = cohere_keys, .names = none},
    {.name = "starcoder2",
     .model_type = "starcoder2",
     .keys = starcoder2_keys,
     .names = starcoder2,
     .has_window = true},
};
enum { NUM_ARCHS = sizeof archs / sizeof *archs };

const tri_gguf_arch *tri_gguf_arch_of(const tri_gguf *g, tri_error *err) {
  enum { MOST_NAME = 40 };
  static const char key[] = "general.architecture";
  const char *name = "";
  size_t len = 0;
  char list[256] = "";
  tri_gguf_text(g, key, &name, &len);
  for (size_t i = 0, n = 0; i < NUM_ARCHS; i++) {
    if (tri_gguf_is(g, key, archs[i].name)) return &archs[i];
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", archs[i].name);
  }
  if (len > MOST_NAME) len = MOST_NAME;
  tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.*s\" is not read from GGUF files: %s are", key, (int)len, name, list);
  return NULL;
}

/* Returns whether a name is the entry's, with ".weight" or ".bias" after it or as a whole. */
static bool is_named(const tri_gguf_name *n, const char *name, const char **suffix) {
  size_t len = strlen(n->from);
  if (strncmp(name, n->from, len)) return false;
  *suffix = name + len;
  return !**suffix || !strcmp(*suffix, ".weight") || !strcmp(*suffix, ".bias");
}

const tri_gguf_name *tri_gguf_name_find(const tri_gguf_arch *arch, const char *name, const char **suffix) {
  const tri_gguf_name *const tables[] = {arch->names, common};
  for (int t = 0; t < 2; t++)
    for (const tri_gguf_name *n = tables[t]; n->from; n++)
      if (is_named(n, name, suffix)) return n;
  return NULL;
}
