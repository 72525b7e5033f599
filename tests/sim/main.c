/* SPDX-License-Identifier: Apache-2.0 */
/* Days of simulated clusters:
 *   coordinator_sim [--seeds N] [--first S] [--journal] [--verbose]
 * lives through N seeds from S on, and says of the first one that goes wrong what did. Each tenth day is lived through
 * twice: the core says the same to the same. --journal: the coordinator ends again and again, and goes on with its
 * journal. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/sim/sim.h"

typedef struct totals {
  unsigned long long kills, replayed, requests, done, failed, aborted, vanished, attaches, jumps, lost_lines, poisons,
      lives, powers, words, faults, revived, stills, drains;
} totals;

static void add(totals *t, const sim *s) {
  t->kills += (unsigned)s->kills;
  t->replayed += s->replayed;
  t->requests += s->submits;
  t->done += s->done;
  t->failed += s->failed_jobs;
  t->aborted += s->aborted;
  t->vanished += (unsigned)s->vanished;
  t->attaches += (unsigned)s->attaches;
  t->jumps += (unsigned)s->jumps;
  t->lost_lines += (unsigned)s->lost_lines;
  t->lives += (unsigned)s->lives.count;
  t->revived += (unsigned)s->lives.revived;
  t->stills += (unsigned)s->lives.stills;
  t->drains += (unsigned)s->lives.drains;
  t->powers += (unsigned)s->lives.powers;
  t->words += (unsigned)s->lives.words;
  t->faults += s->keeping.disk.faults;
  for (int i = 0; i < s->num_requests; i++) t->poisons += s->requests[i].kills == 3;
}

static bool is_same_again(sim *s, uint64_t seed, bool keeps) {
  uint64_t before = s->trace;
  world_free(s);
  bool ok = world_run(s, seed, keeps, false) && s->trace == before;
  if (!ok) printf("seed %llu: the second time was another\n", (unsigned long long)seed);
  return ok;
}

static bool live(sim *s, uint64_t seed, bool keeps, bool verbose, totals *t) {
  bool ok = world_run(s, seed, keeps, verbose);
  if (!ok) printf("%s\n", s->why);
  add(t, s);
  if (ok && seed % 10 == 0) ok = is_same_again(s, seed, keeps);
  world_free(s);
  return ok;
}

int main(int argc, char **argv) {
  uint64_t seeds = 300, first = 0;
  bool verbose = false, keeps = false, ok = true;
  totals t = {0};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--seeds"))
      seeds = strtoull(value, NULL, 10);
    else if (!strcmp(argv[i], "--first"))
      first = strtoull(value, NULL, 10);
    else if (!strcmp(argv[i], "--journal"))
      keeps = true;
    else if (!strcmp(argv[i], "--verbose"))
      verbose = true;
  }
  sim *s = malloc(sizeof *s);
  if (!s) return 1;
  tri_log_setup(verbose ? TRI_LOG_DEBUG : TRI_LOG_ERROR, "sim");
  if (!verbose && !freopen("/dev/null", "w", stderr)) return 1; /* replicas are lost all the time */
  uint64_t i = 0;
  for (; i < seeds && ok; i++) ok = live(s, first + i, keeps, verbose, &t);
  free(s);
  printf("%llu days: %llu requests (%llu answered, %llu failed, %llu cut off), %llu run again; %llu groups died, %llu "
         "lost their connection, %llu requests killed three; %llu clients vanished, %llu streams were attached to, "
         "%llu jumps of the clock\n",
         (unsigned long long)i, t.requests, t.done, t.failed, t.aborted, t.replayed, t.kills, t.lost_lines, t.poisons,
         t.vanished, t.attaches, t.jumps);
  printf(
      "%llu coordinators: %llu ended alone, %llu with a word (%llu drained), %llu with their machines; %llu times one "
      "stood still; %llu calls of the disk failed\n",
      t.lives, t.revived, t.words, t.drains, t.powers, t.stills, t.faults);
  return ok ? 0 : 1;
}
