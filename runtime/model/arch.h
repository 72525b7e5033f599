/* SPDX-License-Identifier: Apache-2.0 */
/* Model families: one const table each (arch/NAME.c), read by one generic loader and one generic executor.
 *
 * To add a family: write arch/NAME.c with a tri_arch, name it in tri_arch_list (arch.c). docs/adding-a-model.md walks
 * through it.
 *
 * Values come into a tri_model_config in this order (config.c): the family's defaults, keys of the file that have a
 * field, special ids, `prepare`, what follows from other values (head_dim, scale, tables of rotary positions),
 * `finish`, and generation_config.json. */
#ifndef TRI_RUNTIME_MODEL_ARCH_H
#define TRI_RUNTIME_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json/json.h"
#include "runtime/model/config.h"

/* The executor's tensors. Matrices keep a 16-bit type; vectors are float32. Cut over the tensor group:
 *   by vocabulary: EMBED, LAYER_EMBED, HEAD (rows)       by query and KV heads: QKV (rows), O (columns)
 *   by intermediate size: UP (rows; gate rows first when gated), DOWN (columns)
 *   by each expert's intermediate size: EXPERT_UP (expert below expert), EXPERT_DOWN, the same for SHARED_*
 *   by heads: ATTENTION_GATE (rows), Q_B, V_UP, CROSS_Q, CROSS_KV (keys above values; rows), CROSS_O, RELATIVE_BIAS
 * (columns), K_UP replicated: norms, projections, routers, projections to latents (QKV_A), what makes and takes inputs
 * of layers on tensor rank 0 alone: what is added before an all-reduce (O_BIAS, CROSS_O_BIAS, DOWN_BIAS, POSITIONS,
 * TYPES) and an encoder's ends (POOLER, CLASSIFIER, DENSE1 and 2)
 *
 * QKV_A is [q_rank + rank + rope_dim, hidden]: the queries' latent, where they have one, then that of keys and values,
 * then the key that rotates. K_UP is [rank, nope_dim] for each head: what a query is multiplied with to meet the
 * latent. NORM1, NORM2: of a branch's input, or of the sum with it. BRANCH_NORM1, 2: of what a branch gives. Inputs of
 * layers (layer_inputs.c): LAYER_EMBED is [vocabulary, layers * width], LAYER_PROJECT [layers * width, hidden].
 *
 * X(name, place, kind). Place: MODEL has one, each LAYER has one, or those with one MLP (DENSE) or with experts
 * (SPARSE), or each has one that its second half reads whatever that is (END). Kind: a GAIN, around 1 where it is made
 * up; a matrix of a LINEAR layer or of experts, which a quantized model has in int8; or PLAIN.
 *
 * Rows are outputs and columns inputs, row after row: QKV is [(q_heads + 2 kv_heads) * head_dim, hidden], O is
 * [hidden, q_heads * head_dim], UP is [intermediate, hidden], or twice as many rows when gated, and DOWN is [hidden,
 * intermediate]. tri_shard_weight_shape has all of them. */
