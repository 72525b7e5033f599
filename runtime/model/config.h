/* SPDX-License-Identifier: Apache-2.0 */
/* A model's description: config.json read into one struct that the executor, the loader and the byte ledger share.
 *
 * A key that is known to change the result, with a value that is not done here, is refused by name (config_keys.c).
 * Keys of training, initialisation and bookkeeping are known and ignored; others are noted in unknown_keys. Both
 * spellings of transformers (before and since v5) are read: `torch_dtype` or `dtype`, and `rope_theta` + `rope_scaling`
 * or `rope_parameters`.
 *
 * A tri_model_config is plain data: it is copied as a whole, owns nothing, and borrows `arch`, which is constant. It
 * does not change once a replica has read it. */
#ifndef TRI_RUNTIME_MODEL_CONFIG_H
#define TRI_RUNTIME_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/kinds.h"
#include "base/options/options.h"
#include "base/options/sampling_numbers.h"
#include "base/status.h"
#include "runtime/model/quantization.h"

#define TRI_MAX_STOP_IDS 16
#define TRI_MAX_ROTARY 1024 /* largest rotary_dim */
#define TRI_MAX_LAYERS 4096
#define TRI_UNKNOWN_KEYS 256
#define TRI_MAX_CLASS_TOKENS 16
#define TRI_MAX_DENSE 2
#define TRI_MAX_GLU_LIMITS 16

struct tri_arch;

/* ALIBI: a bias that falls with the distance of a key (Press et al., 2022). ALIBI_ROUNDED: Falcon's, slope times key
 * position rounded to bfloat16 as in its reference, times attn_scale. SINUSOID: a table as learned positions have, but
 * computed (Vaswani et al., 2017, section 3.5; all sines before all cosines). RELATIVE: learned biases of buckets
 * of distances (Raffel et al., "Exploring the Limits of Transfer Learning", 2020, section 2.1). */
typedef enum tri_position_kind {
  TRI_POS_NONE,
  TRI_POS_LEARNED,
  TRI_POS_SINUSOID,
  TRI_POS_RELATIVE,
  TRI_POS_ROPE,
  TRI_POS_ALIBI,
  TRI_POS_ALIBI_ROUNDED
} tri_position_kind;

/* The norm of a branch f (attention or MLP) of a layer, x being the residual stream. */
typedef enum tri_norm_place {
  TRI_NORM_INPUT,  /* x + f(norm x), most */
  TRI_NORM_BOTH,   /* x + norm'(f(norm x)), Gemma-2 */
  TRI_NORM_RESULT, /* x + norm'(f(x)), OLMo-2 */
  TRI_NORM_SUM     /* norm(x + f(x)), the first Transformer, BERT, OPT-350M */
} tri_norm_place;

/* Norms of queries and keys: one gain for all heads, a gain for each head, a norm over all heads together, or of each
 * head without a gain in layers that rotate (BARE). */
typedef enum tri_qk_norm {
  TRI_QK_NORM_NONE,
  TRI_QK_NORM_HEAD,
  TRI_QK_NORM_EACH_HEAD,
  TRI_QK_NORM_WHOLE,
  TRI_QK_NORM_BARE
} tri_qk_norm;

/* layer_flags. LOCAL: attention sees a window only, or a chunk. SPARSE: experts instead of one MLP. NO_ROPE: queries
 * and keys of a model with rotary positions do not rotate. BARE: attention reads the stream without a norm. SHARED_KV:
 * the layer makes no keys and values, and reads those of another (tri_kv_source). */
enum { TRI_LAYER_LOCAL = 1, TRI_LAYER_SPARSE = 2, TRI_LAYER_NO_ROPE = 4, TRI_LAYER_BARE = 8, TRI_LAYER_SHARED_KV = 16 };

/* Latent attention (DeepSeek-V2, section 2.1); rank 0: none. A head's query and key have nope_dim elements without
 * position and rope_dim with, so head_dim is their sum; its value has v_dim. */
typedef struct tri_mla {
  int64_t rank, q_rank, nope_dim, rope_dim, v_dim; /* q_rank 0: queries straight from the stream */
  bool on, low_rank_q;
  double norm_eps; /* of the two latents */
} tri_mla;

