/* SPDX-License-Identifier: Apache-2.0 */
/* The step plan: what the leader tells every rank to do in one iteration (Orca's iteration-level scheduling), and the
 * result that the sampling rank returns.
 *
 * Both are flat bytes in host order (a replica runs one build), written and read through the cursors below. A plan
 * never assumes more of a rank than its slots: a sequence lives in a slot, the plan says how many tokens it gets, which
 * blocks, and the token ids only where the slot does not know them.
 *
 * A plan in bytes, each part without gaps after the one before:
 *
 *     tri_plan_header
 *     tri_plan_seq            [num_seqs]
 *     uint32 ids              [num_ids], entry after entry
 *     int32 blocks            [num_blocks], likewise
 *     int32 copies            [num_copies][2]: from, to
 *     int32 swaps_out         [num_swaps_out][2]: the cache's block, the host's
 *     int32 swaps_in          [num_swaps_in][2], likewise
 *     uint32 dp_rank_tokens   [num_dp_ranks]
 *     uint32 masks            [num_masks][mask_words]
 *     params                  of each entry with PARAMS: tri_plan_params, its logit biases, its banned ids */
#ifndef TRI_RUNTIME_STEP_STEP_PLAN_H
#define TRI_RUNTIME_STEP_STEP_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "runtime/model/expert_moves.h"

enum {
  TRI_PLAN_MAGIC = 0x54504c31,
  TRI_MAX_LOGIT_BIAS = 512 + 16, /* of a request, and tokens that a model must never say */
  TRI_MAX_BANNED = 64,
  TRI_MAX_DP_RANKS = 1024,
};

typedef enum tri_seq_kind {
  TRI_SEQ_CHUNK,  /* tokens of a prompt, ids in the plan */
  TRI_SEQ_DECODE, /* one token, that of the last sample */
  TRI_SEQ_SOURCE, /* all tokens of an encoder-decoder's source, ids in the plan; new_blocks are the source's */
  TRI_SEQ_FORK,   /* slot becomes a copy of fork_from: history, source and blocks (shared); no tokens */
  TRI_SEQ_RESUME, /* slot gets a sequence whose first num_tokens tokens the blocks hold: ids in the plan; no tokens */
} tri_seq_kind;

enum {
  TRI_SEQ_FLAG_FIRST = 1,      /* forget what the slot held */
  TRI_SEQ_FLAG_SAMPLE = 2,     /* sample after the last token */
  TRI_SEQ_FLAG_PARAMS = 4,     /* sampling parameters follow */
  TRI_SEQ_FLAG_ALL_LOGITS = 8, /* logits of every token, for observers */
  TRI_SEQ_FLAG_TOKEN_IN_SLOT =
      16,                  /* DECODE: the token is the slot's last sample, which the plan's writer may not know yet */
  TRI_SEQ_FLAG_BAN = 32,   /* the slot's banned ids may not come */
  TRI_SEQ_FLAG_SCORE = 64, /* CHUNK: logits of every token, and the logprob of the id that follows it. Without SAMPLE
                              the id after the chunk's last token is in the plan, too */
  TRI_SEQ_FLAG_MASK = 128, /* from now on the ids of a mask alone may come; it is in the plan, of a FORK that of
                              fork_from's slot. Parameters without it: all ids */
};

typedef struct tri_plan_seq {
  uint32_t slot;
  uint8_t kind, flags;
  uint16_t reserved;
  uint32_t num_tokens;
  uint32_t start;       /* position of the first token; must be the slot's length */
  uint32_t first_block; /* index in the slot's block table where new_blocks go (an index below its end replaces:
                          copy-on-write) */
  uint32_t num_blocks;
  uint32_t fork_from; /* FORK */
  uint32_t rope_len; /* least sequence length for length-dependent rotary scalings; a token counts as max(this, position
                        + 1) */
  uint32_t second_start; /* number of the first token of the second type, of a pair of texts, counted from 1; 0: all are
                            of the first */
  uint32_t unused;
  uint64_t counter; /* number of the sample within the sequence */
} tri_plan_seq;

typedef enum tri_plan_kind {
  TRI_PLAN_STEP,
  TRI_PLAN_STOP, /* leave the loop */
  /* For all ranks between two steps, with none under way; see runtime/engine/expert_transfer.h. */
  TRI_PLAN_COUNT_ROWS,
  TRI_PLAN_MOVE_EXPERT,
  TRI_PLAN_KINDS
} tri_plan_kind;

/* A micro-batch is a batch in flight: the sequences that run together, step after step. With pipeline stages
 * there is a micro-batch for each, so that every stage has work; a sequence stays in its micro-batch, and a
 * micro-batch's steps run in order. */
typedef struct tri_plan_header {
  uint32_t magic, micro_batch;
  uint64_t step;
  uint32_t num_seqs, num_tokens, num_ids, num_blocks, num_copies, num_params;
  uint32_t num_swaps_out, num_swaps_in;
  uint32_t num_masks, mask_words; /* words of one mask; 0 without masks */
  uint32_t params_bytes;
  uint32_t kind;         /* tri_plan_kind; all but steps are headers alone */
  uint32_t num_dp_ranks; /* of a replica with several, whose ranks exchange rows in this step; else 0 */
  uint32_t longest;      /* with data-parallel ranks: tri_plan_longest of all of them; 0 where one of them has it 0 */
  tri_expert_move move;  /* of MOVE_EXPERT */
} tri_plan_header;

