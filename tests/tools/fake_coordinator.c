/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator without a model: speaks the client protocol and streams canned text, one token per choice and step. For
 * tests of clients.
 *
 * A prompt "error CODE" is refused with that code. A prompt "drop" closes the socket of everybody (rebind). Words of
 * the prompt count as its tokens. The text is a pure function of choice and offset, so that attach and replay can be
 * checked. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/wire/endpoint.h"
#include "comm/wire/client.h"
#include "comm/wire/zsock.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "base/options/options.h"
#include "base/version.h"
#include "base/wait.h"
#include "base/xxh3.h"

enum { MAX_PIECE = 64, KEEP_ENDED = 4096, SAID_AT_ONCE = 5 /* bytes of --say in a token */ };

typedef struct options {
  const char *endpoint, *key_file, *task, *say, *tokenizer;
  tri_opt_list allow;
  bool insecure_tcp, token_ids_only, show_ids, stamp;
  int64_t step_us, backlog, max_model_len, starting_ms, embed_ms, busy, max_queue;
} options;

static const tri_option table[] = {
    {TRI_OPT(options, endpoint), .name = "endpoint", .env = TRI_ENDPOINT_ENV, .help = "where to listen"},
    {TRI_OPT(options, key_file), .name = "key-file", .metavar = "FILE", .help = "own CURVE key pair"},
    {TRI_OPT(options, allow), .name = "allow", .metavar = "KEY", .help = "public key of a client that may connect"},
    {TRI_OPT(options, insecure_tcp), .name = "insecure-tcp", .help = "tcp:// without keys"},
    {TRI_OPT(options, task), .name = "task", .fallback = "generate", .help = "what the model does, told in status"},
    {TRI_OPT(options, say), .name = "say", .metavar = "TEXT", .help = "the answer to everything, of ASCII"},
    {TRI_OPT(options, tokenizer), .name = "tokenizer", .metavar = "FILE", .help = "whose hash `models` says"},
    {TRI_OPT(options, token_ids_only), .name = "token-ids-only", .help = "no tokenizer, no text"},
    {TRI_OPT(options, show_ids), .name = "show-ids", .help = "write the first token ids of each embed to stderr"},
    {TRI_OPT(options, stamp), .name = "stamp",
     .help = "all requests step together, and each token's text is when: nanoseconds of the monotonic clock"},
    {TRI_OPT(options, step_us), .name = "step-us", .min = 0, .max = 10000000, .fallback = "1000",
     .help = "time between two tokens of a request"},
    {TRI_OPT(options, embed_ms), .name = "embed-ms", .min = 0, .max = 999, .fallback = "0",
     .help = "time that an embedding takes, one after the other"},
    {TRI_OPT(options, busy), .name = "busy", .min = 0, .max = 1000000, .fallback = "0",
     .help = "so many submits are refused first, as if the queue were full"},
    {TRI_OPT(options, max_queue), .name = "max-queue", .min = 0, .max = 1000000, .fallback = "0",
     .help = "submits are refused beside so many jobs; 0: any number is taken"},
    {TRI_OPT(options, backlog), .name = "backlog", .min = 1, .max = 1000000, .fallback = "1000",
     .help = "messages queued per client"},
    {TRI_OPT(options, starting_ms), .name = "starting-ms", .min = 0, .max = 3600000, .fallback = "0",
     .help = "how long its state is \"starting\""},
    {TRI_OPT(options, max_model_len), .name = "max-model-len", .min = 1, .max = 10000000, .fallback = "2048",
     .help = "told in status"},
};

typedef struct job {
  struct job *next;
  tri_peer peer;
  uint64_t id; /* the client's */
  tri_request_id request_id;
  bool attached, stream, ended, aborted, go_on;
  int64_t n, max_tokens, logprobs, next_ns, start_ns, first_ns;
  uint64_t num, sent, prompt_tokens; /* num: tokens made of each choice */
} job;

typedef struct server {
  options o;
  tri_zcontext *z;
  tri_zserver *s;
  tri_buf buf;
  tri_server_msg out;
  tri_client_msg in;
  job *jobs;
  uint64_t done, failed, aborted, tokens, prompt_tokens, number;
  int64_t started_ns, step_ns; /* step_ns: of the tokens that are being sent */
  uint64_t tokenizer;          /* the hash */
} server;

