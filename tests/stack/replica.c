/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stack/replica.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/version.h"
#include "base/wait.h"

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL
enum { MOST_ANSWER = 4096, BACKLOG = 65536, KV_BLOCKS = 4096, BLOCK_SIZE = 16, PROMPT_AT_ONCE = 128 };

typedef struct job {
  tri_replica_assign a; /* without what it points to */
  uint32_t *prompt, *answer;
  size_t num_answer, num_made, num_scored, num_allowed;
  uint32_t allowed; /* the first of those that alone may come */
  int64_t deadline_ns;
} job;

struct replica {
  tri_zcontext *z;
  tri_zlink *link;
  tri_arena *arena;
  tri_buf buf;
  const tri_model_config *config;
  const tri_tokenizer *tokenizer;
  tri_tokenizer_scratch *scratch;
  uint64_t epoch, max_model_len, max_num_seqs, seq, step;
  int64_t health_ns;
  bool welcome, holds, drains, failed;
  job jobs[REPLICA_MOST_JOBS];
  int num_jobs, aborts;
  size_t last_tokens;
  const char *say;
  const char *refuse_code, *refuse_field, *refuse_message; /* code NULL: the next job is taken */
  tri_sampling sampling;
};

/* ---- messages ---- */

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

static void say(replica *r, tri_replica_msg *m) {
  m->seq = ++r->seq;
  ck_assert_int_eq(tri_replica_msg_pack(m, &r->buf), TRI_OK);
  ck_assert_int_eq(tri_zlink_send(r->link, r->buf.data, r->buf.len), TRI_OK);
}

static void say_register(replica *r) {
  tri_replica_msg m = {.op = TRI_REPLICA_REGISTER,
                       .reg = {.version = str(TRIREME_VERSION),
                               .host = str("imitation"),
                               .world = 1,
                               .tp = 1,
                               .pp = 1,
                               .dp = 1,
                               .ep = 1,
                               .epoch = r->epoch,
                               .pid = 1,
                               .model_hash = tri_model_config_hash(r->config),
                               .max_model_len = r->max_model_len,
                               .vocab_size = (uint64_t)r->config->vocab_size,
                               .kv_blocks = KV_BLOCKS,
                               .block_size = BLOCK_SIZE,
                               .max_num_seqs = r->max_num_seqs,
                               .max_num_batched_tokens = 8192}};
  say(r, &m);
}

static void say_health(replica *r) {
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.epoch = r->epoch,
                                  .step = r->step,
                                  .busy = r->num_jobs > 0,
                                  .running = (uint32_t)r->num_jobs,
                                  .kv_blocks_used = (uint64_t)r->num_jobs}};
  r->health_ns = tri_now_ns();
  say(r, &m);
}

/* ---- jobs ---- */

static void drop(replica *r, int i) {
  free(r->jobs[i].prompt);
  free(r->jobs[i].answer);
  r->jobs[i] = r->jobs[--r->num_jobs];
}

/* Writes the rest of what a sum at the end of a text comes to. */
static void add_up(const char *text, size_t len, char *out, size_t cap) {
  size_t equals = len, begin;
  while (equals && text[equals - 1] != '=') equals--;
  for (begin = equals ? equals - 1 : 0; begin && strchr("0123456789+", text[begin - 1]);) begin--;
  unsigned long sum = 0;
  for (const char *p = text + begin; equals && p < text + equals && *p != '=';) {
    char *end;
    sum += strtoul(p, &end, 10);
    p = *end == '+' ? end + 1 : text + equals;
  }
  snprintf(out, cap, "%lu", sum);
  size_t said = len - equals;
  if (!equals || said > strlen(out) || memcmp(out, text + equals, said) != 0) return;
  memmove(out, out + said, strlen(out) - said + 1);
}

