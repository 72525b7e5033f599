/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme bench serve` and `throughput`. */
#ifndef TRI_TOOLS_SERVE_BENCH_SERVE_BENCH_H
#define TRI_TOOLS_SERVE_BENCH_SERVE_BENCH_H

#include "tools/serve_bench/lengths.h"
#include "tools/serve_bench/stats.h"
#include "client/cli/cli.h"
#include "client/cli/embed_line.h"
#include "client/cli/request.h"

enum { BENCH_MAX_PROMPTS = 10000000, BENCH_MAX_RATES = 64 };

typedef struct bench_options {
  cli_connection connection;
  int64_t num_prompts, num_turns, max_concurrency, random_input_len, random_output_len, min_input_len, max_input_len;
  uint64_t seed;
  double request_rate, load_seconds, temperature;
  unsigned distribution;
  const char *prompt_file, *input_len_file, *request_rates;
  bool ignore_eos, floors, json;
} bench_options;

typedef struct bench_request {
  int64_t arrival_ns, sent_ns, first_ns, last_ns, end_ns; /* from the start of the run; 0: not yet */
  uint64_t prompt_tokens, cached_tokens, output_tokens;
  uint32_t input_len; /* of a random prompt, or of what a turn adds to its chat */
  bool ok, refused;   /* refused: for want of room in the queue */
} bench_request;

/* The cluster's floors before the load; all 0 where they are not known. */
typedef struct bench_floors {
  double flops_per_s;                            /* of all replicas */
  double prompt_token_flops, output_token_flops; /* of any replica: they serve the same model */
  double weight_bytes, read_bytes_per_s;         /* of the replica that reads its weights soonest */
} bench_floors;

/* CPU time and tokens so far, of a status, and then what the run added. */
typedef struct bench_cost {
  double coordinator_s, scheduler_s; /* schedulers of all replicas */
  uint64_t generated, drawn;         /* as the coordinator counts them, and as the schedulers' last reports do */
} bench_cost;

/* The requests of a file, used in turn: either list is empty. */
typedef struct bench_prompts {
  FILE *file; /* open until they are read */
  cli_request *generate;
  size_t num_generate;
  cli_embed_line *embed;
  size_t num_embed;
} bench_prompts;

/* All loads of a run have this in common. */
typedef struct bench_run {
  const bench_options *o;
  const char *kind; /* "serve" "throughput" */
  trireme *c;
  char model[256], task[16];
  bool encoder, classify; /* what the model does; classify: an encoder that labels */
  uint64_t vocab_size, max_model_len;
  double rates[BENCH_MAX_RATES]; /* of the loads, one after the other */
  size_t num_rates;
  bench_lengths lengths;
  bench_prompts prompts;
  uint32_t *ids; /* [longest random prompt] */
  bench_floors floors;
} bench_run;

/* All that was said in a chat so far. */
typedef struct bench_chat {
  uint32_t *ids;
  size_t num;
} bench_chat;

/* One load and what became of it. */
typedef struct bench_load {
  double rate;                                 /* arrivals a second; infinite: all at once */
  bench_request *requests;                     /* [num] */
  size_t num, sent, finished, failed, refused; /* refused: of those that failed */
  size_t *order;     /* [num] the request that each number of the order of sending stands for, as far as it is */
  size_t due;        /* known */
  bench_chat *chats; /* NULL: every request stands alone. Request i is of chat i modulo their number */
  uint32_t *chat_ids;
  size_t num_chats, chat_room; /* as many as requests, if these stand alone; ids of one at most */
  double *itl_ms;              /* gaps between the events of a stream */
  size_t num_itl, cap_itl;
  int64_t start_ns, end_ns, most_in_flight, in_flight;
  uint64_t first_id;
  trireme_error first_error;
  bench_cost cost;
  bool interrupted; /* by a signal: the results are partial */
} bench_load;

/* ---- bench_prompts.c ---- */

/* Opens the file, if one was asked for: that it is missing is said before a coordinator is asked. */
int bench_prompts_open(bench_run *b);
/* Reads the requests, at most `most` of them: what is wrong with them is said before anything is measured. */
int bench_prompts_read(bench_run *b, size_t most);
void bench_prompts_free(bench_prompts *p);
/* Sends request i of a load: of the file, or random tokens. */
trireme_result bench_send(bench_run *b, const bench_load *l, size_t i, uint64_t *random, uint64_t *id,
                          trireme_error *error);

/* ---- bench_chats.c ---- */

/* Returns the place of request i among the prompts, of which so many at a time are the turns of a chat. */
size_t bench_place(const bench_run *b, size_t num, size_t i);
/* Returns the tokens of the longest chat of so many requests, its last answer included; 0: no memory. */
uint64_t bench_longest_chat(const bench_run *b, size_t num);
int bench_chats_begin(const bench_run *b, bench_load *l);
void bench_chats_free(bench_load *l);
/* Adds the random ids of request i to its chat and returns all of it; NULL: there are no chats. */
const uint32_t *bench_chat_ask(const bench_run *b, const bench_load *l, size_t i, size_t *num);
void bench_chat_hear(const bench_load *l, size_t i, const trireme_choice *answer);
/* Has the next turn of a request's chat due, or without an answer counts all of them as failed. */
void bench_chat_go_on(bench_load *l, size_t i);

/* ---- bench_load.c ---- */

/* Runs a load of `num` requests at the rate of that number; TRI_EXIT_OK also when requests failed (see failed) and
 * after an interrupt. Free *l in any case. */
int bench_load_run(bench_run *b, size_t number, size_t num, bench_load *l);
void bench_load_free(bench_load *l);

/* ---- bench_server.c: what the cluster says of itself ---- */

/* Has the workers measure their floors. Without an answer there are none, and the benchmark runs all the same. */
void bench_ask_floors(bench_run *b);
int bench_ask_cost(const bench_run *b, bench_cost *out);
/* Sets l's cost to what has been spent since `before`. */
void bench_take_cost(const bench_run *b, const bench_cost *before, bench_load *l);

/* ---- bench_report.c ---- */

typedef enum bench_latency { BENCH_TTFT, BENCH_TPOT, BENCH_ITL, BENCH_E2E, BENCH_NUM_LATENCIES } bench_latency;

typedef struct bench_figures {
  uint64_t ok, input, output; /* requests that were answered, and their tokens */
  double seconds;
  double offered,
      achieved; /* requests a second: as they arrived, 0 where they came all at once; as they were answered */
  bool saturated;
  bench_summary latency_ms[BENCH_NUM_LATENCIES]; /* of an encoder E2E alone */
  bench_summary late_ms;                         /* from the planned arrival to the sending */
  bench_summary refusal_ms;                      /* from the sending to the refusal */
  uint64_t cached;                               /* of input: tokens whose KV blocks were there */
  bench_summary first_ttft_ms, later_ttft_ms;    /* of the first turns of chats, and of the later ones */
} bench_figures;

/* Returns when the latency of a request begins: at its planned arrival, or where all come at once, when it was sent. */
int64_t bench_begin_ns(const bench_load *l, const bench_request *r);
tri_status bench_figure_out(const bench_load *l, bench_figures *out);
/* Prints the report of one load, or its JSON. */
void bench_report(const bench_run *b, const bench_load *l, const bench_figures *f);
/* Prints one of several loads as a row or as JSON; the first one has the heading above it. */
void bench_report_row(const bench_run *b, const bench_load *l, const bench_figures *f, bool first);
/* Prints the most that any of the n loads achieved. */
void bench_report_saturation(const bench_run *b, const bench_figures *all, size_t n);

#endif
