/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 and R1, which Kimi-K2 is but for its name and GLM-4.7-Flash (glm4_moe_lite) but for its sizes: latent
 * attention, experts chosen by groups with a bias that balances their load, experts for every token, and plain MLPs in
 * the first layers. kv_b_proj, which makes keys and values out of the latent, is stored as one matrix: K_UP takes its
 * key rows transposed, to multiply queries with, and V_UP its value rows. So attention works on the latent itself, and
 * the cache has one row for all heads (DeepSeek-V2, section 2.1).
 *
 * DeepSeek-V3.2 and GLM-5: an indexer chooses the index_topk keys that a query sees, all of them in a sequence of as
 * many tokens. Longer ones are refused, so that this is DeepSeek-V3, and the indexer's weights are passed over.
 *
 * Mistral 4: a softmax chooses, without a bias; queries are scaled by their position; experts are stored together.
 *
 * DeepSeek-V2: a softmax chooses, without a bias; a group is as good as its best expert, or there are none. */
#include <math.h>
#include <string.h>

#include "runtime/model/arch/rules.h"

/* TRI_READ_KEY: prepare and finish. The cache has one row for all heads, and a head's size is the sum of its parts. */
#define KEYS                                                                                                           \
  TRI_NUM_KEY("rms_norm_eps", norm.eps, 0, 1), TRI_INT_KEY("q_lora_rank", mla.q_rank, 1, 1 << 20),                     \
      TRI_INT_KEY("kv_lora_rank", mla.rank, 1, 1 << 20), TRI_INT_KEY("qk_nope_head_dim", mla.nope_dim, 1, 1024),       \
      TRI_INT_KEY("qk_rope_head_dim", mla.rope_dim, 2, TRI_MAX_ROTARY), TRI_INT_KEY("v_head_dim", mla.v_dim, 1, 1024), \
      TRI_INT_KEY("n_routed_experts", moe.num_experts, 1, 4096),                                                       \
      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),                                                      \
      TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),                                         \
      TRI_INT_KEY("n_group", moe.num_groups, 1, 4096), TRI_INT_KEY("topk_group", moe.top_groups, 1, 4096),             \
      TRI_BOOL_KEY("norm_topk_prob", moe.renormalize), TRI_NUM_KEY("routed_scaling_factor", moe.scale, 1e-6, 1e6),     \
      TRI_READ_KEY("n_shared_experts"), TRI_READ_KEY("first_k_dense_replace"), TRI_READ_KEY("mlp_layer_types"),        \
      TRI_READ_KEY("moe_layer_freq"), TRI_READ_KEY("scoring_func"), TRI_READ_KEY("topk_method"),                       \
      TRI_OFF_KEY("attention_bias"), TRI_IGNORED_KEYS("num_key_value_heads"),                                          \
      TRI_IGNORED_KEYS("head_dim qk_head_dim"), TRI_INT_KEY("num_nextn_predict_layers", extra_layers, 0, 64),          \
      TRI_IGNORED_KEYS("ep_size pretraining_tp aux_loss_alpha seq_aux"), TRI_KEYS_MOE

static const tri_config_key keys[] = {KEYS, TRI_BOOL_KEY("rope_interleave", attention.rope.interleaved), {0}};
/* Which keys an indexer would choose, and with what: of index_topk tokens all, and sequences are no longer. */
static const tri_config_key sparse_keys[] = {
    KEYS,
    TRI_BOOL_KEY("rope_interleave", attention.rope.interleaved),
    TRI_INT_KEY("index_topk", attention.index_topk, 1, 1 << 24),
    TRI_OFF_KEY("mlp_bias"),
    TRI_IGNORED_KEYS("index_n_heads index_head_dim indexer_types index_topk_freq index_topk_pattern "
                     "index_skip_topk_offset index_share_for_mtp_iteration indexer_rope_interleave"),
    {0}};
static const tri_config_key keys2[] = {KEYS, TRI_OFF_KEY("mlp_bias"), {0}};

/* All but the experts that tokens are routed to. */
#define RULES                                                                                                          \
  TRI_RULES_LLAMA_ENDS, TRI_RULE_PART_IF("layers.%d.self_attn.q_a_proj.weight", QKV_A, LATENT_Q, mla.low_rank_q),      \
      TRI_RULE_IF("layers.%d.self_attn.q_a_layernorm.weight", Q_A_NORM, mla.low_rank_q),                               \
      TRI_RULE_IF("layers.%d.self_attn.q_b_proj.weight", Q_B, mla.low_rank_q),                                         \
      TRI_RULE_UNLESS("layers.%d.self_attn.q_proj.weight", Q_B, mla.low_rank_q),                                       \
      TRI_RULE_PART("layers.%d.self_attn.kv_a_proj_with_mqa.weight", QKV_A, LATENT_KV),                                \
      TRI_RULE("layers.%d.self_attn.kv_a_layernorm.weight", KV_A_NORM),                                                \
      TRI_RULE_TRANSPOSED("layers.%d.self_attn.kv_b_proj.weight", K_UP, KEY_UP),                                       \
      TRI_RULE_PART("layers.%d.self_attn.kv_b_proj.weight", V_UP, VALUE_UP),                                           \
      TRI_RULES_O("layers.%d.self_attn.o_proj"), TRI_RULES_LLAMA_NORMS, TRI_RULES_GATED("layers.%d.mlp."),             \
      TRI_RULE("layers.%d.mlp.gate.weight", ROUTER), TRI_RULES_SHARED("layers.%d.mlp.shared_experts.")

