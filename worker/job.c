/* A job's memory: everything that its choices can ever need, taken at once, so that the step path allocates nothing. */
#include <math.h>
#include <string.h>

#include "runtime/base/wait.h"
#include "worker/scheduler.h"

static tri_sample_params params_of(const tri_sampling *s, uint64_t seed) {
  return (tri_sample_params){
      .temperature = (float)s->temperature,
      .top_p = (float)s->top_p,
      .min_p = (float)s->min_p,
      .top_k = s->top_k > 0 ? (int)s->top_k : 0,
      .repetition_penalty = (float)s->repetition_penalty,
      .presence_penalty = (float)s->presence_penalty,
      .frequency_penalty = (float)s->frequency_penalty,
      .seed = seed,
      .num_logprobs = (int)s->logprobs,
  };
}

static tri_status check_fit(const tri_group_assign *a, const tri_limits *l, tri_error *err) {
  if (!a->num_token_ids) return tri_fail(err, TRI_INVALID_ARGUMENT, "prompt", "the prompt has no tokens");
  if (l->whole_sequences && a->num_token_ids > (size_t)l->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "text", "the text has %zu tokens, the limit is max_model_len %d",
                    a->num_token_ids, l->max_model_len);
  if (l->whole_sequences && a->sampling.n != 1)
    return tri_fail(err, TRI_UNSUPPORTED, "n", "an encoder has one result, not %lld", (long long)a->sampling.n);
  if (a->second_start && (l->num_types < 2 || a->second_start > a->num_token_ids))
    return tri_fail(err, TRI_OUT_OF_RANGE, "text_pair", "a second text from token %llu on, of %zu; %d types of tokens",
                    (unsigned long long)a->second_start, a->num_token_ids, l->num_types);
  if (!l->whole_sequences && a->num_token_ids >= (size_t)l->max_model_len)
    return tri_fail(err, TRI_NO_CAPACITY, "prompt",
                    "the prompt has %zu tokens, at most %d leave room for an answer (max_model_len %d)",
                    a->num_token_ids, l->max_model_len - 1, l->max_model_len);
  if (a->sampling.n > l->max_num_seqs)
    return tri_fail(err, TRI_NO_CAPACITY, "n", "n is %lld, the limit is max_num_seqs %d", (long long)a->sampling.n,
                    l->max_num_seqs);
  for (size_t i = 0; i < a->num_token_ids; i++)
    if (a->token_ids[i] >= (uint32_t)l->vocab_size)
      return tri_fail(err, TRI_OUT_OF_RANGE, "token_ids", "token_ids[%zu] is %u, the vocabulary has %d tokens", i,
                      a->token_ids[i], l->vocab_size);
  for (int i = 0; i < a->sampling.num_logit_bias; i++)
    if (a->sampling.logit_bias[i].id >= (uint32_t)l->vocab_size)
      return tri_fail(err, TRI_OUT_OF_RANGE, "logit_bias", "logit_bias names token %u, the vocabulary has %d tokens",
                      a->sampling.logit_bias[i].id, l->vocab_size);
  return TRI_OK;
}

/* One block for all of it: the job, its sequences and biases, then every sequence's tokens and pages. Tokens and pages
 * are written before they are read. */
static tri_job *allocate(const tri_sampling *s, int capacity, int block_size) {
  size_t n = (size_t)s->n, bias = (size_t)s->num_logit_bias, total = sizeof(tri_job), bytes;
  int pages = (capacity + block_size - 1) / block_size;
  const size_t parts[][2] = {{n, sizeof(tri_sequence)},
                             {bias, sizeof(tri_logit_bias)},
                             {n, (size_t)capacity * sizeof(uint32_t)},
                             {n, (size_t)pages * sizeof(int32_t)}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!tri_size_mul(parts[i][0], parts[i][1], &bytes) || !tri_size_add(total, bytes, &total)) return NULL;
  tri_job *j = tri_malloc(total, 1);
  if (!j) return NULL;
  memset(j, 0, sizeof *j + n * sizeof *j->seqs);
  j->seqs = (tri_sequence *)(j + 1);
  j->bias = (tri_logit_bias *)(j->seqs + n);
  uint32_t *tokens = (uint32_t *)(j->bias + bias);
  int32_t *page_list = (int32_t *)(tokens + n * (size_t)capacity);
  for (size_t i = 0; i < n; i++) {
    j->seqs[i].tokens = tokens + i * (size_t)capacity;
    j->seqs[i].pages = page_list + i * (size_t)pages;
  }
  j->capacity = capacity;
  return j;
}