/* Before a sequence's logit biases and banned ids. */
typedef struct tri_plan_params {
  tri_sample_params sample; /* its pointers NULL: they mean nothing to another rank */
  uint32_t num_prompt;      /* of the ids that chunks bring, those up to here are the prompt */
  uint32_t reserved;
} tri_plan_params;

/* Entries, ids and blocks of a plan; swaps: blocks that go out, and as many that come in; masks, of so many words. */
typedef struct tri_plan_sizes {
  size_t seqs, ids, blocks, swaps, masks, mask_words;
} tri_plan_sizes;

/* Writing. Capacities are fixed at create; the writer is reused for every step. */
typedef struct tri_plan_writer {
  tri_plan_header h;
  tri_plan_seq *seqs;
  uint32_t *ids;
  int32_t *blocks, *copies;      /* copies: [n][2] */
  int32_t *swaps_out, *swaps_in; /* [n][2]: the cache's block, the host's */
  uint32_t *masks;               /* [n][mask_words] */
  uint32_t dp_rank_tokens[TRI_MAX_DP_RANKS];
  char *params;
  size_t max_seqs, max_ids, max_blocks, max_copies, max_swaps, max_masks, mask_words, max_params;
  char *bytes; /* the finished plan */
  size_t cap;
} tri_plan_writer;

tri_status tri_plan_writer_create(const tri_plan_sizes *most, tri_plan_writer **out);
void tri_plan_writer_destroy(tri_plan_writer *w); /* NULL is fine */
void tri_plan_begin(tri_plan_writer *w, uint32_t micro_batch, uint64_t step);
/* Room for one more sequence with so many ids, blocks and copies. */
bool tri_plan_has_room(const tri_plan_writer *w, size_t ids, size_t blocks, size_t copies);
bool tri_plan_has_mask_room(const tri_plan_writer *w);
/* Bytes that parameters take in a plan. */
size_t tri_plan_params_bytes(const tri_sample_params *params);
/* Returns how many ids an entry has in the plan. */
uint32_t tri_plan_num_ids(const tri_plan_seq *seq);
/* Returns whether an entry has a mask in the plan. */
static inline bool tri_plan_brings_mask(const tri_plan_seq *s) {
  return s->flags & TRI_SEQ_FLAG_MASK && s->kind != TRI_SEQ_FORK;
}
/* ids: tri_plan_num_ids of them: the tokens' own, and the one after those that are scored.
 * params: NULL without TRI_SEQ_FLAG_PARAMS and TRI_SEQ_FLAG_MASK. The caller has asked tri_plan_has_room before:
 * nothing is checked here. What is given is copied. */
void tri_plan_add(tri_plan_writer *w, const tri_plan_seq *seq, const uint32_t *ids, const int32_t *blocks,
                  const tri_sample_params *params, uint32_t num_prompt);
void tri_plan_add_copy(tri_plan_writer *w, int32_t src, int32_t dst);
/* A block that goes to the host's memory before everything else that the step does, and one that comes from there
 * after the copies and before the tokens. Each is named once. */
void tri_plan_add_swap_out(tri_plan_writer *w, int32_t block, int32_t host_block);
void tri_plan_add_swap_in(tri_plan_writer *w, int32_t block, int32_t host_block);
/* Returns the keys of the longest context where each sequence has one token and its logits are wanted, 1 without
 * sequences, and 0 where a sequence has more, or others are wanted. */
uint32_t tri_plan_longest(const tri_plan_writer *w);
/* Sets how many tokens each data-parallel rank of the replica has in this step, and what tri_plan_longest returns of
 * each; a data-parallel rank may have none. */
void tri_plan_set_dp_ranks(tri_plan_writer *w, const uint32_t *tokens, const uint32_t *longest, uint32_t num_dp_ranks);
/* *bytes stays valid until the next begin. */
const void *tri_plan_finish(tri_plan_writer *w, size_t *bytes);

/* Reading: views into the plan's bytes. */
typedef struct tri_plan_view {
  tri_plan_header h;
  const tri_plan_seq *seqs;
  const uint32_t *ids;
  const int32_t *blocks, *copies, *swaps_out, *swaps_in;
  const uint32_t *dp_rank_tokens; /* [num_dp_ranks] */
  const uint32_t *masks;          /* [num_masks][mask_words] */
  const char *params;
} tri_plan_view;

/* Makes a view of a plan's bytes, which must outlive it: nothing is copied but the header. TRI_CORRUPT: the header's
 * counts do not add up to len, or exceed a limit. */
tri_status tri_plan_read(const void *bytes, size_t len, tri_plan_view *out);
size_t tri_plan_max_bytes(const tri_plan_writer *w);

/* One sampled token, or one of a prompt that is scored. */
typedef struct tri_step_token {
  uint32_t slot;
  uint32_t scored; /* position of the prompt's token in its sequence; 0: it was sampled */
  tri_sample_result sample;
} tri_step_token;

typedef struct tri_step_result {
  uint64_t step;
  uint32_t micro_batch, num_tokens;
  tri_step_token *tokens; /* [max_num_seqs], owned by the engine */
} tri_step_result;

/* Flat bytes of a result: tokens without logprobs take 20 bytes each. */
size_t tri_result_pack(const tri_step_result *r, void *buf, size_t cap);
tri_status tri_result_unpack(const void *buf, size_t len, tri_step_result *r, size_t max_tokens);
size_t tri_result_max_bytes(size_t max_tokens);

#endif
