/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's line to its supervisor: lines in pieces, lines of no meaning, and a supervisor that goes away. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/net/supervisor_pipe.h"

Suite *suite_supervisor(void);

/* Its other sides. */
struct up {
  int event_fd, notice_fd;
};

static tri_supervisor begin(struct up *u) {
  int events[2], notices[2];
  ck_assert(!pipe2(events, O_CLOEXEC | O_NONBLOCK) && !pipe2(notices, O_CLOEXEC | O_NONBLOCK));
  *u = (struct up){.event_fd = events[0], .notice_fd = notices[1]};
  return (tri_supervisor){.event_fd = events[1], .notice_fd = notices[0]};
}

static void end(const tri_supervisor *s, const struct up *u) {
  close(s->event_fd);
  close(s->notice_fd);
  close(u->event_fd);
  if (u->notice_fd >= 0) close(u->notice_fd);
}

static void say(const struct up *u, const char *text) {
  ck_assert_int_eq(write(u->notice_fd, text, strlen(text)), (ssize_t)strlen(text));
}

START_TEST(hears_lines) {
  struct up u;
  tri_supervisor s = begin(&u);
  ck_assert(!tri_supervisor_gives_up(&s));
  say(&u, "something else\nover");
  ck_assert(!tri_supervisor_gives_up(&s));
  ck_assert_int_eq(s.drain, 0);
  say(&u, " replica 0 ended");
  ck_assert(!tri_supervisor_gives_up(&s));
  ck_assert(!s.why[0]);
  say(&u, " with code 1\nmore\n");
  ck_assert(tri_supervisor_gives_up(&s));
  ck_assert_str_eq(s.why, "replica 0 ended with code 1");
  ck_assert(!tri_supervisor_gives_up(&s)); /* once */
  ck_assert_int_eq(tri_supervisor_poll_fd(&s), s.notice_fd);
  end(&s, &u);
}
END_TEST

START_TEST(hears_of_a_drain) {
  struct up u;
  tri_supervisor s = begin(&u);
  say(&u, "drain 15\nover");
  ck_assert(!tri_supervisor_gives_up(&s));
  ck_assert_int_eq(s.drain, 15);
  say(&u, " that\n");
  ck_assert(tri_supervisor_gives_up(&s));
  end(&s, &u);
}
END_TEST

static void note(void *ctx, const tri_supervisor_event *n) {
  char *text = ctx;
  sprintf(text + strlen(text), "%d %u %llu %lld %s;", (int)n->kind, n->replica, (unsigned long long)n->epoch,
          (long long)n->seconds, n->reason);
}

START_TEST(hears_of_groups) {
  struct up u;
  char text[512] = "";
  tri_supervisor s = begin(&u);
  s.on_event = note;
  s.ctx = text;
  say(&u, "died 3 7 replica 3 ended\nheld 1 given_up 30 it did\nheld 2 quarantined 600 host b: bad\nexpect 1 5\n");
  say(&u, "died x\nheld 1\nheld 1 given_up\ndied 4\nexpect 1\n");
  ck_assert(!tri_supervisor_gives_up(&s));
  ck_assert_str_eq(text, "0 3 7 0 replica 3 ended;1 1 0 30 it did;2 2 0 600 host b: bad;3 1 5 0 ;");
  end(&s, &u);
}
END_TEST

START_TEST(a_line_without_end) {
  struct up u;
  tri_supervisor s = begin(&u);
  for (int i = 0; i < 300; i++) say(&u, "endless");
  ck_assert(!tri_supervisor_gives_up(&s));
  say(&u, "\nover that\n");
  ck_assert(tri_supervisor_gives_up(&s));
  ck_assert_str_eq(s.why, "that");
  end(&s, &u);
}
END_TEST

