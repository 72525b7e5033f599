/* SPDX-License-Identifier: Apache-2.0 */
/* libtrireme: a client of a Trireme coordinator.
 *
 *   trireme_error err = {0};
 *   trireme *c = NULL;
 *   trireme_config config;
 *   trireme_config_init(&config);
 *   if (trireme_connect(&config, &c, &err)) { fprintf(stderr, "%s\n", err.message); exit(1); }
 *   trireme_request r;
 *   trireme_request_init(&r);
 *   r.prompt = "Once upon a time";
 *   r.prompt_len = strlen(r.prompt);
 *   uint64_t id;
 *   trireme_submit(c, &r, &id, &err);
 *   trireme_event e;
 *   while (!trireme_next(c, -1, &e, &err) && e.kind != TRIREME_EVENT_DONE && e.kind != TRIREME_EVENT_ERROR)
 *     if (e.kind == TRIREME_EVENT_TOKENS) fwrite(e.tokens.choices[0]->text, 1, e.tokens.choices[0]->text_len, stdout);
 *   trireme_close(c);
 *
 * One connection carries any number of requests at a time; each request is known by the number that the library gave
 * it, and every event names that number.
 *
 * A coordinator that goes away and returns is a pause: trireme_next connects anew, and asks again for all that has
 * not ended, under the same numbers. A request of which nothing has come is submitted again under its request_id, which
 * every one has; of others the job is attached to, and what has come is not given a second time. No token is given
 * twice, none is left out, and none is of another answer: the library compares what is repeated with what it has given.
 * A request that cannot be continued so ends with an ERROR "coordinator_lost": its coordinator is away for more than
 * reconnect_timeout_ms, in which case TRIREME_CLOSED follows, or the next one there does not know the job any more
 * (without a journal, or since a minute has passed) and its draws are not fixed by a seed, or has another answer.
 * Until its end the library has a copy of each request. With reconnect_timeout_ms 0 there is none of this: after
 * TRIREME_CLOSED connect anew, and continue a stream with trireme_attach.
 *
 * Threads: a connection belongs to one thread at a time, and may be handed on under a lock. Connections share nothing:
 * several threads may use one each without a lock. A process that forks uses its connections in one of the two alone.
 *
 * Ownership: what goes in is copied before the call returns. What an event points to stays valid until the next call of
 * trireme_next or trireme_close on the same connection. Texts are UTF-8 and end in a NUL that their length does not
 * count.
 *
 * Binary compatibility: a program keeps working with every later library of the same SONAME.
 * - Structs grow at their end alone. Those that a program makes, trireme_config, trireme_request and
 *   trireme_embed_request, say in their first member how large the program's header has them. Their *_init sets it and
 *   the defaults, those of members that the program does not know included: a struct is used only after its *_init. A
 *   size that this library does not know, 0 or that of a newer header, is refused, and error.field is "size".
 * - An event is written as far as the program's header has it, which trireme_next passes on.
 * - Arrays of structs are handed out as arrays of pointers, so that the structs may grow.
 * - trireme_error, trireme_string and trireme_logit_bias never change. Enums get further values at their end: skip an
 *   event of an unknown kind, and take an unknown result for a failure. */
#ifndef TRIREME_H
#define TRIREME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. Any call that can fail may say NO_MEMORY, or FAILED for what no program can mend.
 * In addition to them and OK:
 * - trireme_connect: INVALID, TIMEOUT (no answer from there), REFUSED, CLOSED, PROTOCOL, INTERRUPTED; FAILED with the
 *   code "not_found" where there is no socket.
 * - what sends a request: INVALID, TIMEOUT (no room in time), INTERRUPTED: nothing was sent; CLOSED, REFUSED.
 * - trireme_next: INVALID (size), TIMEOUT, INTERRUPTED; PROTOCOL: the message is dropped, and the next call continues;
 *   CLOSED, REFUSED.
 * CLOSED and REFUSED are the end of a connection, after reconnect_timeout_ms where there are some: every further call
 * says so, until trireme_close; trireme_next first gives what came before. What a coordinator says about a request
 * comes as an event, never as a result. */