static volatile sig_atomic_t stop_signal;
static void on_signal(int s) { stop_signal = s; }

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

/* Token number `offset` of a choice. */
static uint32_t token_of(uint64_t choice, uint64_t offset) { return (uint32_t)((offset * 7 + choice * 31) % 1000); }

static void piece_of(const options *o, uint64_t choice, uint64_t offset, char out[MAX_PIECE]) {
  static const char *const words[] = {" the", " oars",           " of", " three", " rows", " pull", " as",
                                      " one", " \xc3\xa4hnlich", ",",   " and"};
  const char *word = words[(offset + choice * 3) % (sizeof words / sizeof *words)];
  if (o->say)
    snprintf(out, MAX_PIECE, "%.*s", SAID_AT_ONCE, o->say + offset * SAID_AT_ONCE);
  else
    snprintf(out, MAX_PIECE, "%s", word);
}

/* Returns how many tokens a choice has. */
static uint64_t most_tokens(const server *s, const job *j) {
  size_t said = s->o.say ? (strlen(s->o.say) + SAID_AT_ONCE - 1) / SAID_AT_ONCE : SIZE_MAX;
  return said < (uint64_t)j->max_tokens ? said : (uint64_t)j->max_tokens;
}

static tri_status reply(server *s, const tri_peer *to) {
  tri_status st = tri_server_msg_pack(&s->out, &s->buf);
  return st ? st : tri_zserver_queue(s->s, to, s->buf.data, s->buf.len);
}

static void reply_error(server *s, const tri_peer *to, uint64_t id, const char *code, const char *message,
                        const char *field) {
  s->out.op = TRI_REPLY_ERROR;
  s->out.id = id;
  s->out.error.code = str(code);
  s->out.error.message = str(message);
  s->out.error.field = str(field);
  reply(s, to);
}

static job *find_request(server *s, const tri_request_id *id) {
  for (job *j = s->jobs; j; j = j->next)
    if (!memcmp(&j->request_id, id, sizeof *id)) return j;
  return NULL;
}

static void accept_job(server *s, job *j, bool existing) {
  s->out.op = TRI_REPLY_ACCEPTED;
  s->out.id = j->id;
  s->out.accepted.request_id = j->request_id;
  s->out.accepted.prompt_tokens = j->prompt_tokens;
  s->out.accepted.existing = existing;
  s->out.accepted.token_ids_only = s->o.token_ids_only;
  s->out.accepted.cached = false; /* the union has what was sent before */
  s->out.accepted.token_ids = NULL;
  s->out.accepted.num_token_ids = 0;
  reply(s, &j->peer);
}

static uint64_t count_words(tri_wire_str s) {
  uint64_t n = 0;
  for (size_t i = 0; i < s.len; i++) n += s.s[i] != ' ' && (!i || s.s[i - 1] == ' ');
  return n;
}

/* Answers one after the other, each after embed_ms, with one number, that of the tokens. */
static void on_embed(server *s, const tri_peer *from) {
  struct timespec pause = {.tv_nsec = (long)s->o.embed_ms * 1000000};
  float count = (float)s->in.embed.num_token_ids;
  if (s->o.show_ids && s->in.embed.num_token_ids > 2)
    fprintf(stderr, "%u %u %u\n", s->in.embed.token_ids[0], s->in.embed.token_ids[1], s->in.embed.token_ids[2]);
  nanosleep(&pause, NULL);
  s->out.op = TRI_REPLY_EMBEDDING;
  s->out.id = s->in.id;
  s->out.embed = (tri_embed_reply){.values = &count, .num_values = 1, .prompt_tokens = s->in.embed.num_token_ids};
  reply(s, from);
}

