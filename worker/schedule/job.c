/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a job: everything that its choices can ever need, taken at once, so that the step path allocates
 * nothing. Only the hypotheses of a beam search have memory of their own. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "comm/wire/job_limits.h"
#include "base/wait.h"
#include "worker/schedule/scheduler_impl.h"

#define COPY(context, type, name, option, least, most, def, absent, sampler, help) COPY_##sampler(name)
#define COPY_NONE(name)
#define COPY_FLOAT(name) p.name = (float)s->name;
#define COPY_INT(name) p.name = (int)s->name;

static tri_sample_params params_of(const tri_sampling *s, uint64_t seed) {
  int64_t most = s->logprobs > s->prompt_logprobs ? s->logprobs : s->prompt_logprobs;
  tri_sample_params p = {.seed = seed, .num_logprobs = (int)most};
  TRI_SAMPLING_NUMBERS(COPY, )
  if (p.temperature < FLT_MIN) p.temperature = 0; /* what is divided by it is too large for a float */
  return p;
}

_Static_assert((int)TRI_WIRE_MAX_LOGIT_BIAS + TRI_MAX_STOP_IDS <= (int)TRI_MAX_LOGIT_BIAS,
               "a request's biases and the model's bad tokens fit into a slot");

tri_job_model tri_job_model_of(const tri_model_config *c) {
  tri_job_model m = {.eos = c->eos_token_ids,
                     .num_eos = c->num_eos_token_ids,
                     .bad = c->bad_token_ids,
                     .num_bad = c->num_bad_token_ids};
  if (!c->seq2seq.on) return m;
  m.start[m.num_start++] = (uint32_t)c->seq2seq.decoder_start_token_id;
  if (c->seq2seq.forced_bos_token_id >= 0) m.start[m.num_start++] = (uint32_t)c->seq2seq.forced_bos_token_id;
  return m;
}

static tri_status check_request(const tri_replica_assign *a, const tri_limits *l, const tri_job_model *m,
                                tri_error *err) {
  tri_job_limits limits = {.use = TRI_PROMPT_CONTINUED,
                           .max_model_len = (uint64_t)l->max_model_len,
                           .max_num_seqs = (uint64_t)l->max_num_seqs,
                           .vocab_size = (uint64_t)l->vocab_size,
                           .kv_tokens = (uint64_t)l->num_blocks * (uint64_t)l->block_size,
                           .max_num_batched_tokens = (uint64_t)l->max_num_batched_tokens,
                           .num_start = (uint64_t)m->num_start,
                           .num_types = (uint64_t)l->num_types,
                           .eos = m->eos,
                           .num_eos = m->num_eos,
                           .bad = m->bad,
                           .num_bad = m->num_bad};
  tri_job_request r = {.token_ids = a->token_ids,
                       .num_token_ids = a->num_token_ids,
                       .second_start = a->second_start,
                       .sampling = &a->sampling};
  if (l->embeds) limits.use = TRI_PROMPT_WHOLE;
  if (l->has_source) limits.use = TRI_PROMPT_SOURCE;
  tri_status st = tri_job_check_fit(&limits, &r, err);
  return st == TRI_OK ? tri_job_check_tokens(&limits, &r, err) : st;
}

/* One block for all of it: the job, its sequences and biases, then the mask's words, the source, every sequence's
 * tokens and blocks, and the salt. What is not the job or a sequence is written before it is read. */
struct sizes {
  size_t seqs, searches, biases, mask, source, salt;
  int capacity, block_size;
};

static int blocks_for(const struct sizes *z, size_t tokens) {
  return (int)((tokens + (size_t)z->block_size - 1) / (size_t)z->block_size);
}

