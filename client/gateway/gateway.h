/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway: HTTP requests to requests of libtrireme, and events back to responses. One thread has all of it but
 * tasks.h and the search of finder.h: its loop (http_server) looks at clients, at libtrireme's descriptor, at the end
 * of tasks, and ticks every 200 ms. Nothing in the loop waits.
 *
 * From a request to its answer:
 *   http_conn   reads a head    -> routes.c: refused, or read on
 *               reads the body  -> routes.c: an endpoint, which makes a gw_exchange
 *   tasks       a thread reads the body and makes the prompt (generation, embeddings, tokenize)
 *   jobs.c      sends the exchange's jobs, and gives it their events
 *   endpoint    writes the answer, and closes the exchange
 *
 * Ownership: a connection refers to its exchange (http_conn_set_data) and the exchange to its connection; the one that
 * ends first clears the other's reference. The exchange owns its jobs, and by kind->free the endpoint's state. It
 * outlives its connection while jobs are open, since their last events still come. */
#ifndef TRI_CLIENT_GATEWAY_GATEWAY_H
#define TRI_CLIENT_GATEWAY_GATEWAY_H

#include "client/gateway/http_conn.h"
#include "client/gateway/keys.h"
#include "client/openai/error.h"
#include "client/openai/fields.h"
#include "client/openai/model.h"
#include "client/trireme.h"
#include "base/options/gateway_options.h"
#include "base/json/json_writer.h"
#include "base/model_folder.h"

enum {
  GW_JOB_BUCKETS = 4096,
  GW_NAME_BYTES = 257,              /* a model's name and a NUL */
  GW_JOBS_AT_ONCE = 256,            /* of one request */
  GW_MAX_PARTS = 65536,             /* objects, arrays and members of a request: each takes long for its few bytes */
  GW_MAX_KEPT_REQUESTS = 512 << 20, /* bytes that requests keep until their answers have ended, together */
  GW_MAX_KNOWN = 64,
  GW_MAX_KEPT = 64 << 20, /* bytes of an answer that comes at once */
};

/* ---- cors.c: pages of which origins may read answers ---- */

typedef struct gw_origins gw_origins; /* NULL: of none */
tri_status gw_origins_make(const tri_gateway_options *options, gw_origins **out, tri_error *err);
void gw_origins_free(gw_origins *o); /* NULL is fine */
/* Header lines of every answer; for an http_handler. Returns their length. */
size_t gw_cors_lines(void *ctx, http_conn *c, char *out, size_t cap);

/* ---- errors.c ---- */

void gw_respond_error(http_conn *c, const oai_error *e);
void gw_respond_error_with(http_conn *c, const oai_error *e, const char *fields); /* with these header lines, too */
void gw_respond_json(http_conn *c, tri_buf *b, const char *fields);
void gw_respond_no_coordinator(http_conn *c);
/* Returns the coordinator's error for an endpoint whose field of prompts has this name. */
oai_error gw_error_of(const trireme_error *e, const char *prompt_field);

/* ---- request_id.c ---- */

/* The id that a client may give; 16 bytes as hexadecimal digits, also after a word such as chatcmpl-, and a NUL; a
 * header line of one. */
enum { GW_MOST_GIVEN_ID = 128, GW_HEX_ID = 33, GW_ID = 48, GW_ID_LINE = GW_MOST_GIVEN_ID + 32 };

bool gw_id_draw(char hex[GW_HEX_ID]);
/* Returns what the client's X-Request-Id says, if a header and a line of the log may hold it; else an empty text. */
http_str gw_id_given(const http_conn *c);
/* Writes the header line of an answer: with the client's id, or its request's, or else with a new one. c: NULL for a
 * connection that is not taken. Returns its length. */
size_t gw_id_line(const http_conn *c, char *out, size_t cap);
size_t gw_on_error_lines(void *ctx, const http_conn *c, char *out, size_t cap); /* the same for an http_handler */

/* ---- jobs.c: requests of libtrireme, and the HTTP requests that wait for them ---- */

typedef struct gateway gateway;
typedef struct gw_exchange gw_exchange;

