/* The coordinator's core against recorded actions: what clients read, what groups are told, and when.
 *
 * The test is the world: it keeps a transcript of every client's stream and checks on every message what must hold for
 * all of them (accepted first, then tokens without gap or repetition, then one end and nothing more). */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/core.h"
#include "runtime/base/log.h"

Suite *suite_core(void);

enum { MAX_STREAMS = 256, MAX_CHOICES = 4, MAX_TOKENS = 256, MAX_TEXT = 4096, MAX_ASSIGNS = 64, MAX_PEERS = 8 };
enum { MODEL_LEN = 128, SLOTS = 8 };
#define SECOND 1000000000LL
#define MS 1000000LL

static tri_tokenizer *tokenizer;
static uint32_t byte_token[256]; /* the tokens of one byte each */
static char *token_text[8192];   /* every token's bytes */
static size_t token_len[8192];

/* ---- the world ---- */

struct stream {
  tri_zpeer peer;
  uint64_t id;
  int accepted, messages;
  bool existing, done, timed_out, closed;
  int pass, again; /* after `pass` more messages, `again` meet a full queue */
  tri_request_id request_id;
  uint64_t prompt_tokens;
  struct text {
    uint32_t ids[MAX_TOKENS];
    size_t num, len;
    size_t len_after[MAX_TOKENS + 1]; /* len once so many tokens were there */
    char text[MAX_TEXT];
    int num_logprobs;
    tri_finish reason;
  } choice[MAX_CHOICES];
  uint64_t completion_tokens;
  char code[64], field[96], message[400];
};

struct assigned {
  tri_group_assign a;
  tri_zpeer to;
  uint32_t ids[MAX_TOKENS];
};

struct world {
  tri_core *core;
  tri_model_config model;
  int64_t now;
  struct stream streams[MAX_STREAMS];
  int num_streams;
  struct assigned assigns[MAX_ASSIGNS];
  int num_assigns;
  uint64_t aborts[MAX_ASSIGNS];
  int num_aborts, drains, leases, lost, ready;
  int measures, floors_answers;
  tri_cluster_floors floors;
  bool welcome, refuse_encoding, encode_now;
  const uint32_t *now_ids;
  size_t num_now_ids;
  tri_status encode_now_status;
  char welcome_text[256], lost_reason[400];
  uint64_t encode_job;
  char encode_text[MAX_TEXT];
  size_t encode_len;
  int encodes;
  double block_seconds; /* that groups say when they are ready */
};

static tri_zpeer peer_of(const char *name) {
  tri_zpeer p = {.len = (uint8_t)strlen(name)};
  memcpy(p.bytes, name, p.len);
  return p;
}

