/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated cluster: the coordinator's real core between clients, replicas and a network that are made up, in one
 * thread and in a time of its own. A seed fixes everything that happens, faults included.
 *
 * Messages are packed and unpacked as on the wire. Those of one connection come in their order, others overtake each
 * other. Groups draw tokens that are a function of a request's seed, the choice and the number of the token, so that
 * the checker (checker.c) knows what each client is to get.
 *
 * Coordinators end in every way (lives.c), with a journal (keeping.c) or without: alone, so that the next one finds the
 * replicas that run on, or with the whole cluster. */
#ifndef TRI_TESTS_SIM_SIM_H
#define TRI_TESTS_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coordinator/core.h"
#include "coordinator/journal/recorder.h"
#include "tests/sim/disk.h"

enum {
  MAX_REQUESTS = 64,
  MAX_STREAMS = 1024,
  MAX_CONNECTIONS = 128,
  MAX_REPLICAS = 4,
  MAX_CHOICES = 4,
  MAX_PROMPT = 24,
  MAX_ANSWER = 48,
  MODEL_LEN = 96,
  VOCAB = 1000,
  END_OF_TEXT = 1
};
#define MS INT64_C(1000000)
#define SECOND INT64_C(1000000000)

typedef struct sim sim;

/* ---- rng.c ---- */

uint64_t rng_mix(uint64_t x);
uint64_t rng_next(sim *s);
int64_t rng_range(sim *s, int64_t lo, int64_t hi);
bool rng_chance(sim *s, int percent);

/* ---- requests.c: what is asked, and what the answer must be ---- */

/* A job as its client asks for it. */
typedef struct request {
  tri_submit submit; /* its lists point into the request */
  uint32_t prompt[MAX_PROMPT], allowed[3];
  struct tri_wire_bias bias;
  bool poison;              /* a replica that begins it dies */
  int lengths[MAX_CHOICES]; /* of the answers */
  tri_finish reasons[MAX_CHOICES];
  int64_t submitted_ns; /* when the core has had it; 0: not yet */
  bool cancelled;       /* a client has asked for that, or gone */
  bool dropped;         /* a client has gone, whose job ends with it */
  int kills, all_kills; /* of a poison: of replicas of which the core had heard everything, and of all */
  int deaths;           /* of replicas, that the core has heard of since it was submitted, or has begun with it */
  bool died;            /* an earlier coordinator has heard of so many that it was to give it up */
  bool cut_off;         /* a drain may have ended it with an error, which the next coordinator knows */
  int life;             /* the coordinator that was asked last */
  bool told;            /* a client has heard that it is accepted */
  bool ended;           /* a client has heard how it ended, and a restart must know that */
  tri_finish told_reasons[MAX_CHOICES];
  uint64_t told_counts[MAX_CHOICES]; /* tokens of the choices at that end; of an error none */
} request;

void request_draw(sim *s, request *r);
/* The request's token, a fact of its seed. */
uint32_t request_token(const request *r, uint32_t choice, uint64_t number);
float request_logprob(const request *r, uint32_t choice, uint64_t number);
request *request_of_seed(sim *s, uint64_t seed); /* NULL: there is none */

/* ---- events ---- */

typedef struct event event;
typedef void event_run(sim *s, const event *e);
struct event {
  int64_t at;
  uint64_t order;
  event_run *run;
  uint32_t who;    /* a connection or a replica; of coordinators one of their lives */
  uint64_t number; /* of the replica's process, its connection, or an attempt at one */
  void *data;      /* a message, freed behind run */
  size_t len;
  bool lasts;  /* it comes whether the coordinator has ended meanwhile or not */
  bool inside; /* it is the coordinator's doing, and waits while that stands still */
};

/* events.c */
void events_add(sim *s, event e); /* e.at not before now; order is set here */
bool events_next(sim *s, event *out);
void events_free(sim *s);

/* ---- network.c: connections and what is on its way ---- */

/* The way from one end to the other, in order. */
typedef struct way {
  int64_t last_ns; /* when the message sent last arrives */
  int64_t held_ns; /* nothing arrives before */
  int64_t full_ns; /* nothing is taken until then */
} way;

/* A connection of a client, or of a replica's process. */
typedef struct connection {
  way in, out; /* to the core, from it */
  bool closed;
} connection;

