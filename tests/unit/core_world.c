/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/core_world.h"

#include "coordinator/journal/recorder.h"

tri_tokenizer *tokenizer;
static const tri_tokenizer *of_texts; /* that the tables of tokens' texts are of */
uint32_t byte_token[256];
char *token_text[8192];
size_t token_len[8192];

/* Bytes behind the length of a peer are whatever was there, as the sockets leave it. */
static tri_peer peer_of(const char *name) {
  static uint8_t garbage;
  tri_peer p = {.len = (uint8_t)strlen(name)};
  memset(p.bytes, ++garbage, sizeof p.bytes);
  memcpy(p.bytes, name, p.len);
  const char *at = strchr(name, '@');
  if (at) {
    p.owner.kind = TRI_OWNER_KEY;
    snprintf((char *)p.owner.bytes, sizeof p.owner.bytes, "%s", at);
  }
  return p;
}

static struct stream *find_stream(struct world *w, const tri_peer *peer, uint64_t id) {
  for (int i = 0; i < w->num_streams; i++)
    if (w->streams[i].id == id && tri_peer_equal(&w->streams[i].peer, peer)) return &w->streams[i];
  return NULL;
}

static void copy_str(char *to, size_t cap, tri_wire_str s) { snprintf(to, cap, "%.*s", (int)s.len, s.s ? s.s : ""); }

static void add_text(struct text *t, tri_wire_str s) {
  ck_assert_uint_lt(t->len + s.len, MAX_TEXT);
  if (s.len) memcpy(t->text + t->len, s.s, s.len);
  t->len += s.len;
}

/* Against what read_token worked out by itself. */
static void check_token_text(uint32_t id, tri_wire_str s) {
  if (tokenizer != of_texts) return; /* another one than read_token has read */
  const char *name = tri_tokenizer_token(tokenizer, id);
  bool special = name && tri_tokenizer_is_special(tokenizer, id);
  const char *want = special ? name : token_text[id];
  size_t len = special ? strlen(name) : token_len[id];
  ck_assert_msg(s.s && s.len == len && !memcmp(s.s, want ? want : "", len), "token %u", id);
}

static void add_piece(char *pieces, size_t cap, tri_wire_str s) {
  size_t used = strlen(pieces);
  snprintf(pieces + used, cap - used, "%.*s", (int)s.len, s.s ? s.s : "");
}

static void read_scores(struct stream *s, const tri_choice_tokens *t) {
  ck_assert_msg(!s->choice[0].num, "tokens before the prompt's");
  ck_assert(!t->index && t->num_ids && t->logprobs && t->offset == s->num_scored);
  for (size_t k = 0; k < t->num_ids; k++) {
    check_token_text(t->ids[k], t->logprobs[k].text);
    add_piece(s->scored_pieces, sizeof s->scored_pieces, t->logprobs[k].text);
    s->scored[s->num_scored++] = t->logprobs[k].logprob;
  }
}

static void read_tokens(struct stream *s, const tri_server_msg *m) {
  ck_assert_msg(s->accepted == 1, "tokens before accepted");
  for (uint32_t i = 0; i < m->tokens.num; i++) {
    const tri_choice_tokens *t = &m->tokens.choices[i];
    ck_assert_uint_lt(t->index, MAX_CHOICES);
    struct text *c = &s->choice[t->index];
    if (t->of_prompt) {
      read_scores(s, t);
      continue;
    }
    ck_assert_msg(t->num_ids || t->text.len, "an empty message");
    ck_assert_msg(!t->num_ids || t->offset == c->num, "tokens from %d, the client has %zu", (int)t->offset, c->num);
    ck_assert_uint_le(c->num + t->num_ids, MAX_TOKENS);
    for (size_t k = 0; k < t->num_ids; k++) c->ids[c->num++] = t->ids[k];
    add_text(c, t->text);
    if (t->num_ids || !c->num) c->len_after[c->num] = c->len;
    for (size_t k = 0; t->logprobs && k < t->num_ids; k++) {
      ck_assert(t->logprobs[k].logprob == -(float)t->ids[k]);
      check_token_text(t->ids[k], t->logprobs[k].text);
      add_piece(c->pieces, sizeof c->pieces, t->logprobs[k].text);
      c->num_logprobs++;
      if (!t->logprobs[k].num_top) continue;
      ck_assert_int_eq(t->logprobs[k].num_top, 2);
      ck_assert_uint_eq(t->logprobs[k].top_ids[1], t->ids[k] + 1);
      check_token_text(t->ids[k] + 1, t->logprobs[k].top_texts[1]);
      c->num_alternatives += 2;
    }
  }
}