static bool same_peer(const tri_zpeer *a, const tri_zpeer *b) {
  return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

static struct stream *find_stream(struct world *w, const tri_zpeer *peer, uint64_t id) {
  for (int i = 0; i < w->num_streams; i++)
    if (w->streams[i].id == id && same_peer(&w->streams[i].peer, peer)) return &w->streams[i];
  return NULL;
}

static void copy_str(char *to, size_t cap, tri_wire_str s) { snprintf(to, cap, "%.*s", (int)s.len, s.s ? s.s : ""); }

static void add_text(struct text *t, tri_wire_str s) {
  ck_assert_uint_lt(t->len + s.len, MAX_TEXT);
  if (s.len) memcpy(t->text + t->len, s.s, s.len);
  t->len += s.len;
}

static void read_tokens(struct stream *s, const tri_server_msg *m) {
  ck_assert_msg(s->accepted == 1, "tokens before accepted");
  for (uint32_t i = 0; i < m->tokens.num; i++) {
    const tri_choice_tokens *t = &m->tokens.choices[i];
    ck_assert_uint_lt(t->index, MAX_CHOICES);
    struct text *c = &s->choice[t->index];
    ck_assert_msg(t->num_ids || t->text.len, "an empty message");
    ck_assert_msg(!t->num_ids || t->offset == c->num, "tokens from %d, the client has %zu", (int)t->offset, c->num);
    ck_assert_uint_le(c->num + t->num_ids, MAX_TOKENS);
    for (size_t k = 0; k < t->num_ids; k++) c->ids[c->num++] = t->ids[k];
    add_text(c, t->text);
    if (t->num_ids || !c->num) c->len_after[c->num] = c->len;
    for (size_t k = 0; t->logprobs && k < t->num_ids; k++) {
      ck_assert(t->logprobs[k].logprob == -(float)t->ids[k]);
      ck_assert_int_eq(t->logprobs[k].num_top, 2);
      ck_assert_uint_eq(t->logprobs[k].top_ids[1], t->ids[k] + 1);
      c->num_logprobs++;
    }
  }
}

static void read_done(struct stream *s, const tri_done *d) {
  ck_assert_msg(s->accepted == 1, "done before accepted");
  s->completion_tokens = d->completion_tokens;
  s->prompt_tokens = d->prompt_tokens;
  s->timed_out = d->timed_out;
  for (uint32_t i = 0; i < d->num_choices; i++) {
    s->choice[i].reason = d->choices[i].reason;
    add_text(&s->choice[i], d->choices[i].text);
  }
}

static tri_status to_client(void *ctx, const tri_zpeer *to, const tri_server_msg *m) {
  struct world *w = ctx;
  struct stream *s = find_stream(w, to, m->id);
  ck_assert_msg(s != NULL, "a reply to nobody");
  if (s->closed) return TRI_CLOSED;
  if (s->pass > 0) {
    s->pass--;
  } else if (s->again > 0) {
    s->again--;
    return TRI_AGAIN;
  }
  ck_assert_msg(!s->done, "something after the end");
  s->messages++;
  switch (m->op) {
  case TRI_REPLY_ACCEPTED:
    s->accepted++;
    s->existing = m->accepted.existing;
    s->request_id = m->accepted.request_id;
    s->prompt_tokens = m->accepted.prompt_tokens;
    break;
  case TRI_REPLY_TOKENS: read_tokens(s, m); break;
  case TRI_REPLY_DONE:
    read_done(s, &m->done);
    s->done = true;
    break;
  case TRI_REPLY_ERROR:
    copy_str(s->code, sizeof s->code, m->error.code);
    copy_str(s->field, sizeof s->field, m->error.field);
    copy_str(s->message, sizeof s->message, m->error.message);
    s->done = true;
    break;
  case TRI_REPLY_FLOORS:
    w->floors = m->floors;
    w->floors_answers++;
    break;
  default: break;
  }
  return TRI_OK;
}

static tri_status to_worker(void *ctx, const tri_zpeer *to, tri_group_msg *m) {
  struct world *w = ctx;
  switch (m->op) {
  case TRI_GROUP_WELCOME:
    w->welcome = m->welcome.ok;
    copy_str(w->welcome_text, sizeof w->welcome_text, m->welcome.message);
    break;
  case TRI_GROUP_ASSIGN: {
    ck_assert_int_lt(w->num_assigns, MAX_ASSIGNS);
    struct assigned *a = &w->assigns[w->num_assigns++];
    *a = (struct assigned){.a = m->assign, .to = *to};
    memcpy(a->ids, m->assign.token_ids, m->assign.num_token_ids * sizeof *a->ids);
    ck_assert_int_eq(m->assign.sampling.num_stop, 0); /* text is the coordinator's business */
    break;
  }
  case TRI_GROUP_ABORT: w->aborts[w->num_aborts++] = m->abort.job; break;
  case TRI_GROUP_DRAIN: w->drains++; break;
  case TRI_GROUP_LEASE: w->leases++; break;
  case TRI_GROUP_MEASURE: w->measures++; break;
  default: ck_abort_msg("the core sends op %d to a worker", (int)m->op);
  }
  return TRI_OK;
}

static tri_status encode(void *ctx, uint64_t job, tri_wire_str text, tri_wire_str pair, const uint32_t **ids,
                         size_t *count, size_t *second) {
  struct world *w = ctx;
  (void)pair, (void)second;
  if (w->refuse_encoding) return TRI_AGAIN;
  if (w->encode_now) {
    *ids = w->now_ids;
    *count = w->num_now_ids;
    return w->encode_now_status;
  }
  w->encode_job = job;
  memcpy(w->encode_text, text.s, text.len);
  w->encode_len = text.len;
  w->encodes++;
  return TRI_OK;
}

static void group_lost(void *ctx, uint32_t group, uint64_t epoch, const char *reason) {
  struct world *w = ctx;
  (void)group, (void)epoch;
  w->lost++;
  snprintf(w->lost_reason, sizeof w->lost_reason, "%s", reason);
}

static void group_ready(void *ctx, uint32_t group, uint64_t epoch) {
  (void)group, (void)epoch;
  ((struct world *)ctx)->ready++;
}

static struct world *world_create(uint32_t groups) {
  struct world *w = calloc(1, sizeof *w);
  w->now = 1000 * SECOND;
  w->model =
      (tri_model_config){.vocab_size = tri_tokenizer_vocab_size(tokenizer), .max_position_embeddings = MODEL_LEN};
  w->model.gen_temperature = w->model.gen_top_p = w->model.gen_repetition_penalty = NAN;
  tri_core_config config = {.model_name = "toy",
                            .model = &w->model,
                            .tokenizer = tokenizer,
                            .num_groups = groups,
                            .seed = 7,
                            .max_queue = 20,
                            .silence_ns = 4 * SECOND,
                            .watchdog_ns = 10 * SECOND,
                            .io = {w, to_client, to_worker, encode, group_lost, group_ready}};
  ck_assert_int_eq(tri_core_create(&config, w->now, &w->core), TRI_OK);
  return w;
}

static void world_destroy(struct world *w) {
  tri_core_destroy(w->core);
  free(w);
}

static void tick(struct world *w, int64_t ns) {
  w->now += ns;
  tri_core_tick(w->core, w->now);
}

/* ---- groups ---- */

static tri_zpeer rank_peer(uint32_t group, uint64_t epoch, uint32_t rank) {
  char name[32];
  snprintf(name, sizeof name, "w%u.%u.%u", group, (unsigned)epoch, rank);
  return peer_of(name);
}

static void send_worker(struct world *w, uint32_t group, uint64_t epoch, uint32_t rank, const tri_group_msg *m) {
  tri_zpeer p = rank_peer(group, epoch, rank);
  tri_core_worker(w->core, w->now, &p, m);
}

static bool send_register(struct world *w, uint32_t group, uint64_t epoch, uint32_t rank, uint32_t world) {
  tri_group_msg m = {.op = TRI_GROUP_REGISTER,
                     .reg = {.group = group,
                             .rank = rank,
                             .world = world,
                             .tp = world,
                             .pp = 1,
                             .epoch = epoch,
                             .pid = 1,
                             .model_hash = 99,
                             .max_model_len = MODEL_LEN,
                             .kv_pages = 64,
                             .block_size = 16,
                             .max_num_seqs = SLOTS,
                             .host = {"node", 4}}};
  w->welcome = false;
  send_worker(w, group, epoch, rank, &m);
  return w->welcome;
}

static void send_ready(struct world *w, uint32_t group, uint64_t epoch) {
  tri_group_msg m = {.op = TRI_GROUP_READY, .ready = {.group = group, .epoch = epoch, .load_seconds = 1}};
  m.ready.block_seconds = w->block_seconds;
  send_worker(w, group, epoch, 0, &m);
}

static void start_group(struct world *w, uint32_t group, uint64_t epoch, uint32_t world) {
  for (uint32_t r = 0; r < world; r++) ck_assert(send_register(w, group, epoch, r, world));
  send_ready(w, group, epoch);
}

static void send_health(struct world *w, uint32_t group, uint64_t epoch, uint32_t rank, uint64_t step, bool busy) {
  tri_group_msg m = {.op = TRI_GROUP_HEALTH,
                     .health = {.group = group, .rank = rank, .epoch = epoch, .step = step, .busy = busy}};
  send_worker(w, group, epoch, rank, &m);
}

static void send_tokens(struct world *w, uint32_t group, uint64_t epoch, const tri_group_token *t, uint32_t num) {
  tri_group_msg m = {.op = TRI_GROUP_TOKENS, .tokens = {.epoch = epoch, .step = 1, .num = num, .tokens = t}};
  send_worker(w, group, epoch, 0, &m);
}

/* One token of a job of group 0, epoch 1. */
static void token(struct world *w, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id, int flags,
                  tri_finish reason) {
  uint32_t top_ids[] = {id, id + 1};
  float top[] = {-1, -2};
  tri_group_token t = {.job = job,
                       .choice = choice,
                       .token = id,
                       .offset = offset,
                       .flags = (uint8_t)(flags | TRI_TOKEN_LOGPROB),
                       .reason = reason,
                       .logprob = -(float)id,
                       .num_top = 2,
                       .top_ids = top_ids,
                       .top_logprobs = top};
  send_tokens(w, 0, 1, &t, 1);
}

/* The text as tokens of one byte each; the last one ends the choice. */
static void bytes(struct world *w, uint64_t job, uint32_t choice, const char *text) {
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++)
    token(w, job, choice, i, byte_token[(uint8_t)text[i]], i + 1 == n ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
}

/* ---- clients ---- */

static struct stream *open_stream(struct world *w, const char *peer, uint64_t id) {
  ck_assert_int_lt(w->num_streams, MAX_STREAMS);
  struct stream *s = &w->streams[w->num_streams++];
  *s = (struct stream){.peer = peer_of(peer), .id = id};
  return s;
}

static const uint32_t some_ids[] = {10, 11, 12};

static tri_client_msg submit_msg(uint64_t id) {
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = id};
  tri_submit_init(&m.submit);
  m.submit.token_ids = some_ids;
  m.submit.num_token_ids = 3;
  return m;
}

static void set_stop(tri_client_msg *m, const char *stop) {
  m->submit.sampling.stop[m->submit.sampling.num_stop++] = (tri_wire_str){stop, strlen(stop)};
}

static struct stream *submit(struct world *w, const char *peer, const tri_client_msg *m) {
  struct stream *s = open_stream(w, peer, m->id);
  tri_core_client(w->core, w->now, &s->peer, m);
  return s;
}

/* The stream of a client that has the first `offset` tokens, with their text, from another stream. */
static struct stream *attach(struct world *w, uint64_t id, const struct stream *from, uint64_t offset) {
  struct stream *s = open_stream(w, "again", id);
  struct text *t = &s->choice[0];
  *t = from->choice[0];
  t->num = offset;
  t->len = offset ? t->len_after[offset] : 0;
  tri_client_msg m = {.op = TRI_OP_ATTACH, .id = id, .attach = {from->request_id, offset}};
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

static struct stream *cancel(struct world *w, const char *peer, uint64_t id, const struct stream *whom) {
  struct stream *s = open_stream(w, peer, id);
  tri_client_msg m = {.op = TRI_OP_CANCEL, .id = id};
  m.cancel.request_id = whom->request_id;
  m.cancel.has_request_id = true;
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

static void expect_text(const struct stream *s, int choice, const char *want) {
  const struct text *t = &s->choice[choice];
  ck_assert_msg(t->len == strlen(want) && !memcmp(t->text, want, t->len), "\"%.*s\", not \"%s\"", (int)t->len, t->text,
                want);
}

static void expect_error(const struct stream *s, const char *code, const char *field) {
  ck_assert(s->done);
  ck_assert_str_eq(s->code, code);
  ck_assert_str_eq(s->field, field);
  ck_assert_msg(s->message[0] != '\0', "an error without words");
}

static uint64_t last_job(const struct world *w) { return w->assigns[w->num_assigns - 1].a.job; }

/* ---- the plain course ---- */

START_TEST(test_submit) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 2);
  ck_assert_int_eq(w->ready, 1);
  tri_client_msg m = submit_msg(5);
  m.submit.sampling.max_tokens = 9;
  m.submit.sampling.deadline_ms = 1500;
  struct stream *s = submit(w, "a", &m);
  ck_assert_int_eq(s->accepted, 1);
  ck_assert(!s->existing);
  ck_assert_uint_eq(s->prompt_tokens, 3);
  ck_assert_int_eq(w->num_assigns, 1);
  const struct assigned *a = &w->assigns[0];
  tri_zpeer leader = rank_peer(0, 1, 0);
  ck_assert(same_peer(&a->to, &leader));
  ck_assert_uint_eq(a->a.epoch, 1);
  ck_assert_int_eq(a->a.remaining_ms, 1500);
  ck_assert_int_eq(a->a.sampling.max_tokens, 9);
  ck_assert_mem_eq(a->ids, some_ids, sizeof some_ids);
  ck_assert(!tri_core_is_idle(w->core));
  bytes(w, a->a.job, 0, "h\xc3\xa9!"); /* the first byte of a character alone shows nothing */
  expect_text(s, 0, "h\xc3\xa9!");
  ck_assert(s->done);
  ck_assert_uint_eq(s->choice[0].len_after[1], 1);
  ck_assert_uint_eq(s->choice[0].len_after[2], 1);
  ck_assert_uint_eq(s->choice[0].len_after[3], 3);
  ck_assert_uint_eq(s->completion_tokens, 4);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_LENGTH);
  ck_assert_int_eq(s->choice[0].num_logprobs, 0);
  ck_assert_int_eq(w->num_aborts, 0);
  ck_assert(tri_core_is_idle(w->core));
  ck_assert_uint_eq(tri_core_generated_tokens(w->core), 4);
  world_destroy(w);
}
END_TEST

