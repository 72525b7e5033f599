/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of `trireme top`: metrics as the coordinator prints them, quantiles of the recent past, bars. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/top/figures.h"
#include "tools/top/screen.h"

Suite *suite_top_figures(void);

static const char metrics[] = "# HELP trireme:max_queue Jobs.\n"
                              "trireme:max_queue 4096\n"
                              "trireme:max_queue_of_others 7\n"
                              "trireme:x_seconds_bucket{le=\"0.01\"} 10\n"
                              "trireme:x_seconds_bucket{le=\"0.1\"} 30\n"
                              "trireme:x_seconds_bucket{le=\"+Inf\"} 40\n"
                              "trireme:x_seconds_sum 1.5\n";

START_TEST(values_of_metrics) {
  double v = 0;
  top_histogram h;
  ck_assert(top_read_value(metrics, "trireme:max_queue", &v) && v == 4096);
  ck_assert(top_read_value(metrics, "trireme:x_seconds_sum", &v) && v == 1.5);
  ck_assert(!top_read_value(metrics, "trireme:max", &v));
  ck_assert(!top_read_value(metrics, "trireme:absent", &v));
  ck_assert(!top_read_value("", "trireme:absent", &v));
  top_read_histogram(metrics, "trireme:x_seconds", &h);
  ck_assert(h.num == 3 && h.bounds[1] == 0.1 && isinf(h.bounds[2]));
  ck_assert(h.counts[0] == 10 && h.counts[1] == 30 && h.counts[2] == 40);
  top_read_histogram(metrics, "trireme:y_seconds", &h);
  ck_assert_int_eq(h.num, 0);
}
END_TEST

START_TEST(quantiles_of_what_came_between) {
  top_histogram none = {.num = 0}, from = {3, {0.01, 0.1, INFINITY}, {100, 100, 100}}, to = from;
  char text[TOP_TEXT];
  ck_assert_str_eq(top_quantile_text(&from, &to, 0.5, text), "-");
  ck_assert_str_eq(top_quantile_text(&none, &none, 0.5, text), "-");
  to.counts[0] += 10; /* what was before does not count */
  to.counts[1] += 30;
  to.counts[2] += 40;
  ck_assert_str_eq(top_quantile_text(&from, &to, 0.125, text), "5.0 ms");
  ck_assert_str_eq(top_quantile_text(&from, &to, 0.5, text), "55.0 ms");
  ck_assert_str_eq(top_quantile_text(&from, &to, 0.99, text), ">100.0 ms");
  top_histogram slow = {2, {4, INFINITY}, {2, 2}};
  ck_assert_str_eq(top_quantile_text(&none, &slow, 0.5, text), "2.00 s");
}
END_TEST

START_TEST(history_and_sparkline) {
  static top_history h;
  char text[TOP_TEXT];
  ck_assert_str_eq(top_spark_text(&h, 40, text), "");
  uint64_t tokens[] = {0, 0, 100, 150};
  for (int i = 0; i < 4; i++) top_note(&h, &(top_sample){.seconds = i, .tokens = tokens[i]});
  ck_assert_str_eq(top_spark_text(&h, 40, text), "_#=");
  ck_assert_str_eq(top_spark_text(&h, 2, text), "#=");
  ck_assert(top_history_seconds(&h) == 3);
  for (int i = 4; i < 100; i++) top_note(&h, &(top_sample){.seconds = i, .tokens = 150});
  ck_assert(h.num == TOP_SAMPLES && top_history_seconds(&h) == TOP_SAMPLES - 1);
  ck_assert_uint_eq(strspn(top_spark_text(&h, 40, text), "_"), 40);
  top_note(&h, &(top_sample){.seconds = 100, .tokens = 5}); /* of another coordinator */
  ck_assert_int_eq(h.num, 1);
}
END_TEST

START_TEST(bars) {
  char text[TOP_TEXT];
  ck_assert_str_eq(top_bar_text(0, 12, text), "[          ]");
  ck_assert_str_eq(top_bar_text(0.5, 12, text), "[|||||     ]");
  ck_assert_str_eq(top_bar_text(0.001, 12, text), "[|         ]");
  ck_assert_str_eq(top_bar_text(7, 12, text), "[||||||||||]");
  ck_assert_str_eq(top_bar_text(NAN, 12, text), "[          ]");
  ck_assert_str_eq(top_bar_text(1, 2, text), "[]");
}
END_TEST

/* ---- the screen ---- */

enum { ROWS = 24, MOST_COLUMNS = 200, NUM_WIDTHS = 4 };
typedef char screen[ROWS * (MOST_COLUMNS + 1) + 1];

