/* SPDX-License-Identifier: Apache-2.0 */
/* status, cancel, keygen */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/cmd/cmd.h"
#include "comm/wire/zsock.h"
#include "base/version.h"
#include "base/wait.h"

enum { ASK_AGAIN_MS = 100 };

typedef struct status_options {
  cli_connection connection;
  bool json, stats, experts;
  double wait;
} status_options;

static const tri_option status_table[] = {
    {TRI_OPT(status_options, json), .name = "json", .help = "print one JSON object"},
    {TRI_OPT(status_options, stats), .name = "stats", .help = "print the metrics as Prometheus text instead"},
    {TRI_OPT(status_options, experts), .name = "experts",
     .help = "print the load and the ranks of each expert as JSON instead; --init-expert-location and trireme plan "
             "--rebalance read it"},
    {TRI_OPT(status_options, wait), .name = "wait", .min = 0, .max = 604800, .fallback = "0", .metavar = "SECONDS",
     .help = "wait up to this long for a coordinator, and until it serves or ends"},
    CLI_CONNECTION_OPTIONS(status_options, connection),
};

/* An encoder keeps no KV cache and draws no tokens. */
static void print_groups(const trireme_status *s) {
  bool generates = !cli_is_encoder(s);
  printf("REPLICA EPOCH STATE       TP  PP  DP  EP  RUNNING  WAITING      STEPS%s\n",
         generates ? "     TOKENS  KV BLOCKS USED  SCHED us/TOKEN" : "");
  for (size_t i = 0; i < s->num_groups; i++) {
    const trireme_group_status *g = s->groups[i];
    printf("%7u %5llu %-11s %2u  %2u  %2u  %2u  %7u  %7u %10llu", g->group, (unsigned long long)g->epoch, g->state,
           g->tp, g->pp, g->dp, g->ep, g->running, g->waiting, (unsigned long long)g->steps);
    if (generates)
      printf(" %10llu %14.1f%%  %14.2f", (unsigned long long)g->tokens,
             g->kv_pages ? 100.0 * (double)g->kv_pages_used / (double)g->kv_pages : 0.0, g->scheduler_us_per_token);
    putchar('\n');
  }
}

static void print_memory(const trireme_status *s) {
  static const char *(*const texts[])(const trireme_group_status *g, char out[CLI_STREAM_TEXT]) = {
      cli_down_text, cli_stream_text, cli_swap_text, cli_prefix_text};
  char text[CLI_STREAM_TEXT];
  for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
    for (size_t i = 0; i < s->num_groups; i++)
      if (texts[k](s->groups[i], text)[0]) printf("%s\n", text);
  if (cli_cache_text(s, text)[0]) printf("%s\n", text);
}

/* Returns whether ranks of a replica show different steps: their last reports are up to a second old while they
 * compute.
 */
static bool steps_differ(const trireme_status *s) {
  for (size_t i = 1; i < s->num_ranks; i++)
    if (s->ranks[i]->group == s->ranks[i - 1]->group && s->ranks[i]->step != s->ranks[i - 1]->step) return true;
  return false;
}

/* Says how old the replicas' counts are, where they are not those of the coordinator, which knows its jobs at any time.
 */
static void print_age(const trireme_status *s) {
  uint64_t running = 0, waiting = 0;
  double age = 0;
  for (size_t i = 0; i < s->num_groups; i++) {
    running += s->groups[i]->running;
    waiting += s->groups[i]->waiting;
  }
  for (size_t i = 0; i < s->num_ranks; i++)
    if (!s->ranks[i]->rank && s->ranks[i]->seconds_since_report > age) age = s->ranks[i]->seconds_since_report;
  if (!s->num_ranks || (running == s->running && waiting == s->waiting)) return;
  printf(
      "Replicas count sequences, as of their last reports, up to %.1f s ago; the second line counts requests, now.\n",
      age);
}

static bool has_shards(const trireme_status *s) {
  for (size_t i = 0; i < s->num_groups; i++)
    if (s->groups[i]->dp > 1) return true;
  return false;
}

static void print_ranks(const trireme_status *s) {
  bool shards = has_shards(s);
  printf("\nREPLICA  RANK HOST                      PID       STEP  LAYER COLLECTIVE  LAST REPORT%s\n",
         shards ? "  DP RANK  RUNNING  WAITING" : "");
  for (size_t i = 0; i < s->num_ranks; i++) {
    const trireme_rank_status *r = s->ranks[i];
    char layer[24];
    printf("%7u %5u %-20s %8lld %10llu %6s %10llu %10.1f s", r->group, r->rank, r->host, (long long)r->pid,
           (unsigned long long)r->step, cli_layer_text(r->block, layer), (unsigned long long)r->collective,
           r->seconds_since_report);
    if (shards) printf(" %8u %8u %8u", r->dp_rank, r->shard_running, r->shard_waiting);
    putchar('\n');
  }
}

