/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own clock_gettime and timerfd_settime, which libraries call as well: a name that a program has goes
 * before that of a shared library. */
#include "tests/stack/clock.h"

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
enum { MAX_TIMERS = 64 };

typedef struct timer {
  int fd;
  int64_t at; /* 0: it has rung, or never will */
} timer;

static _Thread_local bool is_taken;
static int64_t now; /* of that thread */
static timer timers[MAX_TIMERS];
static int num_timers;

static int64_t ns_of(const struct timespec *t) { return (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec; }

static struct timespec of_ns(int64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

int clock_gettime(clockid_t id, struct timespec *t) {
  bool monotonic = id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_MONOTONIC_RAW;
  if (!monotonic || !is_taken) return (int)syscall(SYS_clock_gettime, id, t);
  *t = of_ns(now);
  return 0;
}

static int set(int fd, int flags, const struct itimerspec *to, struct itimerspec *old) {
  return (int)syscall(SYS_timerfd_settime, fd, flags, to, old);
}

/* A timer that is due rings at once, any other one when the clock has come so far. */
static void look(timer *t) {
  struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
  if (!t->at || t->at > now) return;
  t->at = 0;
  set(t->fd, 0, &soon, NULL);
}

static timer *timer_of(int fd) {
  for (int i = 0; i < num_timers; i++)
    if (timers[i].fd == fd) return &timers[i];
  ck_assert_int_lt(num_timers, MAX_TIMERS);
  timers[num_timers] = (timer){.fd = fd};
  return &timers[num_timers++];
}

int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old) {
  struct itimerspec never = {{0}, {0}};
  if (!is_taken || !(flags & TFD_TIMER_ABSTIME)) return set(fd, flags, to, old);
  timer *t = timer_of(fd);
  t->at = ns_of(&to->it_value);
  int code = set(fd, flags, &never, old);
  if (!code) look(t);
  return code;
}

void clock_take(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  int64_t real = ns_of(&t);
  if (now < real) now = real; /* it does not go back for the next test either */
  num_timers = 0;
  is_taken = true;
}

void clock_give(void) { is_taken = false; }

void clock_advance(int64_t ns) {
  now += ns;
  for (int i = 0; i < num_timers; i++) look(&timers[i]);
}