#define TRI_WEIGHT_LIST(X)                                                                                             \
  X(EMBED, MODEL, PLAIN)                                                                                               \
  X(LAYER_EMBED, MODEL, PLAIN)                                                                                         \
  X(LAYER_PROJECT, MODEL, PLAIN)                                                                                       \
  X(LAYER_PROJECT_NORM, MODEL, GAIN)                                                                                   \
  X(EMBED_NORM, MODEL, GAIN)                                                                                           \
  X(EMBED_NORM_BIAS, MODEL, PLAIN)                                                                                     \
  X(PROJECT_IN, MODEL, PLAIN)                                                                                          \
  X(PROJECT_IN_BIAS, MODEL, PLAIN)                                                                                     \
  X(POSITIONS, MODEL, PLAIN)                                                                                           \
  X(TYPES, MODEL, PLAIN)                                                                                               \
  X(FINAL_NORM, MODEL, GAIN)                                                                                           \
  X(FINAL_NORM_BIAS, MODEL, PLAIN)                                                                                     \
  X(PROJECT_OUT, MODEL, PLAIN)                                                                                         \
  X(HEAD, MODEL, LINEAR)                                                                                               \
  X(HEAD_BIAS, MODEL, PLAIN)                                                                                           \
  X(POOLER, MODEL, PLAIN)                                                                                              \
  X(POOLER_BIAS, MODEL, PLAIN)                                                                                         \
  X(POOLER_NORM, MODEL, GAIN)                                                                                          \
  X(POOLER_NORM_BIAS, MODEL, PLAIN)                                                                                    \
  X(CLASSIFIER, MODEL, PLAIN)                                                                                          \
  X(CLASSIFIER_BIAS, MODEL, PLAIN)                                                                                     \
  X(DENSE1, MODEL, PLAIN)                                                                                              \
  X(DENSE1_BIAS, MODEL, PLAIN)                                                                                         \
  X(DENSE2, MODEL, PLAIN)                                                                                              \
  X(DENSE2_BIAS, MODEL, PLAIN)                                                                                         \
  X(NORM1, LAYER, GAIN)                                                                                                \
  X(NORM1_BIAS, LAYER, PLAIN)                                                                                          \
  X(QKV, LAYER, LINEAR)                                                                                                \
  X(QKV_BIAS, LAYER, PLAIN)                                                                                            \
  X(Q_NORM, LAYER, GAIN)                                                                                               \
  X(K_NORM, LAYER, GAIN)                                                                                               \
  X(O, LAYER, LINEAR)                                                                                                  \
  X(O_BIAS, LAYER, PLAIN)                                                                                              \
  X(ATTENTION_GATE, LAYER, PLAIN)                                                                                      \
  X(BRANCH_NORM1, LAYER, GAIN)                                                                                         \
  X(NORM2, LAYER, GAIN)                                                                                                \
  X(NORM2_BIAS, LAYER, PLAIN)                                                                                          \
  X(UP, DENSE, LINEAR)                                                                                                 \
  X(UP_BIAS, DENSE, PLAIN)                                                                                             \
  X(DOWN, DENSE, LINEAR)                                                                                               \
  X(DOWN_BIAS, DENSE, PLAIN)                                                                                           \
  X(BRANCH_NORM2, LAYER, GAIN)                                                                                         \
  X(SINKS, LAYER, PLAIN)                                                                                               \
  X(QKV_A, LAYER, LINEAR)                                                                                              \
  X(Q_A_NORM, LAYER, GAIN)                                                                                             \
  X(Q_B, LAYER, LINEAR)                                                                                                \
  X(KV_A_NORM, LAYER, GAIN)                                                                                            \
  X(K_UP, LAYER, PLAIN)                                                                                                \
  X(V_UP, LAYER, PLAIN)                                                                                                \
  X(ROUTER_NORM, SPARSE, GAIN)                                                                                         \
  X(EXPERT_NORM, SPARSE, GAIN)                                                                                         \
  X(EXPERT_BRANCH_NORM, SPARSE, GAIN)                                                                                  \
  X(SHARED_BRANCH_NORM, SPARSE, GAIN)                                                                                  \
  X(EXPERT_SCALE, SPARSE, GAIN)                                                                                        \
  X(INPUT_GATE, END, LINEAR)                                                                                           \
  X(INPUT_PROJECT, END, LINEAR)                                                                                        \
  X(INPUT_NORM, LAYER, GAIN)                                                                                           \
  X(LAYER_SCALE, LAYER, GAIN)                                                                                          \
  X(ROUTER, SPARSE, PLAIN)                                                                                             \
  X(ROUTER_BIAS, SPARSE, PLAIN)                                                                                        \
  X(CHOICE_BIAS, SPARSE, PLAIN)                                                                                        \
  X(EXPERT_UP, SPARSE, LINEAR)                                                                                         \
  X(EXPERT_UP_BIAS, SPARSE, PLAIN)                                                                                     \
  X(EXPERT_DOWN, SPARSE, LINEAR)                                                                                       \
  X(EXPERT_DOWN_BIAS, SPARSE, PLAIN)                                                                                   \
  X(SHARED_UP, SPARSE, LINEAR)                                                                                         \
  X(SHARED_DOWN, SPARSE, LINEAR)                                                                                       \
  X(SHARED_GATE, SPARSE, PLAIN)                                                                                        \
  X(RELATIVE_BIAS, MODEL, PLAIN)                                                                                       \
  X(CROSS_NORM, LAYER, GAIN)                                                                                           \
  X(CROSS_NORM_BIAS, LAYER, PLAIN)                                                                                     \
  X(CROSS_Q, LAYER, LINEAR)                                                                                            \
  X(CROSS_Q_BIAS, LAYER, PLAIN)                                                                                        \
  X(CROSS_KV, LAYER, LINEAR)                                                                                           \
  X(CROSS_KV_BIAS, LAYER, PLAIN)                                                                                       \
  X(CROSS_O, LAYER, LINEAR)                                                                                            \
  X(CROSS_O_BIAS, LAYER, PLAIN)

