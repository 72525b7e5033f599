/* SPDX-License-Identifier: Apache-2.0 */
#include "base/start_watch.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/options/options.h"
#include "base/wait.h"

enum { LOOK_MS = 250 };

/* Returns false once the watch has ended. */
static bool look_again(tri_start_watch *s) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += LOOK_MS * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_mutex_lock(&s->lock);
  if (!s->ended) pthread_cond_timedwait(&s->changed, &s->lock, &until);
  bool ended = s->ended;
  pthread_mutex_unlock(&s->lock);
  return !ended;
}

static void *watch_main(void *arg) {
  tri_start_watch *s = arg;
  const char *phase = NULL;
  uint64_t count = 0;
  int64_t since = 0;
  double say = 0;
  struct utsname host;
  uname(&host);
  while (look_again(s)) {
    const char *now_in = atomic_load(&s->phase);
    const uint64_t *counter = atomic_load(&s->counter);
    uint64_t n = counter ? __atomic_load_n(counter, __ATOMIC_RELAXED) : 0;
    if (now_in != phase || n != count) {
      phase = now_in;
      count = n;
      since = tri_now_ns();
      say = tri_start_say_after(s->limit_s);
    }
    double waited = (double)(tri_now_ns() - since) / 1e9;
    if (waited >= s->limit_s) {
      tri_log(TRI_LOG_ERROR, "start", "no progress for %.0f s in phase \"%s\" (host %s, pid %d): giving up", waited,
              phase, host.nodename, (int)getpid());
      _exit(TRI_EXIT_FAILED);
    }
    if (waited < say) continue;
    say *= 2;
    tri_log(TRI_LOG_WARN, "start", "no progress for %.0f s in phase \"%s\" (host %s, pid %d)", waited, phase,
            host.nodename, (int)getpid());
  }
  return NULL;
}

tri_status tri_start_watch_begin(tri_start_watch *s, double limit_s, tri_error *err) {
  pthread_condattr_t clock;
  s->limit_s = limit_s;
  s->ended = false;
  atomic_store(&s->phase, "begin");
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, &clock);
  pthread_condattr_destroy(&clock);
  int e = pthread_create(&s->thread, NULL, watch_main, s);
  s->running = !e;
  return e ? tri_fail(err, TRI_NO_MEMORY, "start", "cannot start a thread: %s", strerror(e)) : TRI_OK;
}

void tri_start_watch_phase(tri_start_watch *s, const char *phase, const uint64_t *counter) {
  atomic_store(&s->counter, counter);
  atomic_store(&s->phase, phase);
}

void tri_start_watch_end(tri_start_watch *s) {
  if (!s->running) return;
  pthread_mutex_lock(&s->lock);
  s->ended = true;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  s->running = false;
}