static void on_submit(server *s, const tri_peer *from) {
  const tri_submit *m = &s->in.submit;
  char code[32];
  if (m->prompt.len > 6 && m->prompt.len < 32 && !memcmp(m->prompt.s, "error ", 6)) {
    snprintf(code, sizeof code, "%.*s", (int)m->prompt.len - 6, m->prompt.s + 6);
    s->failed++;
    reply_error(s, from, s->in.id, code, "asked for", "prompt");
    return;
  }
  int64_t running = 0;
  for (job *j = s->jobs; j; j = j->next) running += !j->ended;
  bool full = s->o.max_queue && running >= s->o.max_queue;
  if (s->o.busy || full) {
    s->o.busy -= s->o.busy > 0;
    return reply_error(s, from, s->in.id, "no_capacity", "the queue is full", "");
  }
  if (m->prompt.len == 4 && !memcmp(m->prompt.s, "drop", 4)) {
    tri_error err = {0};
    if (tri_zserver_rebind(s->s, &err)) fprintf(stderr, "fake_coordinator: %s\n", err.message);
    return;
  }
  job *j = m->has_request_id ? find_request(s, &m->request_id) : NULL;
  bool existing = j != NULL;
  if (!j) {
    j = tri_calloc(1, sizeof *j);
    if (!j) return reply_error(s, from, s->in.id, "no_memory", "no memory for a job", "");
    j->next = s->jobs;
    s->jobs = j;
    s->number++;
    j->request_id = m->request_id;
    if (!m->has_request_id) memcpy(&j->request_id, &s->number, sizeof s->number);
    j->stream = m->stream;
    j->go_on = m->on_disconnect == TRI_DISCONNECT_CONTINUE;
    j->n = m->sampling.n;
    j->max_tokens = m->sampling.max_tokens < 0 ? 64 : m->sampling.max_tokens;
    j->logprobs = m->sampling.logprobs;
    j->prompt_tokens = m->prompt.s ? count_words(m->prompt) : m->num_token_ids;
    j->start_ns = tri_now_ns();
    j->next_ns = j->start_ns + s->o.step_us * 1000;
    if (s->o.stamp) j->next_ns -= j->next_ns % (s->o.step_us * 1000);
    s->prompt_tokens += j->prompt_tokens;
  }
  j->peer = *from;
  j->id = s->in.id;
  j->attached = true;
  j->sent = 0;
  accept_job(s, j, existing);
}

static void on_attach(server *s, const tri_peer *from) {
  job *j = find_request(s, &s->in.attach.request_id);
  if (!j) return reply_error(s, from, s->in.id, "not_found", "no such request", "request_id");
  if (s->in.attach.offset > j->num)
    return reply_error(s, from, s->in.id, "out_of_range", "beyond what was generated", "offset");
  j->peer = *from;
  j->id = s->in.id;
  j->attached = true;
  j->sent = s->in.attach.offset;
  accept_job(s, j, true);
}

static void on_cancel(server *s, const tri_peer *from) {
  job *j = s->in.cancel.has_request_id ? find_request(s, &s->in.cancel.request_id) : s->jobs;
  if (!s->in.cancel.has_request_id)
    while (j && (j->id != s->in.cancel.target || memcmp(&j->peer, from, sizeof *from))) j = j->next;
  if (!j)
    return reply_error(s, from, s->in.id, "not_found", "no such request",
                       s->in.cancel.has_request_id ? "request_id" : "target");
  if (!j->ended) j->ended = j->aborted = true;
}