static void find_answer(replica *r, job *j) {
  char *text, answer[MOST_ANSWER];
  size_t len, count;
  const uint32_t *ids;
  if (!r->tokenizer) return;
  ck_assert_int_eq(tri_tokenizer_decode(r->tokenizer, j->prompt, j->a.num_token_ids, true, &text, &len), TRI_OK);
  add_up(text, len, answer, sizeof answer);
  tri_free(text);
  const char *said = r->say ? r->say : answer;
  ck_assert_int_eq(tri_tokenizer_encode(r->tokenizer, r->scratch, said, strlen(said), false, 0, &ids, &count), TRI_OK);
  j->answer = malloc((count + 1) * sizeof *j->answer);
  memcpy(j->answer, ids, count * sizeof *ids);
  j->answer[count] = r->config->eos_token_ids[0];
  j->num_answer = count + 1;
}

static void refuse(replica *r, const tri_replica_assign *a) {
  tri_replica_msg m = {.op = TRI_REPLICA_REFUSED,
                       .refused = {.job = a->job,
                                   .epoch = r->epoch,
                                   .code = str(r->refuse_code),
                                   .message = str(r->refuse_message),
                                   .field = str(r->refuse_field)}};
  r->refuse_code = NULL;
  say(r, &m);
}

static void take_job(replica *r, const tri_replica_assign *a) {
  r->sampling = a->sampling;
  if (r->refuse_code) return refuse(r, a);
  ck_assert_int_lt(r->num_jobs, REPLICA_MOST_JOBS);
  ck_assert_uint_eq(a->epoch, r->epoch);
  job *j = &r->jobs[r->num_jobs++];
  *j = (job){.a = *a, .num_scored = 1, .num_allowed = a->sampling.num_allowed_token_ids};
  j->deadline_ns = a->remaining_ms < 0 ? INT64_MAX : tri_now_ns() + a->remaining_ms * NS_PER_MS;
  if (j->num_allowed) j->allowed = a->sampling.allowed_token_ids[0];
  j->prompt = malloc(a->num_token_ids * sizeof *j->prompt);
  memcpy(j->prompt, a->token_ids, a->num_token_ids * sizeof *j->prompt);
  if (!r->config->encoder) find_answer(r, j);
}

static void end_job(replica *r, int i) {
  const job *j = &r->jobs[i];
  for (uint32_t k = 0; k < (uint32_t)j->a.sampling.n; k++) {
    tri_replica_token t = {.job = j->a.job,
                           .choice = k,
                           .offset = j->num_made,
                           .flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE,
                           .reason = TRI_FINISH_ABORT};
    tri_replica_msg m = {.op = TRI_REPLICA_TOKENS,
                         .tokens = {.epoch = r->epoch, .step = r->step, .num = 1, .tokens = &t}};
    say(r, &m);
  }
  drop(r, i);
}

static void abort_job(replica *r, uint64_t id) {
  r->aborts++;
  for (int i = 0; i < r->num_jobs; i++)
    if (r->jobs[i].a.job == id) return end_job(r, i);
}

static void end_late_jobs(replica *r) {
  for (int i = r->num_jobs - 1; i >= 0; i--)
    if (tri_now_ns() >= r->jobs[i].deadline_ns) end_job(r, i);
}

/* ---- steps ---- */

typedef struct tops {
  uint32_t ids[TRI_WIRE_MAX_LOGPROBS];
  float logprobs[TRI_WIRE_MAX_LOGPROBS];
} tops;

static void add_logprobs(const replica *r, tri_replica_token *t, tops *room, int64_t num) {
  t->flags |= TRI_TOKEN_LOGPROB;
  t->logprob = -0.25f;
  for (int64_t i = 0; i < num; i++) {
    room->ids[i] = (t->token + (uint32_t)i) % (uint32_t)r->config->vocab_size;
    room->logprobs[i] = -0.25f - (float)i;
  }
  t->num_top = (int)num;
  t->top_ids = room->ids;
  t->top_logprobs = room->logprobs;
}

static bool stops_at(const replica *r, const job *j, uint32_t token) {
  const tri_sampling *s = &j->a.sampling;
  for (int i = 0; i < s->num_stop_token_ids; i++)
    if (s->stop_token_ids[i] == token) return true;
  for (int i = 0; i < r->config->num_eos_token_ids; i++)
    if ((uint32_t)r->config->eos_token_ids[i] == token) return !s->ignore_eos;
  return false;
}