/* A prompt that the encoder does at once needs no event of its own; so do its refusals. */
START_TEST(test_prompt_encoded_at_once) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  w->encode_now = true;
  w->now_ids = some_ids;
  w->num_now_ids = 3;
  tri_client_msg m = submit_msg(1);
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  struct stream *s = submit(w, "a", &m);
  ck_assert(s->accepted == 1 && s->prompt_tokens == 3);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert_uint_eq(w->assigns[0].a.num_token_ids, 3);
  m.id = 2, w->num_now_ids = 0;
  expect_error(submit(w, "a", &m), "invalid_argument", "prompt");
  m.id = 3, w->now_ids = NULL, w->encode_now_status = TRI_TOO_LARGE;
  expect_error(submit(w, "a", &m), "no_capacity", "prompt");
  world_destroy(w);
}
END_TEST

/* An offset counts the tokens of one choice: a job with several refuses it rather than repeat the others' in silence.
 */
START_TEST(test_attach_several_choices) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "ab");
  bytes(w, last_job(w), 1, "xy");
  ck_assert(s->done);
  expect_error(attach(w, 2, s, 1), "invalid_argument", "offset");
  struct stream *t = attach(w, 3, s, 0);
  expect_text(t, 0, "ab");
  expect_text(t, 1, "xy");
  ck_assert(t->done && !t->code[0]);
  world_destroy(w);
}
END_TEST

START_TEST(test_text_prompt) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  m.submit.sampling.echo = true;
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  ck_assert_int_eq(s->messages, 0); /* the prompt's length is not known yet */
  ck_assert_int_eq(w->encodes, 1);
  ck_assert_mem_eq(w->encode_text, "Hello", 5);
  tri_core_encoded(w->core, w->now, w->encode_job, TRI_OK, some_ids, 3, 0);
  expect_text(s, 0, "Hello");
  expect_text(s, 1, "Hello");
  bytes(w, last_job(w), 1, "xy");
  bytes(w, last_job(w), 0, "z");
  expect_text(s, 0, "Helloz");
  expect_text(s, 1, "Helloxy");
  ck_assert(s->done);
  /* From the first token on the prompt has been read. */
  s = attach(w, 2, s, 1);
  expect_text(s, 0, "Helloz");
  world_destroy(w);
}
END_TEST

/* Token ids are repeated as their text, as far as they have one. */
START_TEST(test_echo_of_ids) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  w->model.vocab_size += 10; /* padded */
  uint32_t ids[] = {byte_token['H'], byte_token[0xc3], byte_token[0xa9], (uint32_t)w->model.vocab_size - 1,
                    byte_token['!']};
  for (int stream = 0; stream < 2; stream++) {
    tri_client_msg m = submit_msg(1 + (uint64_t)stream);
    m.submit.token_ids = ids;
    m.submit.num_token_ids = 5;
    m.submit.sampling.echo = true;
    m.submit.sampling.n = 2;
    m.submit.stream = stream;
    struct stream *s = submit(w, "a", &m);
    expect_text(s, 1, stream ? "H\xc3\xa9!" : "");
    bytes(w, last_job(w), 0, "a");
    bytes(w, last_job(w), 1, "b");
    expect_text(s, 0, "H\xc3\xa9!a");
    expect_text(s, 1, "H\xc3\xa9!b");
    ck_assert(s->done && s->prompt_tokens == 5 && s->completion_tokens == 2);
  }
  world_destroy(w);
}
END_TEST

/* A full queue at any message of the echo neither loses nor repeats any of it. */
START_TEST(test_echo_slow) {
  for (int pass = 0; pass < 6; pass++)
    for (int again = 1; again < 4; again++) {
      struct world *w = world_create(1);
      start_group(w, 0, 1, 1);
      tri_client_msg m = submit_msg(1);
      m.submit.prompt = (tri_wire_str){"Hi", 2};
      m.submit.sampling.echo = true;
      m.submit.sampling.n = 3;
      struct stream *s = submit(w, "a", &m);
      s->pass = pass, s->again = again;
      tri_core_encoded(w->core, w->now, w->encode_job, TRI_OK, some_ids, 3, 0);
      for (uint32_t i = 0; i < 3; i++) bytes(w, last_job(w), i, "ab");
      for (int i = 0; i < 4; i++) tick(w, MS);
      for (int i = 0; i < 3; i++) expect_text(s, i, "Hiab");
      ck_assert(s->done);
      world_destroy(w);
    }
}
END_TEST

START_TEST(test_not_streamed) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  for (int logprobs = -1; logprobs <= 2; logprobs += 3) {
    tri_client_msg m = submit_msg(10 + (uint64_t)logprobs);
    m.submit.stream = false;
    m.submit.prompt = (tri_wire_str){"Say: ", 5};
    m.submit.sampling.echo = true;
    m.submit.sampling.n = 2;
    m.submit.sampling.logprobs = logprobs;
    struct stream *s = submit(w, "a", &m);
    tri_core_encoded(w->core, w->now, w->encode_job, TRI_OK, some_ids, 3, 0);
    bytes(w, last_job(w), 0, "one");
    ck_assert_int_eq(s->messages, 1); /* accepted */
    bytes(w, last_job(w), 1, "two");
    ck_assert(s->done);
    expect_text(s, 0, "Say: one");
    expect_text(s, 1, "Say: two");
    ck_assert_int_eq(s->choice[1].num_logprobs, logprobs < 0 ? 0 : 3); /* logprobs have no place in `done` */
  }
  world_destroy(w);
}
END_TEST

START_TEST(test_several_choices) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 3;
  m.submit.sampling.logprobs = 2;
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  for (uint64_t i = 0; i < 4; i++)
    for (uint32_t k = 0; k < 3; k++)
      token(w, job, k, i, byte_token['a' + k], i == 3 ? TRI_TOKEN_LAST : 0, k ? TRI_FINISH_LENGTH : TRI_FINISH_STOP);
  ck_assert(s->done);
  expect_text(s, 0, "aaaa");
  expect_text(s, 2, "cccc");
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_STOP);
  ck_assert_int_eq(s->choice[1].reason, TRI_FINISH_LENGTH);
  ck_assert_int_eq(s->choice[2].num_logprobs, 4);
  ck_assert_uint_eq(s->completion_tokens, 12);
  world_destroy(w);
}
END_TEST

/* The end-of-sequence token counts and is not text; a padded id has no text. */
START_TEST(test_tokens_without_text) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 0, 1, 1000000, 0, 0);
  token(w, last_job(w), 0, 2, byte_token['b'], TRI_TOKEN_LAST | TRI_TOKEN_STOP_ID, TRI_FINISH_STOP);
  ck_assert(s->done);
  expect_text(s, 0, "a");
  ck_assert_uint_eq(s->completion_tokens, 3);
  ck_assert_uint_eq(s->choice[0].num, 3);
  world_destroy(w);
}
END_TEST