typedef struct gw_job {
  struct gw_job *next; /* of its bucket */
  gw_exchange *x;
  uint64_t id;
  uint32_t index; /* among those of its exchange */
  bool open;      /* has not had its last event */
  bool cancelled;
  bool again; /* the queue had no room: it is sent once more */
} gw_job;

typedef struct gw_kind {
  /* An event of one of its jobs; e may be an error that the gateway itself makes, then j may be NULL. It may close the
   * exchange. */
  void (*event)(gw_exchange *x, gw_job *j, const trireme_event *e);
  void (*free)(gw_exchange *x);    /* its state; may be NULL */
  void (*drained)(gw_exchange *x); /* the client has taken what waited for it; may be NULL */
  /* Sends one of the jobs of gw_exchange_begin; NULL: they are sent otherwise. */
  trireme_result (*send)(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error);
} gw_kind;

/* One HTTP request that waits for events. It lives until its jobs have ended, also where the client has gone.
 *
 * Jobs: of num_wanted, the first num_jobs have been taken up; of these num_open are open, num_again wait to be sent
 * once more, and the others have ended. It waits for a tick (next_waiting) where the connection to the coordinator has
 * no room, or the queue has none and no job of its own would end. */
struct gw_exchange {
  gateway *g;
  http_conn *conn; /* NULL: it has been answered, or the client has gone */
  const gw_kind *kind;
  void *state;
  unsigned num_jobs, num_open;
  size_t room;                            /* of jobs */
  unsigned num_wanted, num_again;         /* jobs in all; of those that were sent, what the queue had no room for */
  unsigned at_once;                       /* may be open */
  bool accepted;                          /* the queue has taken one of its jobs */
  gw_exchange *next_waiting;              /* for the next tick */
  int64_t deadline_ns;                    /* of a question that the coordinator answers at once; 0: none */
  char caller[GW_KEY_NAME];               /* the name of its key, or without keys its address, for its jobs */
  char id[GW_ID];                         /* of its answer; empty: it has none */
  char external_id[GW_MOST_GIVEN_ID + 1]; /* for the log of its jobs, as the client has given it; may be empty */
  gw_job *jobs, one;                      /* [room]: that one, unless there is room for more */
};

/* Makes the exchange of a connection, with room for one job. On failure the connection has been answered, and the state
 * freed. */
gw_exchange *gw_exchange_make(gateway *g, http_conn *c, const gw_kind *kind, void *state);
/* Makes room for so many jobs in one that has none yet. Returns false without memory: nothing has changed then. */
bool gw_exchange_make_room(gw_exchange *x, size_t num_jobs);
/* Sends so many jobs in turns: no more are open than the queue takes of one client, and GW_JOBS_AT_ONCE. Once one was
 * accepted, those that the queue refuses wait for room; all wait where the connection to the coordinator has none. */
void gw_exchange_begin(gw_exchange *x, size_t num_jobs);
/* Goes on with them when one has ended. Returns false where that failed: the exchange is over then. */
bool gw_exchange_go_on(gw_exchange *x);
/* Returns whether some are open, or still to be sent. */
bool gw_exchange_has_more(const gw_exchange *x);
/* It is over: what of its jobs still runs is cancelled. The exchange is gone, at once or later. */
void gw_exchange_close(gw_exchange *x);
/* The same, with an error in its place; not of a stream that has begun. */
void gw_exchange_fail(gw_exchange *x, const oai_error *e);
/* Returns whether there is a coordinator to ask; else the exchange is over, with an error that says so. */
bool gw_exchange_has_coordinator(gw_exchange *x);
/* The gateway ends before the answer has: an error in its place, or at a stream's end. */
void gw_exchange_cut(gw_exchange *x);
void gw_jobs_take(gateway *g, const trireme_event *e);
/* Answers for a coordinator that hangs, and sends and cancels what waits for room: at each tick. */
void gw_jobs_expire(gateway *g, int64_t now_ns);
/* The connection to the coordinator is lost, and all jobs with it. */
void gw_jobs_lose(gateway *g, const trireme_error *e);

/* ---- body.c: bodies of requests ---- */

