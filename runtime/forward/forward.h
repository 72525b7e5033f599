/* SPDX-License-Identifier: Apache-2.0 */
/* The one forward pass: embed -> layers -> head over a flattened batch, on whatever backend and layout.
 *
 * It reads the model's flags and calls the backend's table; it never asks which backend, family or layout it has.
 *
 * One thread uses a forward pass: the rank's step thread. A step queues its work on the backend's compute stream and
 * returns; on a device nothing has been computed then. Steps run in the order in which they were queued. */
#ifndef TRI_RUNTIME_FORWARD_FORWARD_H
#define TRI_RUNTIME_FORWARD_FORWARD_H

#include "comm/all2all.h"
#include "offload/stream.h"
#include "runtime/step/batch.h"
#include "runtime/step/replica.h"
#include "runtime/forward/hot_experts.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/load/weights.h"

/* Counters that the health report reads from another thread: a rank that stands still shows where. */
typedef struct tri_progress {
  _Atomic uint64_t step;
  _Atomic uint32_t layer;   /* under way, or TRI_LAYER_IDLE */
  _Atomic uint32_t all2all; /* tri_all2all_part */
} tri_progress;
#define TRI_LAYER_IDLE UINT32_MAX

/* The results of an encoder's step, on the sampling rank: views into buffers, good until the next step. */
typedef struct tri_encoder_output {
  tri_mat hidden; /* [T, hidden] final states; data NULL: this rank has no results. Of an encoder that feeds a decoder
                     every tensor rank has them. */
  tri_mat pooled; /* [S, hidden]; data NULL: the model does not pool */
  tri_mat scores; /* a classifier's logits, [S, labels], of a token classifier [T, labels]; data NULL: none */
} tri_encoder_output;

/* Sees the residual stream before every layer and the logits, and weights that are streamed. NULL functions are
 * not called. All ranks of a tensor group look at the logits, or none, as these are brought together for it. */
typedef struct tri_observer {
  void *ctx;
  const bool *looks;                               /* false: calls nothing in this step; NULL: always looks */
  void (*hidden)(void *ctx, int layer, tri_mat x); /* layer = num_layers: after the final norm */
  void (*logits)(void *ctx, tri_mat logits);       /* on the sampling rank: whole vocabulary */
  void (*encoder_output)(void *ctx, const tri_encoder_output *e); /* on the sampling rank */
  void (*part)(void *ctx, int layer, int half); /* a streamed part of the shard's layer is in the ring until what the
                                                   compute stream has got so far is done */
} tri_observer;

/* The form of an exchange by the most rows that a data-parallel rank has in it: up to 4, 16, 64, 256, and more. */
enum { TRI_ALL2ALL_SIZES = 5 };
/* The form that was fastest for each size when it was measured (runtime/engine/all2all_choice.h). */
typedef struct tri_all2all_choice {
  tri_all2all_form by_size[TRI_ALL2ALL_SIZES];
} tri_all2all_choice;
static inline int tri_all2all_size(int rows) {
  int size = 0;
  for (int most = 4; size < TRI_ALL2ALL_SIZES - 1 && rows > most; most *= 4) size++;
  return size;
}

typedef struct tri_forward tri_forward;

typedef struct tri_forward_config {
  const tri_model_config *model;
  tri_shard shard;
  tri_limits limits;
  int num_micro_batches;
  tri_backend *backend;
  tri_weights *weights;
  const tri_tiers *tiers;    /* NULL: all weights stay */
  bool replica_streams;      /* some rank of the replica has weights that do not */
  tri_weight_stream *stream; /* of those that do not */
  tri_backend *host;         /* which computes the experts on the host; NULL: there are none */
  int hot_window;            /* see tri_hot_experts_config */
  size_t hot_step_bytes;
  tri_kv_cache *kv;
  tri_replica *replica;
  tri_comm *tensor, *stages; /* for activations: of the tensor group, and of all ranks */
  tri_all2all *all2all;      /* of several data-parallel ranks, else NULL */
  tri_all2all_choice all2all_choice;
  const uint32_t *sampled; /* [max_num_seqs] what the step before sampled, in the backend's memory; may be NULL */
  bool int8_activations;   /* of every linear layer and expert whose weights are int8 */
  bool alike;              /* the tensor group's devices are of one kind, and so cut attention alike */
  tri_progress *progress;
  tri_observer observer;
} tri_forward_config;