tri_peer network_client(int client, int index);
tri_peer network_replica(uint32_t replica, uint64_t line);
int network_client_of(const tri_peer *p); /* the index of the connection; -1: it is a replica's */
bool network_replica_of(const tri_peer *p, uint32_t *replica, uint64_t *line);
/* Has the bytes arrive after a delay, behind what was sent before. */
void network_send(sim *s, way *w, event e, const tri_buf *bytes);
void network_client_says(sim *s, int connection, const tri_client_msg *m);
/* Says it over the connection that the replica has; without one nobody hears it. */
void network_replica_says(sim *s, uint32_t replica, const tri_replica_msg *m);
/* Says it over another connection. */
void network_says_as(sim *s, uint32_t replica, uint64_t line, way *w, const tri_replica_msg *m);

/* ---- clients.c ---- */

/* Tokens and words of a request that a connection has had. */
typedef struct stream {
  int request, connection;
  uint64_t id;
  bool attaches, accepted, ended;
  bool former; /* another stream has taken the request over */
  bool gone;   /* with its connection */
  bool lost;   /* with the coordinator; its client comes back */
  bool ahead;  /* it has, or may have, tokens that a failure of the machine has cost the core */
  uint64_t num[MAX_CHOICES], num_scored;
} stream;

typedef struct client_connection {
  connection net;
  int client;
  uint64_t next_id;
} client_connection;

void clients_open(sim *s);
stream *clients_stream(sim *s, int connection, uint64_t id); /* NULL: there is none */
void clients_act(sim *s, const event *e);                    /* one of them does something, and the next time is set */
void clients_receive(sim *s, const event *e);
void clients_lose_all(sim *s);  /* the coordinator is gone */
void clients_come_back(sim *s); /* some time later: another one is there */

/* ---- replicas.c ---- */

typedef struct replica_job {
  uint64_t id;
  request *request;
  uint64_t num[MAX_CHOICES], num_scored;
  bool ended[MAX_CHOICES], begun, aborted;
  int steps;           /* of a search */
  int64_t deadline_ns; /* by the world's time; 0: none */
} replica_job;

typedef enum fake_state { FAKE_DOWN, FAKE_LOADING, FAKE_READY, FAKE_GONE } fake_state;

typedef struct fake_replica {
  fake_state state;
  connection net;
  uint64_t epoch, step;
  uint64_t process; /* numbers every start, also where another supervisor counts epochs anew */
  uint64_t line;    /* numbers its connection; 0: it has none */
  uint64_t attempt; /* numbers what it does about a connection that it lost */
  bool cleared;     /* it has no job of an earlier coordinator any more */
  bool welcomed;    /* over that connection */
  bool told_ready;
  uint64_t lost_line; /* of which the core hears at lost_ns that it has ended */
  int64_t lost_ns;
  uint64_t cut_line;      /* of which nothing arrives any more */
  int64_t excused_ns;     /* until then the core may take it for lost */
  bool stalled;           /* it stands still, and reports so */
  bool leaving;           /* once it has nothing to do */
  uint64_t counted_epoch; /* the last one of whose end the core knows */
  uint64_t ghost_line;    /* of a process that was left behind by an earlier epoch */
  way ghost;
  int slots;
  replica_job jobs[MAX_REQUESTS];
  int num_jobs;
} fake_replica;

void replica_fakes_open(sim *s);
bool replicas_lives(const sim *s, const event *e); /* the process whose number it has */
void replicas_receive(sim *s, const event *e);
void replicas_count_death(sim *s, uint32_t replica, uint64_t epoch); /* the core knows of it */
void replicas_lost(sim *s, const tri_core_loss *loss);               /* the core gives it up */
void replicas_end(sim *s, uint32_t replica, bool has_words);         /* its process ends, and may say so */
void replicas_lose_line(sim *s, uint32_t replica);                   /* its connection ends, and it makes another one */
void replicas_lose_coordinator(sim *s);                              /* they run on without one */
void replicas_end_all(sim *s);                                       /* with the cluster */
void replicas_begin_all(sim *s);                                     /* with the next one */
void replicas_tell_expected(sim *s);                                 /* to a coordinator that begins */
/* Returns the message by which that start of a replica registers. */
tri_replica_msg replicas_registration(const sim *s, uint32_t index, uint64_t epoch);
void replicas_say_ready(sim *s, uint32_t replica); /* if it may */

/* ---- group_faults.c ---- */

void replicas_fault(sim *s, const event *e); /* something befalls one of them, and the next time is set */

/* ---- steps.c ---- */

void steps_begin(sim *s, uint32_t replica);
/* Says what becomes of jobs that a coordinator had given, before the replica is ready for the next one. */
void steps_say_leftovers(sim *s, uint32_t replica);

/* ---- checker.c ---- */