typedef enum trireme_result {
  TRIREME_OK = 0,
  TRIREME_TIMEOUT,  /* nothing happened in the time given */
  TRIREME_INVALID,  /* an argument is wrong; error.field names it. Nothing was sent */
  TRIREME_REFUSED,  /* the coordinator does not let this key in, or the connection was refused */
  TRIREME_CLOSED,   /* the connection was lost, with all its streams */
  TRIREME_PROTOCOL, /* the other side sent what this library does not understand */
  TRIREME_NO_MEMORY,
  TRIREME_INTERRUPTED, /* a signal came while waiting */
  TRIREME_FAILED,      /* anything else: see error.message */
} trireme_result;

typedef struct trireme_error {
  char code[32];     /* "out_of_range", ...: the name that the protocol uses */
  char field[96];    /* the field or option at fault; may be empty */
  char message[400]; /* one sentence */
} trireme_error;

/* ---- connecting ---- */

typedef struct trireme trireme; /* a connection */

#define TRIREME_CONNECT_TIMEOUT_MS 5000
#define TRIREME_RECONNECT_TIMEOUT_MS 60000
typedef struct trireme_config {
  size_t size; /* trireme_config_init's */
  const char
      *endpoint; /* "ipc:///path" or "tcp://host:port"; NULL: $TRIREME_ENDPOINT, else the default socket of this user */
  const char *key_file;    /* own CURVE key pair, made by `trireme keygen`; NULL: none */
  const char *server_key;  /* the coordinator's public key, 40 characters; NULL: none */
  const char *client_name; /* shown in the coordinator's log; NULL: "libtrireme" */
  int connect_timeout_ms; /* for the coordinator's socket, the connection and the first answer together; 0: the default,
                             TRIREME_CONNECT_TIMEOUT_MS */
  int reconnect_timeout_ms; /* how long a coordinator may be away; trireme_config_init sets
                               TRIREME_RECONNECT_TIMEOUT_MS. 0: a connection that is lost stays lost */
  int send_timeout_ms;      /* for room in the connection, of each request; 0: connect_timeout_ms, -1: not at all */
} trireme_config;
/* size: of the program's struct, for which the function below it stands. */
void trireme_config_init_sized(trireme_config *config, size_t size);
static inline void trireme_config_init(trireme_config *config) { trireme_config_init_sized(config, sizeof *config); }

/* *out is set on TRIREME_OK only. error may be NULL, here and everywhere. */
trireme_result trireme_connect(const trireme_config *config, trireme **out, trireme_error *error);
/* Ends all streams of the connection: the coordinator cancels its requests, but not those with continue_on_disconnect.
 * NULL is fine. */
void trireme_close(trireme *c);

/* Returns whether the coordinator is away at present: what is asked now waits for it. */
bool trireme_is_away(const trireme *c);
const char *trireme_version(void); /* of this library: "MAJOR.MINOR.PATCH" */
const char *trireme_server_version(const trireme *c);
const char *trireme_endpoint(const trireme *c); /* connected to */
uint64_t trireme_max_message(const trireme *c); /* bytes that the coordinator takes in one request */

/* ---- requests ---- */

typedef struct trireme_logit_bias {
  uint32_t id;
  float bias; /* -100 .. 100 */
} trireme_logit_bias;

typedef struct trireme_string {
  const char *s;
  size_t len;
} trireme_string;

/* When a beam search ends that has found num_beams texts: when no other can become better by going on, as far as its
 * score so far tells; at once; when none can become better at any length. */
typedef enum trireme_early_stopping {
  TRIREME_EARLY_FALSE,
  TRIREME_EARLY_TRUE,
  TRIREME_EARLY_NEVER,
  TRIREME_EARLY_UNSET, /* the model's own value, else FALSE */
} trireme_early_stopping;

/* Everything that a submit can say. The ranges are those of `trireme submit --help`; the coordinator checks them and
 * names the field. */
