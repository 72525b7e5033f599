/* Mistral: Llama with a sliding window in every layer. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"MistralForCausalLM", NULL};
static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_WINDOW, {0}};
static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)err;
  tri_config_local_layers(c, root, 0, 1);
  return TRI_OK;
}

const tri_arch tri_arch_mistral = {
    .model_type = "mistral",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-6,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .attention.num_kv_heads = 8,
                 .attention.window = 4096,
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 4096 * 32},
    .finish = finish,
};
