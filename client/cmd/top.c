/* SPDX-License-Identifier: Apache-2.0 */
/* A live table of the cluster. The only user of ncurses. */
#include <unistd.h>

#include "client/cmd/cmd.h"

typedef struct top_options {
  cmd_connection connection;
  double interval;
} top_options;

static const tri_option top_table[] = {
    {TRI_OPT(top_options, interval), .name = "interval", .min = 0.1, .max = 3600, .fallback = "1", .metavar = "SECONDS",
     .help = "time between two looks"},
    CMD_CONNECTION_OPTIONS(top_options, connection),
};

#ifndef TRI_NO_NCURSES
#include <ncurses.h>
#include <stdarg.h>

/* A line of text at row y, cut at the screen's edge. Returns the next row. */
__attribute__((format(printf, 3, 4))) static int line(int y, int attributes, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (y >= LINES) return y;
  attron(attributes);
  mvaddnstr(y, 0, text, COLS);
  attroff(attributes);
  return y + 1;
}

/* Returns the next row. An encoder keeps no KV cache and draws no tokens. */
static int draw_groups(const trireme_status *s, int y) {
  bool generates = !cmd_is_encoder(s);
  char more[80] = "";
  if (generates) snprintf(more, sizeof more, " %12s %6s %9s", "TOKENS", "KV %", "us/TOKEN");
  y = line(y, A_REVERSE, "%5s %5s %-11s %3s %3s %3s %3s %7s %7s %10s%s", "GROUP", "EPOCH", "STATE", "TP", "PP", "DP",
           "EP", "RUNNING", "WAITING", "STEPS", more);
  for (size_t i = 0; i < s->num_groups; i++) {
    const trireme_group_status *g = s->groups[i];
    if (generates)
      snprintf(more, sizeof more, " %12llu %6.1f %9.2f", (unsigned long long)g->tokens,
               g->kv_pages ? 100.0 * (double)g->kv_pages_used / (double)g->kv_pages : 0.0, g->scheduler_us_per_token);
    y = line(y, 0, "%5u %5llu %-11s %3u %3u %3u %3u %7u %7u %10llu%s", g->group, (unsigned long long)g->epoch, g->state,
             g->tp, g->pp, g->dp, g->ep, g->running, g->waiting, (unsigned long long)g->steps, more);
  }
  for (size_t i = 0; i < s->num_groups; i++) {
    char text[CMD_STREAM_TEXT];
    if (cmd_down_text(s->groups[i], text)[0]) y = line(y, 0, "%s", text);
    if (cmd_stream_text(s->groups[i], text)[0]) y = line(y, 0, "%s", text);
    if (cmd_swap_text(s->groups[i], text)[0]) y = line(y, 0, "%s", text);
    if (cmd_prefix_text(s->groups[i], text)[0]) y = line(y, 0, "%s", text);
  }
  return y;
}

static void draw(const trireme_status *s, const char *endpoint) {
  erase();
  int y =
      line(0, A_BOLD, "trireme %s  %s  model %s  %s  up %.0f s", s->version, endpoint, s->model, s->state, s->uptime_s);
  y = line(y, 0, "%llu clients  %llu running  %llu waiting  %llu done  %llu failed  %llu aborted  %llu run again",
           (unsigned long long)s->clients, (unsigned long long)s->running, (unsigned long long)s->waiting,
           (unsigned long long)s->requests_done, (unsigned long long)s->requests_failed,
           (unsigned long long)s->requests_aborted, (unsigned long long)s->requests_replayed);
  y = line(y, 0, "%.1f tokens/s  %llu tokens generated  coordinator %.2f us/token, %.0f MB", s->tokens_per_second,
           (unsigned long long)s->generation_tokens, s->coordinator_us_per_token, s->resident_mb);
  char cache[CMD_STREAM_TEXT];
  if (cmd_cache_text(s, cache)[0]) y = line(y, 0, "%s", cache);
  y = draw_groups(s, y + 1);
  y = line(y + 1, A_REVERSE, "%5s %5s %-20s %8s %10s %6s %10s %8s", "GROUP", "RANK", "HOST", "PID", "STEP", "BLOCK",
           "COLLECTIVE", "REPORT s");
  for (size_t i = 0; i < s->num_ranks; i++) {
    const trireme_rank_status *r = s->ranks[i];
    char layer[24];
    y = line(y, r->seconds_since_report > 3 ? A_BOLD : 0, "%5u %5u %-20.20s %8lld %10llu %6s %10llu %8.1f", r->group,
             r->rank, r->host, (long long)r->pid, (unsigned long long)r->step, cmd_layer_text(r->block, layer),
             (unsigned long long)r->collective, r->seconds_since_report);
  }
  mvaddnstr(LINES - 1, 0, "q quits", COLS);
  refresh();
}

static int watch(trireme *c, const top_options *o) {
  int code = TRI_EXIT_OK;
  if (!initscr()) return TRI_EXIT_FAILED;
  cbreak();
  noecho();
  curs_set(0);
  timeout((int)(o->interval * 1000));
  while (!code && !cmd_signal) {
    trireme_event e;
    trireme_error error = {0};
    uint64_t id;
    /* Not cmd_ask_status, which prints: the screen belongs to ncurses until endwin. */
    trireme_result r = trireme_ask_status(c, &id, &error);
    if (!r) r = trireme_next(c, (int)o->connection.connect_timeout_ms, &e, &error);
    if (r == TRIREME_INTERRUPTED) continue; /* a resize */
    if (r) {
      endwin();
      return cmd_fail(&error);
    }
    if (e.kind == TRIREME_EVENT_STATUS) draw(&e.status, trireme_endpoint(c));
    int key = getch();
    if (key == 'q' || key == 'Q') break;
  }
  endwin();
  return code;
}
#else
static int watch(trireme *c, const top_options *o) {
  (void)c;
  (void)o;
  fprintf(stderr, "trireme: this build has no ncurses; try: watch trireme status\n");
  return TRI_EXIT_FAILED;
}
#endif

int cmd_top(int argc, char **argv) {
  const tri_options_spec spec = {.program = "trireme top",
                                 .summary = "Shows the state of the cluster, again and again, until q is typed.",
                                 TRI_OPTIONS(top_table)};
  top_options o = {0};
  tri_options *parsed = NULL;
  trireme *c = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
    code = cmd_usage(spec.program, "needs a terminal; 'trireme status' prints the same once");
  } else {
    code = cmd_connect(&o.connection, &c);
    cmd_catch_signals();
    if (!code) code = watch(c, &o);
  }
  trireme_close(c);
  tri_options_free(parsed);
  return code;
}
