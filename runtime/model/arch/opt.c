/* SPDX-License-Identifier: Apache-2.0 */
/* OPT: learned positions that begin at row 2, ReLU; the smallest but one (350M) has its norms after the additions, no
 * final norm, and an embedding narrower than the layers. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("ffn_dim", mlp.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("word_embed_proj_dim", embed.size, 1, 1 << 20),
    TRI_READ_KEY("do_layer_norm_before"),          /* read by prepare */
    TRI_READ_KEY("enable_bias"),                   /* the same */
    TRI_READ_KEY("layer_norm_elementwise_affine"), /* the same */
    TRI_IGNORED_KEYS("dropout activation_dropout layerdrop init_std"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("decoder.embed_tokens.weight", EMBED),
    TRI_RULE("decoder.embed_positions.weight", POSITIONS),
    TRI_RULE_IF("decoder.project_in.weight", PROJECT_IN, embed.projected),
    TRI_RULE_IF("decoder.project_out.weight", PROJECT_OUT, embed.projected),
    TRI_RULES_NORM("decoder.layers.%d.self_attn_layer_norm", NORM1),
    TRI_RULES_QKV("decoder.layers.%d.self_attn."),
    TRI_RULES_O("decoder.layers.%d.self_attn.out_proj"),
    TRI_RULES_NORM("decoder.layers.%d.final_layer_norm", NORM2),
    TRI_RULES_MLP("decoder.layers.%d.fc1", "decoder.layers.%d.fc2"),
    TRI_RULES_UNLESS("decoder.final_layer_norm", FINAL_NORM, norm.no_final),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

/* Norms after the additions have no final norm: the last addition's is one. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool before = true, bias = true, affine = true;
  TRI_CHECK(tri_config_bool(root, "do_layer_norm_before", &before, err));
  TRI_CHECK(tri_config_bool(root, "enable_bias", &bias, err));
  TRI_CHECK(tri_config_bool(root, "layer_norm_elementwise_affine", &affine, err));
  TRI_CHECK(tri_config_bool(root, "_remove_final_layer_norm", &c->norm.no_final, err));
  if (!affine)
    return tri_fail(err, TRI_UNSUPPORTED, "layer_norm_elementwise_affine", "norms without a gain are not supported");
  c->attention.bias = c->attention.o_bias = c->mlp.bias = bias;
  if (!before) {
    c->norm.place = TRI_NORM_SUM;
    c->norm.no_final = true;
  }
  return TRI_OK;
}

const tri_arch tri_arch_opt = {
    .model_type = "opt",
    .class_names = {"OPTForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_RELU, .attention.position = TRI_POS_LEARNED,
                 .embed.position_offset = 2, .head.tie_word_embeddings = true, .max_position_embeddings = 2048},
    .prepare = prepare,
};