static void set_stops(tri_job *j, const tri_sampling *s, const uint32_t *eos, int num_eos) {
  if (!s->ignore_eos)
    for (int i = 0; i < num_eos && j->num_stop_ids < TRI_MAX_BANNED; i++) j->stop_ids[j->num_stop_ids++] = eos[i];
  for (int i = 0; i < s->num_stop_token_ids && j->num_stop_ids < TRI_MAX_BANNED; i++)
    j->stop_ids[j->num_stop_ids++] = s->stop_token_ids[i];
}

tri_status tri_job_create(const tri_group_assign *a, const tri_limits *l, const uint32_t *eos, int num_eos,
                          int64_t now_ns, tri_job **out, tri_error *err) {
  const tri_sampling *s = &a->sampling;
  tri_status st = check_fit(a, l, err);
  if (st != TRI_OK) return st;
  int64_t room = l->max_model_len - (int64_t)a->num_token_ids;
  if (l->whole_sequences) room = 0;
  int max_tokens = (int)(s->max_tokens < 0 || s->max_tokens > room ? room : s->max_tokens);
  tri_job *j = allocate(s, (int)a->num_token_ids + max_tokens, l->block_size);
  if (!j) return tri_fail(err, TRI_NO_MEMORY, "job", "no memory for a job of %lld choices", (long long)s->n);
  j->id = a->job;
  j->seed = a->seed;
  j->priority = s->priority;
  j->deadline_ns = a->remaining_ms < 0 ? TRI_NEVER : now_ns + a->remaining_ms * 1000000;
  j->num_prompt = (int)a->num_token_ids;
  j->second_start = (int)a->second_start;
  j->max_tokens = max_tokens;
  j->min_tokens = (int)s->min_tokens;
  j->ignore_eos = s->ignore_eos;
  j->logprobs = s->logprobs >= 0;
  j->num_choices = j->num_open = (int)s->n;
  set_stops(j, s, eos, num_eos);
  for (int i = 0; i < s->num_logit_bias; i++) j->bias[i] = (tri_logit_bias){s->logit_bias[i].id, s->logit_bias[i].bias};
  j->params = params_of(s, a->seed);
  j->params.logit_bias = j->bias;
  j->params.num_logit_bias = s->num_logit_bias;
  j->params.banned = j->stop_ids;
  j->params.num_banned = j->num_stop_ids;
  for (int i = 0; i < j->num_choices; i++) {
    tri_sequence *q = &j->seqs[i];
    q->job = j;
    q->choice = (uint32_t)i;
    q->slot = q->lane = -1;
    /* The first choice computes the prompt; the others wait to be forked from it. */
    q->state = i && j->num_prompt > 1 ? TRI_SEQ_HELD : TRI_SEQ_WAITING;
    q->num_tokens = j->num_prompt;
    memcpy(q->tokens, a->token_ids, a->num_token_ids * sizeof *q->tokens);
  }
  *out = j;
  return TRI_OK;
}

void tri_job_destroy(tri_job *j) { tri_free(j); }

tri_status tri_outbox_init(tri_outbox *o, int max_num_seqs) {
  /* A step's draws, and as many choices that ended without one. */
  size_t n = 2 * (size_t)max_num_seqs + 64;
  *o = (tri_outbox){.cap = (uint32_t)n};
  o->tokens = tri_calloc(n, sizeof *o->tokens);
  o->top_ids = tri_calloc(n * TRI_MAX_LOGPROBS, sizeof *o->top_ids);
  o->top_logprobs = tri_calloc(n * TRI_MAX_LOGPROBS, sizeof *o->top_logprobs);
  if (o->tokens && o->top_ids && o->top_logprobs) return TRI_OK;
  tri_outbox_free(o);
  return TRI_NO_MEMORY;
}

tri_status tri_outbox_init_results(tri_outbox *o, int max_num_seqs, size_t num_values) {
  tri_status st = tri_outbox_init(o, max_num_seqs);
  if (st != TRI_OK) return st;
  o->max_results = (uint32_t)max_num_seqs;
  o->max_values = num_values;
  o->results = tri_calloc(o->max_results, sizeof *o->results);
  o->values = tri_malloc(num_values, sizeof *o->values);
  if (o->results && o->values) return TRI_OK;
  tri_outbox_free(o);
  return TRI_NO_MEMORY;
}

void tri_outbox_free(tri_outbox *o) {
  tri_free(o->results), tri_free(o->values);
  tri_free(o->tokens), tri_free(o->top_ids), tri_free(o->top_logprobs);
  *o = (tri_outbox){0};
}