static void read_done(struct stream *s, const tri_done *d) {
  ck_assert_msg(s->accepted == 1, "done before accepted");
  s->completion_tokens = d->completion_tokens;
  s->prompt_tokens = d->prompt_tokens;
  s->timed_out = d->timed_out;
  s->preemptions = d->preemptions;
  s->cached_tokens = d->cached_tokens;
  s->queue_ms = d->queue_ms;
  s->seed = d->seed;
  for (uint32_t i = 0; i < d->num_choices; i++) {
    s->choice[i].reason = d->choices[i].reason;
    s->choice[i].stop_string = d->choices[i].has_stop_string ? (int64_t)d->choices[i].stop_string : -1;
    s->choice[i].stop_token_id = d->choices[i].has_stop_token_id ? (int64_t)d->choices[i].stop_token_id : -1;
    add_text(&s->choice[i], d->choices[i].text);
  }
}

static tri_status to_client(void *ctx, const tri_peer *to, const tri_server_msg *m) {
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
    s->cached = m->accepted.cached;
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
  case TRI_REPLY_STATUS:
    w->clients = m->status.clients;
    if (w->status) *w->status = m->status;
    memcpy(w->ranks, m->status.ranks, sizeof w->ranks);
    break;
  case TRI_REPLY_ROOFLINES:
    w->rooflines = m->rooflines;
    w->floors_answers++;
    break;
  case TRI_REPLY_STATS:
    if (w->stats) copy_str(w->stats, STATS_BYTES, m->stats);
    break;
  case TRI_REPLY_EXPERTS:
    copy_str(w->experts, sizeof w->experts, m->experts);
    w->experts_answers++;
    break;
  case TRI_REPLY_EMBEDDING:
  case TRI_REPLY_SCORES:
    s->num_values = m->embed.num_values;
    memcpy(s->values, m->embed.values, (s->num_values < 4 ? s->num_values : 4) * sizeof(float));
    s->cached = m->embed.cached;
    s->done = true;
    break;
  default: break;
  }
  return TRI_OK;
}

/* The shell keeps for a slow client what the core says once. */
static void answer(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  while (to_client(ctx, to, m) == TRI_AGAIN) continue;
}

/* A client is gone with all of its streams. */
static tri_status look(void *ctx, const tri_peer *to) {
  struct world *w = ctx;
  w->looks++;
  for (int i = 0; i < w->num_streams; i++)
    if (tri_peer_equal(&w->streams[i].peer, to)) return w->streams[i].closed ? TRI_CLOSED : TRI_OK;
  ck_abort_msg("a look for nobody");
}

static tri_status to_worker(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  struct world *w = ctx;
  if (w->lost_peer.len && tri_peer_equal(&w->lost_peer, to)) return TRI_CLOSED;
  switch (m->op) {
  case TRI_REPLICA_WELCOME:
    w->welcome = m->welcome.ok;
    copy_str(w->welcome_text, sizeof w->welcome_text, m->welcome.message);
    break;
  case TRI_REPLICA_ASSIGN: {
    ck_assert_int_lt(w->num_assigns, MAX_ASSIGNS);
    struct assigned *a = &w->assigns[w->num_assigns++];
    *a = (struct assigned){.a = m->assign, .to = *to};
    memcpy(a->ids, m->assign.token_ids, m->assign.num_token_ids * sizeof *a->ids);
    copy_str(a->salt, sizeof a->salt, m->assign.cache_salt);
    ck_assert(m->assign.num_sampled <= MAX_TOKENS && m->assign.num_sampled_counts <= MAX_CHOICES);
    for (size_t i = 0; i < m->assign.num_sampled; i++) a->sampled[i] = m->assign.sampled[i];
    for (size_t i = 0; i < m->assign.num_sampled_counts; i++) a->counts[i] = m->assign.sampled_counts[i];
    ck_assert_int_eq(m->assign.sampling.num_stop, 0); /* text is the coordinator's business */
    break;
  }
  case TRI_REPLICA_ABORT: w->aborts[w->num_aborts++] = m->abort.job; break;
  case TRI_REPLICA_DRAIN: w->drains++; break;
  case TRI_REPLICA_LEASE: w->leases++; break;
  case TRI_REPLICA_MEASURE: w->measures++; break;
  case TRI_REPLICA_COUNT_EXPERTS: w->counts++; break;
  default: ck_abort_msg("the core sends op %d to a worker", (int)m->op);
  }
  return TRI_OK;
}

