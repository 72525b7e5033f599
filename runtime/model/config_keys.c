/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that the tables of a family do not read. Published files have many that change nothing: notes of
 * tools, switches that are off, numbers that say once more what another key says. Those are accepted in silence. A key
 * that is known to change what a model computes, in any family or in models that are built on one, is refused where its
 * value asks for it; what is not known at all is noted for a warning. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/model/arch.h"

/* Values of a key that change nothing, in addition to those that say nothing. */
typedef enum harmless {
  NOTHING, /* no other */
  YES,     /* true; false asks for something else */
  ONE,     /* the number 1 */
  AS_BOOL, /* what a field of the config has, AS_WORD: as the family is made */
  AS_INT,
  AS_NUM,
  AS_WORD
} harmless;

/* Keys that change the result where a model reads them. */
static const struct {
  const char *names;
  harmless harmless;
  size_t field; /* of AS_BOOL, AS_INT and AS_NUM */
} effects[] = {
#define F(member) offsetof(tri_model_config, member)
    /* biases */
    {"lm_head_bias head_bias", AS_BOOL, F(head.bias)},
    {"qkv_proj_bias add_qkv_bias attention_qkv_bias", AS_BOOL, F(attention.bias)},
    {"o_bias out_bias o_proj_bias attention_out_bias", AS_BOOL, F(attention.o_bias)},
    {"add_bias_linear ffn_bias", AS_BOOL, F(mlp.bias)},
    {"enable_bias", YES, 0},
    {"expert_bias", AS_BOOL, F(moe.expert_bias)},
    /* norms and the residual stream */
    {"norm_type normalization_type", AS_WORD, 0},
    {"norm_bias layer_norm_bias", AS_BOOL, F(norm.bias)},
    {"layer_norm_elementwise_affine elementwise_affine do_layer_norm_before", YES, 0},
    {"normalize_before layernorm_zero_centered apply_layernorm_1p use_post_norm post_norm norm_after sandwich_norm "
     "new_decoder_architecture num_ln_in_parallel_attn scale_depth dim_model_base",
     NOTHING, 0},
    {"use_qk_norm qk_norm qk_layernorm q_layernorm k_layernorm", AS_BOOL, F(attention.has_qk_norm)},
    {"use_stable_embedding embedding_layernorm normalize_embedding", AS_BOOL, F(embed.norm)},
    {"parallel_residual use_parallel_block", AS_BOOL, F(norm.parallel_residual)},
    {"residual_scale", AS_NUM, F(norm.residual_scale)},
    /* positions */
    {"position_embedding_type pos_embd_type rope_type rope_scaling_type", AS_WORD, 0},
    {"alibi use_alibi use_mrope mrope_section no_rope_layers no_rope_layer_interval static_position_embeddings",
     NOTHING, 0},
    {"rotary use_rope", YES, 0},
    {"rope_interleaved rope_interleave rotary_interleaved", AS_BOOL, F(attention.rope.interleaved)},
    {"rope_pct rotary_percent rotary_percentage rotary_emb_fraction", AS_NUM, F(attention.partial_rotary_factor)},
    {"rope_base rotary_base rope_local_base_freq", AS_NUM, F(attention.rope_theta)},
    {"rope_ratio rope_scaling_factor rotary_scaling_factor interpolate_factor", ONE, 0},
    /* attention */
    {"full_attn_mod cla_share_factor", ONE, 0},
    {"is_causal scale_attn_weights", YES, 0},
    {"bidirectional use_bidirectional_attention attention_types attention_layers attention_chunk_size "
     "sliding_window_pattern multi_query num_key_value_groups num_kv_shared_layers clip_qkv index_topk "
     "attention_k_eq_v per_layer_config",
     NOTHING, 0},
    {"sliding_window_size", AS_INT, F(attention.window)},
    {"kv_channels attention_head_size query_pre_attn_scalar global_head_dim", AS_INT, F(attention.head_dim)},
    {"n_kv_heads multi_query_group_num num_global_key_value_heads", AS_INT, F(attention.num_kv_heads)},
    {"attn_logit_softcap", AS_NUM, F(attention.softcap)},
    /* embedding and head */
    {"scale_emb embed_scale embedding_scale embedding_multiplier_scale", AS_NUM, F(embed.scale)},
    {"scale_embedding normalize_embeddings scale_decoder_outputs", NOTHING, 0},
    {"logits_scaling", ONE, 0},
    {"output_multiplier_scale lm_head_multiplier", AS_NUM, F(head.logit_scale)},
    {"logit_softcapping logits_soft_cap", AS_NUM, F(head.logit_softcap)},
    {"share_encoder_decoder_embeddings", YES, 0},
    {"decoder_vocab_size", AS_INT, F(vocab_size)},
    /* MLPs, experts and layers */
    {"mlp_type feed_forward_proj scoring_func topk_method", AS_WORD, 0},
    {"use_glu gated_mlp", AS_BOOL, F(mlp.gated)},
    {"moe_num_experts n_experts", AS_INT, F(moe.num_experts)},
    {"n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace use_moe block_configs "
     "enable_moe_block use_double_wide_mlp hidden_size_per_layer_input",
     NOTHING, 0},
    {"shared_intermediate_size", AS_INT, F(moe.shared_size)},
    {"num_hidden_groups inner_group_num", ONE, 0},
    /* other kinds of weights and of input */
    {"quantization quant_method bnb_4bit_quant_type text_config vision_config audio_config", NOTHING, 0},
#undef F
};