typedef struct trireme_request {
  size_t size; /* trireme_request_init's */
  /* Either a text (any bytes; those that are not UTF-8 are replaced) or token ids. */
  const char *prompt;
  size_t prompt_len;
  const uint32_t *token_ids;
  size_t num_token_ids;
  const char *model;      /* NULL: the one that is served */
  const char *request_id; /* 32 hexadecimal digits: submitting the same again gives the same job; NULL: one is drawn */
  int64_t max_tokens;     /* TRIREME_UNSET: the default, or as many as fit; -1: as many as fit. More is refused */
  int64_t min_tokens;     /* 0 */
  double temperature;     /* NaN: the model's own value, else 1. 0: the most probable token */
  double top_p;           /* NaN: the model's own value, else 1 */
  int64_t top_k;          /* TRIREME_UNSET: the model's own value, else all; 0: all */
  double min_p;           /* 0 */
  double repetition_penalty;                  /* NaN: the model's own value, else 1 */
  double presence_penalty, frequency_penalty; /* 0 */
  uint64_t seed;                              /* with has_seed */
  bool has_seed;                              /* false: the coordinator draws a seed */
  int64_t n;                                  /* 1: texts for this prompt */
  int64_t num_beams;     /* TRIREME_UNSET: the model's own where temperature is NaN, else 1: no beam search */
  double length_penalty; /* of a beam search. NaN: the model's own value, else 1 */
  trireme_early_stopping early_stopping;
  int64_t logprobs;      /* -1: none; 0 .. 20: of each token and that many alternatives */
  bool ignore_eos, echo; /* continue after the end of the text; repeat the prompt's text, or that of its ids, first */
  bool no_stream;        /* no events but the last one, which holds the whole text */
  bool continue_on_disconnect; /* continue when this connection ends: trireme_attach finds it again */
  const trireme_string *stop;  /* texts that end the generation */
  size_t num_stop;
  const uint32_t *stop_token_ids;
  size_t num_stop_token_ids;
  const trireme_logit_bias *logit_bias;
  size_t num_logit_bias;
  int64_t priority;        /* 0; lower is sooner */
  int64_t deadline_ms;     /* 0: none */
  bool no_special_tokens;  /* the prompt has those of the tokenizer's template already, as one of a chat template has */
  const char *cache_salt;  /* NULL: none. The response cache answers with what came under the same salt alone, and the
                              prefix cache has its KV blocks alone; up to 128 bytes */
  bool no_cache;           /* the response cache neither answers nor keeps the answer */
  int64_t truncate;        /* 0; of a longer prompt the last so many tokens count, with the special ones around a text;
                              -1: as many as fit with max_tokens */
  int64_t prompt_logprobs; /* -1: none; 0 .. 20: of each token of the prompt and that many alternatives. max_tokens may
                              then be 0 */
  const uint32_t *allowed_token_ids; /* NULL: all ids may come; else these alone, 1 .. 131072 */
  size_t num_allowed_token_ids;
  const char *caller; /* NULL: none; for whom a client of many asks, which a status tells: up to 64 visible characters
                         of ASCII */
  bool keep_special_tokens; /* in texts; else they have no text */
  bool include_stop;        /* a text continues to the end of the stop text or token that has stopped it */
  bool return_token_ids;    /* ACCEPTED brings the prompt's */
  const char *external_id;  /* NULL: none; the caller's own name of the request, which the coordinator's log
                               has: up to 128 visible characters of ASCII */
  /* The answer is a JSON text that fits this schema, or any JSON object; NULL and false leave it open. What a
   * schema asks for and cannot be kept is refused. */
  const char *json_schema;
  size_t json_schema_len; /* at most 256 KiB */
  bool json_object;
  /* The texts around that JSON: `json_begin`, one text of JSON, up to json_most - 1 further ones after
   * `json_separator` each, `json_end`. NULL: nothing; at most 256 bytes each. json_most: 0 is 1; at most 16. */
  const char *json_begin, *json_separator, *json_end;
  int64_t json_most;
} trireme_request;
#define TRIREME_UNSET INT64_MIN

void trireme_request_init_sized(trireme_request *r, size_t size);
static inline void trireme_request_init(trireme_request *r) { trireme_request_init_sized(r, sizeof *r); }

/* The fields of an embed or a classify, for a served encoder. */
typedef struct trireme_embed_request {
  size_t size; /* trireme_embed_request_init's */
  /* Either a text or token ids, as of a trireme_request; a text gets the special tokens of the tokenizer's template. */
  const char *text;
  size_t text_len;
  const char *text_pair; /* NULL: none; a second text, for models of pairs such as a question and an answer */
  size_t text_pair_len;
  const uint32_t *token_ids;
  size_t num_token_ids;
  const char *model;      /* NULL: the one that is served */
  const char *pooling;    /* embed: "model" "cls" "mean" "last"; NULL: as the server was told */
  bool normalize;         /* embed: to length 1, which some models' folders ask for in any case */
  const char *activation; /* classify: "none" "softmax" "sigmoid"; NULL: as the checkpoint says */
  int64_t priority;       /* 0; lower is sooner */
  int64_t deadline_ms;    /* 0: none */
  bool keep_length;       /* embed: not to length 1, though the model's folder asks for it */
  bool truncate;          /* a text that is too long loses its end, and is not refused */
  const char *cache_salt; /* as of a trireme_request */
  bool no_cache;
  const char *caller;      /* as of a trireme_request */
  const char *external_id; /* likewise */
  /* embed: a prompt of the model's folder that comes before the text; NULL: its usual one, if it has one; "": none */
  const char *prompt_name;
} trireme_embed_request;

