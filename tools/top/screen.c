/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/cli.h"
#include "client/cli/status_text.h"
#include "tools/top/screen.h"

#ifndef TRI_NO_NCURSES
#include <ncurses.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { GOOD = 1, FAIR, BAD }; /* pairs of colours */
enum { BAR = 34, LEAST_BAR = 8, SILENT_S = 3 };
/* Columns that whole rows need: the words of bars, both times of tokens, replicas and ranks. Below them rows leave out
 * something or break, so that no figure is cut at the edge. */
enum { WORDS = 38, LAYOUT = 69, TOKENS = 79, EPOCH = 66, RANKS = 79, HOST = 20, LEAST_HOST = 8, PID = 67 };

bool top_screen_open(void) {
  const char *no = getenv("NO_COLOR");
  if (!initscr()) return false;
  cbreak();
  noecho();
  curs_set(0);
  /* NO_COLOR counts unless it is empty (no-color.org). */
  if ((no && *no) || !has_colors() || start_color() == ERR) return true;
  use_default_colors();
  init_pair(GOOD, COLOR_GREEN, -1);
  init_pair(FAIR, COLOR_YELLOW, -1);
  init_pair(BAD, COLOR_RED, -1);
  return true;
}

void top_screen_close(void) { endwin(); }

/* Without colours a pair of them is plain text. */
static int colour(int pair) { return pair ? (int)COLOR_PAIR(pair) : 0; }

static int state_colour(const char *state) {
  if (!strcmp(state, "ready") || !strcmp(state, "serving")) return colour(GOOD);
  return colour(!strcmp(state, "starting") || !strcmp(state, "draining") ? FAIR : BAD);
}

static int fullness_colour(double share) {
  if (share < 0.7) return colour(GOOD);
  return colour(share < 0.9 ? FAIR : BAD);
}

/* Puts text at row y from column x on, cut at the screen's edge. The last row is the keys'. Returns the next column.
 *
 * All rows but the last go through here, so that nothing wraps or scrolls in a window that is too small. */
__attribute__((format(printf, 4, 5))) static int put(int y, int x, int attributes, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (y >= LINES - 1 || x >= COLS) return x;
  attron(attributes);
  mvaddnstr(y, x, text, COLS - x);
  attroff(attributes);
  return x + (int)strlen(text);
}

/* ---- the whole cluster ---- */

static int clamp(int value, int least, int most) {
  if (value < least) return least;
  return value < most ? value : most;
}

static int draw_bar(int y, const char *what, double share, const char *words) {
  char bar[TOP_TEXT];
  int width = clamp(COLS - 8 - WORDS, LEAST_BAR, BAR);
  put(y, 0, A_BOLD, "%-6s", what);
  put(y, 7, fullness_colour(share), "%s", top_bar_text(share, width, bar));
  put(y, 8 + width, 0, "%s", words);
  return y + 1;
}

/* A coordinator that does not tell of a limit is an older one: then there is nothing to fill. */
static int draw_load(const top_view *v, const char *what, uint64_t count, const char *limit, const char *words, int y) {
  char text[TOP_TEXT];
  double most = 0;
  bool known = top_read_value(v->metrics, limit, &most) && most > 0;
  snprintf(text, sizeof text, known ? "%llu %s of %.0f" : "%llu %s", (unsigned long long)count, words, most);
  return draw_bar(y, what, known ? (double)count / most : 0, text);
}

static int draw_kv(const trireme_status *s, int y) {
  char text[TOP_TEXT];
  uint64_t blocks = 0, used = 0;
  for (size_t i = 0; i < s->num_groups; i++) {
    blocks += s->groups[i]->kv_pages;
    used += s->groups[i]->kv_pages_used;
  }
  if (!blocks) return y;
  snprintf(text, sizeof text, "%.1f%% of %llu blocks", 100 * (double)used / (double)blocks, (unsigned long long)blocks);
  return draw_bar(y, "KV", (double)used / (double)blocks, text);
}

static int draw_speed(const top_view *v, int y) {
  static const char between[] = "between tokens";
  const top_history *h = v->history;
  char spark[TOP_TEXT], half[TOP_TEXT], most[TOP_TEXT], next[2 * TOP_TEXT + 64];
  if (!h->num) return y;
  const top_sample *from = &h->samples[0], *to = &h->samples[h->num - 1];
  double past = top_history_seconds(h);
  int x = put(y, 0, A_BOLD, "tokens/s");
  x = put(y, x, 0, " %9.1f  ", v->status->tokens_per_second);
  put(y, x, colour(GOOD), "%s", top_spark_text(h, COLS - x < 60 ? COLS - x : 60, spark));
  y++;
  x = put(y, 0, A_BOLD, "first token");
  x = put(y, x, 0, "  p50 %s  p99 %s   ", top_quantile_text(&from->first, &to->first, 0.5, half),
          top_quantile_text(&from->first, &to->first, 0.99, most));
  snprintf(next, sizeof next, "  p50 %s  p99 %s  (%.0f s)", top_quantile_text(&from->next, &to->next, 0.5, half),
           top_quantile_text(&from->next, &to->next, 0.99, most), past);
  if (x + (int)(strlen(between) + strlen(next)) > COLS) {
    x = 0;
    y++;
  }
  x = put(y, x, A_BOLD, "%s", between);
  put(y, x, 0, "%s", next);
  return y + 1;
}

