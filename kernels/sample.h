/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing tokens from logits: what a sequence asks for, and the arguments of the three ops that sample. */
#ifndef TRI_KERNELS_SAMPLE_H
#define TRI_KERNELS_SAMPLE_H

#include "kernels/tensor.h"
#include "base/options/sampling_numbers.h"

typedef struct tri_logit_bias {
  uint32_t id;
  float bias;
} tri_logit_bias;

/* The parameters of one sequence's sampling. Order of application: mask, logit bias and banned ids, repetition /
 * presence / frequency penalties, temperature, then min_p, top_k, top_p on the tempered distribution; one sample from a
 * counter-based generator keyed by (seed, counter). temperature 0, or a largest logit that is infinite: arg-max of the
 * penalised logits, lowest id on a tie. A logit that is not a number counts as infinity. Such
 * samples are reported by `broken`. */
#define TRI_SAMPLE_MEMBER_(context, type, name, option, least, most, def, absent, sampler, help)                       \
  TRI_SAMPLE_##sampler(name)
#define TRI_SAMPLE_NONE(name)
#define TRI_SAMPLE_FLOAT(name) float name;
#define TRI_SAMPLE_INT(name) int name;
typedef struct tri_sample_params {
  TRI_SAMPLING_NUMBERS(TRI_SAMPLE_MEMBER_, ) /* temperature and what else the list calls the sampler's; top_k 0: all */
  uint64_t seed;
  int num_logprobs; /* -1: none; k >= 0: the sampled token's and the k best (raw log-softmax, before any change) */
  const tri_logit_bias *logit_bias;
  int num_logit_bias;
  const uint32_t *banned; /* ids that may not come now (end-of-sequence before min_tokens) */
  int num_banned;
  const uint32_t *mask; /* NULL: all ids may come; else [tri_mask_words(vocab)], id % 32 of word id / 32 is set where
                           the id may. It may be another one for each sample */
} tri_sample_params;

/* Returns the words of a mask over so many ids. Bits after the last id mean nothing. */
static inline size_t tri_mask_words(size_t vocab) { return (vocab + 31) / 32; }
static inline bool tri_mask_has(const uint32_t *mask, uint32_t id) { return mask[id / 32] >> id % 32 & 1; }

#define TRI_SAMPLE_DEFAULT_(p, type, name, option, least, most, def, absent, sampler, help)                            \
  TRI_SAMPLE_SET_##sampler(p, name, def)
#define TRI_SAMPLE_SET_NONE(p, name, def)
#define TRI_SAMPLE_SET_FLOAT(p, name, def) (p).name = (def);
#define TRI_SAMPLE_SET_INT(p, name, def) (p).name = (def);

/* Parameters that take the most probable token and change nothing. */
static inline tri_sample_params tri_sample_greedy(void) {
  tri_sample_params p = {.num_logprobs = -1};
  TRI_SAMPLING_NUMBERS(TRI_SAMPLE_DEFAULT_, p)
  p.temperature = 0;
  return p;
}

#define TRI_MAX_LOGPROBS 20
#define TRI_SAMPLE_NO_TARGET UINT32_MAX

typedef struct tri_sample_result {
  uint32_t token;
  float logprob;
  bool broken; /* some logit of an id that may come, or with logprobs of any, is NaN or infinity; or the row, or a part
                  of a cut one, has none above minus infinity although no ids are forbidden */
  int num_top;
  uint32_t top_ids[TRI_MAX_LOGPROBS];
  float top_logprobs[TRI_MAX_LOGPROBS];
} tri_sample_result;

/* One sample per row of logits. history[r] (host): the row's prompt and generated ids, for the penalties: repetition
 * counts prompt and output, presence and frequency only the output (ids from num_prompt[r] on). A backend that samples
 * ahead of the host cannot know histories to their end: it has counts, where a sequence's history is counted with its
 * first sample (fresh), and each sample counts itself. What plan may look at here beyond shapes: params, which say how
 * much room the launch needs, and whether there are counts. */
