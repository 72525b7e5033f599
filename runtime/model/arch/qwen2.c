/* Qwen2 and Qwen3. Qwen2: Llama with biases on queries, keys and values. Qwen3: without them, with a norm of each head
 * of queries and keys, and a head size of its own. */
#include "runtime/model/arch/rules.h"

static const char *const classes2[] = {"Qwen2ForCausalLM", NULL};
static const char *const classes3[] = {"Qwen3ForCausalLM", NULL};

static const tri_config_key keys2[] = {
    TRI_KEYS_LLAMA, TRI_KEY_WINDOW, TRI_IGNORED_KEY("use_sliding_window"), TRI_IGNORED_KEY("max_window_layers"), {0}};
static const tri_config_key keys3[] = {TRI_KEYS_LLAMA,
                                       TRI_KEY_WINDOW,
                                       TRI_IGNORED_KEY("use_sliding_window"),
                                       TRI_IGNORED_KEY("max_window_layers"),
                                       TRI_BOOL_KEY("attention_bias", attention.bias),
                                       {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULE_IF("layers.%d.self_attn.q_norm.weight", Q_NORM, attention.has_qk_norm),
    TRI_RULE_IF("layers.%d.self_attn.k_norm.weight", K_NORM, attention.has_qk_norm),
    {0}};

/* The window counts only where use_sliding_window says so, and then for the layers above max_window_layers. */
tri_status tri_qwen_window(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool on = false;
  double from = 28;
  tri_status st = tri_config_bool(root, "use_sliding_window", &on, err);
  if (st == TRI_OK) st = tri_config_number(root, "max_window_layers", 0, TRI_MAX_LAYERS, &from, err);
  if (!on) c->attention.window = 0;
  if (st == TRI_OK) tri_config_local_layers(c, root, (int)from, 1);
  return st;
}

static tri_status finish3(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->attention.bias;
  return TRI_OK;
}

#define QWEN_DEFAULTS                                                                                                  \
  .norm.kind = TRI_NORM_RMS, .norm.eps = 1e-6, .mlp.act = TRI_ACT_SILU, .mlp.gated = true,                             \
  .attention.num_kv_heads = 32, .attention.window = 4096, .attention.position = TRI_POS_ROPE,                          \
  .max_position_embeddings = 32768

const tri_arch tri_arch_qwen2 = {
    .model_type = "qwen2",
    .class_names = classes2,
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors,
    .defaults = {QWEN_DEFAULTS, .attention.bias = true},
    .prepare = tri_qwen_window,
};

const tri_arch tri_arch_qwen3 = {
    .model_type = "qwen3",
    .class_names = classes3,
    .prefix = "model.",
    .keys = keys3,
    .tensors = tensors,
    .defaults = {QWEN_DEFAULTS, .attention.head_dim = 128, .attention.qk_norm = TRI_QK_NORM_HEAD},
    .prepare = tri_qwen_window,
    .finish = finish3,
};
