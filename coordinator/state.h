/* SPDX-License-Identifier: Apache-2.0 */
/* The core's data, shared by its files and nobody else. */
#ifndef TRI_COORDINATOR_STATE_H
#define TRI_COORDINATOR_STATE_H

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "coordinator/core.h"
#include "coordinator/queue/fair_queue.h"
#include "coordinator/stats/histogram.h"
#include "coordinator/jobs/response_cache.h"
#include "base/hash.h"
#include "base/wait.h"

/* Bits of a seed that is drawn: so many every reader of JSON takes as they are. */
enum { DRAWN_SEED_BITS = 53 };
enum { REASON_BYTES = TRI_ERROR_MESSAGE + 40, MAX_CANARY = 20 };
enum { NUM_BUCKETS = 4096, NUM_FLOW_BUCKETS = 1024, MAX_RANKS = 1024, MAX_RETAINED = 4096, MAX_ASKS = 8 };

/* Time for which an ended job can still be attached to or asked for again. */
#define RETAIN_NS (60 * 1000000000LL)

typedef enum job_state { JOB_NEW, JOB_TOKENIZING, JOB_QUEUED, JOB_ASSIGNED, JOB_ENDED } job_state;

/* One choice's output so far. Everything is kept until the job is forgotten, so that a slow client's tokens can be
 * merged and a client that comes back can be given what it missed. */
typedef struct job_choice {
  tri_detokenizer *detok;
  char *text;
  size_t text_len, text_cap;
  size_t safe_len; /* of text: cannot become part of a stop string any more */
  size_t sent_text;
  uint32_t *ids;
  uint32_t *safe_after; /* safe_len after each token */
  float *logprobs;      /* with logprobs: per token its own and TRI_WIRE_MAX_LOGPROBS alternatives */
  uint32_t *top_ids;
  uint8_t *num_top;
  size_t num, cap, sent;
  size_t ahead; /* tokens to come that the client has: a failure of the machine has cost them here */
  bool ended;
  tri_finish reason;
  int32_t stop_string; /* the number of the request's stop string that has ended it; -1: none has */
  bool stopped_by_id;  /* one of the request's stop ids has, its last token */
} job_choice;

/* The wishes and the result of an encoder's job: it embeds or classifies. */
typedef struct job_embed {
  bool classify, normalize;
  tri_activation activation;
  size_t second_start; /* number of the first token of the second type, counted from 1; 0: none is */
  float *values;       /* NULL: not yet */
  size_t num_values;
  size_t reserved; /* of tri_core's answer_bytes */
} job_embed;

/* Hashes of a request: what is submitted again under its name must be the same. */
typedef struct job_content {
  uint64_t prompt, rest;
} job_content;

typedef struct job {
  TAILQ_ENTRY(job) links; /* of active or ended */
  LIST_ENTRY(job) id_chain;
  LIST_ENTRY(job) request_chain;
  LIST_ENTRY(job) client_chain;
  struct job *dirty_next;
  bool dirty;
  TAILQ_ENTRY(job) queue_links; /* of its flow's queue */
  flow_part part;
  uint64_t id;
  tri_request_id request_id;
  job_content content;
  tri_peer peer; /* its owner is the job's */
  uint64_t client_id;
  bool attached, stream, accepted_sent, done_sent, echo;
  bool known;         /* asked for again: the reply says that it existed */
  bool timed_out;     /* its deadline has ended it */
  bool cut;           /* a stop string ended a choice that its group still computes */
  bool begun_here;    /* its group has told something of it */
  bool at_risk;       /* a step of the group that is being lost may have had a part of it */
  bool of_other;      /* it was accepted for another model */
  bool over;          /* a restart need know nothing more of it */
  bool dropped;       /* it was cancelled since its client had gone: one that comes back finds nothing */
  bool after_prompt;  /* the text of its answers goes on with the prompt's, which has some */
  bool return_ids;    /* its client gets the prompt's token ids */
  bool use_cache;     /* its answer may come from the response cache, and go into it */
  bool cached;        /* it has come from there */
  uint32_t echo_sent; /* choices whose client has the prompt's text */
  size_t echo_at;     /* bytes of it that the client of the next one has */
  tri_on_disconnect on_disconnect;
  job_state state;
  uint32_t group;
  uint64_t epoch, seed;
  tri_sampling sampling; /* stop strings, biases and allowed ids owned: stop_text, bias, allowed */
  char *stop_text;       /* NULL: no stop strings */
  struct tri_wire_bias *bias;
  uint32_t *allowed;
  size_t longest_stop;
  char *salt; /* of the caches; NULL: none */
  size_t salt_len;
  char *external_id;                    /* the name that whoever asks has for it; NULL: none */
  char caller[TRI_WIRE_MAX_CALLER + 1]; /* for whom the client has asked; empty: it did not say */
  char *prompt;                         /* for echo */
  size_t prompt_len;
  uint32_t *prompt_ids; /* until it has ended; of an encoder's job always */
  size_t num_prompt;
  uint32_t num_open;
  uint32_t runs;                /* groups that it has been given to */
  uint64_t weights_hash;        /* of the group that had it last; 0: none has, or it did not say */
  uint32_t deaths;              /* of them, that were lost and may have begun it */
  uint32_t preemptions;         /* as its groups have told */
  uint32_t earlier_preemptions; /* of them, in groups that were lost */
  uint32_t cached_tokens;       /* of the prompt, likewise */
  int64_t begun_ns;             /* when a step first took a part of it in, likewise; 0: none has */
  int64_t submitted_ns, assigned_ns, first_token_ns, last_token_ns, ended_ns, deadline_ns, stuck_ns;
  uint64_t record;      /* number of the first record that a restart needs for it; 0: there is none */
  uint64_t moved;       /* of another one that takes its place once it is durable; 0: there is none */
  int64_t orphan_ns;    /* of a restored job: since when it waits for its client */
  size_t retained;      /* bytes, once it has ended */
  int64_t said_ns;      /* when its client was last sent something, or looked for */
  int looks;            /* for its client in a row: each leaves a frame with one that reads nothing */
  tri_error *error;     /* NULL: none */
  job_embed *embed;     /* NULL: the job generates text */
  job_choice scored;    /* the prompt's tokens with their logprobs, where those are wanted; no text */
  job_choice choices[]; /* [sampling.n] */
} job;