/* Experts of the SPARSE layers; num_experts 0: none. */
typedef struct tri_moe {
  int64_t num_experts, top_k, intermediate_size;
  bool all_layers;              /* every layer is SPARSE, and intermediate_size is that of config.json */
  int64_t shared_size;          /* intermediate size of the expert that every token takes; 0: none */
  bool has_shared, shared_gate; /* shared_gate: its result times sigmoid(gate . x) */
  /* The router: scores, what is chosen by them, and with which weights (tri_moe_route_args in kernels/ops.h).
   * choice_bias: DeepSeek-V3's bias, which counts for the choice and not for the weight. */
  tri_moe_score score;
  bool renormalize, router_bias, choice_bias, expert_bias;
  bool scale_input; /* a token's weight, of one expert, multiplies what the expert reads */
  /* own_norms: the router, the routed experts and the expert for every token each read the stream by a norm of its own,
   * and both kinds' results have one, too, before they are added. expert_scale: a weight times its expert's factor. */
  bool own_norms, expert_scale;
  double router_scale; /* own_norms: what the router's rows are multiplied with after their norm */
  /* scale: of the weights. glu_limit: clamps gate and up of SWIGLU_OAI. jitter: of SPARSEMIXER. */
  double scale, glu_limit, jitter;
  /* Experts of the top_groups best of num_groups runs alone are chosen, a run being as good as its group_best best. */
  int64_t num_groups, top_groups, group_best;
} tri_moe;

/* An encoder-decoder (Vaswani et al., 2017). The config describes its decoder, in whose layers a cross-attention to the
 * encoder's final states stands between self-attention and MLP; here are the encoder's sizes. What the encoder is in
 * full says tri_model_config_source. */
typedef struct tri_seq2seq {
  bool on;
  int64_t num_layers, num_heads, intermediate_size;
  int64_t decoder_start_token_id, forced_bos_token_id; /* how every answer begins; -1: not so */
} tri_seq2seq;

/* Rotary positions, every scaling kind reduced to one or two tables of inverse frequencies. */
typedef struct tri_rope {
  tri_rope_kind kind;
  int rotary_dim;
  bool interleaved;
  float base, factor;         /* DYNAMIC */
  int original_max_len;       /* DYNAMIC, BY_LENGTH */
  float attention_scale;      /* multiplies cos and sin (YaRN section 3.4, LongRoPE) */
  float attention_scale_long; /* BY_LENGTH: beyond original_max_len */
  float inv_freq[TRI_MAX_ROTARY / 2];
  float inv_freq_long[TRI_MAX_ROTARY / 2]; /* BY_LENGTH */
} tri_rope;

/* Queries times 1 + beta * ln(1 + floor((position + offset) / every)): beyond what a model was trained with first, they
 * choose more sharply. */
typedef struct tri_q_scale {
  double beta; /* 0: none */
  int64_t offset, every;
  bool in_rope;      /* the family reads llama_4_scaling_beta next to its rotary scaling */
  bool without_rope; /* of layers that do not rotate alone */
} tri_q_scale;

/* How a model begins: token ids to rows of hidden_size. */
typedef struct tri_embed_config {
  int64_t size; /* width of the table; projected where it is not hidden_size */
  bool projected;
  bool projects_last; /* positions, types and norm have the table's width and come before the projection */
  bool norm;          /* a norm after it */
  double scale;
  int64_t type_vocab_size; /* types of tokens, e.g. first and second sentence; 0: none */
  int64_t position_offset; /* of the row in the table of learned positions */
  /* Width of what each layer adds to the stream by token: a row of a second table has all layers' parts, to which the
   * embedding adds a projection; 0: none (Gemma-3n's per-layer embeddings) */
  int64_t layer_width;
  bool has_layer_inputs; /* layer_width is not 0: for the tables */
} tri_embed_config;

/* Norms, and how branches are added to the residual stream. */
typedef struct tri_norm_config {
  tri_norm_kind kind;
  tri_norm_place place;
  double eps, weight_offset; /* gain = stored weight + weight_offset */
  bool bias;
  bool parallel_residual, one_norm; /* x + attn(norm1 x) + mlp(norm2 x); one_norm: norm1 feeds both */
  bool named;                       /* Falcon: its two norms have names of their own */
  bool no_final;                    /* none before the head */
  double residual_scale;            /* of what a branch adds */
  bool layer_scale;                 /* the stream after each layer times a stored number */
} tri_norm_config;