static int draw_cluster(const top_view *v) {
  const trireme_status *s = v->status;
  double balance;
  uint64_t pending = s->running + s->waiting;
  int x = put(0, 0, A_BOLD, "trireme %s  %s  ", s->version, s->model);
  x = put(0, x, A_BOLD | state_colour(s->state), "%s", s->state);
  put(0, x, 0, "  coordinator up %.0f s, %.0f MB  %s", s->uptime_s, s->resident_mb, v->endpoint);
  x = put(1, 0, 0, "%llu done  ", (unsigned long long)s->requests_done);
  x = put(1, x, s->requests_failed ? colour(BAD) : 0, "%llu failed", (unsigned long long)s->requests_failed);
  if (s->requests_refused) x = put(1, x, colour(FAIR), "  %llu refused", (unsigned long long)s->requests_refused);
  put(1, x, 0, "  %llu invalid  %llu aborted  %llu run again  %llu clients with requests",
      (unsigned long long)s->requests_invalid, (unsigned long long)s->requests_aborted,
      (unsigned long long)s->requests_replayed, (unsigned long long)s->clients);
  int y = draw_load(v, "batch", s->running, "trireme:max_num_seqs", "running", 2);
  y = draw_load(v, "queue", pending, "trireme:max_queue", "running or waiting", y);
  if (cli_is_encoder(s)) return y;
  y = draw_kv(s, y);
  y = draw_speed(v, y);
  if (top_read_value(v->metrics, "trireme:expert_balancedness", &balance))
    put(y++, 0, 0, "experts' balance %.2f (1: all expert-parallel ranks have had equally many rows)", balance);
  return y;
}

/* ---- replicas and ranks ---- */

/* A sentence continues in the next row, after its last whole word. Returns the row after it. */
static int put_sentence(int y, int attributes, const char *text) {
  while (*text) {
    int len = (int)strlen(text), n = len < COLS ? len : COLS;
    if (n < len)
      while (n > 1 && text[n] != ' ') n--;
    put(y++, 0, attributes, "%.*s", n, text);
    text += n;
    while (*text == ' ') text++;
  }
  return y;
}

static int draw_texts(const trireme_status *s, int y) {
  char text[CLI_STREAM_TEXT];
  for (size_t i = 0; i < s->num_groups; i++) {
    const trireme_group_status *g = s->groups[i];
    y = put_sentence(y, colour(BAD), cli_down_text(g, text));
    y = put_sentence(y, 0, cli_stream_text(g, text));
    y = put_sentence(y, 0, cli_swap_text(g, text));
    y = put_sentence(y, 0, cli_prefix_text(g, text));
  }
  return put_sentence(y, 0, cli_cache_text(s, text));
}

/* The internals take the place of the layout, so that 80 columns are enough. An encoder keeps no KV cache and draws no
 * tokens. */
static int draw_groups(const top_view *v, int y) {
  const trireme_status *s = v->status;
  bool generates = !cli_is_encoder(s), layout = !v->internals && COLS >= LAYOUT;
  bool tokens = generates && (!v->internals || COLS >= TOKENS), epoch = v->internals && COLS >= EPOCH;
  put(y++, 0, A_REVERSE, "REPL. STATE      %s RUNNING WAITING%s%s%s%s", layout ? "  TP  PP  DP  EP" : "",
      generates ? "   KV %" : "", tokens ? "       TOKENS" : "", epoch ? " EPOCH" : "",
      v->internals ? "      STEPS us/TOKEN" : "");
  for (size_t i = 0; i < s->num_groups; i++, y++) {
    const trireme_group_status *g = s->groups[i];
    int x = 17;
    put(y, 0, 0, "%5u", g->group);
    put(y, 6, state_colour(g->state), "%-11s", g->state);
    if (layout) x = put(y, x, 0, " %3u %3u %3u %3u", g->tp, g->pp, g->dp, g->ep);
    x = put(y, x, 0, " %7u %7u", g->running, g->waiting);
    double kv = g->kv_pages ? (double)g->kv_pages_used / (double)g->kv_pages : 0;
    if (generates) x = put(y, x, fullness_colour(kv), " %6.1f", 100 * kv);
    if (tokens) x = put(y, x, 0, " %12llu", (unsigned long long)g->tokens);
    if (epoch) x = put(y, x, 0, " %5llu", (unsigned long long)g->epoch);
    if (v->internals) put(y, x, 0, " %10llu %8.2f", (unsigned long long)g->steps, g->scheduler_us_per_token);
  }
  return draw_texts(s, y);
}

static void draw_ranks(const top_view *v, int y) {
  const trireme_status *s = v->status;
  int host = v->internals ? clamp(HOST - (RANKS - COLS), LEAST_HOST, HOST) : HOST;
  bool pid = !v->internals || COLS >= PID;
  put(y++, 0, A_REVERSE, "REPL.  RANK %-*s%s REPORT s%s", host, "HOST", pid ? "      PID" : "",
      v->internals ? "       STEP  LAYER COLLECTIVE" : "");
  for (size_t i = 0; i < s->num_ranks; i++, y++) {
    const trireme_rank_status *r = s->ranks[i];
    char layer[24];
    int silent = r->seconds_since_report > SILENT_S ? A_BOLD | colour(BAD) : 0;
    int x = put(y, 0, 0, "%5u %5u %-*.*s", r->group, r->rank, host, host, r->host);
    if (pid) x = put(y, x, 0, " %8lld", (long long)r->pid);
    x = put(y, x, silent, " %8.1f", r->seconds_since_report);
    if (v->internals)
      put(y, x, 0, " %10llu %6s %10llu %s", (unsigned long long)r->step, cli_layer_text(r->block, layer),
          (unsigned long long)r->collective, r->exchange);
  }
}

/* Draws everything anew each time; ncurses sends the terminal what has changed. */
void top_screen_draw(const top_view *v) {
  erase();
  draw_ranks(v, draw_groups(v, draw_cluster(v) + 1) + 1);
  mvaddnstr(LINES - 1, 0,
            v->internals ? "q quits   i hides the internals" : "q quits   i shows steps, layers and collectives", COLS);
  refresh();
}
#endif