void trireme_embed_request_init_sized(trireme_embed_request *r, size_t size);
static inline void trireme_embed_request_init(trireme_embed_request *r) {
  trireme_embed_request_init_sized(r, sizeof *r);
}

/* These send a request and do not wait for its answer, which comes as an event of the number *id. They wait at most
 * send_timeout_ms for room in the connection (TRIREME_TIMEOUT: nothing was sent). While the coordinator is away a
 * request is taken, and sent when it is back. */
trireme_result trireme_submit(trireme *c, const trireme_request *r, uint64_t *id, trireme_error *error);
/* Answered by one EMBEDDING, SCORES or ERROR. */
trireme_result trireme_embed(trireme *c, const trireme_embed_request *r, uint64_t *id, trireme_error *error);
trireme_result trireme_classify(trireme *c, const trireme_embed_request *r, uint64_t *id, trireme_error *error);
/* Continues the stream of an earlier request at token `offset` (0 where it has several choices); *id is its new number.
 * The request must be of the same user (on a socket file) or key. A connection or number that had the stream until now
 * gets an ERROR "taken_over". */
trireme_result trireme_attach(trireme *c, const char *request_id, uint64_t offset, uint64_t *id, trireme_error *error);
/* Cancels a request of this connection (by its number; request_id NULL), or one of
 * the same user or key (by request_id). The request then ends
 * with an event DONE whose finish_reason is "abort", an embed or classify with an ERROR "aborted" ("timeout" is that of
 * a passed deadline). The cancel itself is answered only when it fails, with an ERROR of the number *id (may be NULL).
 */
trireme_result trireme_cancel(trireme *c, uint64_t target, const char *request_id, uint64_t *id, trireme_error *error);
trireme_result trireme_ask_status(trireme *c, uint64_t *id, trireme_error *error);
trireme_result trireme_ask_stats(trireme *c, uint64_t *id, trireme_error *error);
/* The best that the cluster's machines could do; while no job is there they measure it, which takes seconds. */
trireme_result trireme_ask_floors(trireme *c, uint64_t *id, trireme_error *error);
/* The rows that each expert of a model has had; an error of a model without experts. */
trireme_result trireme_ask_experts(trireme *c, uint64_t *id, trireme_error *error);
trireme_result trireme_ask_models(trireme *c, uint64_t *id, trireme_error *error);

/* ---- events ---- */

typedef enum trireme_event_kind {
  TRIREME_EVENT_ACCEPTED,
  TRIREME_EVENT_TOKENS,
  TRIREME_EVENT_DONE,  /* the last one of a request */
  TRIREME_EVENT_ERROR, /* likewise */
  TRIREME_EVENT_STATUS,
  TRIREME_EVENT_STATS,
  TRIREME_EVENT_MODELS,
  TRIREME_EVENT_FLOORS,
  TRIREME_EVENT_EMBEDDING, /* the answer to an embed */
  TRIREME_EVENT_SCORES,    /* to a classify */
  TRIREME_EVENT_EXPERTS,
} trireme_event_kind;

typedef struct trireme_logprobs {
  float logprob;
  size_t num_top;
  const uint32_t *top_ids;
  const float *top_logprobs;
  /* The bytes that the token stands for in the middle of a text, and those of the alternatives: perhaps a part of a
   * character, so that they need not be UTF-8; a special token's are its name, and of more than 1024 the first come.
   * NULL where the model has no tokenizer, or the coordinator does not say them. */
  const char *text;
  size_t text_len;
  const trireme_string *top_texts;
} trireme_logprobs;

