/* What a model is: config.json read into one struct that the executor, the loader and the byte ledger share.
 *
 * A key that could change the result and is not understood is refused by name. Keys of training, initialisation and
 * bookkeeping are known and ignored. Both spellings of transformers (before and since v5) are read: `torch_dtype` or
 * `dtype`, and `rope_theta` + `rope_scaling` or `rope_parameters`. */
#ifndef TRI_MODEL_CONFIG_H
#define TRI_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/dtype.h"
#include "runtime/base/kinds.h"
#include "runtime/base/status.h"

#define TRI_MAX_STOP_IDS 16
#define TRI_MAX_ROTARY 1024 /* largest rotary_dim */

struct tri_arch;

typedef enum tri_position_kind { TRI_POS_NONE, TRI_POS_LEARNED, TRI_POS_ROPE } tri_position_kind;

/* Rotary positions, every scaling kind reduced to one or two tables of inverse frequencies. */
typedef struct tri_rope {
  tri_rope_kind kind;
  int rotary_dim;
  bool interleaved;
  float base, factor;    /* DYNAMIC */
  int original_max_len;  /* DYNAMIC, BY_LENGTH */
  float attention_scale; /* multiplies cos and sin (YaRN section 3.4, LongRoPE) */
  float inv_freq[TRI_MAX_ROTARY / 2];
  float inv_freq_long[TRI_MAX_ROTARY / 2]; /* BY_LENGTH */
} tri_rope;

typedef struct tri_model_config {
  const struct tri_arch *arch;
  int64_t hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size;
  int64_t vocab_size, max_position_embeddings;
  double norm_eps;
  bool tie_word_embeddings;

  tri_norm_kind norm;
  bool parallel_residual; /* x + attn(ln1 x) + mlp(ln2 x), as GPT-J and GPT-NeoX */
  tri_act act;
  bool gated; /* act(gate) * up */
  bool attention_bias, o_bias, mlp_bias;
  tri_position_kind position;
  tri_rope rope;
  double partial_rotary_factor; /* share of each head that rotates */
  double rope_theta;
  double attn_scale;        /* of q.k; 1/sqrt(head_dim) unless the family says otherwise */
  bool scale_attn_by_layer; /* GPT-2: divides attn_scale by layer + 1 */
  double embed_scale;

  tri_dtype dtype;      /* of the stored weights, as config.json claims; the tensors' own types are what counts */
  int64_t bos_token_id; /* -1: none */
  uint32_t eos_token_ids[TRI_MAX_STOP_IDS];
  int num_eos_token_ids;
  /* generation_config.json's sampling defaults; NaN or -1 where the file says nothing */
  double gen_temperature, gen_top_p, gen_repetition_penalty;
  int64_t gen_top_k;
  bool gen_do_sample;
} tri_model_config;

/* Reads DIR/config.json and, where it exists, DIR/generation_config.json. */
tri_status tri_model_config_load(const char *dir, tri_model_config *out, tri_error *err);
/* The same from texts; generation may be NULL. */
tri_status tri_model_config_parse(const char *config, size_t config_len, const char *generation, size_t generation_len,
                                  tri_model_config *out, tri_error *err);

#endif