static void on_status(server *s, const tri_peer *from) {
  tri_cluster_status *c = &s->out.status;
  uint64_t running = 0;
  for (job *j = s->jobs; j; j = j->next) running += !j->ended;
  s->out.op = TRI_REPLY_STATUS;
  *c = (tri_cluster_status){.version = str(TRIREME_VERSION),
                            .model = str("fake"),
                            .state = str("serving"),
                            .task = str(s->o.task),
                            .clients = 1,
                            .running = running,
                            .requests_done = s->done,
                            .requests_failed = s->failed,
                            .requests_aborted = s->aborted,
                            .requests_refused = 2,
                            .journal_full = str("/var/journal"),
                            .prompt_tokens = s->prompt_tokens,
                            .generation_tokens = s->tokens,
                            .tokens_per_second = 1e6 / (double)(s->o.step_us + 1),
                            .coordinator_us_per_token = 1.25,
                            .coordinator_cpu_s = 30 + 2e-6 * (double)s->tokens,
                            .resident_mb = 10,
                            .num_replicas = 1,
                            .num_ranks = 2,
                            .num_callers = 1,
                            .callers[0] = {.name = str("ann"), .running = running},
                            .max_model_len = (uint64_t)s->o.max_model_len,
                            .vocab_size = 1000};
  c->uptime_s = (double)(tri_now_ns() - s->started_ns) * 1e-9;
  if (c->uptime_s * 1000 < (double)s->o.starting_ms) c->state = str("starting");
  c->replicas[0] = (tri_replica_status){.group = 0,
                                        .epoch = 1,
                                        .state = str("ready"),
                                        .tp = 2,
                                        .pp = 1,
                                        .dp = 1,
                                        .ep = 1,
                                        .running = (uint32_t)running,
                                        .kv_pages = 1000,
                                        .kv_pages_used = running,
                                        .steps = s->tokens,
                                        .tokens = s->tokens,
                                        .scheduler_us_per_token = 0.5,
                                        .scheduler_cpu_s = 10 + 1e-6 * (double)s->tokens,
                                        .streamed_bytes = 500000000,
                                        .stream_pass_bytes = 250000000,
                                        .stream_pass_s = 0.25,
                                        .stream_stall_s = 0.2,
                                        .stream_bytes_per_s = 1e9,
                                        .stream_peer_bytes = 100000000,
                                        .host_kv_pages = 400,
                                        .host_kv_pages_used = 12,
                                        .swaps_out = 30,
                                        .swaps_in = 28,
                                        .swapped_out_bytes = 50000000,
                                        .swapped_in_bytes = 40000000,
                                        .prefix_cache_queries = 2000,
                                        .prefix_cache_hits = 1500,
                                        .prefix_cache_evictions = 25};
  for (uint32_t i = 0; i < 2; i++)
    c->ranks[i] = (tri_rank_status){.rank = i,
                                    .host = str("localhost"),
                                    .pid = 1000 + i,
                                    .step = s->tokens + i,       /* of reports from different moments */
                                    .block = i ? UINT32_MAX : 0, /* the second one idles */
                                    .seconds_since_report = 0.1};
  reply(s, from);
}

static void handle(server *s, const tri_peer *from, const void *data, size_t len, int frames) {
  tri_error err = {0};
  tri_arena *a = NULL;
  uint64_t id = 0;
  if (tri_arena_create(4096, &a)) return;
  tri_status st = frames > 1 ? tri_fail(&err, TRI_CORRUPT, NULL, "a message is one frame, not %d", frames)
                             : tri_client_msg_unpack(data, len, a, &s->in, &id, &err);
  static const tri_wire_str models[] = {{"fake", 4}};
  s->out.id = id;
  if (st) {
    char code[64];
    snprintf(code, sizeof code, "%s", tri_status_name(st));
    for (char *p = code; *p; p++) *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
    reply_error(s, from, id, code, err.message, err.field);
    tri_arena_destroy(a);
    return;
  }
  switch (s->in.op) {
  case TRI_OP_HELLO:
    s->out.op = TRI_REPLY_HELLO;
    s->out.hello.version = str(TRIREME_VERSION "-fake");
    s->out.hello.max_message = TRI_WIRE_MAX_MESSAGE;
    reply(s, from);
    break;
  case TRI_OP_SUBMIT: on_submit(s, from); break;
  case TRI_OP_ATTACH: on_attach(s, from); break;
  case TRI_OP_CANCEL: on_cancel(s, from); break;
  case TRI_OP_STATUS: on_status(s, from); break;
  case TRI_OP_STATS:
    s->out.op = TRI_REPLY_STATS;
    s->out.stats = str("# HELP trireme:fake 1\ntrireme:fake 1\n");
    reply(s, from);
    break;
  case TRI_OP_MODELS:
    s->out.op = TRI_REPLY_MODELS;
    s->out.models.num = 1;
    s->out.models.names = models;
    s->out.models.max_model_len = (uint64_t)s->o.max_model_len;
    s->out.models.tokenizer = s->tokenizer;
    reply(s, from);
    break;
  case TRI_OP_ROOFLINES: /* 1 GFLOP/s, 2 MFLOP a token; a millisecond to read the weights */
    s->out.op = TRI_REPLY_ROOFLINES;
    s->out.rooflines.num_replicas = 1;
    s->out.rooflines.replicas[0] = (tri_replica_rooflines){.ranks = 1, .measured = 1, .sum = {1e9, 1e9, 1e6, 2e6, 2e6}};
    reply(s, from);
    break;
  case TRI_OP_EXPERTS:
    s->out.op = TRI_REPLY_EXPERTS;
    s->out.experts = str("{\"num_experts\":2,\"rows\":[[3,4]]}");
    reply(s, from);
    break;
  case TRI_OP_EMBED: on_embed(s, from); break;
  default: reply_error(s, from, id, "unsupported", "the fake classifies nothing", "op");
  }
  tri_arena_destroy(a);
}