typedef enum tri_weight_id {
#define X(name, place, kind) TRI_W_##name,
  TRI_WEIGHT_LIST(X)
#undef X
      TRI_W_COUNT
} tri_weight_id;
/* Kinds and places are those of the list above. linear: a matrix that products read, which quantization and streaming
 * are about; gain: of a norm. */
const char *tri_weight_name(tri_weight_id id);
bool tri_weight_is_per_layer(tri_weight_id id);
bool tri_weight_is_gain(tri_weight_id id);
bool tri_weight_is_linear(tri_weight_id id);
bool tri_weight_is_mlp(tri_weight_id id);        /* of a layer's second half: MLP, experts and what follows them */
bool tri_weight_is_of_experts(tri_weight_id id); /* of those that tokens are routed to */
/* A sparse layer has experts instead of one MLP. Any layer will do for weights that are not per layer. */
bool tri_weight_in_layer(const tri_model_config *c, tri_weight_id id, int layer);

/* Which part of a fused weight a checkpoint's tensor fills. */
typedef enum tri_part {
  TRI_PART_WHOLE,
  TRI_PART_Q,
  TRI_PART_K,
  TRI_PART_V,
  TRI_PART_QKV_CONCAT,      /* q rows, k rows, v rows */
  TRI_PART_QKV_INTERLEAVED, /* per KV head: its q heads, k, v (GPT-NeoX, BLOOM, Falcon) */
  TRI_PART_GATE,
  TRI_PART_UP,
  TRI_PART_GATE_UP_CONCAT,      /* gate rows, then up rows */
  TRI_PART_UP_GATE_CONCAT,      /* up rows, then gate rows */
  TRI_PART_GATE_UP_INTERLEAVED, /* gate and up rows in turn */
  TRI_PART_LATENT_Q,            /* of projections to latents the queries', */
  TRI_PART_LATENT_KV,           /* and those of keys and values, with the key that rotates */
  TRI_PART_KEY_UP,  /* of rows that are, per head, nope_dim for the key and v_dim for the value: the former, */
  TRI_PART_VALUE_UP /* the latter */
} tri_part;

enum {
  TRI_TENSOR_TRANSPOSED = 1, /* stored [in, out], as GPT-2's Conv1D */
  TRI_TENSOR_PER_EXPERT = 2, /* one tensor for each expert: the name has a second %d */
  TRI_TENSOR_STACKED = 4,    /* one tensor for all experts, with one more dimension first */
  TRI_TENSOR_LOCAL = 8,      /* layers with a window alone have it */
  TRI_TENSOR_GLOBAL = 16,    /* layers without alone */
  TRI_TENSOR_EITHER = 32,    /* TRANSPOSED, or not where only that fits its shape */
};

