/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's weights: bound from a checkpoint (each rank reading only what it needs) or made up (load format `dummy`). */
#ifndef TRI_RUNTIME_LOAD_WEIGHTS_H
#define TRI_RUNTIME_LOAD_WEIGHTS_H

#include "kernels/backend.h"
#include "offload/reader.h"
#include "runtime/load/tiers.h"
#include "runtime/model/layout.h"
#include "runtime/model/safetensors.h"

/* In memory: matrices keep their stored type unless asked otherwise; vectors are float32 with data in .data. A weight
 * that the shard or the model lacks has data NULL. Quantised matrices (tri_weight_is_quantized) are
 * int8 or FP8 with a scale for each row, as kernels/quantize.h has it, or FP8 as the checkpoint has it (stored_form.h).
 * The scale is that of the model's whole row, also where a shard has only some of its columns, so that every layout
 * multiplies with the same numbers.
 *
 * Matrices are [n, k], row after row without gaps, each beginning at a multiple of 64 bytes. Addresses stay from
 * tri_weights_make to tri_weights_destroy: recorded steps have them. A streamed weight's address is that of its place
 * in the ring, which has its bytes only while the part is there. */
typedef struct tri_layer_weights {
  tri_weight w[TRI_W_COUNT];
} tri_layer_weights;

typedef struct tri_weights {
  tri_weight global[TRI_W_COUNT];
  tri_layer_weights *layers; /* [shard.layers.count], the first is layer shard.layers.first */
  tri_backend *backend;
  void *memory; /* of what stays */
  size_t bytes;
  char *ring; /* of what is streamed, NULL where nothing is */
  size_t ring_bytes;
  tri_backend *host; /* the config's, */
  void *host_memory; /* of experts that lie in the host's memory, NULL where none do */
  size_t host_bytes;
  uint64_t *not_finite;      /* [tri_weights_num_counts] in `memory`: see finite_weights.h; */
  uint64_t *host_not_finite; /* of experts on the host, NULL where there are none */
  tri_dtype gemms;           /* the map's */
  uint64_t read_bytes;       /* of files, to fill it */
  int num_checked;           /* matrices that the self-test of stored weights has looked at (form_check.h) */
} tri_weights;

/* One of each of the model's weights, and of each layer's. */
static inline size_t tri_weights_num_counts(int layers) { return ((size_t)layers + 1) * TRI_W_COUNT; }

static inline const float *tri_vector(const tri_weight *w) { return w->data; }

/* The places of all weights inside one block of memory, of experts on the host inside another, or, of those that are
 * streamed, inside their part. Also what `trireme plan` adds up. */
typedef struct tri_weight_place {
  size_t offset, bytes;             /* of the elements */
  size_t scale_offset, scale_bytes; /* of float32s, one for each group; 0: there are none */
  tri_dtype dtype;
  tri_groups groups; /* that share a scale */
  bool is_stored;    /* the elements are the checkpoint's codes */
  tri_dtype inputs;  /* of the rows that it multiplies: with scales the type that the elements would be widened to */
  int part;          /* TRI_PART_STAYS: in the block; TRI_PART_ON_HOST: in the host's */
} tri_weight_place;
typedef struct tri_weight_map {
  tri_weight_place global[TRI_W_COUNT];
  tri_weight_place *layers; /* [layers.count * TRI_W_COUNT] */
  size_t bytes;             /* of the block */
  size_t host_bytes;        /* of the host's, of experts that tri_layer_experts_on_host names */
  size_t counts;            /* in the block: the place of tri_weights.not_finite */
  size_t *part_bytes;       /* [layers.count * TRI_LAYER_PARTS] whether they are streamed or not */
  tri_dtype gemms;          /* the 16-bit type that the layers' GEMMs take their rows in, otherwise float32 */
} tri_weight_map;

/* ckpt NULL: every matrix has c->dtype. dtype TRI_DTYPE_COUNT ("auto"): the stored types; either way of what is not
 * quantised. The head of a tied model shares the embedding's memory where one stage has both; layers that share their
 * weights are all placed on the first. tiers NULL: everything stays. The map allocates two tables, which
 * tri_weight_map_free frees; no memory for weights is taken. */
