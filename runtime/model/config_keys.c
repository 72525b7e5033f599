/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that the tables of a family do not read. Published files have many that change nothing: notes of
 * tools, switches that are off, numbers that say once more what another key says. Those are accepted in silence. A key
 * that is known to change what a model computes, in any family or in models that are built on one, is refused where its
 * value asks for it; what is not known at all is noted for a warning. */
#include <stdio.h>
#include <string.h>

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
  const char *name;
  harmless harmless;
  size_t field; /* of AS_BOOL, AS_INT and AS_NUM */
} effects[] = {
#define F(member) offsetof(tri_model_config, member)
    /* biases */
    {"lm_head_bias", AS_BOOL, F(head.bias)},
    {"head_bias", AS_BOOL, F(head.bias)},
    {"qkv_proj_bias", AS_BOOL, F(attention.bias)},
    {"add_qkv_bias", AS_BOOL, F(attention.bias)},
    {"attention_qkv_bias", AS_BOOL, F(attention.bias)},
    {"o_bias", AS_BOOL, F(attention.o_bias)},
    {"out_bias", AS_BOOL, F(attention.o_bias)},
    {"o_proj_bias", AS_BOOL, F(attention.o_bias)},
    {"attention_out_bias", AS_BOOL, F(attention.o_bias)},
    {"add_bias_linear", AS_BOOL, F(mlp.bias)},
    {"ffn_bias", AS_BOOL, F(mlp.bias)},
    {"enable_bias", YES, 0},
    {"expert_bias", AS_BOOL, F(moe.expert_bias)},
    /* norms and the residual stream */
    {"norm_type", AS_WORD, 0},
    {"normalization_type", AS_WORD, 0},
    {"norm_bias", AS_BOOL, F(norm.bias)},
    {"layer_norm_bias", AS_BOOL, F(norm.bias)},
    {"layer_norm_elementwise_affine", YES, 0},
    {"elementwise_affine", YES, 0},
    {"do_layer_norm_before", YES, 0},
    {"normalize_before", NOTHING, 0},
    {"layernorm_zero_centered", NOTHING, 0},
    {"apply_layernorm_1p", NOTHING, 0},
    {"use_qk_norm", AS_BOOL, F(attention.has_qk_norm)},
    {"qk_norm", AS_BOOL, F(attention.has_qk_norm)},
    {"qk_layernorm", AS_BOOL, F(attention.has_qk_norm)},
    {"q_layernorm", AS_BOOL, F(attention.has_qk_norm)},
    {"k_layernorm", AS_BOOL, F(attention.has_qk_norm)},
    {"use_post_norm", NOTHING, 0},
    {"post_norm", NOTHING, 0},
    {"norm_after", NOTHING, 0},
    {"sandwich_norm", NOTHING, 0},
    {"use_stable_embedding", AS_BOOL, F(embed.norm)},
    {"embedding_layernorm", AS_BOOL, F(embed.norm)},
    {"normalize_embedding", AS_BOOL, F(embed.norm)},
    {"parallel_residual", AS_BOOL, F(norm.parallel_residual)},
    {"use_parallel_block", AS_BOOL, F(norm.parallel_residual)},
    {"new_decoder_architecture", NOTHING, 0},
    {"num_ln_in_parallel_attn", NOTHING, 0},
    {"residual_scale", AS_NUM, F(norm.residual_scale)},
    {"scale_depth", NOTHING, 0},
    {"dim_model_base", NOTHING, 0},
    /* positions */
    {"position_embedding_type", AS_WORD, 0},
    {"pos_embd_type", AS_WORD, 0},
    {"alibi", NOTHING, 0},
    {"use_alibi", NOTHING, 0},
    {"rotary", YES, 0},
    {"use_rope", YES, 0},
    {"rope_interleaved", AS_BOOL, F(attention.rope.interleaved)},
    {"rope_interleave", AS_BOOL, F(attention.rope.interleaved)},
    {"rotary_interleaved", AS_BOOL, F(attention.rope.interleaved)},
    {"rope_pct", AS_NUM, F(attention.partial_rotary_factor)},
    {"rotary_percent", AS_NUM, F(attention.partial_rotary_factor)},
    {"rotary_percentage", AS_NUM, F(attention.partial_rotary_factor)},
    {"rotary_emb_fraction", AS_NUM, F(attention.partial_rotary_factor)},
    {"rope_base", AS_NUM, F(attention.rope_theta)},
    {"rotary_base", AS_NUM, F(attention.rope_theta)},
    {"rope_local_base_freq", AS_NUM, F(attention.rope_theta)},
    {"rope_ratio", ONE, 0},
    {"rope_scaling_factor", ONE, 0},
    {"rotary_scaling_factor", ONE, 0},
    {"rope_type", AS_WORD, 0},
    {"rope_scaling_type", AS_WORD, 0},
    {"use_mrope", NOTHING, 0},
    {"mrope_section", NOTHING, 0},
    {"interpolate_factor", ONE, 0},
    {"no_rope_layers", NOTHING, 0},
    {"no_rope_layer_interval", NOTHING, 0},
    {"static_position_embeddings", NOTHING, 0},
    /* attention */
    {"full_attn_mod", ONE, 0},
    {"is_causal", YES, 0},
    {"bidirectional", NOTHING, 0},
    {"use_bidirectional_attention", NOTHING, 0},
    {"attention_types", NOTHING, 0},
    {"attention_layers", NOTHING, 0},
    {"attention_chunk_size", NOTHING, 0},
    {"sliding_window_size", AS_INT, F(attention.window)},
    {"sliding_window_pattern", NOTHING, 0},
    {"multi_query", NOTHING, 0},
    {"kv_channels", AS_INT, F(attention.head_dim)},
    {"attention_head_size", AS_INT, F(attention.head_dim)},
    {"n_kv_heads", AS_INT, F(attention.num_kv_heads)},
    {"num_key_value_groups", NOTHING, 0},
    {"multi_query_group_num", AS_INT, F(attention.num_kv_heads)},
    {"num_kv_shared_layers", NOTHING, 0},
    {"cla_share_factor", ONE, 0},
    {"clip_qkv", NOTHING, 0},
    {"query_pre_attn_scalar", AS_INT, F(attention.head_dim)},
    {"scale_attn_weights", YES, 0},
    {"attn_logit_softcap", AS_NUM, F(attention.softcap)},
    {"index_topk", NOTHING, 0},
    /* embedding and head */
    {"scale_emb", AS_NUM, F(embed.scale)},
    {"embed_scale", AS_NUM, F(embed.scale)},
    {"embedding_scale", AS_NUM, F(embed.scale)},
    {"embedding_multiplier_scale", AS_NUM, F(embed.scale)},
    {"scale_embedding", NOTHING, 0},
    {"normalize_embeddings", NOTHING, 0},
    {"logits_scaling", ONE, 0},
    {"output_multiplier_scale", AS_NUM, F(head.logit_scale)},
    {"lm_head_multiplier", AS_NUM, F(head.logit_scale)},
    {"scale_decoder_outputs", NOTHING, 0},
    {"logit_softcapping", AS_NUM, F(head.logit_softcap)},
    {"logits_soft_cap", AS_NUM, F(head.logit_softcap)},
    {"share_encoder_decoder_embeddings", YES, 0},
    {"decoder_vocab_size", AS_INT, F(vocab_size)},
    /* MLPs, experts and layers */
    {"mlp_type", AS_WORD, 0},
    {"feed_forward_proj", AS_WORD, 0},
    {"use_glu", AS_BOOL, F(mlp.gated)},
    {"gated_mlp", AS_BOOL, F(mlp.gated)},
    {"moe_num_experts", AS_INT, F(moe.num_experts)},
    {"n_experts", AS_INT, F(moe.num_experts)},
    {"n_shared_experts", NOTHING, 0},
    {"num_shared_experts", NOTHING, 0},
    {"moe_num_shared_experts", NOTHING, 0},
    {"shared_intermediate_size", AS_INT, F(moe.shared_size)},
    {"scoring_func", AS_WORD, 0},
    {"topk_method", AS_WORD, 0},
    {"first_k_dense_replace", NOTHING, 0},
    {"use_moe", NOTHING, 0},
    {"num_hidden_groups", ONE, 0},
    {"inner_group_num", ONE, 0},
    {"block_configs", NOTHING, 0},
    /* other kinds of weights and of input */
    {"quantization", NOTHING, 0},
    {"quant_method", NOTHING, 0},
    {"bnb_4bit_quant_type", NOTHING, 0},
    {"text_config", NOTHING, 0},
    {"vision_config", NOTHING, 0},
    {"audio_config", NOTHING, 0},
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

static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++)
    if (!strcmp(word, *words)) return true;
  return false;
}