/* A tensor of the checkpoint that is a weight or a part of one. Several rules may fill one weight (gate and up, q and
 * k and v) or read one tensor (kv_b_proj). A rule counts where its weight has rows in the layer. */
typedef struct tri_tensor_rule {
  const char *name; /* checkpoint name without the family's prefix; %d is the layer, a second one the expert */
  tri_weight_id weight;
  tri_part part;
  int flags;
  /* offsets of bools in tri_model_config: the model has the tensor if the one is true and unless the other is; 0:
   * always */
  size_t if_field, unless_field;
} tri_tensor_rule;
#define TRI_IF(field) offsetof(tri_model_config, field)

/* INT, NUM, BOOL: the value goes to `field`. OFF: a bool, refused where it is true. READ: a function of the family
 * reads it. IGNORE: changes nothing. */
typedef enum tri_key_type {
  TRI_KEY_INT,
  TRI_KEY_NUM,
  TRI_KEY_BOOL,
  TRI_KEY_OFF,
  TRI_KEY_READ,
  TRI_KEY_IGNORE
} tri_key_type;
/* A row of a family's table: a key, and the field of tri_model_config that its value goes to. Numbers outside of min
 * to max are refused with TRI_OUT_OF_RANGE. */
typedef struct tri_config_key {
  const char *name; /* of ignored ones several, as words */
  tri_key_type type;
  size_t field; /* offset in tri_model_config: int64_t, double or bool */
  size_t also;  /* of a bool that gets the same value; 0: none */
  double min, max;
} tri_config_key;
#define TRI_INT_KEY(key, f, lo, hi)                                                                                    \
  { .name = key, .type = TRI_KEY_INT, .field = offsetof(tri_model_config, f), .min = lo, .max = hi }
#define TRI_NUM_KEY(key, f, lo, hi)                                                                                    \
  { .name = key, .type = TRI_KEY_NUM, .field = offsetof(tri_model_config, f), .min = lo, .max = hi }
#define TRI_BOOL_KEY(key, f)                                                                                           \
  { .name = key, .type = TRI_KEY_BOOL, .field = offsetof(tri_model_config, f) }
#define TRI_BOOL_KEYS(key, f, g)                                                                                       \
  { .name = key, .type = TRI_KEY_BOOL, .field = offsetof(tri_model_config, f), .also = offsetof(tri_model_config, g) }
/* A bool that is refused where it is true: a feature that this family's table lacks. */
#define TRI_OFF_KEY(key)                                                                                               \
  { .name = key, .type = TRI_KEY_OFF }
/* A key that the family's functions read, or check. */
#define TRI_READ_KEY(key)                                                                                              \
  { .name = key, .type = TRI_KEY_READ }
/* Keys that change nothing, in any family: words. */
#define TRI_IGNORED_KEYS(keys)                                                                                         \
  { .name = keys, .type = TRI_KEY_IGNORE }

/* A family. Everything in it is constant, and read at start alone: a step sees the tri_model_config that came of it. */
typedef struct tri_arch {
  const char *model_type;     /* config.json's model_type */
  const char *class_names[4]; /* values of `architectures` that this table describes; NULL-terminated */
  /* Multimodal folders whose text_config is of this family (multimodal.c); NULL: there are none. */
  const char *multimodal_type, *multimodal_class;
  bool multimodal_flat;           /* such folders also come without text_config, its keys next to the others */
  const char *prefix;             /* of the tensors' names; checkpoints with and without it are read */
  const tri_config_key *keys;     /* the family's own keys, on top of the common ones; ends with name NULL */
  const char *ignored_tensors[5]; /* stored tensors that hold nothing (masks, inverse frequencies), or nothing that
                                     counts here; NULL-terminated, %d, and at the end * for any rest */
  const tri_tensor_rule *tensors; /* ends with name NULL */
  /* Values before the file is read; what the file does not name stays. */
  tri_model_config defaults;
  /* Between the keys and what is derived from them: keys that mean something else here. May be NULL. */
  tri_status (*prepare)(tri_model_config *c, const tri_json *root, tri_error *err);
  /* After the keys: derived values and checks that a table cannot say. May be NULL. */
  tri_status (*finish)(tri_model_config *c, const tri_json *root, tri_error *err);
  /* An encoder-decoder's encoder: a table of which only tensors and prefix are looked at. NULL for other models. */
  const struct tri_arch *source;
} tri_arch;