/* ---- streams ---- */

static tri_status send_token(server *s, job *j) {
  static const uint32_t alternatives[TRI_WIRE_MAX_LOGPROBS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                                               10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  float values[TRI_WIRE_MAX_LOGPROBS];
  char text[TRI_WIRE_MAX_N][MAX_PIECE];
  uint32_t ids[TRI_WIRE_MAX_N];
  tri_choice_tokens c[TRI_WIRE_MAX_N];
  for (int i = 0; i < TRI_WIRE_MAX_LOGPROBS; i++) values[i] = -0.5f - (float)i;
  /* Alternatives are parts of a character. */
  tri_wire_str parts[TRI_WIRE_MAX_LOGPROBS];
  for (int i = 0; i < TRI_WIRE_MAX_LOGPROBS; i++) parts[i] = str(i % 2 ? "\xa4" : "\xc3");
  tri_token_logprobs l[TRI_WIRE_MAX_N];
  for (int64_t k = 0; k < j->n; k++) {
    piece_of(&s->o, (uint64_t)k, j->sent, text[k]);
    if (s->o.stamp) snprintf(text[k], MAX_PIECE, " %lld", (long long)s->step_ns);
    ids[k] = token_of((uint64_t)k, j->sent);
    c[k] = (tri_choice_tokens){.index = (uint32_t)k,
                               .offset = j->sent,
                               .text = str(s->o.token_ids_only ? "" : text[k]),
                               .ids = &ids[k],
                               .num_ids = 1,
                               .logprobs = j->logprobs >= 0 ? &l[k] : NULL};
    l[k] = (tri_token_logprobs){
        .logprob = -0.5f, .num_top = (int)j->logprobs, .top_ids = alternatives, .top_logprobs = values};
    if (s->o.token_ids_only) continue;
    l[k].text = str(text[k]);
    l[k].top_texts = parts;
  }
  s->out.op = TRI_REPLY_TOKENS;
  s->out.id = j->id;
  s->out.tokens.num = (uint32_t)j->n;
  s->out.tokens.choices = c;
  tri_status st = reply(s, &j->peer);
  if (!st) j->sent++;
  return st;
}

static tri_status send_done(server *s, job *j) {
  size_t each = j->stream ? 0 : (size_t)j->num * 16;
  char *text = tri_calloc((size_t)j->n, each + 1);
  if (!text) return TRI_NO_MEMORY;
  int64_t now = tri_now_ns();
  tri_done *d = &s->out.done;
  s->out.op = TRI_REPLY_DONE;
  s->out.id = j->id;
  *d = (tri_done){
      .num_choices = (uint32_t)j->n, .prompt_tokens = j->prompt_tokens, .completion_tokens = j->num * (uint64_t)j->n};
  d->total_ms = (double)(now - j->start_ns) * 1e-6;
  d->first_token_ms = (double)(j->first_ns ? j->first_ns - j->start_ns : 0) * 1e-6;
  tri_finish reason = s->o.say && j->num * SAID_AT_ONCE >= strlen(s->o.say) ? TRI_FINISH_STOP : TRI_FINISH_LENGTH;
  for (int64_t k = 0; k < j->n; k++) {
    char *t = text + (size_t)k * (each + 1), piece[MAX_PIECE];
    size_t len = 0;
    for (uint64_t i = 0; each && i < j->num; i++) {
      piece_of(&s->o, (uint64_t)k, i, piece);
      len += (size_t)snprintf(t + len, each + 1 - len, "%s", piece);
    }
    d->choices[k] = (struct tri_done_choice){
        .reason = j->aborted ? TRI_FINISH_ABORT : reason, .text = {each ? t : NULL, len}, .completion_tokens = j->num};
  }
  tri_status st = reply(s, &j->peer);
  tri_free(text);
  return st;
}

static void advance(server *s, job *j, int64_t now) {
  while (!j->ended && now >= j->next_ns) {
    j->next_ns += s->o.step_us * 1000;
    if (!j->num++) j->first_ns = now;
    s->tokens += (uint64_t)j->n;
    j->ended = j->num >= most_tokens(s, j);
    if (!s->o.step_us) break;
  }
  tri_status st = TRI_OK;
  while (j->attached && j->stream && j->sent < j->num && !st) st = send_token(s, j);
  if (j->attached && j->ended && !st) {
    st = send_done(s, j);
    if (!st) {
      j->attached = false;
      s->done += !j->aborted;
      s->aborted += j->aborted;
    }
  }
  if (st == TRI_CLOSED) { /* the client is gone */
    j->attached = false;
    if (!j->go_on && !j->ended) j->ended = j->aborted = true;
  }
}

static void forget_old(server *s) {
  int ended = 0;
  for (job **p = &s->jobs; *p;) {
    job *j = *p;
    if (j->ended && !j->attached && ++ended > KEEP_ENDED) {
      *p = j->next;
      tri_free(j);
    } else {
      p = &j->next;
    }
  }
}

static void loop(server *s) {
  while (!stop_signal) {
    bool busy = false;
    for (job *j = s->jobs; j; j = j->next) busy |= !j->ended || j->attached;
    tri_zpoll item = {.server = s->s, .fd = -1};
    tri_zpoll_wait(&item, 1, busy ? s->o.step_us >= 1000 : 1000, NULL);
    tri_peer from;
    const void *data;
    size_t len;
    int frames;
    while (!tri_zserver_recv(s->s, &from, &data, &len, &frames)) {
      tri_zserver_look(s->s, &from); /* clients skip frames without messages */
      handle(s, &from, data, len, frames);
    }
    s->step_ns = tri_now_ns();
    for (job *j = s->jobs; j; j = j->next)
      if (!j->ended || j->attached) advance(s, j, s->step_ns);
    tri_zserver_flush(s->s);
    forget_old(s);
  }
}

static tri_status read_hash(server *s, tri_error *err) {
  char *text;
  size_t len;
  TRI_CHECK(tri_json_read_text(s->o.tokenizer, 1 << 28, &text, &len, err));
  s->tokenizer = tri_xxh3(text, len);
  tri_free(text);
  return TRI_OK;
}

int main(int argc, char **argv) {
  static server s;
  const tri_options_spec spec = {.program = "fake_coordinator",
                                 .summary = "Streams canned text over the client protocol, for tests.",
                                 TRI_OPTIONS(table)};
  tri_options *parsed = NULL;
  int code = tri_options_main(&spec, &s.o, argc, argv, &parsed);
  if (code >= 0) return code;
  tri_error err = {0};
  tri_zkeypair keys = {0};
  char endpoint[TRI_ENDPOINT_BYTES];
  tri_status st = TRI_OK;
  struct sigaction sa = {.sa_handler = on_signal};
  sigaction(SIGINT, &sa, NULL);
  sigaction(SIGTERM, &sa, NULL);
  s.started_ns = tri_now_ns();
  TRI_TRY(tri_endpoint_resolve(s.o.endpoint, endpoint, &err));
  if (s.o.key_file) TRI_TRY(tri_zkeypair_load(s.o.key_file, &keys, &err));
  if (s.o.tokenizer) TRI_TRY(read_hash(&s, &err));
  TRI_TRY(tri_zcontext_create(&s.z, &err));
  tri_zserver_config config = {.endpoint = endpoint,
                               .curve = s.o.key_file ? &keys : NULL,
                               .insecure_tcp = s.o.insecure_tcp,
                               .allowed = s.o.allow.items,
                               .num_allowed = (int)s.o.allow.count,
                               .max_message = TRI_WIRE_MAX_MESSAGE,
                               .backlog = (int)s.o.backlog};
  TRI_TRY(tri_zserver_open(s.z, &config, &s.s, &err));
  printf("%s\n", tri_zserver_endpoint(s.s));
  fflush(stdout);
  loop(&s);
cleanup:
  if (st) fprintf(stderr, "fake_coordinator: %s: %s\n", err.field, err.message);
  tri_zserver_close(s.s);
  tri_zcontext_destroy(s.z);
  tri_buf_free(&s.buf);
  for (job *j = s.jobs, *next; j; j = next) {
    next = j->next;
    tri_free(j);
  }
  tri_options_free(parsed);
  return st ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}