/* Returns whether a name says what the family is anyway. */
static bool word_fits(const tri_model_config *c, const char *key, const char *word) {
  static const char *const rms[] = {"rms_norm", "rmsnorm", "RMSNorm", "rms", NULL};
  static const char *const layer[] = {"layer_norm", "layernorm", "LayerNorm", NULL};
  static const char *const rope[] = {"rope", "rotary", NULL}, *const alibi[] = {"alibi", NULL};
  static const char *const learned[] = {"absolute", "learned", "learned_absolute", NULL};
  static const char *const softmax[] = {"softmax", "greedy", NULL}, *const sigmoid[] = {"sigmoid", "noaux_tc", NULL};
  if (!word) return false;
  if (!strcmp(word, "default")) return true;
  if (strstr(key, "norm")) return is_one_of(word, c->norm.kind == TRI_NORM_RMS ? rms : layer);
  if (!strcmp(key, "scoring_func") || !strcmp(key, "topk_method"))
    return !c->moe.num_experts || is_one_of(word, c->moe.score == TRI_MOE_SIGMOID ? sigmoid : softmax);
  if (strncmp(key, "pos", 3) != 0) return false;
  switch (c->attention.position) {
  case TRI_POS_ROPE: return is_one_of(word, rope);
  case TRI_POS_ALIBI:
  case TRI_POS_ALIBI_ROUNDED: return is_one_of(word, alibi);
  case TRI_POS_LEARNED:
  case TRI_POS_SINUSOID: return is_one_of(word, learned);
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
  static const size_t sizes[] = {
#define F(member) offsetof(tri_model_config, member)
      F(hidden_size),
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
      F(attention.bias_max_distance),
#undef F
  };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i] == field) return true;
  return false;
}

/* Says how experts are chosen and what they compute, where there are any. */
static bool is_of_experts(size_t field) {
  return field >= offsetof(tri_model_config, moe) && field < offsetof(tri_model_config, head) &&
         field != offsetof(tri_model_config, moe.num_experts) && field != offsetof(tri_model_config, moe.shared_size);
}

typedef enum verdict { FINE, UNKNOWN, REFUSED } verdict;

/* Returns whether a value switches off what the model has, and no weights tell which of both is right: a bias or a norm
 * that a model does not have would be missed as its weights are loaded. */
static bool is_switched_off(const tri_model_config *c, const tri_json *v, size_t field) {
  bool weightless = field == offsetof(tri_model_config, norm.parallel_residual) ||
                    field == offsetof(tri_model_config, attention.rope.interleaved);
  return weightless && is_off(v) && *(const bool *)((const char *)c + field);
}

/* Judges a key that other families read. */
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
    if (strcmp(effects[i].name, key) != 0) continue;
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
