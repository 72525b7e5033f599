/* SPDX-License-Identifier: Apache-2.0 */
/* A live table of the cluster. */
#include <unistd.h>

#include "client/cli/cli.h"
#include "tools/top/screen.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "base/wait.h"

typedef struct top_options {
  cli_connection connection;
  double interval;
} top_options;

static const tri_option top_table[] = {
    {TRI_OPT(top_options, interval), .name = "interval", .min = 0.1, .max = 3600, .fallback = "1", .metavar = "SECONDS",
     .help = "seconds between updates"},
    CLI_CONNECTION_OPTIONS(top_options, connection),
};

#ifndef TRI_NO_NCURSES
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the text of a stats reply, with an end. Another answer leaves none. */
static void take_metrics(char **metrics, const trireme_event *e) {
  free(*metrics);
  *metrics = e->kind == TRIREME_EVENT_STATS ? strndup(e->stats.text, e->stats.text_len) : NULL;
}

/* Not cli_ask_status, which prints: the screen belongs to ncurses until its end. */
static trireme_result ask(trireme *c, trireme_result (*question)(trireme *, uint64_t *, trireme_error *),
                          int timeout_ms, trireme_event *e, trireme_error *error) {
  uint64_t id = 0;
  trireme_result r = question(c, &id, error);
  for (e->id = id + 1; !r && e->id != id;) /* a resize may have left the answer to an earlier question */
    r = trireme_next(c, timeout_ms, e, error);
  return r;
}

static void note(top_history *h, const char *metrics, const trireme_status *s) {
  top_sample now = {.seconds = (double)tri_now_ns() * 1e-9, .tokens = s->generation_tokens};
  top_read_histogram(metrics, "trireme:time_to_first_token_seconds", &now.first);
  top_read_histogram(metrics, "trireme:inter_token_latency_seconds", &now.next);
  top_note(h, &now);
}

/* Returns when a key asks for it or something fails.
 *
 * getch() waits for a key as long as the interval: it is the loop's clock. */
static trireme_result show(trireme *c, const top_options *o, char **metrics, trireme_error *error) {
  static top_history history;
  bool internals = false;
  int timeout_ms = (int)o->connection.connect_timeout_ms;
  while (!cli_signal) {
    trireme_event e;
    /* The metrics first: a status is good until the next event. */
    trireme_result r = ask(c, trireme_ask_stats, timeout_ms, &e, error);
    if (!r) take_metrics(metrics, &e);
    if (!r) r = ask(c, trireme_ask_status, timeout_ms, &e, error);
    if (r == TRIREME_INTERRUPTED) continue; /* a resize */
    if (r) return r;
    const char *text = *metrics ? *metrics : "";
    if (e.kind == TRIREME_EVENT_STATUS) {
      note(&history, text, &e.status);
      top_screen_draw(&(top_view){&e.status, trireme_endpoint(c), text, &history, internals});
    }
    int key = getch();
    if (key == 'q' || key == 'Q') break;
    if (key == 'i' || key == 'I') internals = !internals;
  }
  return TRIREME_OK;
}

static int watch(trireme *c, const top_options *o) {
  trireme_error error = {0};
  char *metrics = NULL;
  if (!top_screen_open()) return TRI_EXIT_FAILED;
  timeout((int)(o->interval * 1000));
  trireme_result r = show(c, o, &metrics, &error);
  top_screen_close();
  free(metrics); /* strndup's */
  return r ? cli_fail(&error) : TRI_EXIT_OK;
}
#else
static int watch(trireme *c, const top_options *o) {
  (void)c;
  (void)o;
  fprintf(stderr, "trireme: this build has no ncurses; try: watch trireme status\n");
  return TRI_EXIT_FAILED;
}
#endif

static int run(int argc, char **argv) {
  const tri_options_spec spec = {.program = "trireme top",
                                 .version = "trireme top " TRIREME_VERSION,
                                 .summary = "Shows the state of the cluster, updated until you press q.",
                                 TRI_OPTIONS(top_table)};
  top_options o = {0};
  tri_options *parsed = NULL;
  trireme *c = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
    code = cli_usage(spec.program, "needs a terminal; 'trireme status' prints the same once");
  } else {
    code = cli_connect(&o.connection, &c);
    cli_catch_signals();
    if (!code) code = watch(c, &o);
  }
  trireme_close(c);
  tri_options_free(parsed);
  return code;
}

int main(int argc, char **argv) { return tri_stdout_end("trireme", run(argc, argv)); }