static uint32_t next_token(const replica *r, const job *j) {
  uint32_t one = 0;
  if (j->num_allowed) return j->allowed;
  if (j->num_made < j->num_answer) return j->answer[j->num_made];
  ck_assert(tri_tokenizer_id(r->tokenizer, "1", 1, &one));
  return one;
}

/* A prompt's tokens that are to be told come before the answer. */
static void score(replica *r, job *j) {
  tri_replica_token list[PROMPT_AT_ONCE];
  tops room[PROMPT_AT_ONCE];
  uint32_t num = 0;
  for (; num < PROMPT_AT_ONCE && j->num_scored < j->a.num_token_ids; j->num_scored++) {
    list[num] = (tri_replica_token){
        .job = j->a.job, .token = j->prompt[j->num_scored], .offset = j->num_scored, .flags = TRI_TOKEN_PROMPT};
    add_logprobs(r, &list[num], &room[num], j->a.sampling.prompt_logprobs);
    num++;
  }
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS,
                       .tokens = {.epoch = r->epoch, .step = r->step, .num = num, .tokens = list}};
  say(r, &m);
}

/* Returns whether the job has ended. */
static bool add_token(replica *r, job *j) {
  const tri_sampling *s = &j->a.sampling;
  tri_replica_token list[TRI_WIRE_MAX_N];
  tops room[TRI_WIRE_MAX_N];
  bool score_only = s->max_tokens == 0 && s->prompt_logprobs >= 0;
  uint64_t left = r->max_model_len - j->a.num_token_ids;
  uint64_t most = s->max_tokens < 0 || (uint64_t)s->max_tokens > left ? left : (uint64_t)s->max_tokens + score_only;
  uint32_t token = next_token(r, j);
  bool stop = !score_only && stops_at(r, j, token), last = stop || j->num_made + 1 >= most;
  for (uint32_t k = 0; k < (uint32_t)s->n; k++) {
    tri_replica_token *t = &list[k];
    *t = (tri_replica_token){.job = j->a.job, .choice = k, .token = token, .offset = j->num_made};
    if (s->logprobs >= 0) add_logprobs(r, t, &room[k], s->logprobs);
    if (last) t->flags |= TRI_TOKEN_LAST | (stop ? TRI_TOKEN_STOP_ID : 0);
    if (score_only) t->flags |= TRI_TOKEN_NONE;
    t->reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
  }
  j->num_made++;
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS,
                       .tokens = {.epoch = r->epoch, .step = r->step, .num = (uint32_t)s->n, .tokens = list}};
  say(r, &m);
  return last;
}

static void embed(replica *r, const job *j) {
  size_t num = (size_t)r->config->hidden_size;
  float *values = calloc(num, sizeof *values);
  values[0] = (float)j->a.num_token_ids;
  values[1] = (float)j->prompt[0];
  tri_replica_result result = {.job = j->a.job, .values = values, .num_values = num};
  tri_replica_msg m = {.op = TRI_REPLICA_EMBED_RESULTS,
                       .embed_results = {.epoch = r->epoch, .num = 1, .results = &result}};
  say(r, &m);
  free(values);
}

static void step(replica *r) {
  r->step++;
  for (int i = r->num_jobs - 1; i >= 0; i--) {
    job *j = &r->jobs[i];
    bool over = r->config->encoder;
    if (over) {
      embed(r, j);
    } else if (j->a.sampling.prompt_logprobs >= 0 && j->num_scored < j->a.num_token_ids) {
      score(r, j);
    } else {
      over = add_token(r, j);
    }
    if (!over) continue;
    r->last_tokens = j->num_made;
    drop(r, i);
  }
}

/* ---- turns ---- */