__attribute__((format(printf, 2, 3))) void fail(sim *s, const char *fmt, ...);
bool check_is_open(const sim *s, const stream *st); /* its end must come */
void check_reply(sim *s, stream *st, const tri_server_msg *m);
/* Checks that the replica which is assigned a job has no other where one of them must be alone. */
void check_company(sim *s, uint32_t replica, const tri_replica_assign *a);
void check_assign(sim *s, const tri_replica_assign *a); /* as it arrives */
void check_end(sim *s);                                 /* everything has ended as it must */
/* A coordinator has begun: it has every job that a client has heard of, and what the client has of it, unless the
 * machine has failed, which may cost the last tokens. */
void check_restored(sim *s);

/* ---- world.c ---- */

/* The kinds of days. */
typedef enum day { DAY_USUAL, DAY_DRAIN, DAY_ABANDON, DAY_ONE_LIFE } day;

/* The journal of coordinators that follow each other. */
typedef struct keeping {
  bool on, failed;  /* failed: it cannot be written, and the coordinator ends */
  bool lived_long;  /* longer than an ended job is kept */
  bool step_is_due; /* of the journal's thread */
  int64_t wall_skew_ms;
  disk disk;
  tri_recorder *recorder;
} keeping;

/* Coordinators that follow each other. */
typedef struct lives {
  bool many;              /* they do */
  bool power_goes;        /* the end to come is the machine's */
  bool supervised;        /* somebody tells the coordinator of deaths */
  bool cluster_ends;      /* the replicas end with this one */
  uint64_t cluster;       /* numbers clusters: starts of replicas belong to one */
  int64_t began_ns;       /* by the core's clock */
  int64_t last_tick_ns;   /* by the core's clock */
  int64_t still_until_ns; /* it stands still */
  int count, revived, powers, words, stills, drains;
} lives;

struct sim {
  uint64_t seed, rng;
  int64_t now, skew;  /* the core's clock is ahead of the world's by skew */
  bool verbose, calm; /* calm: no more faults, nor requests */
  bool failed;
  char why[400];
  uint64_t trace; /* a hash of what the core has said */
  day day;
  bool draining, abandoned;
  tri_core *core; /* NULL: there is none now */
  tri_core_config config;
  keeping keeping;
  lives lives;
  tri_model_config model;
  tri_buf buf;
  tri_arena *arena;
  event *heap;
  size_t num_events, cap_events;
  uint64_t orders, numbers; /* of events; of whatever is numbered */
  uint32_t num_replicas;
  fake_replica replicas[MAX_REPLICAS];
  uint8_t rank_keys[MAX_REPLICAS][TRI_OWNER_BYTES];
  int num_clients, num_connections;
  client_connection connections[MAX_CONNECTIONS];
  int num_requests, num_streams;
  request requests[MAX_REQUESTS];
  stream streams[MAX_STREAMS];
  uint64_t submits;                              /* that cores have had */
  uint64_t done, failed_jobs, aborted, replayed; /* of their last statuses */
  uint64_t life_submits, life_ends;              /* of the last core */
  int kills, vanished, attaches, jumps, lost_lines;
};

int64_t world_clock(const sim *s); /* the core's */
bool world_make_core(sim *s);
void world_ask_status(sim *s); /* for the totals */
void world_abandon(sim *s, const event *e);
/* Lives through the day of a seed, with a journal or without. False: something was wrong, and s->why says what. */
bool world_run(sim *s, uint64_t seed, bool keeps, bool verbose);
void world_free(sim *s);

/* ---- lives.c: coordinators that follow each other ---- */

void lives_plan(sim *s);
void lives_start(sim *s);
void lives_end(sim *s); /* the process is dead */
/* It tells every client, and ends a little later. */
void lives_end_with_a_word(sim *s, const char *why);
void lives_get_ahead(sim *s); /* clients may have, or get, what the next coordinator does not know of */
bool lives_are_still(const sim *s);
void lives_tick(sim *s);

/* ---- life_faults.c ---- */

void lives_fault(sim *s, const event *e); /* something befalls the coordinator, and the next time is set */

/* ---- keeping.c: the journal and its disk ---- */

void keeping_plan(sim *s); /* there is to be a journal */
/* Opens the journal for a core. False: the coordinator has died, or ends by itself. */
bool keeping_open(sim *s, bool *by_itself);
void keeping_close(sim *s);
void keeping_befall(sim *s);      /* something befalls the disk */
void keeping_heal(sim *s);        /* the disk is well */
tri_status keeping_write(sim *s); /* in front of what tells clients of it */
bool keeping_is_dead(const sim *s);
void keeping_tick(sim *s);
void keeping_after_event(sim *s);
void keeping_free(sim *s);

#endif