static tri_status tokenize(void *ctx, uint64_t job, const tri_core_text *text, const uint32_t **ids, size_t *count,
                           size_t *second) {
  struct world *w = ctx;
  (void)second;
  if (w->refuse_tokenize) return TRI_AGAIN;
  if (w->tokenize_now) {
    *ids = w->now_ids;
    *count = w->num_now_ids;
    return w->tokenize_now_status;
  }
  w->tokenize_job = job;
  if (text->text.len) memcpy(w->tokenize_text, text->text.s, text->text.len);
  w->tokenize_schema = text->schema.len;
  w->tokenize_ids = text->num_ids;
  w->tokenize_len = text->text.len;
  w->tokenize_special = text->special;
  w->tokenize_to = text->truncate_to;
  w->tokenize_end = text->keep_end;
  w->tokenizes++;
  return TRI_OK;
}

static void tokenize_stop(void *ctx, uint64_t job) {
  struct world *w = ctx;
  w->stopped_job = job;
}

static void rank_came(void *ctx, uint32_t replica, uint64_t epoch, uint32_t rank) {
  (void)replica, (void)epoch, (void)rank;
  ((struct world *)ctx)->came++;
}

static void replica_lost(void *ctx, const tri_core_loss *loss) {
  struct world *w = ctx;
  w->lost++;
  w->loss = *loss;
  snprintf(w->lost_reason, sizeof w->lost_reason, "%s", loss->reason);
}

static void replica_ready(void *ctx, uint32_t replica, uint64_t epoch) {
  (void)replica, (void)epoch;
  ((struct world *)ctx)->ready++;
}

static void hang(void *ctx, uint32_t replica, uint64_t epoch, const char *report, size_t len) {
  struct world *w = ctx;
  (void)replica, (void)epoch;
  w->hangs++;
  snprintf(w->report, sizeof w->report, "%.*s", (int)len, report);
}

static tri_status draw(void *ctx, void *out, size_t len) {
  struct world *w = ctx;
  for (size_t i = 0; i < len; i++) ((uint8_t *)out)[i] = w->randoms++;
  return TRI_OK;
}

static uint64_t record(void *ctx, const tri_record *r) {
  struct world *w = ctx;
  return tri_recorder_record(w->recorder, r);
}

static tri_owner rank_owner(uint32_t replica, uint32_t rank) {
  return (tri_owner){.kind = TRI_OWNER_KEY, .bytes = {'k', (uint8_t)replica, (uint8_t)rank}};
}

static void make_keys(struct world *w, uint32_t replicas) {
  ck_assert_uint_le(replicas, MAX_REPLICAS);
  for (uint32_t i = 0; i < replicas * REPLICA_RANKS; i++) {
    tri_owner o = rank_owner(i / REPLICA_RANKS, i % REPLICA_RANKS);
    memcpy(w->keys[i], o.bytes, sizeof o.bytes);
  }
}

static struct world *create_of(const tri_core_config *limits, uint32_t replicas, uint64_t model_hash, uint32_t tp,
                               uint32_t pp, uint64_t response_cache) {
  struct world *w = calloc(1, sizeof *w);
  w->now = 1000 * SECOND;
  w->model =
      (tri_model_config){.vocab_size = tri_tokenizer_vocab_size(tokenizer), .max_position_embeddings = MODEL_LEN};
  w->model.generation.temperature = w->model.generation.top_p = w->model.generation.repetition_penalty = NAN;
  tri_core_config config = *limits;
  config.model_name = "toy";
  config.model = &w->model;
  config.tokenizer = tokenizer;
  config.model_hash = model_hash;
  config.tp = tp;
  config.pp = pp;
  config.dp = 1;
  config.ep = 1;
  config.response_cache = response_cache;
  config.num_replicas = replicas;
  config.replica_ranks = REPLICA_RANKS;
  make_keys(w, replicas);
  config.rank_keys = (const uint8_t(*)[TRI_OWNER_BYTES])w->keys;
  config.route_by_prefix = true;
  config.seed = 7;
  config.max_prompt = MODEL_LEN;
  config.silence_ns = 4 * SECOND;
  config.watchdog_ns = 10 * SECOND;
  config.lease_ns = SECOND;
  config.io = (tri_core_io){w,         to_client,    answer,        look, to_worker, tokenize, tokenize_stop,
                            rank_came, replica_lost, replica_ready, hang, draw,      record};
  ck_assert_int_eq(tri_core_create(&config, w->now, &w->core), TRI_OK);
  for (uint32_t i = 0; config.starts_are_told && i < replicas; i++) tri_core_replica_expected(w->core, i, 1);
  return w;
}