/* Heads and sizes count elements of the whole model, not of a rank's share. */
typedef struct tri_attention_config {
  int64_t num_heads, num_kv_heads, head_dim;
  /* These are of layers that are not LOCAL; 0: as of those that are. */
  int64_t global_heads, global_kv_heads, global_head_dim;
  int64_t shared_kv_layers; /* so many at the end are SHARED_KV */
  int64_t value_dim;        /* of a head's values where that is less than head_dim, else 0 */
  double value_scale;       /* of values; 0: 1 */
  bool causal;              /* a token sees those before it and itself */
  bool bidirectional;       /* of a decoder's family: it is not causal */
  bool bias, o_bias;
  bool head_gate; /* what a head gives times sigmoid of its row of a matrix times what the layer's attention reads */
  tri_qk_norm qk_norm;
  bool has_qk_norm;     /* qk_norm has gains: for the tables */
  bool norm_values;     /* RMS of each head, without a gain */
  bool keys_are_values; /* layers that are not LOCAL: values are what becomes keys, before their norm and rotation */
  bool has_sinks;       /* one more logit per head in the softmax, without a value */
  bool local_sinks;     /* of LOCAL layers alone */
  double scale;         /* of q.k; 1/sqrt(head_dim) unless the family says otherwise */
  tri_q_scale q_scale;
  bool scale_by_layer;  /* GPT-2: divides scale by layer + 1 */
  double softcap;       /* 0: none */
  int64_t index_topk;   /* a sequence has no more tokens: beyond, a query sees those that are chosen; 0: no limit */
  int64_t window;       /* of LOCAL layers, see tri_attention_args; 0: none */
  bool chunked;         /* a token sees those of its own `window` tokens, which begin at multiples of it */
  int window_every;     /* not 0: these are the first layer and every Nth, unless the file says which */
  int64_t global_every; /* not 0: these are all layers but every Nth, unless the file says which */
  tri_position_kind position;
  int64_t bias_buckets, bias_max_distance; /* RELATIVE */
  tri_rope rope;
  bool scales_by_ntk;           /* rope_scaling may be "ntk" */
  bool has_mrope;               /* images have positions of three numbers, which of a text are all the same */
  bool has_local_rope;          /* LOCAL layers have a table of their own */
  tri_rope local_rope;          /* FIXED */
  double local_rope_theta;      /* 0: rope_theta */
  bool has_rope_mscales;        /* LongRoPE's section names the scales of cos and sin, short_mscale and long_mscale */
  bool global_no_rope;          /* of a model with a window the other layers are NO_ROPE */
  double partial_rotary_factor; /* share of each head that rotates */
  double local_partial_rotary_factor; /* of LOCAL layers with a table of their own; 0: the same */
  int64_t rotary_dim;                 /* the same as a number, where a family says it so */
  double rope_theta;
} tri_attention_config;

/* down(act(up x)), or down(act(gate x) * up x) where gated. */
typedef struct tri_mlp_config {
  int64_t intermediate_size;
  int64_t shared_kv_size; /* of SHARED_KV layers; 0: the same */
  tri_act act;
  bool gated; /* act(gate) * up */
  bool bias, no_up_bias;
} tri_mlp_config;

/* Limits of SWIGLU_CLAMPED, which a layer with such a limit has instead of the model's activation: of routed experts,
 * and of its MLP or the expert for every token. 0: none. */
typedef struct tri_glu_limits {
  double experts, mlp;
} tri_glu_limits;

/* How a model ends: a decoder's logits; of an encoder, after whose states may be a pooler, act(W . pooled + b), and a
 * classifier of what is pooled or, as a token_head, of every state. A decoder that is an encoder has a classifier as
 * has_score, or the rows of some tokens in its head for the vocabulary. */