/* Returns whether a value asks for nothing in particular, as a switch that is off. */
static bool is_off(const tri_json *v) {
  bool on = true;
  double x = 1;
  const char *s = tri_json_as_str(v, NULL);
  switch (tri_json_kind_of(v)) {
  case TRI_JSON_NULL: return true;
  case TRI_JSON_BOOL: return tri_json_as_bool(v, &on) && !on;
  case TRI_JSON_INT:
  case TRI_JSON_REAL: return tri_json_as_num(v, &x) && x == 0;
  case TRI_JSON_STRING: return s && (!*s || !strcmp(s, "none") || !strcmp(s, "None"));
  case TRI_JSON_ARRAY:
  case TRI_JSON_OBJECT: return !tri_json_size(v);
  }
  return false;
}

bool tri_config_says_nothing(const tri_json *v) {
  const char *s = tri_json_as_str(v, NULL);
  double x = 0;
  return is_off(v) || (tri_json_as_num(v, &x) && x == 1) || (s && !strcmp(s, "default"));
}

/* Returns whether a name says what the family is anyway. */
static bool word_fits(const tri_model_config *c, const char *key, const char *word) {
  const char *norm = c->norm.kind == TRI_NORM_RMS ? "rms_norm rmsnorm RMSNorm rms" : "layer_norm layernorm LayerNorm";
  const char *score = c->moe.score == TRI_MOE_SIGMOID ? "sigmoid noaux_tc" : "softmax greedy";
  if (!word) return false;
  if (!strcmp(word, "default")) return true;
  if (strstr(key, "norm")) return tri_has_word(norm, word);
  if (!strcmp(key, "scoring_func") || !strcmp(key, "topk_method"))
    return !c->moe.num_experts || tri_has_word(score, word);
  if (strncmp(key, "pos", 3) != 0) return false;
  switch (c->attention.position) {
  case TRI_POS_ROPE: return tri_has_word("rope rotary", word);
  case TRI_POS_ALIBI:
  case TRI_POS_ALIBI_ROUNDED: return !strcmp(word, "alibi");
  case TRI_POS_LEARNED:
  case TRI_POS_SINUSOID: return tri_has_word("absolute learned learned_absolute", word);
  case TRI_POS_NONE:
  case TRI_POS_RELATIVE: break;
  }
  return false;
}

