/* GPT-J: rotary pairs on the first part of each head, attention and MLP side by side behind one norm. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"GPTJForCausalLM", NULL};

static const tri_config_key keys[] = {
    TRI_INT_KEY("n_embd", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("n_layer", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_head", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("n_positions", max_position_embeddings, 1, 1 << 28),
    TRI_INT_KEY("n_inner", mlp.intermediate_size, 1, 1 << 24),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_INT_KEY("rotary_dim", attention.rotary_dim, 2, TRI_MAX_ROTARY),
    TRI_IGNORED_KEY("n_ctx"),
    TRI_IGNORED_KEY("embd_pdrop"),
    TRI_IGNORED_KEY("resid_pdrop"),
    TRI_IGNORED_KEY("attn_pdrop"),
    TRI_IGNORED_KEY("rotary"),
    TRI_IGNORED_KEY("scale_attn_weights"), /* of an early file; the scores are always scaled */
    TRI_IGNORED_KEY("summary_activation"),
    TRI_IGNORED_KEY("summary_first_dropout"),
    TRI_IGNORED_KEY("summary_proj_to_labels"),
    TRI_IGNORED_KEY("summary_type"),
    TRI_IGNORED_KEY("summary_use_proj"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("wte.weight", EMBED),
    TRI_RULES_NORM("h.%d.ln_1", NORM1),
    TRI_RULES_QKV("h.%d.attn."),
    TRI_RULES_O("h.%d.attn.out_proj"),
    TRI_RULES_MLP("h.%d.mlp.fc_in", "h.%d.mlp.fc_out"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    TRI_RULE("lm_head.bias", HEAD_BIAS),
    {0},
};

static const char *const ignored[] = {"h.%d.attn.bias", "h.%d.attn.masked_bias", "h.%d.attn.embed_positions", NULL};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.rope.interleaved = true;
  return TRI_OK;
}

const tri_arch tri_arch_gptj = {
    .model_type = "gptj",
    .class_names = classes,
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = ignored,
    .defaults = {.norm.kind = TRI_NORM_LAYER,
                 .norm.bias = true,
                 .norm.eps = 1e-5,
                 .mlp.act = TRI_ACT_GELU_TANH,
                 .norm.parallel_residual = true,
                 .norm.one_norm = true,
                 .mlp.bias = true,
                 .head.bias = true,
                 .attention.position = TRI_POS_ROPE,
                 .attention.rotary_dim = 64,
                 .max_position_embeddings = 2048},
    .finish = finish,
};