static struct world *create(uint32_t replicas, uint64_t model_hash, uint32_t tp, uint32_t pp, uint64_t response_cache) {
  return create_of(&(tri_core_config){.max_queue = MAX_QUEUE, .starts_are_told = true}, replicas, model_hash, tp, pp,
                   response_cache);
}

struct world *world_create_alone(uint32_t replicas) {
  return create_of(&(tri_core_config){.max_queue = MAX_QUEUE}, replicas, 0, 0, 0, 0);
}

struct world *world_create_sharing(const tri_core_config *limits) {
  return create_of(limits, 1, 0, 0, 0, 0);
}

struct world *world_create(uint32_t replicas) {
  return create(replicas, 0, 0, 0, 0);
}

struct world *world_create_for(uint32_t replicas, uint64_t model_hash, uint32_t tp, uint32_t pp) {
  return create(replicas, model_hash, tp, pp, 0);
}
struct world *world_create_caching(uint64_t response_cache) {
  struct world *w = create(1, 0, 0, 0, response_cache);
  start_replica(w, 0, 1, 1);
  return w;
}

void world_destroy(struct world *w) {
  tri_core_destroy(w->core);
  free(w);
}

void tick(struct world *w, int64_t ns) {
  w->now += ns;
  tri_core_tick(w->core, w->now);
}

/* ---- replicas ---- */

tri_peer rank_peer(uint32_t replica, uint64_t epoch, uint32_t rank) {
  char name[32];
  snprintf(name, sizeof name, "w%u.%u.%u", replica, (unsigned)epoch, rank);
  tri_peer p = peer_of(name);
  p.owner = rank_owner(replica, rank);
  return p;
}

void send_worker(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, const tri_replica_msg *m) {
  tri_peer p = rank_peer(replica, epoch, rank);
  tri_core_worker(w->core, w->now, &p, m);
}

tri_replica_msg registration(uint32_t replica, uint64_t epoch, uint32_t rank, uint32_t world) {
  return (tri_replica_msg){.op = TRI_REPLICA_REGISTER,
                           .reg = {.replica = replica,
                                   .rank = rank,
                                   .world = world,
                                   .tp = world,
                                   .pp = 1,
                                   .dp = 1,
                                   .ep = 1,
                                   .epoch = epoch,
                                   .pid = 1,
                                   .model_hash = 99,
                                   .max_model_len = MODEL_LEN,
                                   .kv_blocks = 64,
                                   .block_size = 16,
                                   .max_num_seqs = SLOTS,
                                   .host = {"node", 4}}};
}

bool send_register(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, uint32_t world) {
  tri_replica_msg m = registration(replica, epoch, rank, world);
  w->welcome = false;
  send_worker(w, replica, epoch, rank, &m);
  return w->welcome;
}

void send_ready(struct world *w, uint32_t replica, uint64_t epoch) {
  tri_replica_msg m = {.op = TRI_REPLICA_READY, .ready = {.replica = replica, .epoch = epoch, .load_seconds = 1}};
  m.ready.layer_seconds = w->layer_seconds;
  send_worker(w, replica, epoch, 0, &m);
}

void start_replica(struct world *w, uint32_t replica, uint64_t epoch, uint32_t world) {
  tri_core_replica_expected(w->core, replica, epoch);
  for (uint32_t r = 0; r < world; r++) ck_assert(send_register(w, replica, epoch, r, world));
  send_ready(w, replica, epoch);
}

void send_health(struct world *w, uint32_t replica, uint64_t epoch, uint32_t rank, uint64_t step, bool busy) {
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.replica = replica, .rank = rank, .epoch = epoch, .step = step, .busy = busy}};
  send_worker(w, replica, epoch, rank, &m);
}