static tri_job *allocate(const struct sizes *z) {
  size_t total = sizeof(tri_job), bytes, n = z->seqs, tokens = (size_t)z->capacity;
  size_t blocks = (size_t)blocks_for(z, tokens), source_blocks = (size_t)blocks_for(z, z->source);
  const size_t parts[][2] = {{n, sizeof(tri_sequence)},
                             {z->searches, sizeof(tri_search)},
                             {z->biases, sizeof(tri_logit_bias)},
                             {z->mask, sizeof(uint32_t)},
                             {z->source, sizeof(uint32_t)},
                             {n, tokens * sizeof(uint32_t)},
                             {n, (2 * blocks + source_blocks) * sizeof(int32_t)},
                             {z->salt, 1}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!tri_size_mul(parts[i][0], parts[i][1], &bytes) || !tri_size_add(total, bytes, &total)) return NULL;
  tri_job *j = tri_malloc(total, 1);
  if (!j) return NULL;
  memset(j, 0, sizeof *j + n * sizeof *j->seqs + z->searches * sizeof *j->search);
  j->seqs = (tri_sequence *)(j + 1);
  tri_search *search = (tri_search *)(j->seqs + n);
  if (z->searches) j->search = search;
  j->bias = (tri_logit_bias *)(search + z->searches);
  j->mask = (uint32_t *)(j->bias + z->biases);
  j->source = j->mask + z->mask;
  uint32_t *token = j->source + z->source;
  int32_t *block = (int32_t *)(token + n * tokens);
  for (size_t i = 0; i < n; i++) {
    j->seqs[i].tokens = token + i * tokens;
    j->seqs[i].blocks = block + i * (2 * blocks + source_blocks);
    j->seqs[i].host_blocks = j->seqs[i].blocks + blocks;
    j->seqs[i].source_blocks = source_blocks ? j->seqs[i].host_blocks + blocks : NULL;
  }
  j->salt = (char *)(block + n * (2 * blocks + source_blocks));
  j->capacity = z->capacity;
  return j;
}

static void add_stop(tri_job *j, uint32_t id) {
  for (int i = 0; i < j->num_stop_ids; i++)
    if (j->stop_ids[i] == id) return;
  if (j->num_stop_ids < TRI_MAX_BANNED) j->stop_ids[j->num_stop_ids++] = id;
}

static void set_mask(tri_job *j, const tri_sampling *s, size_t words) {
  if (!s->num_allowed_token_ids) return;
  memset(j->mask, 0, words * sizeof *j->mask);
  for (size_t i = 0; i < s->num_allowed_token_ids; i++)
    j->mask[s->allowed_token_ids[i] / 32] |= 1u << s->allowed_token_ids[i] % 32;
  j->params.mask = j->mask;
}

static void set_params(tri_job *j, const tri_sampling *s, const tri_job_model *m, uint64_t seed) {
  int n = 0;
  bool ends = !s->ignore_eos || s->constraint.kind != TRI_CONSTRAINT_NONE; /* by its mask, where one may come */
  for (int i = 0; i < m->num_eos && ends; i++) add_stop(j, m->eos[i]);
  for (int i = 0; i < s->num_stop_token_ids; i++) add_stop(j, s->stop_token_ids[i]);
  for (int i = 0; i < s->num_logit_bias; i++)
    j->bias[n++] = (tri_logit_bias){s->logit_bias[i].id, s->logit_bias[i].bias};
  for (int i = 0; i < m->num_bad; i++) j->bias[n++] = (tri_logit_bias){m->bad[i], -INFINITY};
  j->params = params_of(s, seed);
  j->params.logit_bias = j->bias;
  j->params.num_logit_bias = n;
  j->params.banned = j->stop_ids;
  j->params.num_banned = j->num_stop_ids;
}

/* The first choice computes the prompt, or has the source computed; the others, and other beams, wait to be forked from
 * it. Those that continue after tokens of their own compute it each by itself. */
static void set_sequences(tri_job *j, const uint32_t *prompt, bool resumed) {
  bool forks = !resumed && (j->num_prompt > 1 || j->num_source || j->search);
  for (int i = 0; i < j->num_seqs; i++) {
    tri_sequence *q = &j->seqs[i];
    q->job = j;
    q->choice = (uint32_t)i;
    q->slot = q->micro_batch = -1;
    q->state = i && forks ? TRI_SCHED_HELD : TRI_SCHED_WAITING;
    q->num_tokens = j->num_prompt;
    memcpy(q->tokens, prompt, (size_t)j->num_prompt * sizeof *prompt);
  }
}

bool tri_job_stops_at(const tri_job *j, uint32_t token) {
  for (int i = 0; i < j->num_stop_ids; i++)
    if (j->stop_ids[i] == token) return true;
  return false;
}

uint64_t tri_job_id(const tri_job *j) { return j->id; }