/* Allocates everything: activations for the largest step, tables, plans. What config points to outlives the forward
 * pass. *out is set on TRI_OK alone; TRI_NO_MEMORY names the option that asks for less. */
tri_status tri_forward_create(const tri_forward_config *config, tri_forward **out, tri_error *err);
void tri_forward_destroy(tri_forward *f); /* NULL is fine */

/* Shows the following steps to another observer, one that asks for no more logits than steps have anyway; NULL: to
 * none. */
void tri_forward_observe(tri_forward *f, const tri_observer *o);

/* Launches this rank's share of one step; an encoder that feeds a decoder takes the builder's sources. On the ranks of
 * the last stage *logits is [num_logits, ids of this rank's part of the vocabulary] afterwards; elsewhere its data is
 * NULL, as for an encoder, whose results are in *encoder_output. Allocates nothing.
 *
 * With pipeline stages it receives the micro-batch's stream from the stage before and begins to send it to the next
 * one; transfers of host memory are waited for here. TRI_CORRUPT: plan, batch and ranks do not agree, and the rank
 * must not run on; a device's failure shows later (kernels/backend.h). */
tri_status tri_forward_run(tri_forward *f, const tri_batch_builder *b, int micro_batch, tri_mat *logits,
                           tri_encoder_output *encoder_output);

/* Makes the backend's room for the largest batch now: where it grew later, what is recorded would be dropped, and by
 * the ranks of one data-parallel rank alone perhaps. */
tri_status tri_forward_reserve_batch(tri_forward *f, const tri_batch_builder *b);

/* logits.c: what becomes of those. Each is for all ranks of the last stage, which ask for the same. */
/* Brings the parts together: on the sampling rank *logits is [num_logits, vocab_size] afterwards, elsewhere its data is
 * NULL. */
tri_status tri_forward_gather(tri_forward *f, tri_mat *logits);
/* How many candidates of each part are enough to sample from rows that ask for this, see tri_sample_part_args; 0: the
 * parts are to be brought together. */
int tri_forward_num_candidates(const tri_forward *f, const tri_sample_params *const *params, int rows);
/* Draws from so many candidates of each rank. a->logits: this rank's part. On ranks whose results and sampled are NULL,
 * for the others alone. */
tri_status tri_forward_sample(tri_forward *f, const tri_sample_args *a, int num_candidates);

/* The builder's moves and copies of blocks: out, inside of the cache, in. tri_forward_run makes them itself where the
 * step has no sources: those are to be computed after it. */
void tri_forward_copy_blocks(tri_forward *f, const tri_batch_builder *b);
/* Turns the states that the encoder of an encoder-decoder has just made of the step's sources into keys and values for
 * the cross-attention of every layer. Before the step that has the sequences' first tokens. */
tri_status tri_forward_fill_cross(tri_forward *f, const tri_forward *encoder, tri_mat states);
/* Copies the tallies of this rank's experts to host memory, since the start or since the layer's last placement:
 * [layers, experts of the shard]; of those that lie on the device, too, wherever they were computed. Waits for the
 * steps that have begun. TRI_UNSUPPORTED of a model without experts. */
tri_status tri_forward_tally(const tri_forward *f, tri_expert_tally *out);
/* Returns those of the host's experts that lie on the device, too; NULL: none do. */
tri_hot_experts *tri_forward_hot_experts(const tri_forward *f);
/* Routes a layer of this shard as the placement says now, from the next step on, and begins its tally anew. Of
 * placements whose experts move alone. */
void tri_forward_place(tri_forward *f, int layer);

#endif
