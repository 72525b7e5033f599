/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to wait. A loop polls its condition and calls tri_wait_pause() after each miss:
 *
 *   tri_wait w = tri_wait_begin(policy, deadline);
 *   while (!ready()) { st = tri_wait_pause(&w); if (st != TRI_OK) return st; }
 *
 * A pause spins first, then yields, then sleeps up to 1 ms, 2 ms once nothing has come for a second and 5 ms after
 * five: an idle process costs well under 2% of a core, and what arrives is seen at most that much later. */
#ifndef TRI_BASE_WAIT_H
#define TRI_BASE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Between two looks at memory that another core is to change. */
static inline void tri_cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

int64_t tri_now_ns(void);         /* monotonic */
int64_t tri_thread_cpu_ns(void);  /* CPU time of the calling thread */
int64_t tri_process_cpu_ns(void); /* CPU time of all threads of this process */
#define TRI_NEVER INT64_MAX       /* as a deadline */
static inline int64_t tri_deadline_after_ms(int64_t ms) { return tri_now_ns() + ms * 1000000; }

typedef struct tri_wait_policy {
  int spin_us;             /* polls without giving up the core; 0 where processes outnumber cores */
  int yield_us;            /* then with sched_yield, before the first sleep */
  const atomic_bool *stop; /* true ends every wait with TRI_ABORTED; may be NULL */
} tri_wait_policy;

typedef struct tri_wait {
  const tri_wait_policy *policy;
  int64_t start_ns, deadline_ns, sleep_ns;
  unsigned polls;
} tri_wait;

/* The policy must outlive the wait. deadline_ns: of tri_now_ns, or TRI_NEVER. */
tri_wait tri_wait_begin(const tri_wait_policy *policy, int64_t deadline_ns);
/* TRI_OK: poll again. TRI_TIMEOUT past the deadline, TRI_ABORTED when *stop. */
tri_status tri_wait_pause(tri_wait *w);

/* A thread sleeps here until another one calls tri_waker_wake, or timeout_ns passes. A wake before the sleep is not
 * lost. */
typedef struct tri_waker {
  _Atomic uint32_t signal;
  bool between_processes; /* it lies in memory that several share */
} tri_waker;
void tri_waker_wake(tri_waker *w);
void tri_waker_sleep(tri_waker *w, int64_t timeout_ns);

#endif