static const tri_tensor_rule tensors[] = {
    RULES,
    TRI_RULE_IF("layers.%d.mlp.gate.e_score_correction_bias", CHOICE_BIAS, moe.choice_bias),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    {0}};

static const tri_tensor_rule stacked_tensors[] = {
    RULES,
    {.name = "layers.%d.mlp.experts.gate_up_proj",
     .weight = TRI_W_EXPERT_UP,
     .part = TRI_PART_GATE_UP_CONCAT,
     .flags = TRI_TENSOR_STACKED},
    {.name = "layers.%d.mlp.experts.down_proj", .weight = TRI_W_EXPERT_DOWN, .flags = TRI_TENSOR_STACKED},
    {0}};

/* Sizes that follow from others: a head is as wide as its two parts, the second of which rotates. */
static tri_status prepare_with(tri_model_config *c, const tri_json *root, double shared, tri_error *err) {
  const tri_json *q_rank = tri_json_get(root, "q_lora_rank");
  if (q_rank && tri_json_kind_of(q_rank) == TRI_JSON_NULL) c->mla.q_rank = 0; /* null: no low rank */
  c->mla.low_rank_q = c->mla.q_rank > 0;
  c->attention.head_dim = c->mla.nope_dim + c->mla.rope_dim;
  c->attention.num_kv_heads = c->attention.num_heads;
  c->attention.rotary_dim = c->mla.rope_dim;
  return tri_config_shared_experts(c, root, "n_shared_experts", shared, err);
}

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  return prepare_with(c, root, 1, err);
}
static tri_status prepare2(tri_model_config *c, const tri_json *root, tri_error *err) {
  return prepare_with(c, root, 2, err);
}

/* Yarn changes the scores, too: DeepSeek multiplies the scale with the square of a factor of its own. */
static tri_status scale_scores(tri_model_config *c, const tri_json *root, tri_error *err) {
  const tri_json *rope = tri_json_get(root, "rope_parameters");
  double factor = 1, mscale = 0;
  if (tri_json_kind_of(rope) != TRI_JSON_OBJECT) rope = tri_json_get(root, "rope_scaling");
  if (tri_json_kind_of(rope) != TRI_JSON_OBJECT) return TRI_OK;
  tri_status st = tri_config_number(rope, "factor", 1e-6, 1e6, &factor, err);
  if (st == TRI_OK) st = tri_config_number(rope, "mscale_all_dim", 0, 1e6, &mscale, err);
  if (st == TRI_OK && factor > 1 && mscale > 0) {
    double m = 0.1 * mscale * log(factor) + 1;
    c->attention.scale *= m * m;
  }
  return st;
}

/* The first layers are dense: `dense` of them where the file does not say. */
static tri_status finish_with(tri_model_config *c, const tri_json *root, double dense, const char *score,
                              tri_error *err) {
  double every = 1;
  TRI_CHECK(tri_config_number(root, "moe_layer_freq", 1, 1, &every, err));
  TRI_CHECK(tri_config_must_be(root, "scoring_func", score, err));
  TRI_CHECK(scale_scores(c, root, err));
  return tri_config_dense_layers(c, root, dense, err);
}

static tri_status finish3(tri_model_config *c, const tri_json *root, double dense, tri_error *err) {
  TRI_CHECK(tri_config_must_be(root, "topk_method", "noaux_tc", err));
  return finish_with(c, root, dense, "sigmoid", err);
}
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) { return finish3(c, root, 3, err); }
static tri_status finish_lite(tri_model_config *c, const tri_json *root, tri_error *err) {
  return finish3(c, root, 1, err);
}

static tri_status finish4(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(tri_config_must_be(root, "topk_method", "greedy", err));
  return finish_with(c, root, 0, "softmax", err);
}

/* Groups count only where topk_method says so. Implementations of norm_topk_prob differ in whether they scale what they
 * have normed. */
static tri_status finish2(tri_model_config *c, const tri_json *root, tri_error *err) {
  if (c->moe.renormalize) return tri_fail(err, TRI_UNSUPPORTED, "norm_topk_prob", "norm_topk_prob is not supported");
  const char *method = tri_json_get_str(root, "topk_method");
  if (!method || strcmp(method, "group_limited_greedy") != 0) {
    TRI_CHECK(tri_config_must_be(root, "topk_method", "greedy", err));
    c->moe.num_groups = c->moe.top_groups = 1;
  }
  return finish_with(c, root, 0, "softmax", err);
}

