/* SPDX-License-Identifier: Apache-2.0 */
/* Slots and the batch: a rank's memory of its sequences, and the flattened tokens of one step made from a plan.
 *
 * A slot's state follows from the plans that the rank has been given, in their order, and from what was sampled. So
 * all ranks' slots agree without a message about them. Everything is allocated at create; building a batch allocates
 * nothing, and the batch's arrays have fixed addresses, as recorded steps need them. */
#ifndef TRI_RUNTIME_STEP_BATCH_H
#define TRI_RUNTIME_STEP_BATCH_H

#include "kernels/backend.h"
#include "runtime/step/step_plan.h"

/* Equal on all ranks of a replica, and fixed from the start. */
typedef struct tri_limits {
  int max_num_seqs;           /* slots */
  int max_num_batched_tokens; /* tokens of one step */
  int max_model_len;          /* tokens of one sequence */
  int block_size, num_blocks;
  int num_host_blocks; /* in the host's memory, for sequences that wait with what they have computed */
  int vocab_size;
  bool embeds;          /* encoders: nothing is sampled, and a sequence ends with its last token's row */
  bool whole_sequences; /* of them, those whose sequences' tokens must come in one step */
  int num_types;        /* of tokens, where the model tells them apart */
  bool has_source;      /* encoder-decoders: a slot has a source of up to max_model_len tokens, computed in one step */
  int max_num_logits;   /* rows of logits in one step; 0: max_num_seqs */
  int all2all_rows;     /* of a data-parallel rank in one exchange of several data-parallel ranks; 0: 1024 */
  bool prefix_caching;  /* KV blocks are found again by their tokens: sequences may begin after some */
  int chunk_tokens;     /* of a step that go through a part of a layer at a time; 0: all */
} tri_limits;

/* Chunks of a step, at most. */
enum { TRI_MAX_CHUNKS = 16 };

/* Returns the tokens of a chunk, and the chunks of a step of so many. */
static inline int tri_limits_chunk(const tri_limits *l) {
  int all = l->max_num_batched_tokens, least = (all + TRI_MAX_CHUNKS - 1) / TRI_MAX_CHUNKS;
  if (!l->chunk_tokens || l->chunk_tokens >= all) return all;
  return l->chunk_tokens > least ? l->chunk_tokens : least;
}
static inline int tri_limits_num_chunks(const tri_limits *l, int tokens) {
  int chunk = tri_limits_chunk(l);
  return (tokens + chunk - 1) / chunk;
}

/* Rows of logits of one step at most. */
static inline int tri_limits_logits(const tri_limits *l) {
  return l->max_num_logits ? l->max_num_logits : l->max_num_seqs;
}

/* Entries that the sequences of one step can need at most: a source, a fork and tokens for each. */
static inline size_t tri_plan_entries(int max_num_seqs) { return 3 * (size_t)max_num_seqs; }
/* Returns how many ids of tokens that blocks hold a step's plan has room for: any one sequence finds room to be
 * resumed, and of those that begin after what others have computed a few long ones or many short ones. */
static inline size_t tri_limits_resumed_ids(const tri_limits *l) {
  enum { MANY = 1 << 16 };
  size_t one = (size_t)l->max_model_len, all = one * (size_t)l->max_num_seqs;
  if (!l->prefix_caching) return l->num_host_blocks ? one : 0;
  return all < one + MANY ? all : one + MANY;
}

/* Returns the masks that one step's plan has room for: one for each sample, as constrained answers need. */
static inline size_t tri_limits_masks(const tri_limits *l) { return l->whole_sequences ? 0 : (size_t)l->max_num_seqs; }

/* Returns what one step's plan can need at most: every leader and follower sizes its buffers with it. */
static inline tri_plan_sizes tri_limits_plan_sizes(const tri_limits *l) {
  size_t tokens = (size_t)l->max_num_batched_tokens, seqs = (size_t)l->max_num_seqs;
  size_t resumed = tri_limits_resumed_ids(l), blocks = resumed ? resumed / (size_t)l->block_size + seqs : 0;
  size_t swaps = (size_t)(l->num_host_blocks < l->num_blocks ? l->num_host_blocks : l->num_blocks);
  return (tri_plan_sizes){.seqs = tri_plan_entries(l->max_num_seqs),
                          .ids = tokens + resumed + seqs, /* and those after chunks that are scored */
                          .blocks = tokens / (size_t)l->block_size + 5 * seqs + blocks + swaps, /* that come in */
                          .swaps = swaps,
                          .masks = tri_limits_masks(l),
                          .mask_words = tri_mask_words((size_t)l->vocab_size)};
}