typedef struct tri_head_config {
  bool tie_word_embeddings, bias;
  double logit_scale, logit_softcap; /* softcap 0: none */
  bool has_pooler, has_classifier, sequence_head, token_head, classifier_bias, has_score;
  bool tokens_are_tied;                               /* the head for the vocabulary was the embedding */
  bool pooler_no_bias, pooler_norm, pooler_norm_bias; /* pooler_norm: a norm after its activation */
  int64_t num_class_tokens, class_tokens[TRI_MAX_CLASS_TOKENS];
  tri_pooling pooling;
  tri_act pool_act;
  int64_t num_labels;
} tri_head_config;

#define TRI_GENERATION_MEMBER_(context, type, name, option, least, most, def, absent, sampler, help)                   \
  TRI_GENERATION_##absent(type, name)
#define TRI_GENERATION_FIXED(type, name)
#define TRI_GENERATION_OPEN(type, name)
#define TRI_GENERATION_MODEL(type, name) TRI_NUMBER_TYPE_##type name;

/* A request's numbers as generation_config.json gives them; NaN or -1 where it says nothing. */
typedef struct tri_generation_config {
  TRI_SAMPLING_NUMBERS(TRI_GENERATION_MEMBER_, )
  int64_t num_beams;     /* 1 where it says nothing */
  double length_penalty; /* likewise */
  tri_early_stopping early_stopping;
  bool do_sample;
} tri_generation_config;

/* A Dense module: act(W . x + b). */
typedef struct tri_dense_config {
  bool on, bias;
  int64_t in, out;
  tri_act act;
  char path[64]; /* of its folder in the model's */
} tri_dense_config;

/* Says how a sentence-transformers folder makes vectors of texts; see sentence.h. */
typedef struct tri_sentence_config {
  bool on;                               /* there is a modules.json */
  tri_pooling pooling;                   /* NONE: one that is not supported, where another was asked for */
  bool normalize;                        /* to length 1 */
  int64_t max_seq_length;                /* 0: as many tokens as there are positions */
  tri_dense_config dense[TRI_MAX_DENSE]; /* after the pooling, in this order; the first ones are on */
} tri_sentence_config;

typedef struct tri_model_config {
  const struct tri_arch *arch;
  const struct tri_tensor_rule *tensors; /* of a file that has others than a folder of the family; NULL: the family's */
  int64_t hidden_size, num_layers, vocab_size, max_position_embeddings;
  tri_embed_config embed;
  tri_norm_config norm;
  tri_attention_config attention;
  tri_mla mla;
  tri_mlp_config mlp;
  tri_moe moe;
  tri_head_config head;
  tri_seq2seq seq2seq;
  tri_sentence_config sentence;
  uint8_t layer_flags[TRI_MAX_LAYERS];
  tri_glu_limits glu_limits[TRI_MAX_GLU_LIMITS]; /* those that layers have; the first is none */
  int num_glu_limits;                            /* 0: no layer has any */
  uint8_t layer_glu_limits[TRI_MAX_LAYERS];      /* the number of a layer's */
  bool encoder;         /* every token sees the whole sequence, and the states themselves are the result */
  bool feeds_decoder;   /* the encoder of an encoder-decoder: it has the decoder's embedding and KV blocks */
  bool multimodal;      /* the text part of a multimodal folder */
  bool shared_layers;   /* all layers have the same weights */
  tri_dtype dtype;      /* of the stored weights, as config.json claims; the tensors' own types are what counts */
  tri_stored stored;    /* how matrices are quantized in the checkpoint */
  int64_t extra_layers; /* stored after the model's own and left out: they were made for training and speculation */
  int64_t bos_token_id; /* -1: none */
  uint32_t bad_token_ids[TRI_MAX_STOP_IDS]; /* never generated: bad_words_ids of one token each */
  int num_bad_token_ids;
  uint32_t eos_token_ids[TRI_MAX_STOP_IDS];
  int num_eos_token_ids;
  tri_generation_config generation;
  char unknown_keys[TRI_UNKNOWN_KEYS]; /* of config.json, "a, b": taken to change nothing; empty: there are none */
} tri_model_config;

/* Says what becomes of keys of config.json that are not understood. {0}: those that are known to ask for something that
 * is not done here are refused. */