static tri_status check_sampled(const tri_replica_assign *a, const tri_limits *l, tri_error *err) {
  if (!a->num_sampled_counts) return TRI_OK;
  if (a->sampling.num_beams > 1 || l->embeds)
    return tri_fail(err, TRI_UNSUPPORTED, "drawn", "a beam search, or an encoder's job, begins anew");
  for (size_t i = 0; i < a->num_sampled; i++)
    if (a->sampled[i] >= (uint32_t)l->vocab_size)
      return tri_fail(err, TRI_OUT_OF_RANGE, "drawn", "drawn[%zu] is %u, the vocabulary has %d tokens", i,
                      a->sampled[i], l->vocab_size);
  return TRI_OK;
}

/* Has the choices continue after what was sampled of them. One that this has ended, since this replica has other limits
 * or the one that sampled it could not say so any more, is not computed. */
static void resume(tri_job *j, const tri_replica_assign *a) {
  const uint32_t *sampled = a->sampled;
  for (size_t i = 0; i < a->num_sampled_counts; i++) {
    tri_sequence *q = &j->seqs[i];
    if (a->sampled_counts[i] == TRI_SAMPLED_ENDED) {
      q->state = TRI_SCHED_ENDED;
      j->num_open--;
      continue;
    }
    size_t n = a->sampled_counts[i], kept = n < (size_t)j->max_tokens ? n : (size_t)j->max_tokens;
    if (kept) memcpy(q->tokens + j->num_prompt, sampled, kept * sizeof *sampled);
    q->num_tokens += (int)kept;
    sampled += n;
    q->over =
        kept && !j->score_only && (kept == (size_t)j->max_tokens || tri_job_stops_at(j, q->tokens[q->num_tokens - 1]));
    if (!q->over) continue;
    q->state = TRI_SCHED_ENDED;
    j->num_over++;
  }
}

static tri_status begin_constraint(tri_job *j, const tri_sampling *s, const tri_limits *l, const tri_job_model *m,
                                   tri_error *err) {
  tri_constraint_job of = {.wire = &s->constraint,
                           .choices = j->num_choices,
                           .vocab_size = l->vocab_size,
                           .most_tokens = j->max_tokens,
                           .min_tokens = j->min_tokens,
                           .ignores_eos = s->ignore_eos,
                           .eos = m->eos,
                           .num_eos = m->num_eos,
                           .stops = s->stop_token_ids,
                           .num_stops = s->num_stop_token_ids,
                           .bad = m->bad,
                           .num_bad = m->num_bad};
  if (s->num_beams > 1 || l->embeds || j->score_only)
    return tri_fail(err, TRI_UNSUPPORTED, "constraint", "a beam search, or a job without an answer, has no constraint");
  if (!m->grammars)
    return tri_fail(err, TRI_UNSUPPORTED, "constraint", "answers cannot be constrained by this replica");
  tri_status st = tri_constraint_create(m->grammars, m->maker, &of, &j->constraint);
  if (st != TRI_OK) return tri_fail(err, st, "constraint", "no memory for a constraint of %d choices", j->num_choices);
  for (int i = 0; i < j->num_choices; i++) {
    const tri_sequence *q = &j->seqs[i];
    tri_constraint_begin(j->constraint, i, q->tokens + j->num_prompt, q->num_tokens - j->num_prompt);
  }
  tri_constraint_prepare(j->constraint);
  return TRI_OK;
}

tri_sequence *tri_job_first(const tri_job *j) {
  int i = 0;
  while (i + 1 < j->num_seqs && j->seqs[i].state == TRI_SCHED_ENDED) i++;
  return &j->seqs[i];
}

/* Blocks of a search whose beams share nothing but the prompt's full blocks and the source: enough in any case. */
static int64_t most_blocks(const tri_job *j, const tri_limits *l) {
  int64_t bs = l->block_size, shared = j->num_prompt / bs, all = (j->capacity - 1 + bs - 1) / bs;
  return (j->num_source + bs - 1) / bs + shared + j->num_seqs * (all - shared);
}