TAILQ_HEAD(job_list, job);
LIST_HEAD(job_chain, job);

typedef enum group_state { GROUP_ABSENT, GROUP_STARTING, GROUP_READY, GROUP_DRAINING, GROUP_LOST } group_state;

/* A rank's rows of experts, by its own word: tri_group_experts. */
typedef struct expert_report {
  bool asked, told; /* told: since it was last asked */
  uint64_t placement;
  uint32_t first_layer, num_layers, first_slot, num_own, num_slots;
  uint64_t *rows;
  uint32_t *expert_of;
  uint64_t *earlier; /* [num_layers, experts] */
  tri_group_hot hot;
} expert_report;

typedef struct rank_info {
  bool known;
  tri_peer peer;
  char host[64];
  int64_t pid, last_report;
  uint64_t step, layer, collective;
  uint32_t exchange;         /* tri_exchange_part */
  uint32_t running, waiting; /* on its shard, of several */
  int64_t progress_ns;       /* when step, layer or collective last changed */
  bool measured;             /* floors: since they were last asked for, or earlier where they could not be */
  tri_floors floors;
  expert_report experts;
  tri_group_stream stream;
} rank_info;

/* A client that waits for floors. */
typedef struct floors_ask {
  tri_peer peer;
  uint64_t id;
  int64_t until_ns;
} floors_ask;
typedef floors_ask experts_ask;

/* The cost of the scheduler in the last reports in which tokens were drawn. */
enum { COST_REPORTS = 10 };
typedef struct cost_window {
  uint64_t tokens[COST_REPORTS], ns[COST_REPORTS];
  unsigned count;
} cost_window;

/* The tokens that a group's canary has put first, the best first. */
typedef struct group_canary {
  int num;
  uint32_t ids[MAX_CANARY];
  double logprobs[MAX_CANARY];
} group_canary;

