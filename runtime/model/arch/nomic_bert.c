/* SPDX-License-Identifier: Apache-2.0 */
/* Nomic's BERT (nomic-embed-text): BERT with rotary positions and gated MLPs, without biases, whose keys are GPT-2's.
 */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_GPT2,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 1, 1 << 16),
    TRI_NUM_KEY("rotary_emb_base", attention.rope_theta, 1, 1e12),
    TRI_NUM_KEY("rotary_emb_fraction", attention.partial_rotary_factor, 0, 1),
    TRI_BOOL_KEY("rotary_emb_interleaved", attention.rope.interleaved),
    TRI_READ_KEY("rotary_emb_scale_base"), /* read by finish, as the next one */
    TRI_READ_KEY("rotary_scaling_factor"),
    TRI_OFF_KEY("prenorm"),
    TRI_OFF_KEY("parallel_block"),
    TRI_OFF_KEY("use_rms_norm"),
    TRI_OFF_KEY("causal"),
    TRI_OFF_KEY("qkv_proj_bias"),
    TRI_OFF_KEY("mlp_fc1_bias"),
    TRI_OFF_KEY("mlp_fc2_bias"),
    TRI_OFF_KEY("is_decoder"),
    TRI_OFF_KEY("scale_attn_by_inverse_layer_idx"),
    TRI_IGNORED_KEYS("hidden_dropout_prob attention_probs_dropout_prob max_trained_positions fused_bias_fc "
                     "fused_dropout_add_ln use_flash_attn use_xentropy pad_vocab_size_multiple dense_seq_output "
                     "last_layer_subset parallel_block_tied_norm reorder_and_upcast_attn"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("embeddings.word_embeddings.weight", EMBED),
    TRI_RULE("embeddings.token_type_embeddings.weight", TYPES),
    TRI_RULES_NORM("emb_ln", EMBED_NORM),
    TRI_RULE_PART("encoder.layers.%d.attn.Wqkv.weight", QKV, QKV_CONCAT),
    TRI_RULE("encoder.layers.%d.attn.out_proj.weight", O),
    TRI_RULES_NORM("encoder.layers.%d.norm1", NORM1),
    TRI_RULE_PART("encoder.layers.%d.mlp.fc11.weight", UP, UP),
    TRI_RULE_PART("encoder.layers.%d.mlp.fc12.weight", UP, GATE),
    TRI_RULE("encoder.layers.%d.mlp.fc2.weight", DOWN),
    TRI_RULES_NORM("encoder.layers.%d.norm2", NORM2),
    {0},
};

static tri_status refuse_scaling(const tri_json *root, const char *key, tri_error *err) {
  if (tri_config_says_nothing(tri_json_get(root, key))) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s is not supported (--ignore-config-key %s)", key, key);
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(tri_config_must_be(root, "activation_function", "swiglu", err));
  TRI_CHECK(refuse_scaling(root, "rotary_emb_scale_base", err));
  TRI_CHECK(refuse_scaling(root, "rotary_scaling_factor", err));
  return tri_config_encoder(c, root, err);
}

const tri_arch tri_arch_nomic_bert = {
    .model_type = "nomic_bert",
    .class_names = {"NomicBertModel"},
    .prefix = "",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.encoder = true,
                 .norm.kind = TRI_NORM_LAYER,
                 .norm.bias = true,
                 .norm.place = TRI_NORM_SUM,
                 .norm.eps = 1e-12,
                 .norm.no_final = true,
                 .embed.norm = true,
                 .embed.type_vocab_size = 2,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .attention.position = TRI_POS_ROPE,
                 .attention.rope_theta = 1000,
                 .max_position_embeddings = 8192},
    .finish = finish,
};
