/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of GGUF files that differ from a folder's by more than names: matrices are [out, in] where a folder has them
 * turned, each has rows of one kind where a folder has them in turn, and queries, keys and values are those of all
 * heads, one kind after the other. Names are those of the files. */
#include "runtime/model/arch/rules.h"
#include "runtime/model/gguf_model.h"

#define ENDS                                                                                                           \
  TRI_RULE("token_embd.weight", EMBED), TRI_RULES_NORM("output_norm", FINAL_NORM), TRI_RULE("output.weight", HEAD)
#define NORMS TRI_RULES_NORM("blk.%d.attn_norm", NORM1), TRI_RULES_NORM("blk.%d.ffn_norm", NORM2)
/* Queries of all heads, then keys, then values. */
#define FUSED                                                                                                          \
  TRI_RULE_PART("blk.%d.attn_qkv.weight", QKV, QKV_CONCAT),                                                            \
      TRI_RULE_PART_IF("blk.%d.attn_qkv.bias", QKV_BIAS, QKV_CONCAT, attention.bias)
#define APART TRI_RULES_QKV_NAMED("blk.%d.attn_q", "blk.%d.attn_k", "blk.%d.attn_v")
#define O TRI_RULES_O("blk.%d.attn_output")
#define MLP TRI_RULES_MLP("blk.%d.ffn_up", "blk.%d.ffn_down")