/* ---- stop strings ---- */

START_TEST(test_stop_string) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  set_stop(&m, "world");
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "wor wo worlds apart");
  expect_text(s, 0, "wor wo ");
  ck_assert(s->done);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_STOP);
  ck_assert_uint_eq(s->choice[0].num, 12);
  ck_assert_uint_eq(s->choice[0].len_after[3], 0); /* held back */
  ck_assert_uint_eq(s->choice[0].len_after[4], 4);
  ck_assert_int_eq(w->num_aborts, 1); /* the group need not go on */
  ck_assert_uint_eq(w->aborts[0], last_job(w));
  world_destroy(w);
}
END_TEST

/* A choice that a stop string ended is still computed by its group: it is told when the others have ended. */
START_TEST(test_stop_string_of_one_choice) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  set_stop(&m, "b");
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['b'], 0, 0);
  token(w, last_job(w), 1, 0, byte_token['c'], 0, 0);
  token(w, last_job(w), 0, 1, byte_token['d'], 0, 0); /* too late */
  ck_assert_int_eq(w->num_aborts, 0);
  token(w, last_job(w), 1, 1, byte_token['c'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  expect_text(s, 0, "");
  expect_text(s, 1, "cc");
  ck_assert_int_eq(w->num_aborts, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_held_back_text_comes_at_the_end) {
  for (int how = 0; how < 3; how++) {
    struct world *w = world_create(1);
    start_group(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    set_stop(&m, "abcd");
    struct stream *s = submit(w, "a", &m);
    uint64_t job = last_job(w);
    token(w, job, 0, 0, byte_token['x'], 0, 0);
    token(w, job, 0, 1, byte_token['a'], 0, 0);
    token(w, job, 0, 2, byte_token['b'], 0, 0);
    expect_text(s, 0, "x");
    if (how == 0) token(w, job, 0, 3, byte_token['c'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    if (how == 1) token(w, job, 0, 3, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT);
    if (how == 2) cancel(w, "a", 2, s);
    ck_assert(s->done);
    expect_text(s, 0, how ? "xab" : "xabc");
    /* Whoever comes back with all tokens gets it as well. */
    struct stream *t = attach(w, 3, s, 3);
    expect_text(t, 0, how ? "xab" : "xabc");
    ck_assert(t->done);
    world_destroy(w);
  }
}
END_TEST

/* min_tokens lets a stop string pass; it is text then and cuts nothing later. */
START_TEST(test_stop_before_min_tokens) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.min_tokens = 4;
  set_stop(&m, "ab");
  set_stop(&m, "0123456789");
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "xabxxxxxabxx");
  expect_text(s, 0, "xabxxxxx");
  ck_assert(s->done);
  world_destroy(w);
}
END_TEST

/* ---- random texts, tokens, stop strings, slow and returning clients ---- */

static uint64_t rng;
static uint32_t range(uint32_t n) {
  rng += 0x9e3779b97f4a7c15u;
  uint64_t x = (rng ^ (rng >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((x ^ (x >> 31)) % n);
}

static size_t random_text(char *to, uint32_t most) {
  static const char *const letters[] = {"a", "b", "se", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "self", " "};
  size_t n = 0;
  for (uint32_t i = 1 + range(most); i; i--)
    for (const char *p = letters[range(8)]; *p; p++) to[n++] = *p;
  to[n] = '\0';
  return n;
}

/* Cuts a text at random into tokens of the vocabulary. */
static size_t random_tokens(const char *text, size_t len, uint32_t *ids) {
  uint32_t fitting[8192], vocab = tri_tokenizer_vocab_size(tokenizer);
  size_t n = 0;
  for (size_t at = 0; at < len; at += token_len[ids[n - 1]]) {
    uint32_t num = 0;
    for (uint32_t i = 0; i < vocab; i++)
      if (token_len[i] && token_len[i] <= len - at && !memcmp(token_text[i], text + at, token_len[i]))
        fitting[num++] = i;
    ck_assert_uint_gt(num, 0);
    ids[n++] = fitting[range(num)];
  }
  return n;
}

/* Where the text must end: in front of the longest of the stop strings that are complete first. */
static size_t cut_text(const char *text, size_t len, const tri_client_msg *m, size_t *end) {
  for (size_t e = 1; e <= len; e++) {
    size_t best = SIZE_MAX;
    for (int i = 0; i < m->submit.sampling.num_stop; i++) {
      tri_wire_str s = m->submit.sampling.stop[i];
      if (s.len <= e && !memcmp(text + e - s.len, s.s, s.len) && e - s.len < best) best = e - s.len;
    }
    *end = e;
    if (best != SIZE_MAX) return best;
  }
  return len;
}

struct story {
  char text[512], stops[3][64];
  size_t len, cut, end, num; /* end: bytes until the stop string is complete */
  uint32_t ids[512];
  tri_client_msg m;
};

static void make_story(struct story *x, int i) {
  *x = (struct story){.m = submit_msg(1)};
  x->len = random_text(x->text, 20);
  for (uint32_t k = range(4); k; k--) {
    char *s = x->stops[k - 1];
    if (range(2))
      random_text(s, 3);
    else
      snprintf(s, 64, "%.2s", x->text + range((uint32_t)x->len)); /* likely there, perhaps half a character */
    if (*s) set_stop(&x->m, s);
  }
  x->num = random_tokens(x->text, x->len, x->ids);
  x->m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  x->m.submit.request_id.bytes[0] = (uint8_t)(i + 1);
  x->m.submit.has_request_id = true;
}

/* Stop strings are found in whole characters only: a text cut elsewhere is not what this test is about. */
static bool whole_characters(const struct story *x) {
  for (int i = 0; i < x->m.submit.sampling.num_stop; i++) {
    const uint8_t *s = (const uint8_t *)x->m.submit.sampling.stop[i].s;
    size_t n = x->m.submit.sampling.stop[i].len, k = 0;
    while (k < n) k += s[k] < 0x80 ? 1 : s[k] < 0xc0 ? 100 : s[k] < 0xe0 ? 2 : s[k] < 0xf0 ? 3 : 4;
    if (k != n) return false;
  }
  return true;
}

static void check_story(const struct story *x, const struct stream *s, bool stopped) {
  ck_assert(s->done);
  ck_assert_msg(s->choice[0].len == x->cut && !memcmp(s->choice[0].text, x->text, x->cut),
                "\"%.*s\", not the first %zu bytes of \"%s\"", (int)s->choice[0].len, s->choice[0].text, x->cut,
                x->text);
  ck_assert_int_eq(s->choice[0].reason, stopped ? TRI_FINISH_STOP : TRI_FINISH_LENGTH);
  ck_assert_mem_eq(s->choice[0].ids, x->ids, s->choice[0].num * sizeof *x->ids);
  ck_assert_uint_eq(s->choice[0].num, s->completion_tokens);
}

/* What has been sent is a beginning of what will have been, and no more is held back than a stop string needs. */
static void check_progress(const struct story *x, const struct stream *s, size_t bytes_so_far) {
  size_t longest = 1 + 3; /* of a character */
  for (int i = 0; i < x->m.submit.sampling.num_stop; i++)
    if (x->m.submit.sampling.stop[i].len + 3 > longest) longest = x->m.submit.sampling.stop[i].len + 3;
  ck_assert_uint_le(s->choice[0].len, x->cut);
  ck_assert_mem_eq(s->choice[0].text, x->text, s->choice[0].len);
  ck_assert_uint_gt(s->choice[0].len + longest, bytes_so_far < x->cut ? bytes_so_far : x->cut);
}

static void tell_story(struct world *w, const struct story *x, uint64_t job, struct stream *prompt) {
  size_t at = 0;
  for (size_t i = 0; i < x->num; i++) {
    token(w, job, 0, i, x->ids[i], i + 1 == x->num ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
    at += token_len[x->ids[i]];
    if (prompt) check_progress(x, prompt, at);
  }
}

/* A client that reads at once, then clients that come back with every number of tokens. */
START_TEST(test_stories) {
  for (int i = 0; i < 60; i++) {
    struct story x;
    rng = (uint64_t)(_i * 1000 + i);
    do make_story(&x, i % 200);
    while (!whole_characters(&x));
    x.cut = cut_text(x.text, x.len, &x.m, &x.end);
    bool stopped = x.cut < x.len || x.end < x.len;
    struct world *w = world_create(1);
    start_group(w, 0, 1, 1);
    struct stream *s = submit(w, "a", &x.m);
    tell_story(w, &x, last_job(w), s);
    check_story(&x, s, stopped);
    ck_assert_int_eq(w->num_aborts, s->choice[0].num < x.num);
    for (size_t k = 0; k <= s->choice[0].num; k++) check_story(&x, attach(w, 100 + k, s, k), stopped);
    world_destroy(w);
  }
}
END_TEST

/* The same with clients that read in fits and starts, vanish and come back while the job runs. */
START_TEST(test_stories_slow) {
  for (int i = 0; i < 60; i++) {
    struct story x;
    rng = (uint64_t)(_i * 1000 + i + 500);
    do make_story(&x, i % 200);
    while (!whole_characters(&x));
    x.cut = cut_text(x.text, x.len, &x.m, &x.end);
    struct world *w = world_create(1);
    start_group(w, 0, 1, 1);
    struct stream *s = submit(w, "a", &x.m);
    uint64_t job = last_job(w);
    for (size_t k = 0; k < x.num; k++) {
      if (!range(3)) s->pass = (int)range(3), s->again = (int)range(6);
      if (!range(5)) s->closed = true;
      token(w, job, 0, k, x.ids[k], k + 1 == x.num ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
      if (!range(2)) tick(w, MS);
      if (s->closed) s = attach(w, 100 + k, s, s->choice[0].num); /* with what it has read */
    }
    for (int k = 0; k < 10 && !s->done; k++) tick(w, MS);
    check_story(&x, s, x.cut < x.len || x.end < x.len);
    world_destroy(w);
  }
}
END_TEST

/* ---- clients that are slow, gone or ask twice ---- */

START_TEST(test_slow_client_merges) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  s->again = 1000000;
  bytes(w, last_job(w), 0, "abcdefghijklmnopqrstuvwxyz");
  ck_assert(!tri_core_is_idle(w->core)); /* the end is undelivered */
  s->again = 0;
  tick(w, MS);
  expect_text(s, 0, "abcdefghijklmnopqrstuvwxyz");
  ck_assert(s->done);
  ck_assert_int_eq(s->messages, 3); /* accepted, one of tokens, done */
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

START_TEST(test_closed_client) {
  for (int go_on = 0; go_on < 2; go_on++) {
    struct world *w = world_create(1);
    start_group(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.on_disconnect = go_on ? TRI_DISCONNECT_CONTINUE : TRI_DISCONNECT_CANCEL;
    struct stream *s = submit(w, "a", &m);
    s->closed = true;
    token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
    ck_assert_int_eq(w->num_aborts, !go_on);
    token(w, last_job(w), 0, 1, byte_token['b'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    struct stream *t = attach(w, 2, s, 0);
    ck_assert(t->done && t->existing);
    expect_text(t, 0, go_on ? "ab" : "a");
    ck_assert_int_eq(t->choice[0].reason, go_on ? TRI_FINISH_LENGTH : TRI_FINISH_ABORT);
    tick(w, MS);
    ck_assert(tri_core_is_idle(w->core));
    world_destroy(w);
  }
}
END_TEST

START_TEST(test_same_request_twice) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.request_id.bytes[3] = 9;
  m.submit.has_request_id = true;
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  m.id = 2;
  struct stream *t = submit(w, "b", &m);
  ck_assert(t->existing && !s->existing);
  ck_assert_mem_eq(&t->request_id, &s->request_id, sizeof t->request_id);
  token(w, last_job(w), 0, 1, byte_token['b'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  expect_text(t, 0, "ab");
  ck_assert(t->done);
  ck_assert_int_eq(w->num_assigns, 1);
  m.id = 3;
  t = submit(w, "c", &m); /* after the end */
  expect_text(t, 0, "ab");
  ck_assert(t->done && t->existing);
  ck_assert_int_eq(w->num_assigns, 1);
  /* In a minute it is forgotten, and the same request is a new one. */
  tick(w, 61 * SECOND);
  struct stream *u = open_stream(w, "d", 4);
  tri_client_msg a = {.op = TRI_OP_ATTACH, .id = 4, .attach = {t->request_id, 0}};
  tri_core_client(w->core, w->now, &u->peer, &a);
  expect_error(u, "not_found", "request_id");
  world_destroy(w);
}
END_TEST

START_TEST(test_cancel) {
  struct world *w = world_create(1);
  for (int state = 0; state < 4; state++) { /* being encoded, queued, running, ended */
    if (state == 2) start_group(w, 0, 1, 1);
    tri_client_msg m = submit_msg(10 + (uint64_t)state);
    if (!state) m.submit.prompt = (tri_wire_str){"x", 1};
    m.submit.request_id.bytes[0] = (uint8_t)(state + 1);
    m.submit.has_request_id = true;
    struct stream *s = submit(w, "a", &m);
    s->request_id = m.submit.request_id;
    if (state >= 2) token(w, last_job(w), 0, 0, byte_token['a'], state == 3 ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
    struct stream *t = cancel(w, "b", 20 + (uint64_t)state, s);
    ck_assert_int_eq(t->accepted, 1);
    ck_assert(s->done && !s->code[0]);
    ck_assert_int_eq(s->choice[0].reason, state == 3 ? TRI_FINISH_LENGTH : TRI_FINISH_ABORT);
    ck_assert(!s->timed_out);
    ck_assert_int_eq(w->num_aborts, state >= 2);
    if (!state) tri_core_encoded(w->core, w->now, w->encode_job, TRI_OK, some_ids, 3, 0); /* comes to nobody */
    if (state == 2) token(w, last_job(w), 0, 1, byte_token['b'], 0, 0);
  }
  ck_assert(tri_core_is_idle(w->core));
  /* By the number of an own earlier submit; another peer's number is not that. */
  tri_client_msg m = submit_msg(50);
  struct stream *s = submit(w, "a", &m), *t = open_stream(w, "b", 51);
  tri_client_msg x = {.op = TRI_OP_CANCEL, .id = 51, .cancel = {.target = 50}};
  tri_core_client(w->core, w->now, &t->peer, &x);
  expect_error(t, "not_found", "request_id");
  ck_assert(!s->done);
  x.id = 52;
  t = open_stream(w, "a", 52);
  tri_core_client(w->core, w->now, &t->peer, &x);
  ck_assert(s->done);
  world_destroy(w);
}
END_TEST

/* ---- refusals ---- */

static void refuse(struct world *w, const tri_client_msg *m, const char *code, const char *field) {
  struct stream *s = submit(w, "r", m);
  expect_error(s, code, field);
  ck_assert_int_eq(s->accepted, 0);
}

START_TEST(test_refused_submits) {
  static uint32_t ids[MODEL_LEN];
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg good = submit_msg(1), m;
  m = good, m.id = 2, m.submit.model = (tri_wire_str){"toys", 4};
  refuse(w, &m, "not_found", "model");
  m = good, m.id = 3, m.submit.num_token_ids = 0;
  refuse(w, &m, "invalid_argument", "prompt");
  m = good, m.id = 4, ids[1] = 4000, m.submit.token_ids = ids, m.submit.num_token_ids = 2;
  refuse(w, &m, "out_of_range", "token_ids");
  ids[1] = 0;
  m = good, m.id = 5, m.submit.token_ids = ids, m.submit.num_token_ids = MODEL_LEN;
  refuse(w, &m, "no_capacity", "prompt");
  m = good, m.id = 6, m.submit.sampling.n = SLOTS + 1;
  refuse(w, &m, "no_capacity", "n");
  struct tri_wire_bias bias = {.id = 4000};
  m = good, m.id = 7, m.submit.sampling.num_logit_bias = 1, m.submit.sampling.logit_bias = &bias;
  refuse(w, &m, "out_of_range", "logit_bias");
  m = good, m.id = 13, m.submit.sampling.has_max_tokens = true, m.submit.sampling.max_tokens = MODEL_LEN - 2;
  refuse(w, &m, "no_capacity", "max_tokens");
  m = good, m.id = 12, m.submit.sampling.num_stop_token_ids = 2, m.submit.sampling.stop_token_ids[1] = 4000;
  refuse(w, &m, "out_of_range", "stop_token_ids");
  m = good, m.id = 8, m.submit.sampling.min_tokens = 17;
  refuse(w, &m, "out_of_range", "min_tokens");
  w->refuse_encoding = true;
  m = good, m.id = 9, m.submit.prompt = (tri_wire_str){"x", 1};
  refuse(w, &m, "no_capacity", "prompt");
  w->refuse_encoding = false;
  m.id = 10;
  struct stream *s = submit(w, "a", &m);
  tri_core_encoded(w->core, w->now, w->encode_job, TRI_TOO_LARGE, NULL, 0, 0);
  expect_error(s, "no_capacity", "prompt");
  m.id = 11, m.op = TRI_OP_EMBED;
  refuse(w, &m, "unsupported", "op");
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert(tri_core_is_idle(w->core));
  m = good, m.id = 14, m.submit.sampling.has_max_tokens = true, m.submit.sampling.max_tokens = MODEL_LEN - 3;
  submit(w, "a", &m);
  m = good, m.id = 15, m.submit.token_ids = ids, m.submit.num_token_ids = MODEL_LEN - 1; /* room for one, not for 16 */
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 2);
  world_destroy(w);
}
END_TEST

/* A leader that cannot run a job says why. */
START_TEST(test_refused_by_leader) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_group_msg r = {.op = TRI_GROUP_REFUSED,
                     .refused = {.job = last_job(w), .epoch = 2, .code = {"no_capacity", 11}, .field = {"prompt", 6}}};
  r.refused.message = (tri_wire_str){"too long", 8};
  send_worker(w, 0, 1, 0, &r); /* of another epoch */
  tick(w, 0);
  ck_assert(!s->done);
  r.refused.epoch = 1;
  send_worker(w, 0, 1, 0, &r);
  tick(w, 0);
  expect_error(s, "no_capacity", "prompt");
  ck_assert_str_eq(s->message, "too long");
  m.id = 2;
  s = submit(w, "a", &m);
  r.refused.job = last_job(w);
  r.refused.code = (tri_wire_str){"no_such_code", 12};
  send_worker(w, 0, 1, 0, &r);
  tick(w, 0);
  expect_error(s, "internal", "prompt");
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* The model's own beams are used where nothing in the request speaks against them, its other values in any search. */
START_TEST(test_model_beams) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  w->model.gen_num_beams = 3;
  w->model.gen_length_penalty = 2;
  w->model.gen_early_stopping = TRI_EARLY_NEVER;
  static const int64_t want[] = {3, 1, 1, 1, 3, 2, 1, 1};
  for (uint64_t i = 0; i < 8; i++) {
    tri_client_msg m = submit_msg(i);
    tri_sampling *p = &m.submit.sampling;
    if (i == 1) p->has_temperature = true;
    if (i == 2) p->n = 4;
    if (i == 3) p->logprobs = 1;
    if (i == 4) p->n = 3, p->has_length_penalty = true, p->length_penalty = 0.5;
    if (i == 5) p->has_num_beams = true, p->num_beams = 2, p->has_temperature = true;
    if (i == 6) p->has_num_beams = true;
    if (i == 7) w->model.gen_num_beams = TRI_WIRE_MAX_BEAMS + 1;
    submit(w, "a", &m);
    const tri_sampling *got = &w->assigns[w->num_assigns - 1].a.sampling;
    ck_assert_int_eq(w->num_assigns, (int)i + 1);
    ck_assert_int_eq(got->num_beams, want[i]);
    if (got->num_beams == 1) continue;
    ck_assert_double_eq(got->length_penalty, i == 4 ? 0.5 : 2);
    ck_assert_int_eq(got->early_stopping, TRI_EARLY_NEVER);
  }
  tri_client_msg m = submit_msg(9);
  m.submit.sampling.has_num_beams = true, m.submit.sampling.num_beams = SLOTS + 1;
  refuse(w, &m, "no_capacity", "num_beams");
  w->model.gen_repetition_penalty = 1.2;
  m.id = 10, m.submit.sampling.num_beams = 2;
  refuse(w, &m, "unsupported", "repetition_penalty");
  world_destroy(w);
}
END_TEST

static void ask_floors(struct world *w, uint64_t id) {
  tri_client_msg m = {.op = TRI_OP_FLOORS, .id = id};
  struct stream *s = open_stream(w, "f", id);
  tri_core_client(w->core, w->now, &s->peer, &m);
}

static void send_floors(struct world *w, uint32_t group, uint32_t rank, double x) {
  tri_group_msg m = {.op = TRI_GROUP_FLOORS,
                     .floors = {.group = group, .rank = rank, .epoch = 1, .floors = {x, 2 * x, 3 * x, 4 * x, 5 * x}}};
  send_worker(w, group, 1, rank, &m);
}

START_TEST(test_floors) {
  struct world *w = world_create(2);
  ask_floors(w, 1); /* nobody is there to measure */
  ck_assert(w->floors_answers == 1 && !w->floors.num_groups);
  start_group(w, 0, 1, 2);
  start_group(w, 1, 1, 1);
  /* All ranks of all groups measure; the answer comes when the last one has. */
  ask_floors(w, 2);
  ask_floors(w, 3);
  ck_assert(w->measures == 3 && w->floors_answers == 1);
  send_floors(w, 0, 1, 10);
  send_floors(w, 1, 0, 100);
  send_floors(w, 0, 7, 1000); /* there is no such rank */
  ck_assert_int_eq(w->floors_answers, 1);
  send_floors(w, 0, 0, 1);
  ck_assert(w->floors_answers == 3 && w->floors.num_groups == 2);
  ck_assert(w->floors.groups[0].measured == 2 && w->floors.groups[0].sum.read_bytes_per_s == 11);
  ck_assert(w->floors.groups[1].ranks == 1 && w->floors.groups[1].sum.output_token_flops == 500);
  /* While a job is there nothing is measured: the answer is what was. */
  tri_client_msg m = submit_msg(4);
  submit(w, "a", &m);
  ask_floors(w, 5);
  ck_assert(w->measures == 3 && w->floors_answers == 4 && w->floors.groups[0].measured == 2);
  token(w, last_job(w), 0, 0, 65, TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  /* A rank that does not answer is not waited for without end, and those who wait are not without number. */
  for (uint64_t id = 10; id < 18; id++) ask_floors(w, id);
  m = (tri_client_msg){.op = TRI_OP_FLOORS, .id = 18};
  expect_error(submit(w, "f", &m), "no_capacity", "op");
  send_floors(w, 0, 0, 1);
  ck_assert(w->measures == 6 && w->floors_answers == 4);
  for (int i = 0; i < 31; i++) {
    for (uint32_t r = 0; r < 2; r++) send_health(w, 0, 1, r, 1, false);
    send_health(w, 1, 1, 0, 1, false);
    tick(w, 1000000000);
  }
  ck_assert(w->floors_answers == 12 && w->floors.groups[0].measured == 1 && w->floors.groups[1].measured == 0);
  world_destroy(w);
}
END_TEST

START_TEST(test_max_queue) {
  struct world *w = world_create(1);
  struct stream *s[21];
  for (int i = 0; i <= 20; i++) {
    tri_client_msg m = submit_msg((uint64_t)i);
    s[i] = submit(w, "a", &m);
  }
  ck_assert_int_eq(s[19]->accepted, 1);
  expect_error(s[20], "no_capacity", "");
  start_group(w, 0, 1, 1); /* one ends: one more has room */
  ck_assert_int_eq(w->num_assigns, 20);
  for (int i = 1; i < 20; i++) ck_assert_uint_eq(w->assigns[i].a.job, w->assigns[i - 1].a.job + 1); /* in order */
  token(w, w->assigns[3].a.job, 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  tri_client_msg m = submit_msg(30);
  ck_assert_int_eq(submit(w, "a", &m)->accepted, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_queued_deadline) {
  struct world *w = world_create(1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.deadline_ms = 100;
  struct stream *s = submit(w, "a", &m);
  m.id = 2;
  struct stream *late = submit(w, "a", &m);
  late->again = 1;
  tick(w, 99 * MS);
  ck_assert(!s->done);
  tick(w, MS);
  ck_assert(s->done && !s->code[0]);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_ABORT);
  ck_assert(s->timed_out);
  /* A group that becomes ready between the deadline and the next tick gets nothing: least of all a job without one. */
  m.id = 3;
  s = submit(w, "a", &m);
  w->now += 150 * MS;
  start_group(w, 0, 1, 1);
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert(s->done && s->timed_out);
  /* Of a job that runs its leader watches the time. */
  m.id = 4;
  s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 0, 1, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT);
  ck_assert(s->done && s->timed_out);
  world_destroy(w);
}
END_TEST

/* ---- draining ---- */

START_TEST(test_drain) {
  struct world *w = world_create(2);
  start_group(w, 0, 1, 2);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_core_drain(w->core, w->now);
  m.id = 2;
  expect_error(submit(w, "a", &m), "draining", "");
  ck_assert_int_eq(w->drains, 0); /* work is left */
  start_group(w, 1, 1, 1);        /* late, but it might be needed */
  token(w, last_job(w), 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 3); /* both ranks of one group, and the other's */
  ck_assert(tri_core_is_idle(w->core));
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 3);
  start_group(w, 1, 2, 1); /* too late */
  ck_assert_int_eq(w->drains, 4);
  world_destroy(w);
}
END_TEST

START_TEST(test_abandon) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  struct stream *s[3];
  for (int i = 0; i < 3; i++) {
    tri_client_msg m = submit_msg((uint64_t)i);
    if (i == 2) m.submit.prompt = (tri_wire_str){"x", 1};
    s[i] = submit(w, "a", &m);
  }
  tri_core_abandon(w->core, w->now, "the power goes");
  for (int i = 0; i < 3; i++) {
    expect_error(s[i], "peer_lost", "");
    ck_assert_str_eq(s[i]->message, "the power goes");
  }
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* ---- groups ---- */

START_TEST(test_group_lost) {
  struct world *w = world_create(2);
  start_group(w, 0, 1, 2);
  struct stream *s[5];
  for (int i = 0; i < 5; i++) {
    tri_client_msg m = submit_msg((uint64_t)i);
    if (i == 1) m.submit.stream = false;
    if (i == 3) start_group(w, 1, 1, 1); /* the last two go to the second group */
    s[i] = submit(w, "a", &m);
  }
  token(w, w->assigns[0].a.job, 0, 0, byte_token['a'], 0, 0);
  tri_group_msg m = {.op = TRI_GROUP_FAILED, .failed = {.group = 0, .rank = 1, .epoch = 1, .message = {"no disk", 7}}};
  send_worker(w, 0, 1, 1, &m);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->lost_reason, "rank 1") && strstr(w->lost_reason, "no disk"));
  for (int i = 0; i < 3; i++) {
    expect_error(s[i], "peer_lost", "");
    ck_assert(strstr(s[i]->message, "no disk"));
  }
  ck_assert(!s[3]->done && !s[4]->done);
  expect_text(s[0], 0, "a");
  /* What the dead still say reaches nobody, and a second notice of death changes nothing. */
  token(w, w->assigns[0].a.job, 0, 1, byte_token['b'], 0, 0);
  send_worker(w, 0, 1, 0, &m);
  ck_assert_int_eq(w->lost, 1);
  tri_client_msg next = submit_msg(9);
  submit(w, "a", &next);
  tri_zpeer second = rank_peer(1, 1, 0);
  ck_assert(same_peer(&w->assigns[5].to, &second));
  world_destroy(w);
}
END_TEST

START_TEST(test_stale_epoch) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *old = submit(w, "a", &m);
  uint64_t old_job = last_job(w);
  start_group(w, 0, 2, 1); /* started again before anybody noticed the death */
  expect_error(old, "peer_lost", "");
  m.id = 2;
  struct stream *s = submit(w, "a", &m);
  ck_assert_uint_eq(w->assigns[1].a.epoch, 2);
  tri_group_token t = {.job = last_job(w), .token = byte_token['x']};
  send_tokens(w, 0, 1, &t, 1); /* the old leader's peer is unknown */
  tri_group_msg stale = {.op = TRI_GROUP_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  send_worker(w, 0, 2, 0, &stale); /* the new one's, with an old epoch */
  t.job = old_job;
  send_tokens(w, 0, 2, &t, 1);
  expect_text(s, 0, "");
  t.job = last_job(w);
  send_tokens(w, 0, 2, &t, 1);
  expect_text(s, 0, "x");
  tri_group_msg failed = {.op = TRI_GROUP_FAILED, .failed = {.group = 0, .epoch = 1}};
  send_worker(w, 0, 1, 0, &failed);
  send_ready(w, 0, 1);
  ck_assert_int_eq(w->lost, 0);
  ck_assert(!s->done);
  world_destroy(w);
}
END_TEST

/* A token that does not follow the one before is a fault of the group's, not a gap in the text. */
START_TEST(test_wrong_offset) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 7, 1, byte_token['a'], 0, 0); /* no such choice */
  token(w, 12345, 0, 0, byte_token['a'], 0, 0);       /* no such job */
  ck_assert(!s->done);
  token(w, last_job(w), 0, 2, byte_token['b'], 0, 0);
  expect_error(s, "internal", "");
  ck_assert_int_eq(w->num_aborts, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_balance) {
  struct world *w = world_create(3);
  for (uint32_t g = 0; g < 3; g++) start_group(w, g, 1, 1);
  int count[3] = {0};
  for (uint64_t i = 0; i < 18; i++) {
    tri_client_msg m = submit_msg(i);
    submit(w, "a", &m);
    for (uint32_t g = 0; g < 3; g++) {
      tri_zpeer p = rank_peer(g, 1, 0);
      count[g] += same_peer(&w->assigns[i].to, &p);
    }
  }
  for (int g = 0; g < 3; g++) ck_assert_int_eq(count[g], 6);
  /* The one that finishes gets the next. */
  tri_group_token t = {.job = w->assigns[1].a.job, .token = 5, .flags = TRI_TOKEN_LAST};
  tri_zpeer whose = w->assigns[1].to;
  tri_group_msg m = {.op = TRI_GROUP_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  tri_core_worker(w->core, w->now, &whose, &m);
  tri_client_msg next = submit_msg(99);
  submit(w, "a", &next);
  ck_assert(same_peer(&w->assigns[18].to, &whose));
  world_destroy(w);
}
END_TEST

/* A busy group, its ranks reporting each second; from 3 s on rank 1 is silent, or nothing moves any more. */
static int64_t time_of_loss(struct world *w, bool silent, bool busy) {
  start_group(w, 0, 1, 2);
  int64_t start = w->now;
  for (int i = 0; i < 400 && !w->lost; i++) {
    if (i % 10 == 0)
      for (uint32_t r = 0; r < 2; r++) {
        uint64_t step = i < 30 || silent ? (uint64_t)i : 30;
        if (!(silent && r && i > 30)) send_health(w, 0, 1, r, step, busy);
      }
    tick(w, 100 * MS);
  }
  return w->now - start;
}

START_TEST(test_silent_rank) {
  struct world *w = world_create(1);
  int64_t t = time_of_loss(w, true, true);
  ck_assert_msg(t > 7 * SECOND && t <= 7 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  ck_assert(strstr(w->lost_reason, "rank 1") && strstr(w->lost_reason, "silent") && strstr(w->lost_reason, "node"));
  ck_assert_int_ge(w->leases, 2 * 7);
  int leases = w->leases;
  tick(w, 2 * SECOND); /* the lost get no lease */
  ck_assert_int_eq(w->leases, leases);
  world_destroy(w);
}
END_TEST

START_TEST(test_stalled_group) {
  struct world *w = world_create(1);
  int64_t t = time_of_loss(w, false, true);
  ck_assert_msg(t >= 13 * SECOND && t <= 13 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  ck_assert(strstr(w->lost_reason, "no progress") && strstr(w->lost_reason, "step 30"));
  world_destroy(w);
  w = world_create(1); /* whose layers take long */
  w->block_seconds = 2;
  t = time_of_loss(w, false, true);
  ck_assert_msg(t >= 23 * SECOND && t <= 23 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  world_destroy(w);
  w = world_create(1); /* an idle group may stand still */
  time_of_loss(w, false, false);
  ck_assert_int_eq(w->lost, 0);
  world_destroy(w);
}
END_TEST

START_TEST(test_refused_registrations) {
  struct world *w = world_create(2);
  ck_assert(!send_register(w, 2, 1, 0, 1));
  ck_assert(strstr(w->welcome_text, "no such group"));
  ck_assert(!send_register(w, 0, 1, 0, 0));
  ck_assert(!send_register(w, 0, 1, 2, 2));
  ck_assert(!send_register(w, 0, 1, 0, 100000));
  ck_assert(!tri_core_any_group(w->core));
  ck_assert(send_register(w, 0, 5, 0, 2));
  ck_assert(tri_core_any_group(w->core));
  ck_assert(!send_register(w, 0, 5, 1, 3));
  ck_assert(strstr(w->welcome_text, "disagree"));
  ck_assert(!send_register(w, 0, 4, 1, 2));
  ck_assert(strstr(w->welcome_text, "newer"));
  ck_assert(send_register(w, 0, 5, 1, 2));
  /* Given up: the same start may not come back, the next one may. */
  tri_group_msg m = {.op = TRI_GROUP_FAILED, .failed = {.group = 0, .epoch = 5}};
  send_worker(w, 0, 5, 0, &m);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(!tri_core_any_group(w->core));
  ck_assert(!send_register(w, 0, 5, 0, 2));
  ck_assert(send_register(w, 0, 6, 0, 2));
  world_destroy(w);
}
END_TEST

/* Groups must agree about the model: one that does not is never used. */
START_TEST(test_other_model) {
  struct world *w = world_create(2);
  start_group(w, 0, 1, 1);
  tri_group_msg m = {.op = TRI_GROUP_REGISTER,
                     .reg = {.group = 1,
                             .world = 1,
                             .epoch = 1,
                             .model_hash = 5,
                             .max_model_len = 1,
                             .kv_pages = 1,
                             .block_size = 1,
                             .max_num_seqs = 1}};
  send_worker(w, 1, 1, 0, &m);
  send_ready(w, 1, 1);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->lost_reason, "another model"));
  world_destroy(w);
}
END_TEST

/* ---- the seed ---- */

/* Fixed before assignment: the same request to the same coordinator draws the same, another one does not. */
START_TEST(test_seed) {
  uint64_t seeds[2][3];
  for (int i = 0; i < 2; i++) {
    struct world *w = world_create(1);
    start_group(w, 0, 1, 1);
    for (uint64_t k = 0; k < 3; k++) {
      tri_client_msg m = submit_msg(k);
      m.submit.sampling.has_seed = k == 2;
      m.submit.sampling.seed = 77;
      submit(w, "a", &m);
      seeds[i][k] = w->assigns[k].a.seed;
    }
    world_destroy(w);
  }
  ck_assert_mem_eq(seeds[0], seeds[1], sizeof seeds[0]);
  ck_assert_uint_ne(seeds[0][0], seeds[0][1]);
  ck_assert_uint_eq(seeds[0][2], 77);
}
END_TEST

/* ---- the tokenizer ---- */

/* GPT-2's byte alphabet: printable Latin-1 stands for itself, the others for U+0100 on, in order. */
static int byte_of(uint32_t cp) {
  if ((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255)) return (int)cp;
  uint32_t n = 256;
  for (int b = 0; b < 256; b++) {
    bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (!self && n++ == cp) return b;
  }
  return -1;
}

static void read_token(uint32_t id) {
  const char *name = tri_tokenizer_token(tokenizer, id);
  if (!name || tri_tokenizer_is_special(tokenizer, id)) return;
  char *to = token_text[id] = malloc(strlen(name) + 1);
  for (const uint8_t *p = (const uint8_t *)name; *p; p++) {
    uint32_t cp = *p;
    if (cp >= 0xc0) cp = (cp & 0x1f) << 6 | (*++p & 0x3f); /* the alphabet ends before U+0800 */
    to[token_len[id]++] = (char)byte_of(cp);
  }
  if (token_len[id] == 1) byte_token[(uint8_t)to[0]] = id;
}

static void load_tokenizer(void) {
  tri_error err = {0};
  ck_assert_msg(tri_tokenizer_load(TRI_TEST_DATA "/tokenizers/bytelevel_bpe_gpt2/tokenizer.json", &tokenizer, &err) ==
                    TRI_OK,
                "%s", err.message);
  ck_assert_uint_le(tri_tokenizer_vocab_size(tokenizer), 8192);
  for (uint32_t i = 0; i < tri_tokenizer_vocab_size(tokenizer); i++) read_token(i);
}

static void free_tokenizer(void) {
  for (size_t i = 0; i < sizeof token_text / sizeof *token_text; i++) {
    free(token_text[i]);
    token_text[i] = NULL;
    token_len[i] = 0;
  }
  tri_tokenizer_destroy(tokenizer);
}

static TCase *add_case(Suite *suite, const char *name) {
  TCase *t = tcase_create(name);
  tcase_add_unchecked_fixture(t, load_tokenizer, free_tokenizer);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return t;
}

Suite *suite_core(void) {
  Suite *suite = suite_create("core");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *jobs = add_case(suite, "jobs"), *text = add_case(suite, "text"), *clients = add_case(suite, "clients"),
        *groups = add_case(suite, "groups");
  tcase_add_test(jobs, test_submit);
  tcase_add_test(jobs, test_text_prompt);
  tcase_add_test(jobs, test_prompt_encoded_at_once);
  tcase_add_test(jobs, test_floors);
  tcase_add_test(jobs, test_attach_several_choices);
  tcase_add_test(jobs, test_echo_of_ids);
  tcase_add_test(jobs, test_echo_slow);
  tcase_add_test(jobs, test_not_streamed);
  tcase_add_test(jobs, test_several_choices);
  tcase_add_test(jobs, test_tokens_without_text);
  tcase_add_test(jobs, test_refused_submits);
  tcase_add_test(jobs, test_refused_by_leader);
  tcase_add_test(jobs, test_model_beams);
  tcase_add_test(jobs, test_max_queue);
  tcase_add_test(jobs, test_queued_deadline);
  tcase_add_test(jobs, test_seed);
  tcase_add_test(text, test_stop_string);
  tcase_add_test(text, test_stop_string_of_one_choice);
  tcase_add_test(text, test_held_back_text_comes_at_the_end);
  tcase_add_test(text, test_stop_before_min_tokens);
  tcase_add_loop_test(text, test_stories, 0, 5);
  tcase_add_loop_test(text, test_stories_slow, 0, 5);
  tcase_add_test(clients, test_slow_client_merges);
  tcase_add_test(clients, test_closed_client);
  tcase_add_test(clients, test_same_request_twice);
  tcase_add_test(clients, test_cancel);
  tcase_add_test(groups, test_drain);
  tcase_add_test(groups, test_abandon);
  tcase_add_test(groups, test_group_lost);
  tcase_add_test(groups, test_stale_epoch);
  tcase_add_test(groups, test_wrong_offset);
  tcase_add_test(groups, test_balance);
  tcase_add_test(groups, test_silent_rank);
  tcase_add_test(groups, test_stalled_group);
  tcase_add_test(groups, test_refused_registrations);
  tcase_add_test(groups, test_other_model);
  return suite;
}