/* Returns the rule after `rule` of a model's tensors, the first one for NULL; NULL after the last. Behind the family's
 * own come those of what any model may end with. */
const tri_tensor_rule *tri_rule_next(const tri_model_config *c, const tri_tensor_rule *rule);

/* Returns the weight whose rows for tokens a classifier of class_tokens has. */
static inline tri_weight_id tri_class_tokens_weight(const tri_model_config *c) {
  return c->head.tokens_are_tied ? TRI_W_EMBED : TRI_W_HEAD;
}

extern const tri_arch *const tri_arch_list[]; /* NULL-terminated */
const tri_arch *tri_arch_find(const char *model_type);

/* multimodal.c: returns the i-th prefix that names of a model's tensors may have, the likeliest first and "" last; NULL
 * after it. */
const char *tri_tensor_prefix(const tri_model_config *c, int i);
/* Returns whether a tensor belongs to what a multimodal folder has in addition to its text part. */
bool tri_tensor_is_passed_over(const tri_model_config *c, const char *name);
/* Turns a multimodal folder's config into that of its text part, and notes keys that are not understood; *out: the
 * family of that, NULL for other configs, which stay as they are. */
tri_status tri_config_take_text(tri_json_doc *doc, bool strict, tri_model_config *notes, const tri_arch **out,
                                tri_error *err);

/* config_values.c: returns the entry of a key in the family's table or in that of common keys; NULL without one. */
const tri_config_key *tri_config_key_find(const tri_arch *arch, const char *key);
/* config_keys.c: refuses keys without an entry whose value is known to ask for what is not done here, with strict all
 * that are not known to change nothing, and notes the others in c->unknown_keys. The rest of c has been read. */
tri_status tri_config_judge_keys(const tri_json *root, bool strict, tri_model_config *c, tri_error *err);
/* config_notes.c: returns whether a key is a note of tools, of training or of generation that changes nothing, or is
 * read for every family. */
bool tri_config_key_is_note(const char *key);
/* Returns whether a value says nothing: null, false, 0, 1, "", "none", "default", or an empty list or object. */
bool tri_config_says_nothing(const tri_json *value);
/* Notes a key that is not understood, for a warning. */
void tri_config_note_key(tri_model_config *c, const char *key);

/* Puts a value where its key says, within the key's range. */
tri_status tri_config_set(tri_model_config *c, const tri_config_key *k, const tri_json *v, tri_error *err);
/* generation.c: ids of special meaning out of either file, and the defaults of generation_config.json. */
tri_status tri_config_special_ids(const tri_json *root, tri_model_config *c, tri_error *err);
tri_status tri_config_generation(const tri_json *root, tri_model_config *c, tri_error *err);
/* Adds the end-of-sequence token that a folder's tokenizer_config.json names. TRI_OK or TRI_NO_MEMORY: a file that
 * cannot be read is none. */
tri_status tri_config_end_token(const char *dir, tri_model_config *c);
/* Finds a token's id in a folder's tokenizer; *id is -1 where there is none. TRI_OK or TRI_NO_MEMORY. */
tri_status tri_config_token_id(const char *dir, const char *text, int64_t *id);
/* A number within its range; key: for errors. */
tri_status tri_config_read_number(const char *key, const tri_json *v, double min, double max, double *out,
                                  tri_error *err);
