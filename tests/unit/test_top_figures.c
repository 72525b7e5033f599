/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of `trireme top`: metrics as the coordinator prints them, quantiles of the recent past, bars. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "client/cmd/top_figures.h"

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

Suite *suite_top_figures(void) {
  Suite *s = suite_create("top_figures");
  TCase *c = tcase_create("figures");
  tcase_add_test(c, values_of_metrics);
  tcase_add_test(c, quantiles_of_what_came_between);
  tcase_add_test(c, history_and_sparkline);
  tcase_add_test(c, bars);
  suite_add_tcase(s, c);
  return s;
}
