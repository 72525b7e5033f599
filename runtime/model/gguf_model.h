/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF file as a model: its keys as the text that config.json would have, so that the families' tables read both, and
 * its tensors under the names that a folder of safetensors gives them.
 *
 * Keys and tensors that are not understood are refused by their names: they would be a part of the model that is left
 * out. */
#ifndef TRI_RUNTIME_MODEL_GGUF_MODEL_H
#define TRI_RUNTIME_MODEL_GGUF_MODEL_H

#include "base/gguf.h"
#include "base/text.h"
#include "runtime/model/arch.h"
#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"

/* A name in files, and what a folder calls it: without ".weight" or ".bias", which both have, or with all of it. */
typedef struct tri_gguf_name {
  const char *from, *to; /* to: of experts with a %d for the number */
  bool experts;          /* the last dimension counts experts, which a folder has apart */
  bool paired;           /* rows of heads whose halves take turns (tri_st_tensor) */
  bool row;              /* a vector that a folder has as a matrix of one row */
  bool flat;             /* the last two dimensions, heads and rows of each, are one here */
} tri_gguf_name;

/* INT: 0 says that there is none. COUNT: 0 counts. HEADS: as many as attention.head_count, and no member. */
typedef enum tri_gguf_kind {
  TRI_GGUF_INT,
  TRI_GGUF_NUMBER,
  TRI_GGUF_COUNT,
  TRI_GGUF_SWITCH,
  TRI_GGUF_HEADS
} tri_gguf_kind;

/* A key after the architecture's name, and the member of config.json that it becomes. An architecture's own go before
 * those of all. */
typedef struct tri_gguf_key {
  const char *from, *to; /* to NULL: it says what the tensors say, too, or another function reads it */
  tri_gguf_kind kind;
  const char *absent; /* JSON, where the file does not have the key; NULL: no member then */
} tri_gguf_key;
#define TRI_GGUF_KEY(f, t, k)                                                                                          \
  { .from = f, .to = t, .kind = TRI_GGUF_##k }
#define TRI_GGUF_KEY_OR(f, t, k, a)                                                                                    \
  { .from = f, .to = t, .kind = TRI_GGUF_##k, .absent = a }

/* An architecture. Tables end with from NULL. */
typedef struct tri_gguf_arch {
  const char *name;           /* general.architecture */
  const char *model_type;     /* the family */
  const char *moe_type;       /* of files with experts; NULL: the same */
  const char *window_type;    /* of files with a window; NULL: the same */
  const char *sigmoid_type;   /* of files whose expert_gating_func is the sigmoid; NULL: the same */
  const char *members;        /* of config.json, that the family has and files do not say: JSON, or NULL */
  const tri_gguf_key *keys;   /* in addition to those of all */
  const tri_gguf_name *names; /* before those of all */
  /* Tensors where a folder's differ by more than names (gguf_rules.c): they keep the file's names, and of `names` all
   * but that counts. NULL: the family's. */
  const tri_tensor_rule *rules;
  bool gains_of_one;   /* gains are stored as such, where a folder has their difference from one */
  bool has_window;     /* attention.sliding_window counts */
  bool renormalizes;   /* weights of the chosen experts, where expert_weights_norm does not say */
  bool may_be_dense;   /* layers without a router have a plain MLP */
  bool latent;         /* latent attention: heads of keys and values have sizes of their own */
  bool exact_yarn;     /* the family's yarn does not round the dimensions between which it mixes */
  int scaled_by_width; /* not 0: the config has query_pre_attn_scalar, width / heads in files of so many layers */
} tri_gguf_arch;

/* gguf_arch.c: NULL and an error that lists those that there are. */
const tri_gguf_arch *tri_gguf_arch_of(const tri_gguf *g, tri_error *err);
/* Returns the entry of a tensor's name without "blk.N."; *suffix: what of it follows the entry's. NULL: unknown. */
const tri_gguf_name *tri_gguf_name_find(const tri_gguf_arch *arch, const char *name, const char **suffix);

/* gguf_rules.c */
extern const tri_tensor_rule tri_gguf_rules_gpt_oss[], tri_gguf_rules_deepseek2[], tri_gguf_rules_gpt2[],
    tri_gguf_rules_gptneox[], tri_gguf_rules_bloom[], tri_gguf_rules_falcon[], tri_gguf_rules_phi2[];

/* A table of factors of rotary frequencies; count 0: there is none. */
typedef struct tri_gguf_factors {
  int count;
  float x[TRI_MAX_ROTARY / 2];
} tri_gguf_factors;

/* A model as keys and tensors describe it. */
typedef struct tri_gguf_config {
  tri_buf text;           /* of a config.json; tri_buf_free */
  tri_gguf_factors freqs; /* that rotary frequencies are divided by */
  const tri_gguf_arch *arch;
  tri_stored stored;
} tri_gguf_config;

/* gguf_config.c: path is that of the (first) file, by which the others of a set are found. */
tri_status tri_gguf_config_make(const tri_gguf *g, const char *path, tri_gguf_config *out, tri_error *err);
/* Sets what the text does not say in the config that was read from it. */
tri_status tri_gguf_config_finish(const tri_gguf_config *from, tri_model_config *c, tri_error *err);

/* gguf_tensors.c: the tensors of one file of a model, whose keys the first one has, as tri_st_parse_header gives them,
 * but for offsets, which are places in the file. */
tri_status tri_gguf_tensors(const tri_gguf *g, const tri_gguf *first, const tri_gguf_arch *arch,
                            tri_st_tensor **tensors, size_t *count, char **names, tri_error *err);

#endif