/* Returns whether a value is that of a field. A window that no position reaches beyond is none. */
static bool is_field(const tri_model_config *c, const tri_json *v, harmless kind, size_t field) {
  const char *at = (const char *)c + field;
  int64_t n;
  double x;
  bool on;
  if (kind == AS_BOOL) return tri_json_as_bool(v, &on) && on == *(const bool *)at;
  if (kind == AS_NUM) return tri_json_as_num(v, &x) && x == *(const double *)at;
  if (!tri_json_as_num(v, &x)) return false;
  n = *(const int64_t *)at;
  if (field == offsetof(tri_model_config, attention.window) && !n) return x >= (double)c->max_position_embeddings;
  if (field == offsetof(tri_model_config, attention.rotary_dim)) n = c->attention.rope.rotary_dim;
  return x == (double)n;
}

/* Fields that a family's own keys set: what another family calls them is not read. */
static bool is_size(size_t field) {
#define F(member) offsetof(tri_model_config, member)
  static const size_t sizes[] = {F(hidden_size),
                                 F(num_layers),
                                 F(vocab_size),
                                 F(norm.eps),
                                 F(attention.num_heads),
                                 F(mlp.intermediate_size),
                                 F(extra_layers),
                                 F(embed.type_vocab_size),
                                 F(max_position_embeddings),
                                 F(moe.top_k),
                                 F(moe.intermediate_size),
                                 F(seq2seq.num_layers),
                                 F(seq2seq.num_heads),
                                 F(seq2seq.intermediate_size),
                                 F(moe.num_groups),
                                 F(moe.top_groups),
                                 F(attention.bias_buckets),
                                 F(attention.bias_max_distance)};
#undef F
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i] == field) return true;
  return false;
}

/* Says how experts are chosen and what they compute, where there are any. */
static bool is_of_experts(size_t field) {
  return field >= offsetof(tri_model_config, moe) && field < offsetof(tri_model_config, head) &&
         field != offsetof(tri_model_config, moe.num_experts) && field != offsetof(tri_model_config, moe.shared_size);
}

/* UNKNOWN keys end in a warning, or in a refusal with --strict-config. */
typedef enum verdict { FINE, UNKNOWN, REFUSED } verdict;

/* Returns whether a value switches off what the model has, and no weights tell which of both is right: a bias or a norm
 * that a model does not have would be missed as its weights are loaded. */
static bool is_switched_off(const tri_model_config *c, const tri_json *v, size_t field) {
  bool weightless = field == offsetof(tri_model_config, norm.parallel_residual) ||
                    field == offsetof(tri_model_config, attention.rope.interleaved);
  return weightless && is_off(v) && *(const bool *)((const char *)c + field);
}

/* Judges a key that other families read. FINE: it says what this model has anyway, or is off, or speaks of experts to
 * a model without them. REFUSED: it switches something on that this family's table does not read. UNKNOWN: a size,
 * which this family reads by another name. */
static verdict judge_foreign(const tri_model_config *c, const char *key, const tri_json *v) {
  verdict worst = UNKNOWN;
  bool ignored = false;
  for (const tri_arch *const *a = tri_arch_list; *a; a++) {
    const tri_config_key *k = tri_config_key_find(*a, key);
    if (!k) continue;
    harmless kind = NOTHING;
    switch (k->type) {
    case TRI_KEY_IGNORE: ignored = true; continue;
    case TRI_KEY_INT: kind = AS_INT; break;
    case TRI_KEY_NUM: kind = AS_NUM; break;
    case TRI_KEY_BOOL: kind = AS_BOOL; break;
    case TRI_KEY_OFF:
    case TRI_KEY_READ: break;
    }
    if (kind != NOTHING && is_field(c, v, kind, k->field)) return FINE;
    if (is_off(v)) {
      ignored = true;
      if (kind == AS_BOOL && is_switched_off(c, v, k->field)) worst = REFUSED;
    } else if (kind != NOTHING && is_of_experts(k->field) && !c->moe.num_experts) {
      ignored = true;
    } else if (kind == NOTHING || !is_size(k->field)) {
      worst = REFUSED;
    }
  }
  return worst == UNKNOWN && ignored ? FINE : worst;
}