typedef struct group {
  group_state state;
  uint64_t epoch;
  uint64_t expected; /* the start that was begun last, as was told; 0: none was */
  bool coming;       /* that one has neither registered nor ended */
  uint32_t tp, pp, dp, ep, world;
  rank_info *ranks; /* [world] */
  uint64_t model_hash, weights_hash, max_model_len, kv_blocks, block_size, max_num_seqs;
  group_canary canary;
  uint64_t step_tokens;
  /* of the jobs that it has: sequences, the most steps that they can take, and the jobs that it has shown no sign of
   * yet with the tokens of their prompts */
  uint64_t sequences, steps, pending, pending_tokens;
  priority_entry *by_priority; /* those jobs with their sequences; empty where priorities do not matter */
  /* of one look at the queue: jobs of this priority or a later one find no slot, where that is known */
  int64_t full_from;
  bool has_full;
  uint32_t running, waiting, jobs;
  bool clogged;   /* its leader took no job in this look at the queue */
  uint64_t alone; /* the job that it is kept for, which gets no company; 0: none */
  uint64_t kv_blocks_used, tokens, scheduler_ns, preemptions, rearrangements, experts_moved, moving_ns;
  tri_group_swaps swaps;
  tri_group_prefixes prefixes;
  cost_window cost;
  /* that a layer takes for the largest step, as predicted when the group became ready first; 0: it never has */
  double layer_seconds;
  int64_t began_ns, ready_ns, last_lease;
  int64_t busy_since; /* by its own word; 0: it is idle */
  int64_t jobs_since; /* that it has had jobs without a pause, where it has some */
  int64_t died_ns;    /* when it was said to have ended; 0: it was not */
  tri_core_hold hold; /* it has ended, and is not started again before */
  int64_t hold_until_ns;
  char reason[REASON_BYTES]; /* why it is lost or stays down */
} group;

typedef struct prefix_affinity prefix_affinity;

/* Why a job was refused that asked for nothing wrong, or ended in the queue. */
typedef enum queue_refusal {
  REFUSED_QUEUE,
  REFUSED_QUEUE_BYTES,
  REFUSED_CLIENT,
  REFUSED_CLIENT_BYTES,
  REFUSED_QUEUE_TIME,
  REFUSED_JOURNAL,
  REFUSED_TOKENIZER,
  NUM_REFUSALS
} queue_refusal;

struct tri_core {
  tri_core_config cfg;
  group *groups;
  struct job_list active; /* oldest first */
  struct job_list ended;  /* in the order of their end: nothing that happens often walks these, which are many */
  struct job_chain by_id[NUM_BUCKETS], by_request[NUM_BUCKETS], by_client[NUM_BUCKETS];
  job *dirty;
  uint64_t next_id;
  int64_t num_active, num_tokenizing, num_queued, num_retained;
  uint64_t retained; /* bytes of those */
  bool draining, drain_sent;
  int64_t blind_until_ns;        /* the watchdog judges nobody */
  bool ending;                   /* jobs end since the cluster does: the next start goes on with them */
  bool has_journal;              /* jobs outlive this coordinator */
  bool restoring;                /* jobs of an earlier coordinator are being made */
  int64_t restored_age_ns;       /* how long ago what is being restored was; 0 outside */
  bool restore_failed;           /* there was no memory for one of them */
  const char *full;              /* the journal's folder, where its disk is full: nothing new is taken; else NULL */
  bool crowded;                  /* jobs have all of the memory: likewise */
  bool has_clogged;              /* a group is */
  bool has_moved;                /* a job has another record that is not durable yet */
  bool has_undurable;            /* a job waits until its record is durable */
  uint64_t durable;              /* number of the last durable record */
  int64_t started_ns, looked_ns; /* looked_ns: for clients that have gone */
  tri_core_facts facts;
  floors_ask asks[MAX_ASKS];
  int num_asks;
  experts_ask expert_asks[MAX_ASKS];
  int num_expert_asks;
  tri_buf content;                                    /* memory of content_of */
  tri_buf drawn;                                      /* memory of replay_fill */
  char last_loss[200];                                /* why the group that was lost last was; empty: none was */
  tri_response_cache *cache;                          /* NULL: none */
  tri_buf cache_key, cache_answer;                    /* memory of answers.c */
  struct flow_chain flows[NUM_FLOW_BUCKETS], waiting; /* waiting: those with jobs in the queue */
  priority_entry *queued;                             /* those jobs; empty where priorities do not matter */
  int64_t num_queued_alone;                           /* of them, that run alone */
  struct flow_owner_chain flow_owners[NUM_FLOW_BUCKETS];
  double flow_clock; /* service of the owner that was last served */
  size_t queue_bytes;
  uint64_t refused[NUM_REFUSALS];
  prefix_affinity *affinity; /* NULL: there is one group, or none has a prefix cache */
  /* totals */
  uint64_t invalid[TRI_STATUS_COUNT]; /* requests that were refused for what is wrong with themselves */
  uint64_t done_stop, done_length, done_abort, failed, not_finite, lost, replayed, prompt_tokens, generation_tokens;
  uint64_t turned_away; /* requests that were refused for want of room, with nothing wrong here or with themselves */
  tri_wire_str *labels; /* of a classifier */
  size_t label_bytes, answer_bytes;
  tri_histogram ttft, itl, e2e, queue_time, step_tokens;
};

#include "coordinator/files.h"

#endif
