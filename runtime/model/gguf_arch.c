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

static const tri_gguf_name glm4[] = {
    {.from = "post_attention_norm", .to = "post_self_attn_layernorm"},
    {.from = "post_ffw_norm", .to = "post_mlp_layernorm"},
    {.from = "ffn_up", .to = "mlp.gate_up_proj"},
    {0},
};

static const tri_gguf_name deepseek2[] = {
    {.from = "attn_k_b", .flat = true},
    {.from = "attn_v_b", .flat = true},
    {0},
};

static const tri_gguf_name none[] = {{0}};

/* ---- keys ---- */

static const tri_gguf_key no_keys[] = {{0}};

static const tri_gguf_key gemma_keys[] = {
    TRI_GGUF_KEY("attn_logit_softcapping", "attn_logit_softcapping", NUMBER),
    TRI_GGUF_KEY("final_logit_softcapping", "final_logit_softcapping", NUMBER),
    TRI_GGUF_KEY("rope.freq_base_swa", "rope_local_base_freq", NUMBER),
    TRI_GGUF_KEY("attention.sliding_window_pattern", "sliding_window_pattern", INT),
    TRI_GGUF_KEY("attention.scale", NULL, NUMBER),
    {0},
};

static const tri_gguf_key granite_keys[] = {
    TRI_GGUF_KEY("embedding_scale", "embedding_multiplier", NUMBER),
    TRI_GGUF_KEY("residual_scale", "residual_multiplier", NUMBER),
    TRI_GGUF_KEY("logit_scale", "logits_scaling", NUMBER),
    TRI_GGUF_KEY("attention.scale", "attention_multiplier", NUMBER),
    {0},
};

static const tri_gguf_key cohere_keys[] = {
    TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_eps", NUMBER),
    TRI_GGUF_KEY("logit_scale", "logit_scale", NUMBER),
    {0},
};

static const tri_gguf_key starcoder2_keys[] = {
    TRI_GGUF_KEY("attention.layer_norm_epsilon", "norm_epsilon", NUMBER),
    {0},
};

/* num_local_experts and not num_experts: Mixtral's. */
static const tri_gguf_key mixtral_keys[] = {
    TRI_GGUF_KEY("expert_count", "num_local_experts", INT),
    TRI_GGUF_KEY("expert_used_count", "num_experts_per_tok", INT),
    {0},
};

static const tri_gguf_key moe_keys[] = {
    TRI_GGUF_KEY("expert_count", "num_experts", INT),
    TRI_GGUF_KEY("expert_used_count", "num_experts_per_tok", INT),
    TRI_GGUF_KEY("expert_feed_forward_length", "moe_intermediate_size", INT),
    TRI_GGUF_KEY("expert_shared_feed_forward_length", "shared_expert_intermediate_size", INT),
    {0},
};

static const tri_gguf_key olmoe_keys[] = {
    TRI_GGUF_KEY("expert_count", "num_experts", INT),
    TRI_GGUF_KEY("expert_used_count", "num_experts_per_tok", INT),
    {0},
};

static const tri_gguf_key gpt_oss_keys[] = {
    TRI_GGUF_KEY("feed_forward_length", NULL, INT),
    TRI_GGUF_KEY("expert_feed_forward_length", "intermediate_size", INT),
    TRI_GGUF_KEY("expert_count", "num_local_experts", INT),
    TRI_GGUF_KEY("expert_used_count", "num_experts_per_tok", INT),
    {0},
};

/* Sizes of heads are put by put_latent. The cache's one head of keys is no number of the model. */
static const tri_gguf_key deepseek2_keys[] = {
    TRI_GGUF_KEY("attention.head_count_kv", NULL, INT),
    TRI_GGUF_KEY("attention.key_length", NULL, INT),
    TRI_GGUF_KEY("attention.key_length_mla", NULL, INT),
    TRI_GGUF_KEY("attention.value_length_mla", NULL, INT),
    TRI_GGUF_KEY_OR("attention.q_lora_rank", "q_lora_rank", INT, "null"),
    TRI_GGUF_KEY("attention.kv_lora_rank", "kv_lora_rank", INT),
    TRI_GGUF_KEY("rope.dimension_count", "qk_rope_head_dim", INT),
    TRI_GGUF_KEY("rope.scaling.yarn_log_multiplier", NULL, NUMBER),
    TRI_GGUF_KEY_OR("leading_dense_block_count", "first_k_dense_replace", COUNT, "0"),
    TRI_GGUF_KEY("expert_count", "n_routed_experts", INT),
    TRI_GGUF_KEY("expert_used_count", "num_experts_per_tok", INT),
    TRI_GGUF_KEY("expert_feed_forward_length", "moe_intermediate_size", INT),
    TRI_GGUF_KEY_OR("expert_shared_count", "n_shared_experts", COUNT, "0"),
    TRI_GGUF_KEY_OR("expert_weights_scale", "routed_scaling_factor", NUMBER, "1"),
    TRI_GGUF_KEY("expert_gating_func", NULL, INT),
    TRI_GGUF_KEY("expert_group_count", NULL, INT),
    TRI_GGUF_KEY("expert_group_used_count", NULL, INT),
    {0},
};