#define LATENTS                                                                                                        \
  { .on = true, .rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .v_dim = 128, .norm_eps = 1e-6 }
#define DEFAULTS3                                                                                                      \
  TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .mla = LATENTS,                                                                \
                      .moe = {.num_experts = 256,                                                                      \
                              .top_k = 8,                                                                              \
                              .intermediate_size = 2048,                                                               \
                              .score = TRI_MOE_SIGMOID,                                                                \
                              .renormalize = true,                                                                     \
                              .choice_bias = true,                                                                     \
                              .scale = 2.5,                                                                            \
                              .num_groups = 8,                                                                         \
                              .top_groups = 4,                                                                         \
                              .group_best = 2},                                                                        \
                      .attention.rope = {.interleaved = true}, .max_position_embeddings = 4096

const tri_arch tri_arch_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .class_names = {"DeepseekV3ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS3},
    .prepare = prepare,
    .finish = finish,
};

const tri_arch tri_arch_kimi_k2 = {
    .model_type = "kimi_k2",
    .class_names = {"DeepseekV3ForCausalLM"},
    .multimodal_type = "kimi_k25",
    .multimodal_class = "KimiK25ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS3},
    .prepare = prepare,
    .finish = finish,
};

#define IGNORED_INDEXER                                                                                                \
  { "layers.%d.self_attn.indexer.*" }

const tri_arch tri_arch_deepseek_v32 = {
    .model_type = "deepseek_v32",
    .class_names = {"DeepseekV32ForCausalLM"},
    .prefix = "model.",
    .keys = sparse_keys,
    .tensors = tensors,
    .ignored_tensors = IGNORED_INDEXER,
    .defaults = {DEFAULTS3, .attention.index_topk = 2048},
    .prepare = prepare,
    .finish = finish,
};

const tri_arch tri_arch_glm_moe_dsa = {
    .model_type = "glm_moe_dsa",
    .class_names = {"GlmMoeDsaForCausalLM"},
    .prefix = "model.",
    .keys = sparse_keys,
    .tensors = tensors,
    .ignored_tensors = IGNORED_INDEXER,
    .defaults =
        {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5,
         .mla =
             {.on = true, .rank = 512, .q_rank = 2048, .nope_dim = 192, .rope_dim = 64, .v_dim = 256, .norm_eps = 1e-6},
         .moe = {.num_experts = 256,
                 .top_k = 8,
                 .intermediate_size = 2048,
                 .score = TRI_MOE_SIGMOID,
                 .renormalize = true,
                 .choice_bias = true,
                 .scale = 2.5,
                 .top_groups = 1,
                 .group_best = 2},
         .attention.rope = {.interleaved = true}, .attention.index_topk = 2048, .max_position_embeddings = 202752},
    .prepare = prepare,
    .finish = finish,
};

const tri_arch tri_arch_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .class_names = {"Glm4MoeLiteForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults =
        {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5,
         .mla =
             {.on = true, .rank = 512, .q_rank = 768, .nope_dim = 192, .rope_dim = 64, .v_dim = 256, .norm_eps = 1e-6},
         .moe = {.num_experts = 64,
                 .top_k = 4,
                 .intermediate_size = 1536,
                 .score = TRI_MOE_SIGMOID,
                 .renormalize = true,
                 .choice_bias = true,
                 .scale = 1.8,
                 .top_groups = 1,
                 .group_best = 2},
         .attention.rope = {.interleaved = true}, .max_position_embeddings = 202752},
    .prepare = prepare,
    .finish = finish_lite,
};

const tri_arch tri_arch_mistral4 = {
    .model_type = "mistral4",
    .class_names = {"Mistral4ForCausalLM"},
    .multimodal_type = "mistral3",
    .multimodal_class = "Mistral3ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = stacked_tensors,
    .defaults =
        {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6,
         .mla =
             {.on = true, .rank = 256, .q_rank = 1024, .nope_dim = 64, .rope_dim = 64, .v_dim = 128, .norm_eps = 1e-6},
         .moe = {.num_experts = 128,
                 .top_k = 4,
                 .intermediate_size = 2048,
                 .score = TRI_MOE_SOFTMAX,
                 .renormalize = true,
                 .top_groups = 1,
                 .group_best = 2},
         .attention.rope = {.interleaved = true}, .attention.q_scale.in_rope = true,
         .max_position_embeddings = 1048576},
    .prepare = prepare,
    .finish = finish4,
};

const tri_arch tri_arch_deepseek_v2 = {
    .model_type = "deepseek_v2",
    .class_names = {"DeepseekV2ForCausalLM"},
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .mla = LATENTS,
                 .moe = {.num_experts = 64,
                         .intermediate_size = 1407,
                         .score = TRI_MOE_SOFTMAX,
                         .top_groups = 1,
                         .group_best = 1},
                 .attention.rope = {.interleaved = true}, .max_position_embeddings = 2048},
    .prepare = prepare2,
    .finish = finish2,
};