void send_tokens(struct world *w, uint32_t replica, uint64_t epoch, const tri_replica_token *t, uint32_t num) {
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = epoch, .step = 1, .num = num, .tokens = t}};
  send_worker(w, replica, epoch, 0, &m);
}

void token_of(struct world *w, uint64_t epoch, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id, int flags,
              tri_finish reason) {
  uint32_t top_ids[] = {id, id + 1};
  float top[] = {-1, -2};
  tri_replica_token t = {.job = job,
                         .choice = choice,
                         .token = id,
                         .offset = offset,
                         .flags = (uint8_t)(flags | TRI_TOKEN_LOGPROB),
                         .reason = reason,
                         .logprob = -(float)id,
                         .num_top = 2,
                         .top_ids = top_ids,
                         .top_logprobs = top};
  send_tokens(w, 0, epoch, &t, 1);
}

void token(struct world *w, uint64_t job, uint32_t choice, uint64_t offset, uint32_t id, int flags, tri_finish reason) {
  token_of(w, 1, job, choice, offset, id, flags, reason);
}

void bytes(struct world *w, uint64_t job, uint32_t choice, const char *text) {
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++)
    token(w, job, choice, i, byte_token[(uint8_t)text[i]], i + 1 == n ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
}

/* ---- clients ---- */

struct stream *open_stream(struct world *w, const char *peer, uint64_t id) {
  ck_assert_int_lt(w->num_streams, MAX_STREAMS);
  struct stream *s = &w->streams[w->num_streams++];
  *s = (struct stream){.peer = peer_of(peer), .id = id};
  return s;
}

const uint32_t some_ids[3] = {10, 11, 12};

tri_client_msg submit_msg(uint64_t id) {
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = id};
  tri_submit_init(&m.submit);
  m.submit.token_ids = some_ids;
  m.submit.num_token_ids = 3;
  return m;
}

void set_stop(tri_client_msg *m, const char *stop) {
  m->submit.sampling.stop[m->submit.sampling.num_stop++] = (tri_wire_str){stop, strlen(stop)};
}

struct stream *submit(struct world *w, const char *peer, const tri_client_msg *m) {
  struct stream *s = open_stream(w, peer, m->id);
  tri_core_client(w->core, w->now, &s->peer, m);
  return s;
}

struct stream *attach(struct world *w, uint64_t id, const struct stream *from, uint64_t offset) {
  struct stream *s = open_stream(w, "again", id);
  struct text *t = &s->choice[0];
  *t = from->choice[0];
  t->num = offset;
  t->len = offset ? t->len_after[offset] : 0;
  tri_client_msg m = {.op = TRI_OP_ATTACH, .id = id, .attach = {from->request_id, offset}};
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

struct stream *attach_as(struct world *w, const char *peer, uint64_t id, const struct stream *from) {
  struct stream *s = open_stream(w, peer, id);
  tri_client_msg m = {.op = TRI_OP_ATTACH, .id = id, .attach = {from->request_id, 0}};
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

struct stream *cancel(struct world *w, const char *peer, uint64_t id, const struct stream *whom) {
  struct stream *s = open_stream(w, peer, id);
  tri_client_msg m = {.op = TRI_OP_CANCEL, .id = id};
  m.cancel.request_id = whom->request_id;
  m.cancel.has_request_id = true;
  tri_core_client(w->core, w->now, &s->peer, &m);
  return s;
}

void expect_text(const struct stream *s, int choice, const char *want) {
  const struct text *t = &s->choice[choice];
  ck_assert_msg(t->len == strlen(want) && !memcmp(t->text, want, t->len), "\"%.*s\", not \"%s\"", (int)t->len, t->text,
                want);
}

void expect_error(const struct stream *s, const char *code, const char *field) {
  ck_assert(s->done);
  ck_assert_str_eq(s->code, code);
  ck_assert_str_eq(s->field, field);
  ck_assert_msg(s->message[0] != '\0', "an error without words");
}

uint64_t last_job(const struct world *w) { return w->assigns[w->num_assigns - 1].a.job; }

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
  of_texts = tokenizer;
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

TCase *add_case(Suite *suite, const char *name) {
  TCase *t = tcase_create(name);
  tcase_add_unchecked_fixture(t, load_tokenizer, free_tokenizer);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return t;
}