/* Families whose heads of keys are as many as those of queries have this. */
#define NO_GROUPS TRI_GGUF_KEY("attention.head_count_kv", NULL, HEADS)

static const tri_gguf_key gpt2_keys[] = {
    NO_GROUPS, TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_epsilon", NUMBER), {0}};

static const tri_gguf_key gptneox_keys[] = {
    NO_GROUPS,
    TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_eps", NUMBER),
    TRI_GGUF_KEY("use_parallel_residual", "use_parallel_residual", SWITCH),
    {0},
};

/* Files do not say which of the layouts it is: norms and heads of keys do. */
static const tri_gguf_key falcon_keys[] = {
    TRI_GGUF_KEY_OR("attention.head_count_kv", "num_kv_heads", INT, "1"),
    TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_epsilon", NUMBER),
    TRI_GGUF_KEY("feed_forward_length", "ffn_hidden_size", INT),
    TRI_GGUF_KEY("tensor_data_layout", NULL, INT),
    {0},
};

static const tri_gguf_key phi2_keys[] = {TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_eps", NUMBER), {0}};

static const tri_gguf_key stablelm_keys[] = {
    TRI_GGUF_KEY("attention.layer_norm_epsilon", "layer_norm_eps", NUMBER),
    TRI_GGUF_KEY_OR("use_parallel_residual", "use_parallel_residual", SWITCH, "false"),
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
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .moe_type = "gpt_oss",
     .keys = gpt_oss_keys,
     .names = none,
     .rules = tri_gguf_rules_gpt_oss,
     .has_window = true,
     .exact_yarn = true},
    {.name = "deepseek2",
     .model_type = "deepseek_v2",
     .sigmoid_type = "deepseek_v3",
     .keys = deepseek2_keys,
     .names = deepseek2,
     .rules = tri_gguf_rules_deepseek2,
     .latent = true},
    {.name = "glm4", .model_type = "glm4", .keys = no_keys, .names = glm4},
    {.name = "phi2", .model_type = "phi", .keys = phi2_keys, .names = none, .rules = tri_gguf_rules_phi2},
    {.name = "gptneox", .model_type = "gpt_neox", .keys = gptneox_keys, .names = none, .rules = tri_gguf_rules_gptneox},
    {.name = "gpt2", .model_type = "gpt2", .keys = gpt2_keys, .names = none, .rules = tri_gguf_rules_gpt2},
    {.name = "bloom", .model_type = "bloom", .keys = gpt2_keys, .names = none, .rules = tri_gguf_rules_bloom},
    {.name = "falcon", .model_type = "falcon", .keys = falcon_keys, .names = none, .rules = tri_gguf_rules_falcon},
    {.name = "stablelm", .model_type = "stablelm", .keys = stablelm_keys, .names = none},
};
enum { NUM_ARCHS = sizeof archs / sizeof *archs };

/* Architectures that are read from folders alone, and why. */
static const struct {
  const char *name, *why;
} unread[] = {
    {"t5", "an encoder-decoder of two stacks, which have one numbering each here"},
    {"t5encoder", "an encoder that is no model of its own here"},
    {"bert", "its tokenizer's rules (case, accents, pairs of texts) are not in the file"},
    {"nomic-bert", "its tokenizer's rules (case, accents, pairs of texts) are not in the file"},
};

const tri_gguf_arch *tri_gguf_arch_of(const tri_gguf *g, tri_error *err) {
  enum { MOST_NAME = 40 };
  static const char key[] = "general.architecture";
  const char *name = "";
  size_t len = 0;
  char list[400] = "";
  tri_gguf_text(g, key, &name, &len);
  for (size_t i = 0, n = 0; i < NUM_ARCHS; i++) {
    if (tri_gguf_is(g, key, archs[i].name)) return &archs[i];
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", archs[i].name);
  }
  for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
    if (tri_gguf_is(g, key, unread[i].name)) {
      tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%s\" is read from folders of safetensors alone: %s", key,
               unread[i].name, unread[i].why);
      return NULL;
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