/* For prepare and finish: a key of config.json that no table reads. Absent or null leaves *out as it is. */
tri_status tri_config_bool(const tri_json *root, const char *key, bool *out, tri_error *err);
tri_status tri_config_number(const tri_json *root, const char *key, double min, double max, double *out,
                             tri_error *err);
/* For finish: scores are q.k/sqrt(head_dim) unless scale_attn_weights is false. */
tri_status tri_config_unscaled(tri_model_config *c, const tri_json *root, tri_error *err);
/* For prepare and finish: TRI_UNSUPPORTED where a key is there and says another word. */
tri_status tri_config_must_be(const tri_json *root, const char *key, const char *word, tri_error *err);
/* For prepare: `key` experts, `absent` where the file does not say, of moe.intermediate_size each, are one expert that
 * every token takes. */
tri_status tri_config_shared_experts(tri_model_config *c, const tri_json *root, const char *key, double absent,
                                     tri_error *err);
/* encoder.c, for finish of an encoder: which head its class has, and the keys that must be as these tables have it. */
tri_status tri_config_encoder(tri_model_config *c, const tri_json *root, tri_error *err);
/* Returns whether a class is one of a decoder's family that ends with its states, or with a score of the last. */
bool tri_arch_is_headless(const tri_arch *a, const char *name);
/* Makes a decoder an encoder where its class or a key says so, with its classifier. */
tri_status tri_config_decoder_use(tri_model_config *c, const tri_json *root, tri_error *err);
/* The same where the folder says so, and finds the ids of a classifier's tokens. */
tri_status tri_config_folder_use(const char *dir, const tri_json *root, tri_model_config *c, tri_error *err);
/* Fills in and checks what an encoder-decoder's config says of its encoder and of how answers begin. */
tri_status tri_config_seq2seq(tri_model_config *c, tri_error *err);
/* For prepare of BART and its descendants: the scale of the embedding, and switches that must be as the tables have it.
 */
tri_status tri_config_bart(tri_model_config *c, const tri_json *root, tri_error *err);
/* layer_kinds.c: the flags of all layers, as far as `layer_types` and the defaults of the family say them. */
tri_status tri_config_layer_kinds(tri_model_config *c, const tri_json *root, tri_error *err);
/* For prepare: those of `no_rope_layers`, or every Nth layer, are NO_ROPE; N: `no_rope_layer_interval`, or `every`. */
tri_status tri_config_no_rope_layers(tri_model_config *c, const tri_json *root, int every, tri_error *err);
/* Every layer from `first` on in steps of `step` is LOCAL, unless layer_types has said which are. */
void tri_config_local_layers(tri_model_config *c, const tri_json *root, int first, int step);

/* For prepare, when it is known which layers are LOCAL: a key with a number, or with a list of one for each layer,
 * which is the same for all layers of a kind. Where the key is absent or null, or there is no such layer, *global and
 * *local stay. */
tri_status tri_config_by_kind(tri_model_config *c, const tri_json *root, const char *key, double min, double max,
                              double *global, double *local, tri_error *err);
/* For prepare: the limits of layers' activations, two lists of a number for each layer; null and 0: none. Layers that
 * are stored and left out may have numbers, too. */
tri_status tri_config_glu_limits(tri_model_config *c, const tri_json *root, const char *experts, const char *mlp,
                                 tri_error *err);

/* Every layer from `first` on in steps of `step` is SPARSE. */
void tri_config_sparse_layers(tri_model_config *c, int first, int step);
/* For finish: SPARSE are those that `mlp_layer_types` says or, without it, all but the first `first_k_dense_replace`,
 * `dense` where the file does not say. */
tri_status tri_config_dense_layers(tri_model_config *c, const tri_json *root, double dense, tri_error *err);

/* "gelu_new", "silu", ...: false when unknown. */
bool tri_act_from_name(const char *name, tri_act *out);

#endif