typedef struct trireme_choice {
  uint32_t index;  /* which of n texts */
  uint64_t offset; /* number of the first of these tokens within the text */
  const char *text;
  size_t text_len;
  const uint32_t *ids;
  size_t num_ids;
  const trireme_logprobs *const *logprobs; /* [num_ids], or NULL */
  bool of_prompt; /* these are tokens of the prompt, which `offset` counts, of all choices; its first has no logprob,
                     which is not a number. With prompt_logprobs alone, before all tokens */
} trireme_choice;

typedef struct trireme_finished {
  const char *finish_reason; /* "stop" "length" "abort" "error" */
  const char *text;          /* with no_stream; else empty */
  size_t text_len;
  uint64_t completion_tokens;
  int64_t stop_string;   /* the number in the request's `stop` of what has stopped it; -1: none of them */
  int64_t stop_token_id; /* the same of its `stop_token_ids` */
} trireme_finished;

typedef struct trireme_group_status {
  uint32_t group;
  uint64_t epoch;
  const char *state;
  uint32_t tp, pp, running, waiting;
  uint64_t kv_pages, kv_pages_used; /* KV blocks, by the name that the protocol has for them */
  uint64_t steps, tokens;
  double scheduler_us_per_token;
  double scheduler_cpu_s; /* since the start, for these tokens; 0: not known */
  uint32_t dp, ep;
  /* Weights that do not stay in memory; zeros where all do. Bytes are those of all ranks, seconds those of the rank
   * that has most. */
  uint64_t streamed_bytes, stream_pass_bytes; /* that have come; of every pass over the layers */
  double stream_pass_s;                       /* from the end of the last pass but one to that of the last */
  double stream_stall_s;                      /* that steps have waited */
  double stream_bytes_per_s;                  /* that the source has shown to give */
  /* KV blocks in the host's memory, for preempted sequences; zeros without them. Since
   * the start: sequences swapped out and in again, and the bytes of all ranks. */
  uint64_t host_kv_pages, host_kv_pages_used;
  uint64_t swaps_out, swaps_in, swapped_out_bytes, swapped_in_bytes;
  uint64_t stream_peer_bytes; /* of streamed_bytes: that another shard of the host has read for this one */
  /* The prefix cache, since the start: tokens of prompts, those whose KV blocks were there, blocks that have left it.
   */
  uint64_t prefix_cache_queries, prefix_cache_hits, prefix_cache_evictions;
  const char *reason; /* why it does not serve, once it has ended; else empty */
  double retry_s;     /* until one that is given up or quarantined is tried again; else 0 */
} trireme_group_status;

typedef struct trireme_rank_status {
  uint32_t group, rank;
  const char *host;
  int64_t pid;
  uint64_t step, block, collective; /* block: the layer under way; UINT32_MAX: none, between steps */
  double seconds_since_report;
  const char *exchange; /* of experts' rows: "dispatch" or "combine" while the rank is in it; "move" while it passes
                           experts to other ranks; else empty */
  uint32_t dp_rank;     /* the number of its shard, of a group with several */
  uint32_t shard_running, shard_waiting;      /* sequences there */
  uint64_t streamed_bytes, stream_pass_bytes; /* as of a group */
  double stream_pass_s, stream_stall_s, stream_bytes_per_s;
  uint64_t stream_peer_bytes;
} trireme_rank_status;

/* Requests under way of one `caller`. */
typedef struct trireme_caller_status {
  const char *name;
  uint64_t running, waiting;
} trireme_caller_status;

typedef struct trireme_status {
  const char *version, *model, *state;
  const char *task; /* what the model does: "generate" "embed" "classify" */
  double uptime_s;
  uint64_t clients, running, waiting;
  uint64_t requests_done, requests_failed, requests_aborted, prompt_tokens, generation_tokens;
  double tokens_per_second, coordinator_us_per_token, resident_mb;
  uint64_t max_model_len, vocab_size;
  size_t num_groups;
  const trireme_group_status *const *groups;
  size_t num_ranks;
  const trireme_rank_status *const *ranks;
  double coordinator_cpu_s; /* since the start; 0: not known */
  /* The response cache, since the start and now; zeros without one. */
  uint64_t response_cache_hits, response_cache_misses, response_cache_evictions;
  uint64_t response_cache_entries, response_cache_bytes, response_cache_limit;
  size_t num_callers; /* those that have requests under way, 64 at most */
  const trireme_caller_status *const *callers;
  uint64_t requests_replayed; /* that were given to a group again, since theirs was lost */
  /* Jobs that were refused, or ended in the queue, by the limit, since the start; and connections. */
  uint64_t refused_max_queue, refused_max_queue_bytes, refused_client_jobs, refused_client_bytes;
  uint64_t expired_max_queue_time;
  uint64_t refused_connections; /* for want of files, or since too many came a second */
  uint64_t cut_connections;     /* that sent a message without end */
  uint64_t requests_invalid;    /* that were refused for what they asked, which requests_failed does not count */
  uint64_t requests_refused; /* for want of room, or ended in the queue: requests_failed does not count them, either */
  const char *journal_full;  /* the journal's folder, where its disk is full: new requests are refused; else empty */
} trireme_status;

