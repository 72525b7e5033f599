/* GPT-2: LayerNorm, learned positions, weights stored transposed (Conv1D), head tied to the embedding. */
#include "runtime/model/arch.h"

static const char *const classes[] = {"GPT2LMHeadModel", NULL};

static const tri_config_key keys[] = {
    TRI_INT_KEY("n_embd", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("n_layer", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_head", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("n_positions", max_position_embeddings, 1, 1 << 28),
    TRI_INT_KEY("n_inner", mlp.intermediate_size, 1, 1 << 24),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_BOOL_KEY("scale_attn_by_inverse_layer_idx", attention.scale_by_layer),
    TRI_IGNORED_KEY("n_ctx"),
    TRI_IGNORED_KEY("activation_function"),     /* read with hidden_act */
    TRI_IGNORED_KEY("scale_attn_weights"),      /* read by finish */
    TRI_IGNORED_KEY("reorder_and_upcast_attn"), /* how a 16-bit product is kept from overflowing */
    TRI_IGNORED_KEY("embd_pdrop"),
    TRI_IGNORED_KEY("resid_pdrop"),
    TRI_IGNORED_KEY("attn_pdrop"),
    TRI_IGNORED_KEY("summary_activation"),
    TRI_IGNORED_KEY("summary_first_dropout"),
    TRI_IGNORED_KEY("summary_proj_to_labels"),
    TRI_IGNORED_KEY("summary_type"),
    TRI_IGNORED_KEY("summary_use_proj"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    {.name = "wte.weight", .weight = TRI_W_EMBED},
    {.name = "wpe.weight", .weight = TRI_W_POSITIONS},
    {.name = "h.%d.ln_1.weight", .weight = TRI_W_NORM1},
    {.name = "h.%d.ln_1.bias", .weight = TRI_W_NORM1_BIAS},
    {.name = "h.%d.attn.c_attn.weight",
     .weight = TRI_W_QKV,
     .part = TRI_PART_QKV_CONCAT,
     .flags = TRI_TENSOR_TRANSPOSED},
    {.name = "h.%d.attn.c_attn.bias", .weight = TRI_W_QKV_BIAS, .part = TRI_PART_QKV_CONCAT},
    {.name = "h.%d.attn.c_proj.weight", .weight = TRI_W_O, .flags = TRI_TENSOR_TRANSPOSED},
    {.name = "h.%d.attn.c_proj.bias", .weight = TRI_W_O_BIAS},
    {.name = "h.%d.ln_2.weight", .weight = TRI_W_NORM2},
    {.name = "h.%d.ln_2.bias", .weight = TRI_W_NORM2_BIAS},
    {.name = "h.%d.mlp.c_fc.weight", .weight = TRI_W_UP, .flags = TRI_TENSOR_TRANSPOSED},
    {.name = "h.%d.mlp.c_fc.bias", .weight = TRI_W_UP_BIAS},
    {.name = "h.%d.mlp.c_proj.weight", .weight = TRI_W_DOWN, .flags = TRI_TENSOR_TRANSPOSED},
    {.name = "h.%d.mlp.c_proj.bias", .weight = TRI_W_DOWN_BIAS},
    {.name = "ln_f.weight", .weight = TRI_W_FINAL_NORM},
    {.name = "ln_f.bias", .weight = TRI_W_FINAL_NORM_BIAS},
    {.name = "lm_head.weight", .weight = TRI_W_HEAD},
    {0},
};

static const char *const ignored[] = {"h.%d.attn.bias", "h.%d.attn.masked_bias", NULL};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool scaled = true;
  const tri_json *v = tri_json_get(root, "scale_attn_weights");
  if (tri_json_kind_of(v) != TRI_JSON_NULL && !tri_json_as_bool(v, &scaled))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "scale_attn_weights", "scale_attn_weights must be true or false");
  if (!scaled) c->attention.scale = 1;
  return TRI_OK;
}

const tri_arch tri_arch_gpt2 = {
    .model_type = "gpt2",
    .class_names = classes,
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = ignored,
    .defaults = {.norm.kind = TRI_NORM_LAYER,
                 .norm.bias = true,
                 .norm.eps = 1e-5,
                 .mlp.act = TRI_ACT_GELU_TANH,
                 .attention.bias = true,
                 .attention.o_bias = true,
                 .mlp.bias = true,
                 .attention.position = TRI_POS_LEARNED,
                 .head.tie_word_embeddings = true,
                 .max_position_embeddings = 1024},
    .finish = finish,
};