typedef struct tri_sample_args {
  tri_mat logits;                         /* [R, vocab]; may be overwritten */
  const tri_sample_params *const *params; /* [R] host */
  const uint32_t *const *history;         /* [R] host */
  const int *num_prompt, *num_history;    /* [R] host */
  const uint64_t *counter;                /* [R] host: number of the sample within the sequence */
  const uint32_t *target;     /* [R] host, or NULL: a token that is given, not sampled, whose logprob is wanted; else
                                 TRI_SAMPLE_NO_TARGET. Such a row has logprobs, and no penalties */
  uint32_t *counts;           /* [sequences, vocab] of that backend, else NULL: how often an id was generated,
                                 and TRI_COUNTED_PROMPT; of rows without penalties not used */
  const int *sequence;        /* [R] host: rows of counts; NULL without */
  const bool *fresh;          /* [R] host: the row of counts holds nothing yet; NULL without */
  tri_sample_result *results; /* [R] host; there after stream_sync, or an event after the launch */
  uint32_t *sampled;          /* [R] or NULL: the tokens once more, where the next step's embed reads them */
} tri_sample_args;
#define TRI_COUNTED_PROMPT (1u << 31) /* the id is in the prompt */
#define TRI_READS_sample(a) (a)->logits.data
#define TRI_WRITES_sample(a) (a)->logits.data

/* Sampling from a vocabulary that is cut over the ranks of a tensor group, as the head's GEMM leaves it, without
 * bringing a whole row together. What top_k leaves of a row is among the top_k first of each of its parts, so that a
 * few candidates of each part, those of all ranks gathered, are all that a sample below a small top_k can meet, and the
 * first of each part all that a greedy one can. Every rank then samples by itself what the others sample: the results
 * are those of `sample` on the whole rows, to the bit (the reference's, where a backend's own sums depend on their
 * order).
 */
typedef struct tri_sample_candidate {
  float logit;
  uint32_t id; /* of the whole vocabulary; TRI_NO_CANDIDATE: nothing is here */
} tri_sample_candidate;
#define TRI_NO_CANDIDATE UINT32_MAX
#define TRI_BROKEN_CANDIDATE (UINT32_MAX - 1)                  /* nothing either: the part's logits are no numbers */
enum { TRI_SAMPLE_CANDIDATES = 64, TRI_SAMPLE_MERGED = 2048 }; /* the most of a row in a part, and in all parts */

static inline uint32_t tri_sample_target(const tri_sample_args *a, int row) {
  return a->target ? a->target[row] : TRI_SAMPLE_NO_TARGET;
}

static inline bool tri_sample_has_penalties(const tri_sample_params *p) {
  return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

/* How many candidates of each part such a row is sampled from. 0: it needs all of its logits, or its whole history: an
 * uncut distribution, top_p or min_p alone, logprobs and penalties. */
static inline int tri_sample_num_candidates(const tri_sample_params *p) {
  if (p->num_logprobs >= 0 || tri_sample_has_penalties(p)) return 0;
  if (p->temperature <= 0) return 1;
  return p->top_k > 0 && p->top_k <= TRI_SAMPLE_CANDIDATES ? p->top_k : 0;
}

/* The first tri_sample_num_candidates of each row of a part, in the order of larger logits and then of lower ids, after
 * bias and bans. They come in any order, and nothing after them up to `width`, which is at least as many as any of the
 * rows has and at most TRI_SAMPLE_CANDIDATES. A logit of minus infinity need not be there. */
typedef struct tri_sample_part_args {
  tri_sample_args rows; /* logits: [R, ids of the part]; may be overwritten. History, results and sampled: not used */
  uint32_t first_id;    /* of the part */
  int width;
  tri_sample_candidate *candidates; /* [R, width] */
} tri_sample_part_args;
#define TRI_READS_sample_part(a) (a)->rows.logits.data
#define TRI_WRITES_sample_part(a) (a)->rows.logits.data, (a)->candidates

/* The samples from the candidates of all parts. What sample_part was told of the rows may be with the backend still,
 * and so this follows on the sample_part of one of the parts, with the same rows. */
typedef struct tri_sample_merge_args {
  tri_sample_args rows; /* logits: cols is the whole vocabulary's, data is not used. History: not used. results: NULL
                           where `drawn` is enough */
  int num_parts, width; /* num_parts * width is TRI_SAMPLE_MERGED at most */
  const tri_sample_candidate *candidates; /* [num_parts, R, width] */
} tri_sample_merge_args;
#define TRI_READS_sample_merge(a) (a)->candidates
#define TRI_WRITES_sample_merge(a) NULL

#endif