static void print_callers(const trireme_status *s) {
  if (s->num_callers) printf("\nCALLER                               RUNNING  WAITING\n");
  for (size_t i = 0; i < s->num_callers; i++)
    printf("%-36s %7llu  %7llu\n", s->callers[i]->name, (unsigned long long)s->callers[i]->running,
           (unsigned long long)s->callers[i]->waiting);
}

static void print_refusals(const trireme_status *s) {
  uint64_t jobs = s->refused_max_queue + s->refused_max_queue_bytes + s->refused_client_jobs + s->refused_client_bytes;
  if (jobs + s->expired_max_queue_time)
    printf("refused: %llu by --max-queue, %llu by --max-queue-bytes, %llu and %llu by one client's part of these, %llu "
           "by --max-queue-time\n",
           (unsigned long long)s->refused_max_queue, (unsigned long long)s->refused_max_queue_bytes,
           (unsigned long long)s->refused_client_jobs, (unsigned long long)s->refused_client_bytes,
           (unsigned long long)s->expired_max_queue_time);
  if (s->refused_connections + s->cut_connections)
    printf("connections: %llu refused because of too few files or too many connections, %llu closed because of an "
           "endless message\n",
           (unsigned long long)s->refused_connections, (unsigned long long)s->cut_connections);
}

/* Prints the tokens so far; an encoder's prompts are texts, and it draws none. */
static void print_tokens(const trireme_status *s) {
  if (cli_is_encoder(s))
    printf("tokens: %llu of texts\n", (unsigned long long)s->prompt_tokens);
  else
    printf("tokens: %llu of prompts, %llu generated\n", (unsigned long long)s->prompt_tokens,
           (unsigned long long)s->generation_tokens);
}

static void print_status(const trireme_status *s) {
  printf("%s, model %s, version %s, coordinator up %.0f s, %.0f MB\n", s->state, s->model, s->version, s->uptime_s,
         s->resident_mb);
  printf("%llu running, %llu waiting; clients with requests: %llu (an HTTP gateway is one)",
         (unsigned long long)s->running, (unsigned long long)s->waiting, (unsigned long long)s->clients);
  if (!cli_is_encoder(s))
    printf("; %.1f tokens/s, coordinator %.2f us/token", s->tokens_per_second, s->coordinator_us_per_token);
  printf("\nrequests: %llu done, %llu failed, %llu invalid, %llu refused, %llu aborted, %llu run again; ",
         (unsigned long long)s->requests_done, (unsigned long long)s->requests_failed,
         (unsigned long long)s->requests_invalid, (unsigned long long)s->requests_refused,
         (unsigned long long)s->requests_aborted, (unsigned long long)s->requests_replayed);
  print_tokens(s);
  print_refusals(s);
  if (s->journal_full[0])
    printf("journal: the disk of %s is full: new requests are refused until it has room\n", s->journal_full);
  printf("\n");
  print_groups(s);
  print_memory(s);
  print_ranks(s);
  print_callers(s);
  print_age(s);
  if (steps_differ(s)) printf("Ranks report once a second, at different moments, so their steps may differ here.\n");
}

/* Prints the answer to a question whose answer is a text: the metrics, or the load of the experts. */
static int show_text(trireme *c, trireme_result (*ask)(trireme *c, uint64_t *id, trireme_error *error),
                     int timeout_ms) {
  trireme_event e;
  trireme_error error = {0};
  if (ask(c, NULL, &error) || trireme_next(c, timeout_ms, &e, &error)) return cli_fail(&error);
  if (e.kind == TRIREME_EVENT_ERROR) return cli_refused(&e.error);
  if (e.kind == TRIREME_EVENT_STATS) fwrite(e.stats.text, 1, e.stats.text_len, stdout);
  if (e.kind == TRIREME_EVENT_EXPERTS) printf("%s\n", e.experts.json);
  return TRI_EXIT_OK;
}