typedef struct tri_config_rules {
  bool strict;          /* every key that is not understood is refused */
  tri_opt_list ignored; /* names, also several with commas between them: taken as if they were not there */
} tri_config_rules;
/* Returns those of a tri_serve_options. */
#define TRI_CONFIG_RULES(o) ((tri_config_rules){.strict = (o)->strict_config, .ignored = (o)->ignore_config_key})

/* Reads DIR/config.json and, where they exist, DIR/generation_config.json, and the end-of-sequence token that
 * DIR/tokenizer_config.json names, which counts with theirs.
 *
 * *out is set on TRI_OK alone. TRI_NOT_FOUND: no folder or no config.json; TRI_UNSUPPORTED, TRI_UNKNOWN_FIELD: a value
 * or a key that is refused; TRI_OUT_OF_RANGE, TRI_INVALID_ARGUMENT, TRI_CORRUPT: files that are wrong. err names the
 * file and the key. */
tri_status tri_model_config_load(const char *dir, tri_config_rules rules, tri_model_config *out, tri_error *err);
/* The same from texts; generation may be NULL. */
tri_status tri_model_config_parse(const char *config, size_t config_len, const char *generation, size_t generation_len,
                                  tri_config_rules rules, tri_model_config *out, tri_error *err);
/* Logs the keys that are not understood, if there are any, what is passed over of a multimodal folder, and where
 * sequences end because of what is not done here. */
void tri_model_config_warn(const tri_model_config *c, const char *component);
/* Tokens of a sequence, unless an option says otherwise: the positions, or fewer where a sentence-transformers folder
 * wants that or attention to all keys ends. */
int64_t tri_model_config_length(const tri_model_config *c);
/* Returns whether a model needs all tokens of a sequence in one step: of encoders all but those whose tokens see those
 * before them alone and that give what the last token has. */
static inline bool tri_model_config_takes_whole(const tri_model_config *c) {
  return c->encoder && !(c->attention.causal && c->head.pooling == TRI_POOL_LAST);
}
/* Numbers of an encoder's answer: of a vector, or of the scores of a text or a token. */
int64_t tri_model_config_width(const tri_model_config *c);
static inline int tri_num_dense(const tri_model_config *c) { return c->sentence.dense[0].on + c->sentence.dense[1].on; }
/* A hash of what the coordinator and its workers must agree about. Weights are not in it: two trainings of one shape
 * have one hash. */
uint64_t tri_model_config_hash(const tri_model_config *c);

/* Sizes of a layer's attention: heads of queries, and of keys and values, of the whole model; elements of a head. */
typedef struct tri_head_sizes {
  int64_t num, num_kv, dim;
} tri_head_sizes;

/* Returns whether a layer's heads are those of layers without a window, which are others than those of layers with. */
static inline bool tri_layer_has_global_heads(const tri_model_config *c, int layer) {
  return c->attention.global_head_dim && !(c->layer_flags[layer] & TRI_LAYER_LOCAL);
}

static inline tri_head_sizes tri_layer_heads(const tri_model_config *c, int layer) {
  const tri_attention_config *a = &c->attention;
  if (tri_layer_has_global_heads(c, layer))
    return (tri_head_sizes){a->global_heads, a->global_kv_heads, a->global_head_dim};
  return (tri_head_sizes){a->num_heads, a->num_kv_heads, a->head_dim};
}

/* Returns the layer whose keys and values a layer reads: its own, or of SHARED_KV ones those of the last layer before
 * all of these that is LOCAL as they are. There is one. */
static inline int tri_kv_source(const tri_model_config *c, int layer) {
  int from = layer;
  while (from > 0 && (c->layer_flags[from] & TRI_LAYER_SHARED_KV ||
                      (c->layer_flags[from] ^ c->layer_flags[layer]) & TRI_LAYER_LOCAL))
    from--;
  return from;
}

/* Returns the units of a layer's MLP. */
static inline int64_t tri_layer_units(const tri_model_config *c, int layer) {
  bool other = c->mlp.shared_kv_size && c->layer_flags[layer] & TRI_LAYER_SHARED_KV;
  return other ? c->mlp.shared_kv_size : c->mlp.intermediate_size;
}

/* The encoder of an encoder-decoder, as a model of its own. */
void tri_model_config_source(const tri_model_config *c, tri_model_config *out);

#endif