static const trireme_group_status group = {.state = "quarantined",
                                           .tp = 8,
                                           .pp = 8,
                                           .dp = 8,
                                           .ep = 64,
                                           .running = 1234567,
                                           .waiting = 7654321,
                                           .kv_pages = 99999999,
                                           .kv_pages_used = 99999999,
                                           .tokens = 123456789012,
                                           .epoch = 99999,
                                           .steps = 1234567890,
                                           .scheduler_us_per_token = 12345.67,
                                           .prefix_cache_queries = 123456789,
                                           .prefix_cache_hits = 123456789};
static const trireme_rank_status rank = {.host = "node-of-a-long-name",
                                         .pid = 12345678,
                                         .step = 1234567890,
                                         .block = 999999,
                                         .collective = 9876543210,
                                         .seconds_since_report = 123456.7,
                                         .exchange = ""};

/* Leaves the whole screen in text, a line for each row. */
static void draw(int columns, bool internals, char *text) {
  const trireme_group_status *groups[] = {&group};
  const trireme_rank_status *ranks[] = {&rank};
  trireme_status status = {.version = "0.2.0",
                           .model = "m",
                           .state = "serving",
                           .task = "generate",
                           .running = 16384,
                           .waiting = 16384,
                           .num_groups = 1,
                           .groups = groups,
                           .num_ranks = 1,
                           .ranks = ranks};
  top_history history = {.num = 1};
  top_view v = {&status, "ipc:///c.sock", "trireme:max_queue 32768\n", &history, internals};
  resizeterm(ROWS, columns);
  top_screen_draw(&v);
  for (int y = 0; y < ROWS; y++) {
    int n = mvinnstr(y, 0, text, MOST_COLUMNS);
    if (n > 0) text += n;
    *text++ = '\n';
  }
  *text = '\0';
}

static void expect_words(const char *text, int columns, const char *const *words) {
  for (; *words; words++) ck_assert_msg(strstr(text, *words), "%d columns: no \"%s\" in\n%s", columns, *words, text);
}

/* Nothing is cut at the edge: rows leave out what matters least, or break between words. */
START_TEST(narrow_screens) {
  static const int widths[NUM_WIDTHS] = {60, 79, 80, 120};
  static const char *const always[] = {"32768 running or waiting of 32768 ",
                                       "100.0% of 99999999 blocks ",
                                       "first token  p50 -  p99 - ",
                                       "between tokens  p50 -  p99 -  (0 s)",
                                       "quarantined ",
                                       " 1234567 7654321  100.0 ",
                                       " 123456.7 ",
                                       NULL};
  static const char *const whole[] = {"8   8   8  64 1234567 7654321  100.0 123456789012 ", " 12345678 123456.7 ",
                                      NULL};
  static const char *const inner[] = {" 1234567890 12345.67", " 1234567890 999999 9876543210", NULL};
  static const char *const first_row[] = {"0 done  0 failed  0 invalid  0 aborted  0 run again", NULL};
  static const char *const more[] = {" 123456789012 99999 1234567890 ", " 12345678 123456.7 ", NULL};
  static screen plain[NUM_WIDTHS], internals[NUM_WIDTHS];
  int out = dup(STDOUT_FILENO), nothing = open("/dev/null", O_WRONLY);
  fflush(stdout);
  dup2(nothing, STDOUT_FILENO);
  setenv("TERM", "vt100", 1);
  bool opened = top_screen_open();
  for (int i = 0; opened && i < NUM_WIDTHS; i++) {
    draw(widths[i], false, plain[i]);
    draw(widths[i], true, internals[i]);
  }
  if (opened) top_screen_close();
  fflush(stdout);
  dup2(out, STDOUT_FILENO);
  close(out);
  close(nothing);
  ck_assert(opened);
  for (int i = 0; i < NUM_WIDTHS; i++) {
    bool wide = widths[i] >= 79;
    ck_assert_int_eq(strchr(plain[i], '\n') - plain[i], widths[i]);
    expect_words(plain[i], widths[i], always);
    expect_words(plain[i], widths[i], first_row);
    if (wide) ck_assert_ptr_nonnull(strstr(plain[i], " run again  0 clients with requests "));
    expect_words(internals[i], widths[i], always);
    expect_words(internals[i], widths[i], inner);
    if (wide) expect_words(plain[i], widths[i], whole);
    if (wide) expect_words(internals[i], widths[i], more);
  }
}
END_TEST

Suite *suite_top_figures(void) {
  Suite *s = suite_create("top_figures");
  TCase *c = tcase_create("figures");
  tcase_add_test(c, values_of_metrics);
  tcase_add_test(c, quantiles_of_what_came_between);
  tcase_add_test(c, history_and_sparkline);
  tcase_add_test(c, bars);
  tcase_add_test(c, narrow_screens);
  suite_add_tcase(s, c);
  return s;
}
