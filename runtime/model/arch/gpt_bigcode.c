/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-BigCode (SantaCoder, StarCoder): GPT-2 with one head of keys and values, and weights that are not transposed. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_GPT2,
    TRI_READ_KEY("multi_query"),             /* by prepare */
    TRI_READ_KEY("scale_attn_weights"),      /* by finish */
    TRI_IGNORED_KEYS("num_key_value_heads"), /* follows from multi_query */
    TRI_IGNORED_KEYS("inference_runner validate_runner_input pre_allocate_kv_cache max_batch_size"),
    {0},
};

/* Rows of a head of keys: its queries, the key, the value; which of one head are all queries, then these. */
static const tri_tensor_rule tensors[] = {
    TRI_RULE("wte.weight", EMBED),
    TRI_RULE("wpe.weight", POSITIONS),
    TRI_RULES_NORM("h.%d.ln_1", NORM1),
    TRI_RULE_PART("h.%d.attn.c_attn.weight", QKV, QKV_INTERLEAVED),
    TRI_RULE_PART("h.%d.attn.c_attn.bias", QKV_BIAS, QKV_INTERLEAVED),
    TRI_RULES_O("h.%d.attn.c_proj"),
    TRI_RULES_NORM("h.%d.ln_2", NORM2),
    TRI_RULES_MLP("h.%d.mlp.c_fc", "h.%d.mlp.c_proj"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool multi_query = true;
  TRI_CHECK(tri_config_bool(root, "multi_query", &multi_query, err));
  c->attention.num_kv_heads = multi_query ? 1 : c->attention.num_heads;
  return TRI_OK;
}

const tri_arch tri_arch_gpt_bigcode = {
    .model_type = "gpt_bigcode",
    .class_names = {"GPTBigCodeForCausalLM"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"h.%d.attn.bias", "h.%d.attn.masked_bias"},
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .attention.bias = true,
                 .attention.o_bias = true, .mlp.bias = true, .attention.position = TRI_POS_LEARNED,
                 .head.tie_word_embeddings = true, .max_position_embeddings = 1024},
    .prepare = prepare,
    .finish = tri_config_unscaled,
};