/* Parses a request's body, which must be an object, of at most GW_MAX_PARTS parts. */
tri_status gw_parse_body(const tri_buf *body, tri_json_doc **out, tri_error *err);
/* Returns how many bytes all documents may take together, where bodies have so many at most. */
size_t gw_most_documents(size_t max_body);
/* Writes header lines: X-Trireme-Ignored, where a field was ignored, which the log names once. */
void gw_ignored_fields(gateway *g, const oai_ignored *ignored, char out[256]);
/* The header lines of an answer: its id, and X-Trireme-Ignored (gw_ignored_fields). */
enum { GW_ANSWER_LINES = 448 };
void gw_answer_lines(gateway *g, const http_conn *c, const oai_ignored *ignored, char out[GW_ANSWER_LINES]);

/* ---- the endpoints: each answers a whole request, now or later ---- */

void gw_completions(gateway *g, http_conn *c);
void gw_embeddings(gateway *g, http_conn *c);
void gw_models(gateway *g, http_conn *c);
void gw_one_model(gateway *g, http_conn *c); /* /v1/models/ID */
void gw_health(gateway *g, http_conn *c);
void gw_live(gateway *g, http_conn *c);
void gw_version(gateway *g, http_conn *c);
void gw_root(gateway *g, http_conn *c); /* says what this is */
void gw_metrics(gateway *g, http_conn *c);
void gw_chat(gateway *g, http_conn *c);
void gw_tokenize(gateway *g, http_conn *c);
void gw_detokenize(gateway *g, http_conn *c);
/* Answers a request that the gateway cannot serve as it was started: without a model's folder, or a template. */
bool gw_chat_refuse(gateway *g, http_conn *c, bool needs_template);

/* ---- paths.c ---- */

typedef enum gw_path_number {
  GW_PATH_COMPLETIONS,
  GW_PATH_CHAT,
  GW_PATH_EMBEDDINGS,
  GW_PATH_TOKENIZE,
  GW_PATH_DETOKENIZE,
  GW_PATH_MODELS,
  GW_PATH_ONE_MODEL,
  GW_PATH_HEALTH,
  GW_PATH_READY,
  GW_PATH_LIVE,
  GW_PATH_VERSION,
  GW_PATH_METRICS,
  GW_PATH_ROOT,
  GW_NUM_PATHS
} gw_path_number;

typedef struct gw_path {
  const char *path; /* one that ends in a slash begins the target */
  unsigned methods; /* bits of their numbers */
  bool open;        /* without a key, and while the gateway shuts down */
  bool alone;       /* without the coordinator */
  bool plain;       /* also with --metrics-only */
} gw_path;
extern const gw_path gw_paths[GW_NUM_PATHS]; /* by gw_path_number */

const gw_path *gw_path_find(http_str path); /* NULL: there is none */
bool gw_path_exists(const gateway *g, const gw_path *p);
void gw_paths_text(const gateway *g, tri_buf *out); /* the paths that exist, with commas between them */

/* ---- metrics.c ---- */

enum { GW_MAX_STATUSES = 24 };

typedef struct gw_counts {
  uint64_t answers[GW_NUM_PATHS + 1][GW_MAX_STATUSES]; /* of paths, and of all others; by status */
  uint64_t gone[HTTP_GONE_SLOW + 1];                   /* requests whose client did not wait */
  uint64_t templates;                                  /* rendered and tokenized */
  int64_t template_ns;
} gw_counts;

void gw_count_answer(gateway *g, unsigned path, int status);
/* Writes the coordinator's metrics under the prefix and with the model's name, and the gateway's own. */
void gw_metrics_write(const gateway *g, const char *text, size_t len, tri_buf *out);

/* ---- access.c: the log's line of a request that was refused ---- */

typedef struct gw_access {
  int64_t second;           /* since when lines are counted */
  unsigned lines, left_out; /* since then */
} gw_access;
/* Logs an answer of 400 or above, at most so many of them in a second. fields: its header lines, or NULL. */
void gw_access_log(gateway *g, const http_conn *c, int status, const char *fields);

/* ---- hint.c ---- */

/* A command to type next, said once, when the cluster serves first. */
typedef struct gw_hint {
  bool said;
  uint64_t id; /* of the question whether it serves; 0: none is under way */
  int64_t again_ns;
} gw_hint;

/* Writes nothing where no path of this gateway asks a model of such a task. */
void gw_hint_text(const gateway *g, const char *task, const tri_gateway_place *place, int port, tri_buf *out);
void gw_hint_tick(gateway *g, int64_t now);
/* False: the event is for others. */
bool gw_hint_take(gateway *g, const trireme_event *e);