/* All experts of a layer; the file's last dimension counts them. */
#define STACKED(n, w, p)                                                                                               \
  { .name = "blk.%d." n, .weight = TRI_W_##w, .part = TRI_PART_##p, .flags = TRI_TENSOR_STACKED }

const tri_tensor_rule tri_gguf_rules_gpt_oss[] = {
    ENDS,
    APART,
    O,
    TRI_RULE("blk.%d.attn_sinks.weight", SINKS),
    TRI_RULE("blk.%d.attn_norm.weight", NORM1),
    TRI_RULE("blk.%d.post_attention_norm.weight", NORM2),
    TRI_RULE("blk.%d.ffn_gate_inp.weight", ROUTER),
    TRI_RULE("blk.%d.ffn_gate_inp.bias", ROUTER_BIAS),
    STACKED("ffn_gate_exps.weight", EXPERT_UP, GATE),
    STACKED("ffn_up_exps.weight", EXPERT_UP, UP),
    STACKED("ffn_down_exps.weight", EXPERT_DOWN, WHOLE),
    STACKED("ffn_gate_exps.bias", EXPERT_UP_BIAS, GATE),
    STACKED("ffn_up_exps.bias", EXPERT_UP_BIAS, UP),
    STACKED("ffn_down_exps.bias", EXPERT_DOWN_BIAS, WHOLE),
    {0},
};

/* Newer files have the two up-projections apart, the keys' by head and turned, as K_UP is. */
const tri_tensor_rule tri_gguf_rules_deepseek2[] = {
    ENDS,
    NORMS,
    TRI_RULE_PART_IF("blk.%d.attn_q_a.weight", QKV_A, LATENT_Q, mla.low_rank_q),
    TRI_RULE_IF("blk.%d.attn_q_a_norm.weight", Q_A_NORM, mla.low_rank_q),
    TRI_RULE_IF("blk.%d.attn_q_b.weight", Q_B, mla.low_rank_q),
    TRI_RULE_UNLESS("blk.%d.attn_q.weight", Q_B, mla.low_rank_q),
    TRI_RULE_PART("blk.%d.attn_kv_a_mqa.weight", QKV_A, LATENT_KV),
    TRI_RULE("blk.%d.attn_kv_a_norm.weight", KV_A_NORM),
    TRI_RULE_IF("blk.%d.attn_k_b.weight", K_UP, stored.split_kv_up),
    TRI_RULE_IF("blk.%d.attn_v_b.weight", V_UP, stored.split_kv_up),
    {.name = "blk.%d.attn_kv_b.weight",
     .weight = TRI_W_K_UP,
     .part = TRI_PART_KEY_UP,
     .flags = TRI_TENSOR_TRANSPOSED,
     .unless_field = TRI_IF(stored.split_kv_up)},
    {.name = "blk.%d.attn_kv_b.weight",
     .weight = TRI_W_V_UP,
     .part = TRI_PART_VALUE_UP,
     .unless_field = TRI_IF(stored.split_kv_up)},
    O,
    TRI_RULE_PART("blk.%d.ffn_gate.weight", UP, GATE),
    TRI_RULE_PART("blk.%d.ffn_up.weight", UP, UP),
    TRI_RULE("blk.%d.ffn_down.weight", DOWN),
    TRI_RULE("blk.%d.ffn_gate_inp.weight", ROUTER),
    TRI_RULE_IF("blk.%d.exp_probs_b.bias", CHOICE_BIAS, moe.choice_bias),
    STACKED("ffn_gate_exps.weight", EXPERT_UP, GATE),
    STACKED("ffn_up_exps.weight", EXPERT_UP, UP),
    STACKED("ffn_down_exps.weight", EXPERT_DOWN, WHOLE),
    TRI_RULE_PART_IF("blk.%d.ffn_gate_shexp.weight", SHARED_UP, GATE, moe.has_shared),
    TRI_RULE_PART_IF("blk.%d.ffn_up_shexp.weight", SHARED_UP, UP, moe.has_shared),
    TRI_RULE_IF("blk.%d.ffn_down_shexp.weight", SHARED_DOWN, moe.has_shared),
    {0},
};

const tri_tensor_rule tri_gguf_rules_gpt2[] = {
    ENDS, TRI_RULE("position_embd.weight", POSITIONS), NORMS, FUSED, O, MLP, {0},
};

const tri_tensor_rule tri_gguf_rules_gptneox[] = {ENDS, NORMS, FUSED, O, MLP, {0}};

const tri_tensor_rule tri_gguf_rules_bloom[] = {
    ENDS, TRI_RULES_NORM("token_embd_norm", EMBED_NORM), NORMS, FUSED, O, MLP, {0},
};

/* With two norms, attn_norm_2 is the attention's and attn_norm the MLP's. */
const tri_tensor_rule tri_gguf_rules_falcon[] = {
    ENDS,
    TRI_RULES_UNLESS("blk.%d.attn_norm", NORM1, norm.named),
    TRI_RULES_IF("blk.%d.attn_norm_2", NORM1, norm.named),
    TRI_RULES_IF("blk.%d.attn_norm", NORM2, norm.named),
    FUSED,
    O,
    MLP,
    {0},
};

#define FUSED_PART(n, w)                                                                                               \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_QKV_CONCAT, .if_field = TRI_IF(stored.fused_qkv) }
#define APART_PART(n, w, p)                                                                                            \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p, .unless_field = TRI_IF(stored.fused_qkv) }

/* Early files have the three as one, as the first release of the model had them. */
const tri_tensor_rule tri_gguf_rules_phi2[] = {
    ENDS,
    TRI_RULE("output.bias", HEAD_BIAS),
    TRI_RULES_NORM("blk.%d.attn_norm", NORM1),
    FUSED_PART("blk.%d.attn_qkv.weight", QKV),
    FUSED_PART("blk.%d.attn_qkv.bias", QKV_BIAS),
    APART_PART("blk.%d.attn_q.weight", QKV, Q),
    APART_PART("blk.%d.attn_k.weight", QKV, K),
    APART_PART("blk.%d.attn_v.weight", QKV, V),
    APART_PART("blk.%d.attn_q.bias", QKV_BIAS, Q),
    APART_PART("blk.%d.attn_k.bias", QKV_BIAS, K),
    APART_PART("blk.%d.attn_v.bias", QKV_BIAS, V),
    O,
    MLP,
    {0},
};
