/* `trireme bench serve` and `throughput`. */
#ifndef TRI_CLIENT_BENCH_H
#define TRI_CLIENT_BENCH_H

#include "client/cmd/cmd.h"

typedef struct bench_options {
  cmd_connection connection;
  int64_t num_prompts, max_concurrency, random_input_len, random_output_len;
  uint64_t seed;
  double request_rate, temperature;
  const char *prompt_file;
  bool ignore_eos, floors, json;
} bench_options;

typedef struct bench_request {
  int64_t arrival_ns, sent_ns, first_ns, last_ns, end_ns; /* from the start of the run; 0: not yet */
  uint64_t prompt_tokens, output_tokens;
  bool ok;
} bench_request;

/* The cluster's floors before the load; all 0 where they are not known. */
typedef struct bench_floors {
  double flops_per_s;                            /* of all groups */
  double prompt_token_flops, output_token_flops; /* of any group: they serve the same model */
  double weight_bytes, read_bytes_per_s;         /* of the group that reads its weights soonest */
} bench_floors;

/* CPU time and tokens so far, of a status, and then what the run added. */
typedef struct bench_cost {
  double coordinator_s, scheduler_s; /* schedulers of all groups */
  uint64_t generated, drawn;         /* as the coordinator counts them, and as the schedulers' last reports do */
} bench_cost;

typedef struct bench_run {
  const bench_options *o;
  trireme *c;
  bench_request *requests; /* [num] */
  size_t num, sent, finished, failed;
  double *itl_ms; /* gaps between the events of a stream */
  size_t num_itl, cap_itl;
  int64_t start_ns, end_ns, most_in_flight, in_flight;
  uint64_t first_id, vocab_size;
  cmd_request *from_file; /* [num_from_file], used in turn */
  size_t num_from_file;
  trireme_error first_error;
  bench_floors floors;
  bench_cost cost;
  bool interrupted; /* by a signal: the results are partial */
} bench_run;

/* Reads the prompts: what is wrong with them is said before anything is measured. */
int bench_prepare(bench_run *b);
/* Runs the load that was prepared; TRI_EXIT_OK also when requests failed (see failed) and after an interrupt. */
int bench_load(bench_run *b);
void bench_run_free(bench_run *b);
/* model: its name. */
void bench_report(const bench_run *b, const char *kind, const char *model);

#endif