/* ---- routes.c ---- */

/* cors.c: answers the question of a browser whether a page may ask. False: it is none, or none may. */
bool gw_cors_preflight(gateway *g, http_conn *c);

/* Calls of the connections; ctx is the gateway. */
void gw_on_head(void *ctx, http_conn *c);
void gw_on_request(void *ctx, http_conn *c);
void gw_on_gone(void *ctx, http_conn *c, http_gone why);
void gw_on_answer(void *ctx, http_conn *c, int status, const char *fields);
void gw_on_drained(void *ctx, http_conn *c);
void gw_on_cut(void *ctx, http_conn *c);
size_t gw_on_error(void *ctx, int status, const char *why, char *out, size_t cap);

/* ---- finder.c ---- */

/* A connection to the coordinator, and its model. */
typedef struct gw_found {
  trireme *client;
  char name[GW_NAME_BYTES];
  char names[900]; /* all of them, for people */
  uint64_t max_model_len, tokenizer;
} gw_found;

bool gw_found_read(const trireme_event *e, gw_found *out); /* the model, of the answer to trireme_ask_models */

/* ---- all of it ---- */

typedef struct gw_options {
  tri_gateway_options http;
  const char *endpoint, *key_file, *server_key;
  const char *model; /* its folder; NULL: chat is not served */
  int64_t connect_timeout_ms, reconnect_timeout_ms;
  int64_t pulse_fd; /* to whom it shows that its loop turns; -1: none */
} gw_options;

struct gateway {
  gw_options o;
  char model_folder[TRI_MODEL_FOLDER]; /* of o.model, where a cache has it */
  http_server *server;
  trireme *client;          /* NULL: the coordinator is lost */
  struct gw_finder *finder; /* looks for it; NULL: not now */
  bool away;                /* it waits for it */
  uint64_t models_id;       /* of a question that was asked after that; 0: none */
  gw_keys *keys;
  gw_origins *origins;
  bool loopback;            /* other hosts cannot ask */
  bool leaving;             /* SIGTERM: it says that it is not ready */
  bool refusing;            /* new requests for the model are not taken */
  int64_t again_ns;         /* when it looks for the coordinator again */
  int64_t same_ns;          /* until when a further SIGTERM means nothing */
  int64_t leave_ns, end_ns; /* when it begins to refuse, and when answers that are still there end with an error */
  int64_t stop_ns;          /* when it ends with these not sent; 0: they have not ended so */
  size_t most_documents;    /* bytes, since the allocator was asked to give memory back */
  int64_t started;          /* seconds, of the models' `created` */
  char name[GW_NAME_BYTES]; /* of the model that is served */
  uint64_t max_model_len;
  oai_model model;        /* all zeros without a folder */
  bool model_fits;        /* the coordinator has the same tokenizer */
  struct gw_tasks *tasks; /* NULL without a tokenizer */
  gw_counts counts;
  gw_hint hint;
  gw_access access;
  gw_job *jobs[GW_JOB_BUCKETS];
  gw_exchange *waiting, *resumed; /* no room for their next job, or for a cancel; what of them a tick still has to do */
  bool full;                      /* the connection to the coordinator had no room since the last tick */
  int64_t full_ns;                /* since when its sends find none; 0: the last one went */
  char known[GW_MAX_KNOWN][OAI_FIELD_BYTES]; /* ignored fields that the log has named */
  unsigned num_known;
};

/* ---- service.c: the gateway as a whole ---- */

/* Opens the server, the model and the threads, by the options. What was opened before a failure is gw_close's. */
tri_status gw_open(gateway *g, tri_error *err);
trireme_config gw_coordinator_config(const gateway *g, int timeout_ms);
/* Goes on with a coordinator that was found; false: it cannot be watched. Without one, ticks look for it. */
bool gw_adopt(gateway *g, const gw_found *f);
void gw_show_pulse(const gateway *g); /* to the supervisor */
/* Time is up: clients that still wait get an error. */
void gw_cut(gateway *g);
/* Ends what a forced end has cut off, and frees all but the gateway itself. */
void gw_close(gateway *g);

#endif