typedef struct tri_slot {
  int length;      /* tokens whose K and V are in the cache */
  int num_prompt;  /* of history, for the penalties */
  int num_history; /* ids known: length, plus the sampled token not fed yet; on ranks that do not sample it may be less
                    */
  uint32_t *history;      /* [max_model_len + 1] */
  uint64_t life;          /* how many sequences the slot has had */
  int sampled;            /* the slot's sample that is not there yet, by its number in its step; -1: none */
  uint64_t sampled_in;    /* number of that step's batch */
  int32_t *blocks;        /* [blocks_per_seq] */
  int source_len;         /* tokens of the source, whose keys for cross-attention are in the cache */
  int32_t *source_blocks; /* [blocks_per_seq] */
  tri_sample_params params;
  tri_logit_bias bias[TRI_MAX_LOGIT_BIAS];
  uint32_t banned[TRI_MAX_BANNED];
  uint32_t *mask; /* [tri_mask_words(vocab_size)], of the params that have one; NULL where nothing is sampled */
} tri_slot;

typedef struct tri_slots {
  tri_limits limits;
  int blocks_per_seq;
  tri_slot *slots;
  uint32_t *history, *masks;
  int32_t *blocks, *source_blocks;
} tri_slots;

/* All memory that steps need is taken here: max_num_seqs slots, each with a history of max_model_len ids and its block
 * table. */
tri_status tri_slots_create(const tri_limits *limits, tri_slots **out);
void tri_slots_destroy(tri_slots *s); /* NULL is fine */

/* A sample that the plan asks for, or a token of a prompt whose logprob it wants: max_num_seqs in one step at most. */
typedef struct tri_sample_row {
  uint32_t slot;
  uint64_t counter;
  bool ban;
  uint64_t life;   /* the slot's */
  int position;    /* of the token in the sequence */
  uint32_t target; /* the token that is given; TRI_SAMPLE_NO_TARGET: it is sampled */
} tri_sample_row;

/* Remembers what a sampler that counts ids (tri_sample_args.counts) has seen of a slot. */
typedef struct tri_counted {
  uint64_t life; /* of the slot's sequence, plus one; 0: none's */
  int length;    /* its tokens up to the last sample's */
} tri_counted;

/* Returns whether a sample is the first one of what it counts, so that all tokens before have to be counted; else those
 * are, the last sample's among them. Notes that it counts what is sampled. */
static inline bool tri_counts_anew(tri_counted *c, const tri_sample_row *d) {
  bool goes_on = c->life == d->life + 1 && c->length == d->position;
  *c = (tri_counted){.life = d->life + 1, .length = d->position + 1};
  return !goes_on;
}

/* The arrays of a batch, of fixed capacity at fixed addresses: X(type, name, how many). */
/* tokens, seqs, blocks: of the limits, the last one of a sequence of full length. chunk_start and chunk_context are
 * tri_batch_cut's. */
#define TRI_BATCH_ARRAY_LIST(X)                                                                                        \
  X(uint32_t, token_ids, tokens)                                                                                       \
  X(int32_t, positions, tokens)                                                                                        \
  X(int32_t, types, tokens)                                                                                            \
  X(int32_t, rope_len, tokens)                                                                                         \
  X(int64_t, kv_slot, tokens)                                                                                          \
  X(int32_t, logit_rows, tokens)                                                                                       \
  X(int32_t, seq_start, seqs + 1)                                                                                      \
  X(int32_t, context_len, seqs)                                                                                        \
  X(int32_t, block_start, seqs + 1)                                                                                    \
  X(int32_t, block_table, seqs *blocks)                                                                                \
  X(int32_t, chunk_start, seqs + 2 * TRI_MAX_CHUNKS)                                                                   \
  X(int32_t, chunk_context, seqs + 2 * TRI_MAX_CHUNKS)