static tri_status begin_search(tri_job *j, const tri_sampling *s, const tri_limits *l, const tri_job_model *m,
                               tri_error *err) {
  int given = l->has_source ? j->num_prompt - 1 : 0; /* after the start token they count as the answer's */
  tri_beam_params p = {.num_beams = (int)s->num_beams,
                       .length_penalty = s->length_penalty,
                       .early_stopping = s->early_stopping,
                       .max_tokens = j->max_tokens + given,
                       .min_tokens = j->min_tokens ? j->min_tokens + given : 0,
                       .given = given,
                       .eos = j->stop_ids,
                       .num_eos = j->num_stop_ids,
                       .bad = m->bad,
                       .num_bad = m->num_bad};
  int alternatives = tri_beam_alternatives(&p);
  if (alternatives > TRI_MAX_LOGPROBS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_beams",
                    "%d beams, %d tokens that end an answer and %d that may not come need the %d best tokens of each "
                    "beam, the limit is %d",
                    p.num_beams, p.num_eos, p.num_bad, alternatives, TRI_MAX_LOGPROBS);
  if (most_blocks(j, l) > l->num_blocks)
    return tri_fail(err, TRI_NO_CAPACITY, "num_beams",
                    "%d beams of %d tokens can need %lld KV blocks, there are %d: ask for less max_tokens or num_beams",
                    p.num_beams, j->max_tokens, (long long)most_blocks(j, l), l->num_blocks);
  j->params.temperature = 0;
  j->params.num_logprobs = alternatives;
  tri_status st = tri_beams_create(&p, &j->search->beams);
  return st == TRI_OK ? st : tri_fail(err, st, "num_beams", "no memory for a search of %d beams", p.num_beams);
}

tri_status tri_job_create(const tri_replica_assign *a, const tri_limits *l, const tri_job_model *m, int64_t now_ns,
                          tri_job **out, tri_error *err) {
  const tri_sampling *s = &a->sampling;
  tri_status st = check_request(a, l, m, err);
  if (st == TRI_OK) st = check_sampled(a, l, err);
  if (st != TRI_OK) return st;
  const uint32_t *prompt = l->has_source ? m->start : a->token_ids;
  int num_prompt = l->has_source ? m->num_start : (int)a->num_token_ids, room = l->max_model_len - num_prompt;
  if (l->embeds) room = 0;
  bool score_only = s->max_tokens == 0 && s->prompt_logprobs >= 0;
  int max_tokens = (int)(s->max_tokens < 0 || s->max_tokens > room ? room : s->max_tokens + score_only);
  bool searches = s->num_beams > 1;
  struct sizes sizes = {.seqs = (size_t)(searches ? s->num_beams : s->n),
                        .searches = searches,
                        .biases = (size_t)(s->num_logit_bias + m->num_bad),
                        .mask = s->num_allowed_token_ids ? tri_mask_words((size_t)l->vocab_size) : 0,
                        .source = l->has_source ? a->num_token_ids : 0,
                        .salt = a->cache_salt.len,
                        .capacity = num_prompt + max_tokens,
                        .block_size = l->block_size};
  tri_job *j = allocate(&sizes);
  if (!j) return tri_fail(err, TRI_NO_MEMORY, "job", "no memory for a job of %lld choices", (long long)s->n);
  j->id = a->job;
  j->seed = a->seed;
  j->priority = s->priority;
  j->came_ns = now_ns;
  j->deadline_ns = a->remaining_ms < 0 ? TRI_NEVER : now_ns + a->remaining_ms * 1000000;
  j->num_prompt = num_prompt;
  j->num_source = (int)sizes.source;
  if (sizes.source) memcpy(j->source, a->token_ids, sizes.source * sizeof *j->source);
  j->salt_len = sizes.salt;
  if (sizes.salt) memcpy(j->salt, a->cache_salt.s, sizes.salt);
  j->second_start = (int)a->second_start;
  j->max_tokens = max_tokens;
  j->min_tokens = (int)s->min_tokens;
  j->ignore_eos = s->ignore_eos;
  j->num_logprobs = (int)s->logprobs;
  j->num_prompt_logprobs = (int)s->prompt_logprobs;
  j->score_only = score_only;
  j->num_scored = a->num_scored > 1 ? (int)a->num_scored : 1;
  j->num_choices = j->num_open = (int)s->n;
  j->num_seqs = (int)sizes.seqs;
  set_params(j, s, m, a->seed);
  set_mask(j, s, sizes.mask);
  set_sequences(j, prompt, a->num_sampled_counts > 0);
  resume(j, a);
  if (s->constraint.kind != TRI_CONSTRAINT_NONE) TRI_TRY(begin_constraint(j, s, l, m, err));
  if (searches) TRI_TRY(begin_search(j, s, l, m, err));
  *out = j;
  j = NULL;
cleanup:
  tri_job_destroy(j);
  return st;
}

void tri_job_destroy(tri_job *j) {
  if (j && j->search) tri_beams_destroy(j->search->beams);
  if (j) tri_constraint_destroy(j->constraint);
  tri_free(j);
}