static void take(replica *r, const tri_replica_msg *m) {
  tri_replica_msg ready = {.op = TRI_REPLICA_READY, .ready = {.epoch = r->epoch, .load_seconds = 1}};
  switch (m->op) {
  case TRI_REPLICA_WELCOME:
    ck_assert_msg(m->welcome.ok, "%.*s", (int)m->welcome.message.len, m->welcome.message.s);
    if (!r->welcome) say(r, &ready);
    r->welcome = true;
    break;
  case TRI_REPLICA_ASSIGN: take_job(r, &m->assign); break;
  case TRI_REPLICA_ABORT: abort_job(r, m->abort.job); break;
  case TRI_REPLICA_DRAIN: r->drains = true; break;
  default: break;
  }
}

static void receive(replica *r) {
  const void *data;
  size_t len, used;
  while (tri_zlink_recv(r->link, &data, &len) == TRI_OK)
    for (const char *at = data; len; at += used, len -= used) {
      tri_replica_msg m;
      tri_error err = {0};
      tri_arena_reset(r->arena);
      ck_assert_int_eq(tri_wire_first(at, len, &used, &err), TRI_OK);
      ck_assert_msg(tri_replica_msg_unpack(at, used, r->arena, &m, &err) == TRI_OK, "%s", err.message);
      take(r, &m);
    }
}

void replica_turn(replica *r) {
  if (r->failed) return;
  receive(r);
  if (r->welcome && tri_now_ns() - r->health_ns >= NS_PER_S) say_health(r);
  end_late_jobs(r);
  if (!r->holds && r->num_jobs) step(r);
}

replica *replica_open(const tri_boot *boot, const tri_model_config *config, const tri_tokenizer *tokenizer,
                      uint64_t epoch, uint64_t max_model_len, int max_num_seqs) {
  replica *r = calloc(1, sizeof *r);
  tri_boot_rank own;
  tri_error err = {0};
  *r = (replica){.config = config,
                 .tokenizer = tokenizer,
                 .epoch = epoch,
                 .max_model_len = max_model_len,
                 .max_num_seqs = max_num_seqs ? (uint64_t)max_num_seqs : REPLICA_SLOTS};
  ck_assert_int_eq(tri_boot_of_rank(boot, 0, 0, &own, &err), TRI_OK);
  ck_assert_int_eq(tri_arena_create(64 << 10, &r->arena), TRI_OK);
  ck_assert_int_eq(tri_zcontext_create(&r->z, &err), TRI_OK);
  if (tokenizer) ck_assert_int_eq(tri_tokenizer_scratch_create(tokenizer, &r->scratch), TRI_OK);
  tri_zlink_config lc = {.endpoint = own.endpoint,
                         .own = &own.own,
                         .server_key = own.server_key,
                         .max_message = TRI_WIRE_MAX_MESSAGE,
                         .backlog = BACKLOG};
  ck_assert_msg(tri_zlink_open(r->z, &lc, &r->link, &err) == TRI_OK, "%s", err.message);
  say_register(r);
  return r;
}

void replica_close(replica *r) {
  if (!r) return;
  while (r->num_jobs) drop(r, 0);
  tri_zlink_close(r->link);
  tri_zcontext_destroy(r->z);
  tri_tokenizer_scratch_destroy(r->scratch);
  tri_arena_destroy(r->arena);
  tri_buf_free(&r->buf);
  free(r);
}

void replica_hold(replica *r, bool hold) { r->holds = hold; }
void replica_say(replica *r, const char *text) { r->say = text; }

void replica_refuse(replica *r, const char *code, const char *field, const char *message) {
  r->refuse_code = code;
  r->refuse_field = field;
  r->refuse_message = message;
}

void replica_fail(replica *r, const char *code, const char *message) {
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED,
                       .failed = {.epoch = r->epoch, .code = str(code), .message = str(message), .field = str("")}};
  say(r, &m);
  r->failed = true;
}

int replica_jobs(const replica *r) { return r->num_jobs; }
int replica_aborts(const replica *r) { return r->aborts; }
size_t replica_last_tokens(const replica *r) { return r->last_tokens; }
bool replica_drains(const replica *r) { return r->drains; }
const tri_sampling *replica_sampling(const replica *r) { return &r->sampling; }