typedef struct tri_batch_arrays {
#define X(type, name, count) type *name;
  TRI_BATCH_ARRAY_LIST(X)
#undef X
} tri_batch_arrays;

typedef struct tri_batch_builder {
  tri_batch batch; /* views into the arrays below */
  /* An encoder-decoder's. source: the tokens that its encoder gets, whose blocks are the sources'. cross: the batch's
   * queries, as attention to the blocks of the sources sees them. */
  tri_batch source, cross;
  tri_batch_arrays rows, source_rows, cross_rows;
  tri_sample_row *samples;
  int *sample_rows; /* index into the batch's logits of each sample */
  int num_samples;
  uint64_t number; /* of batches built */
  /* the plan's, [][2]; swaps: the cache's block, the host's */
  const int32_t *copies, *swaps_out, *swaps_in;
  int num_copies, num_swaps_out, num_swaps_in;
  const uint32_t *dp_rank_tokens; /* the plan's, [num_dp_ranks] */
  int num_dp_ranks, longest;      /* of the plan's header */
} tri_batch_builder;

/* Likewise, for the largest step that the limits allow; the batch's arrays are the builder's, rewritten by each step.
 */
tri_status tri_batch_builder_create(const tri_limits *limits, tri_batch_builder **out);
void tri_batch_builder_destroy(tri_batch_builder *b); /* NULL is fine */

/* Applies a plan to the slots and fills the batch. A plan that does not fit the slots is TRI_CORRUPT: the ranks have
 * lost step with one another. The plan's bytes must stay until the step is launched: copies, swaps and dp_rank_tokens
 * point into them. After an error slots are changed in part, and the rank must not run on. */
tri_status tri_batch_build(tri_batch_builder *b, tri_slots *slots, const tri_plan_view *plan);

/* Returns how many rows a step of n single tokens is padded to: recorded steps come in few shapes, and rows without
 * a use cost what others do. Powers of two up to 16, then an eighth of the last power of two apart, or 8. */
static inline int tri_batch_rows(int n) {
  int power = 1, step;
  while (power < n) power *= 2;
  if (power <= 16) return power;
  step = power / 16 > 8 ? power / 16 : 8;
  return (n + step - 1) / step * step;
}

/* The same within the limits. */
int tri_batch_padded_rows(const tri_limits *limits, int n);

/* The batch of a step in which every sequence has one token and its logits are wanted, with sequences that do not exist
 * after the others up to so many rows, so that few shapes come: they attend to one key and write none. In the
 * builder's own arrays, within the limits. */
void tri_batch_pad(const tri_batch_builder *b, int rows, tri_batch *out);
/* The batch of any other step, with as many logits as a step of so many single tokens is padded to, so that the last
 * layer and the head come in few shapes: those after the wanted ones are the last one's again. The batch as it is where
 * it has no more tokens than that. In the builder's own arrays. */
void tri_batch_pad_logits(const tri_batch_builder *b, const tri_limits *limits, tri_batch *out);

/* A batch that takes as much room as any: of sequences that do not exist, with block tables of full length. */
void tri_batch_largest(const tri_batch_builder *b, const tri_limits *limits, tri_batch *out);

/* The batch of a data-parallel rank that has nothing to do in a step of its replica: one row of a sequence that does
 * not exist, whose logits are not wanted. */
void tri_batch_idle(const tri_batch_builder *b, tri_batch *out);

/* Cuts a batch of the builder's, in its own arrays, into chunks of so many rows: each is a batch of its own, in which a
 * sequence that is cut sees the keys up to its last token there. No logits are wanted of them. Returns how many there
 * are, TRI_MAX_CHUNKS at most. */
int tri_batch_cut(const tri_batch_builder *b, const tri_batch *from, int rows, tri_batch *out);

/* Adds what a sample gave, if that was sampled, to its slot's history, if that still has the sequence. A step may be
 * built before the samples of the one before it are there: its ids for TRI_SEQ_FLAG_TOKEN_IN_SLOT then are
 * TRI_SAMPLED_ID plus the sample's number. */
void tri_slot_learn(tri_slots *slots, const tri_sample_row *sample, uint32_t token);

#endif