/* Sums over a group's ranks. */
typedef struct trireme_group_floors {
  uint32_t group, ranks, measured; /* measured < ranks: not all have answered, or the cluster was busy */
  double read_bytes_per_s, flops_per_s;
  double weight_bytes;                           /* that a decode step reads */
  double prompt_token_flops, output_token_flops; /* matrices alone */
} trireme_group_floors;

typedef struct trireme_event {
  trireme_event_kind kind;
  uint64_t id; /* the request's number */
  union {
    struct {
      char request_id[33];
      uint64_t prompt_tokens;
      bool existing;             /* it was known already: submitted before under the same request_id */
      bool token_ids_only;       /* the model has no tokenizer: choices have ids, but no text */
      bool cached;               /* the answer comes from the response cache */
      const uint32_t *token_ids; /* of the prompt, with return_token_ids; NULL: not said, as of one that is too long */
      size_t num_token_ids;
    } accepted;
    struct {
      size_t num;
      const trireme_choice *const *choices;
    } tokens;
    struct {
      size_t num;
      const trireme_finished *const *choices;
      uint64_t prompt_tokens, completion_tokens;
      double queue_ms, first_token_ms, total_ms;
      uint32_t preemptions;
      bool timed_out; /* "abort" was the end because deadline_ms had passed; otherwise it was cancelled */
      uint64_t seed;  /* the request's, or the one that was drawn: with it the same request draws the same again */
      uint64_t cached_tokens; /* of prompt_tokens: those that the prefix cache had */
    } done;
    trireme_error error;
    trireme_status status;
    struct {
      const char *text; /* Prometheus text */
      size_t text_len;
    } stats;
    struct {
      size_t num;
      const char *const *names;
      uint64_t max_model_len;
      uint64_t tokenizer; /* a hash of the tokenizer's files, of tokenizer.json XXH3 of 64 bits; 0: there is none, or it
                             is not known */
    } models;
    struct {
      size_t num;
      const trireme_group_floors *const *groups;
    } floors;
    struct {
      const float *values;
      size_t num;
      uint64_t prompt_tokens;
      double queue_ms, total_ms;
      bool cached; /* it comes from the response cache */
    } embedding;
    struct {
      const float *values; /* [num_rows][num_labels] */
      size_t num_labels;
      const char *const *labels; /* their names */
      size_t num_rows;           /* 1, or of a classifier of tokens the number of tokens */
      const char *const *tokens; /* [num_rows] as they stand in the vocabulary, or NULL */
      const char *activation;    /* what was applied to the logits */
      uint64_t prompt_tokens;
      double queue_ms, total_ms;
      bool cached;
    } scores;
    struct {
      const char *json; /* as `trireme status --experts` prints it */
      size_t json_len;
    } experts;
  };
} trireme_event;

/* Waits up to timeout_ms (0: not at all, -1: for ever) for the next event of any request. */
trireme_result trireme_next_sized(trireme *c, int timeout_ms, trireme_event *out, size_t size, trireme_error *error);
static inline trireme_result trireme_next(trireme *c, int timeout_ms, trireme_event *out, trireme_error *error) {
  return trireme_next_sized(c, timeout_ms, out, sizeof *out, error);
}

/* For event loops: a descriptor for poll, epoll and the like that is readable while trireme_next(c, 0, ...) may give
 * something, CLOSED and REFUSED included. It is level-triggered, whatever was called in between: wait for it, then call
 * trireme_next(c, 0, ...) once or until it says TIMEOUT, which it may say at once. Neither read nor close it: it is the
 * same until trireme_close. -1: there are no descriptors left (errno). */
int trireme_fd(trireme *c);

#ifdef __cplusplus
}
#endif
#endif