static int show_status(trireme *c, int timeout_ms, bool json) {
  trireme_event e;
  int code = cli_ask_status(c, timeout_ms, &e);
  if (code) return code;
  if (json) {
    tri_buf b = {0};
    cmd_json_status(&b, &e.status);
    printf("%s\n", b.data ? b.data : "");
    tri_buf_free(&b);
  } else {
    print_status(&e.status);
  }
  if (fflush(stdout)) return TRI_EXIT_FAILED;
  return strcmp(e.status.state, "serving") ? TRI_EXIT_NOT_SERVING : TRI_EXIT_OK;
}

/* settled: it serves, or it ends and takes no requests any more. */
static trireme_result ask_state(trireme *c, int timeout_ms, bool *settled, trireme_error *error) {
  trireme_event e = {.kind = TRIREME_EVENT_ERROR};
  trireme_result r = trireme_ask_status(c, NULL, error);
  if (!r) r = trireme_next(c, timeout_ms, &e, error);
  bool is_status = !r && e.kind == TRIREME_EVENT_STATUS;
  *settled = is_status && (!strcmp(e.status.state, "serving") || !strcmp(e.status.state, "draining"));
  return r;
}

/* A coordinator that ends takes its socket file away; one that is killed, and started again, leaves it. Several looks
 * in a row must find it gone: a new one that takes its place is without a file for a moment. */
static bool has_ended(trireme_result r, trireme_error *error, bool was_there, int *looks) {
  enum { LOOKS = 3 };
  bool is_gone = was_there && r == TRIREME_FAILED && !strcmp(error->code, "not_found");
  *looks = is_gone ? *looks + 1 : 0;
  if (*looks < LOOKS) return false;
  size_t n = strlen(error->message);
  snprintf(error->message + n, sizeof error->message - n, ": the coordinator, which was there, has ended");
  return true;
}

/* The last attempt's words tell of its time alone, in ms: the whole wait takes its place. */
static trireme_result tell_wait(const status_options *o, trireme_result r, trireme_error *error) {
  char whole[sizeof error->message], *unit = NULL;
  if (!r) return r;
  for (char *at = error->message; (at = strstr(at, " ms")); at++) unit = at;
  char *number = unit;
  while (number && number > error->message && isdigit((unsigned char)number[-1])) number--;
  if (number == unit) return r;
  snprintf(whole, sizeof whole, "%.*s%g s%s", (int)(number - error->message), error->message, o->wait, unit + 3);
  memcpy(error->message, whole, sizeof whole);
  return r;
}

/* Until the cluster serves, or ends, or the time is over, with whatever connection there is then. One that is lost, or
 * a coordinator that does not listen yet, is no reason to give up. The last question may have no time left for its
 * answer: one that has been answered before is asked once more by the caller. */
static trireme_result await_serving(const status_options *o, trireme **c, trireme_error *error) {
  int64_t deadline = tri_deadline_after_ms((int64_t)(o->wait * 1000));
  cli_connection connection = o->connection;
  bool settled = false, answered = false, was_there = false;
  int looks = 0;
  for (;;) {
    int64_t left_ms = (deadline - tri_now_ns()) / 1000000;
    if (left_ms < connection.connect_timeout_ms) connection.connect_timeout_ms = left_ms < 1 ? 1 : left_ms;
    trireme_result r = *c ? TRIREME_OK : cli_try_connect(&connection, c, error);
    if (!r) r = ask_state(*c, (int)connection.connect_timeout_ms, &settled, error);
    was_there |= !r;
    answered = !r || (answered && r == TRIREME_TIMEOUT);
    bool absent =
        r == TRIREME_TIMEOUT || r == TRIREME_CLOSED || (r == TRIREME_FAILED && !strcmp(error->code, "not_found"));
    if (settled || (r && !absent) || has_ended(r, error, was_there, &looks)) return r;
    if (tri_now_ns() >= deadline) return answered ? TRIREME_OK : tell_wait(o, r, error);
    if (r && !answered) {
      trireme_close(*c);
      *c = NULL;
    }
    nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_MS * 1000000L}, NULL);
  }
}

static int connect_for_status(const status_options *o, trireme **c) {
  trireme_error error = {0};
  if (o->wait <= 0) return cli_connect(&o->connection, c);
  return await_serving(o, c, &error) ? cli_fail(&error) : TRI_EXIT_OK;
}