tri_status tri_weight_map_make(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                               tri_dtype dtype, tri_quantization quantization, const tri_tiers *tiers,
                               tri_weight_map *out, tri_error *err);
void tri_weight_map_free(tri_weight_map *m);

/* The source of a rank's weights, and how they lie in memory. */
typedef struct tri_weights_config {
  tri_backend *backend;
  tri_backend *host; /* which computes the experts on the host, and is of host memory; NULL: there are none */
  const tri_model_config *model;
  const tri_shard *shard;
  const tri_checkpoint *ckpt; /* NULL: made up */
  tri_dtype dtype;            /* of matrices; TRI_DTYPE_COUNT: as stored */
  tri_quantization quantization;
  uint64_t seed;          /* of what is made up */
  const tri_tiers *tiers; /* NULL: everything stays in memory */
  const tri_reader_config
      *io; /* NULL: the default reader; else its piece_bytes, num_buffers, kind and buffered count */
} tri_weights_config;

/* Fills what stays in memory; the ring of what does not is allocated. Every tensor of the checkpoint must be known,
 * present, of the right shape, and finite (TRI_CORRUPT); of what is streamed, see finite_weights.h. Waits until all of
 * it has arrived. *out is set on TRI_OK alone; what config points to is not needed after that, but for the backends. */
tri_status tri_weights_make(const tri_weights_config *config, tri_weights **out, tri_error *err);
/* tri_weights_make of a checkpoint's weights that all stay. */
tri_status tri_weights_load(tri_backend *be, const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                            tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err);
/* The same with a reader that is not the default one: io's piece_bytes, num_buffers, kind and buffered count. */
tri_status tri_weights_load_with(tri_backend *be, const tri_model_config *c, const tri_shard *s,
                                 const tri_checkpoint *ckpt, tri_dtype dtype, tri_quantization quantization,
                                 const tri_reader_config *io, tri_weights **out, tri_error *err);
/* Seeded random weights, made where the backend keeps them: each element is a function of (seed, weight, layer, row,
 * column) of the whole model, so that every layout makes the same model. */
tri_status tri_weights_dummy(tri_backend *be, const tri_model_config *c, const tri_shard *s, uint64_t seed,
                             tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err);
void tri_weights_destroy(tri_weights *w); /* NULL is fine */

/* Files of encoder-decoders whose config says that the head is the embedding may have a head all the same: the
 * reference then takes what is stored, and so does the config from here on. */
void tri_weights_find_head(tri_model_config *c, const tri_checkpoint *ckpt);
/* Refuses a checkpoint that tri_weights_make would refuse on some rank for the names, types and shapes of its tensors,
 * in the same words. No data is read. */
tri_status tri_weights_check(const tri_model_config *c, const tri_checkpoint *ckpt, tri_error *err);

/* The checkpoint's tensor for a rule and a layer, with or without the family's prefix; NULL when absent. */
const tri_st_tensor *tri_rule_find(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                                   int layer, int expert);

/* Calls fn for every tensor of the model that this shard reads and that stays in memory, or is of the given part: the
 * rule (its weight is the destination, so a tied head appears as the embedding's rule with weight HEAD), the layer, and
 * where the weight lies. */
typedef struct tri_weight_target {
  tri_tensor_rule rule;
  int layer, expert;
  int slot; /* of an expert: counted from the shard's first */
  tri_weight_place place;
  int64_t k; /* columns of the destination */
} tri_weight_target;
tri_status tri_weights_each(const tri_model_config *c, const tri_shard *s, const tri_weight_map *m, int part,
                            tri_status (*fn)(void *ctx, const tri_weight_target *t), void *ctx);

/* Memory for a map, with the views set and the contents zero, but for tables of sinusoids, which are no checkpoint's.
 */
tri_status tri_weights_alloc(const tri_weights_config *config, const tri_weight_map *m, tri_weights **out,
                             tri_error *err);

#endif