/* Judges a key that the family does not read. A switch that is off is fine also where the family has on what it names
 * (a bias, a norm: files have such keys of other families), but for is_switched_off. */
static verdict judge(const tri_model_config *c, const tri_json *root, const char *key, const tri_json *v) {
  double x;
  bool on;
  for (size_t i = 0; i < sizeof effects / sizeof *effects; i++) {
    if (!tri_has_word(effects[i].names, key)) continue;
    switch (effects[i].harmless) {
    case YES: return tri_json_kind_of(v) == TRI_JSON_NULL || (tri_json_as_bool(v, &on) && on) ? FINE : REFUSED;
    case ONE: return is_off(v) || (tri_json_as_num(v, &x) && x == 1) ? FINE : REFUSED;
    case AS_WORD: return is_off(v) || word_fits(c, key, tri_json_as_str(v, NULL)) ? FINE : REFUSED;
    case AS_BOOL:
    case AS_INT:
    case AS_NUM:
      if (is_field(c, v, effects[i].harmless, effects[i].field)) return FINE;
      if (effects[i].harmless == AS_BOOL && is_switched_off(c, v, effects[i].field)) return REFUSED;
      break;
    case NOTHING: break;
    }
    return is_off(v) ? FINE : REFUSED;
  }
  /* A window that another key switches off. */
  if (!strcmp(key, "sliding_window") && tri_json_as_bool(tri_json_get(root, "use_sliding_window"), &on) && !on)
    return FINE;
  if (tri_config_key_is_note(key)) return FINE;
  verdict found = judge_foreign(c, key, v);
  return found == UNKNOWN && tri_config_says_nothing(v) ? FINE : found;
}

void tri_config_note_key(tri_model_config *c, const char *key) {
  size_t used = strlen(c->unknown_keys), room = sizeof c->unknown_keys - used;
  if (strlen(key) + sizeof ", , ..." <= room)
    snprintf(c->unknown_keys + used, room, "%s%s", used ? ", " : "", key);
  else if (used < 3 || strcmp(c->unknown_keys + used - 3, "...") != 0)
    snprintf(c->unknown_keys + used, room, "%s", used ? ", ..." : "...");
}

struct judged {
  const tri_json *root;
  tri_model_config *c;
  tri_error *err;
  bool strict;
};

static tri_status judge_key(void *ctx, const char *key, const tri_json *v) {
  struct judged *j = ctx;
  const char *type = j->c->arch->model_type;
  if (key[0] == '_' || tri_json_kind_of(v) == TRI_JSON_NULL || tri_config_key_find(j->c->arch, key)) return TRI_OK;
  verdict found = judge(j->c, j->root, key, v);
  if (found == REFUSED)
    return tri_fail(j->err, TRI_UNSUPPORTED, key,
                    "\"%.60s\" is known to change what a model computes, and is not done for model_type "
                    "%s with this value (--ignore-config-key %.60s serves it as if the key were not there)",
                    key, type, key);
  if (j->strict && !tri_config_key_is_note(key))
    return tri_fail(j->err, TRI_UNKNOWN_FIELD, key,
                    "\"%.60s\" is not understood for model_type %s and could change the result", key, type);
  if (found == UNKNOWN) tri_config_note_key(j->c, key);
  return TRI_OK;
}

tri_status tri_config_judge_keys(const tri_json *root, bool strict, tri_model_config *c, tri_error *err) {
  struct judged j = {.root = root, .c = c, .err = err, .strict = strict};
  return tri_json_each(root, judge_key, &j);
}