/* Nothing is left to poll, or the loop would spin. Words before the end count. */
START_TEST(the_other_side_goes) {
  struct up u;
  tri_supervisor s = begin(&u);
  say(&u, "over it\n");
  close(u.notice_fd);
  u.notice_fd = -1;
  ck_assert(tri_supervisor_gives_up(&s));
  ck_assert_str_eq(s.why, "it");
  ck_assert_int_eq(tri_supervisor_poll_fd(&s), -1);
  end(&s, &u);

  s = begin(&u);
  tri_supervisor wrong = {.event_fd = -1, .notice_fd = s.event_fd}; /* cannot be read */
  ck_assert(!tri_supervisor_gives_up(&wrong));
  ck_assert_int_eq(tri_supervisor_poll_fd(&wrong), -1);
  end(&s, &u);

  s = (tri_supervisor){.event_fd = -1, .notice_fd = -1};
  tri_supervisor_tell(&s, "nobody");
  ck_assert(!tri_supervisor_gives_up(&s));
  ck_assert_int_eq(tri_supervisor_poll_fd(&s), -1);
}
END_TEST

/* A rank's words must not become a second event. */
START_TEST(tells_one_line) {
  struct up u;
  tri_supervisor s = begin(&u);
  char text[TRI_SUPERVISOR_LINE];
  tri_supervisor_tell(&s, "lost 0 1 1 io rank 1: %s", "x\ndrained 0\r\x7f\x1b[2J");
  ssize_t n = read(u.event_fd, text, sizeof text);
  ck_assert_int_eq(n, 40);
  ck_assert(!memcmp(text, "lost 0 1 1 io rank 1: x drained 0   [2J\n", (size_t)n));
  end(&s, &u);
}
END_TEST

START_TEST(tells_whole_lines) {
  struct up u;
  tri_supervisor s = begin(&u);
  char text[2 * TRI_SUPERVISOR_LINE];
  tri_supervisor_tell(&s, "ready %d %d", 1, 2);
  ck_assert_int_eq(read(u.event_fd, text, sizeof text), 10);
  ck_assert(!memcmp(text, "ready 1 2\n", 10));
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  tri_supervisor_tell(&s, "%s", text);
  ssize_t n = read(u.event_fd, text, sizeof text);
  ck_assert_int_le(n, TRI_SUPERVISOR_LINE);
  ck_assert_int_ge(n, TRI_SUPERVISOR_LINE - 2);
  ck_assert(text[n - 1] == '\n');
  end(&s, &u);
}
END_TEST

/* A supervisor that stands still has all lines later, in order; signs of life alone are not kept for it. */
START_TEST(nothing_is_lost) {
  enum { LINES = 5000 };
  static char got[1 << 20];
  struct up u;
  tri_supervisor s = begin(&u);
  size_t len = 0;
  for (int i = 0; i < LINES; i++) {
    tri_supervisor_tell(&s, "lost %d 1 0 code some more words", i);
    tri_supervisor_alive(&s);
  }
  ck_assert_uint_gt(s.waiting.len, 0);
  for (int i = 0; i < 100; i++) {
    ssize_t n;
    while ((n = read(u.event_fd, got + len, sizeof got - 1 - len)) > 0) len += (size_t)n;
    tri_supervisor_alive(&s);
  }
  got[len] = '\0';
  int next = 0, alive = 0;
  for (char *save = NULL, *line = strtok_r(got, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char want[64];
    snprintf(want, sizeof want, "lost %d 1 0 code some more words", next);
    if (!strcmp(line, "alive"))
      alive++;
    else if (!strcmp(line, want))
      next++;
    else
      ck_abort_msg("%s, not %s", line, want);
  }
  ck_assert_int_eq(next, LINES);
  ck_assert_int_lt(alive, LINES);
  ck_assert_int_gt(alive, 0);
  tri_buf_free(&s.waiting);
  end(&s, &u);
}
END_TEST

Suite *suite_supervisor(void) {
  Suite *s = suite_create("supervisor");
  TCase *t = tcase_create("supervisor");
  tcase_add_test(t, hears_lines);
  tcase_add_test(t, hears_of_a_drain);
  tcase_add_test(t, hears_of_groups);
  tcase_add_test(t, a_line_without_end);
  tcase_add_test(t, the_other_side_goes);
  tcase_add_test(t, tells_one_line);
  tcase_add_test(t, tells_whole_lines);
  tcase_add_test(t, nothing_is_lost);
  suite_add_tcase(s, t);
  return s;
}