int cmd_status(int argc, char **argv) {
  const tri_options_spec spec = {
      .program = "trireme status",
      .version = "trireme status " TRIREME_VERSION,
      .summary = "Shows the state of the cluster: requests, replicas, ranks. Exit code 0: it serves; 4: the "
                 "coordinator answers, "
                 "but accepts no requests yet, or no longer; 1: no coordinator answers.",
      TRI_OPTIONS(status_table),
      .epilog =
          "Examples:\n  trireme status\n  trireme status --json | jq .tokens_per_second\n  trireme status --stats\n"
          "  trireme status --wait 60 && trireme submit \"37+48=\"\n"};
  status_options o = {0};
  tri_options *parsed = NULL;
  trireme *c = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  code = o.stats + o.json + o.experts > 1 ? cli_usage(spec.program, "--json, --stats and --experts exclude each other")
                                          : connect_for_status(&o, &c);
  int timeout_ms = (int)o.connection.connect_timeout_ms;
  if (!code && (o.experts || o.stats))
    code = show_text(c, o.experts ? trireme_ask_experts : trireme_ask_stats, timeout_ms);
  else if (!code)
    code = show_status(c, timeout_ms, o.json);
  trireme_close(c);
  tri_options_free(parsed);
  return code;
}

/* ---- cancel ---- */

typedef struct cancel_options {
  cli_connection connection;
} cancel_options;

static const tri_option cancel_table[] = {CLI_CONNECTION_OPTIONS(cancel_options, connection)};

/* A cancel is answered only when it fails; the answer to a status request sent after it shows that it has been read. */
static int cancel(trireme *c, const char *request_id, int timeout_ms) {
  trireme_error error = {0};
  trireme_event e;
  uint64_t cancel_id, status_id;
  trireme_result r = trireme_cancel(c, 0, request_id, &cancel_id, &error);
  if (!r) r = trireme_ask_status(c, &status_id, &error);
  while (!r) {
    r = trireme_next(c, timeout_ms, &e, &error);
    if (r) break;
    if (e.id == cancel_id && e.kind == TRIREME_EVENT_ERROR) return cli_refused(&e.error);
    if (e.id == status_id) return TRI_EXIT_OK;
  }
  return cli_fail(&error);
}

int cmd_cancel(int argc, char **argv) {
  const tri_options_spec spec = {
      .program = "trireme cancel",
      .version = "trireme cancel " TRIREME_VERSION,
      .usage = "[OPTION]... REQUEST_ID",
      TRI_OPTIONS(cancel_table),
      .max_args = 1,
      .summary =
          "Cancels a request of the same user or key, from any connection. Its client gets the finish reason abort.",
      .epilog = "submit --json prints the request id, 32 hexadecimal digits.\n"};
  cancel_options o = {0};
  tri_options *parsed = NULL;
  trireme *c = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  if (!tri_options_arg(parsed, 0))
    code = cli_usage(spec.program, "which request? Its id is missing");
  else
    code = cli_connect(&o.connection, &c);
  if (!code) code = cancel(c, tri_options_arg(parsed, 0), (int)o.connection.connect_timeout_ms);
  trireme_close(c);
  tri_options_free(parsed);
  return code;
}

/* ---- keygen ---- */

int cmd_keygen(int argc, char **argv) {
  const tri_options_spec spec = {
      .program = "trireme keygen",
      .version = "trireme keygen " TRIREME_VERSION,
      .usage = "FILE",
      .max_args = 1,
      .summary = "Makes a CURVE key pair: writes both keys to FILE (mode 0600) and prints the public key.",
      .epilog = "Example: a client of a coordinator on another host\n"
                "  trireme keygen ~/.trireme.key      # add the printed key to the coordinator's --allowed-keys\n"
                "  trireme status --endpoint tcp://head:5555 --key-file ~/.trireme.key --server-key KEY\n"};
  char nothing;
  tri_options *parsed = NULL;
  tri_error err = {0};
  tri_zkeypair k = {0};
  int code = tri_options_main(&spec, &nothing, argc, argv, &parsed);
  if (code >= 0) return code;
  if (!tri_options_arg(parsed, 0)) {
    tri_options_free(parsed);
    return cli_usage(spec.program, "which file? Its name is missing");
  }
  tri_status st = tri_zkeypair_make(&k, &err);
  if (st == TRI_OK) st = tri_zkeypair_save(tri_options_arg(parsed, 0), &k, &err);
  if (st != TRI_OK)
    fprintf(stderr, "trireme: %s: %s\n", err.field, err.message);
  else
    printf("%s\n", k.public_key);
  explicit_bzero(&k, sizeof k);
  tri_options_free(parsed);
  return st != TRI_OK ? TRI_EXIT_FAILED : TRI_EXIT_OK;
}
