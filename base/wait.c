/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t tri_now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t tri_thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
int64_t tri_process_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

tri_wait tri_wait_begin(const tri_wait_policy *policy, int64_t deadline_ns) {
  return (tri_wait){.policy = policy, .start_ns = tri_now_ns(), .deadline_ns = deadline_ns, .sleep_ns = 50000};
}

tri_status tri_wait_pause(tri_wait *w) {
  static const int64_t busy_ns = 1000000, idle_ns = 2000000, long_idle_ns = 5000000, second = 1000000000;
  if (w->policy->stop && atomic_load_explicit(w->policy->stop, memory_order_relaxed)) return TRI_ABORTED;
  /* Reading the clock costs more than a poll of shared memory: look at it at every 16th poll. */
  if (w->policy->spin_us && ++w->polls % 16) {
    tri_cpu_relax();
    return TRI_OK;
  }
  int64_t now = tri_now_ns(), waited = now - w->start_ns;
  if (now >= w->deadline_ns) return TRI_TIMEOUT;
  if (waited < (int64_t)w->policy->spin_us * 1000) return TRI_OK;
  if (waited < (int64_t)(w->policy->spin_us + w->policy->yield_us) * 1000) {
    sched_yield();
    return TRI_OK;
  }
  int64_t ns = w->sleep_ns;
  if (waited > second) ns = waited > 5 * second ? long_idle_ns : idle_ns;
  struct timespec t = {.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&t, NULL);
  if (w->sleep_ns < busy_ns) w->sleep_ns += w->sleep_ns / 4;
  return TRI_OK;
}

void tri_waker_wake(tri_waker *w) {
  if (!atomic_exchange_explicit(&w->signal, 1, memory_order_acq_rel))
    syscall(SYS_futex, &w->signal, w->between_processes ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void tri_waker_sleep(tri_waker *w, int64_t timeout_ns) {
  if (!atomic_load_explicit(&w->signal, memory_order_acquire)) {
    struct timespec t = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    syscall(SYS_futex, &w->signal, w->between_processes ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);
  }
  /* An exchange and no store: the thread that wakes must see all that the waker wrote before. */
  atomic_exchange_explicit(&w->signal, 0, memory_order_acq_rel);
}
