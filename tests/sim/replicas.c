/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: they register, become ready, end, are started again, and outlive their coordinator. */
#include <string.h>

#include "base/status.h"
#include "tests/sim/sim.h"

/* ---- what they say of themselves ---- */

bool replicas_lives(const sim *s, const event *e) {
  const fake_replica *g = &s->replicas[e->who];
  return g->process == e->number && (g->state == FAKE_LOADING || g->state == FAKE_READY);
}

static void say_health(sim *s, uint32_t index) {
  const fake_replica *g = &s->replicas[index];
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.replica = index,
                                  .epoch = g->epoch,
                                  .step = g->step,
                                  .busy = g->num_jobs > 0 || (g->state == FAKE_READY && !g->cleared),
                                  .running = (uint32_t)g->num_jobs}};
  network_replica_says(s, index, &m);
}

static void say_register(sim *s, uint32_t index) {
  tri_replica_msg m = replicas_registration(s, index, s->replicas[index].epoch);
  m.reg.pid = (int64_t)s->replicas[index].process;
  network_replica_says(s, index, &m);
}

static void report(sim *s, const event *e) {
  if (!replicas_lives(s, e)) return;
  if (!s->replicas[e->who].welcomed) say_register(s, e->who);
  say_health(s, e->who);
  events_add(s, (event){.at = s->now + SECOND, .run = report, .who = e->who, .number = e->number, .lasts = true});
}

tri_replica_msg replicas_registration(const sim *s, uint32_t index, uint64_t epoch) {
  return (tri_replica_msg){.op = TRI_REPLICA_REGISTER,
                           .reg = {.replica = index,
                                   .world = 1,
                                   .tp = 1,
                                   .pp = 1,
                                   .dp = 1,
                                   .ep = 1,
                                   .epoch = epoch,
                                   .max_model_len = MODEL_LEN,
                                   .vocab_size = VOCAB,
                                   .kv_blocks = 1000,
                                   .block_size = 16,
                                   .max_num_seqs = (uint64_t)s->replicas[index].slots}};
}

void replicas_say_ready(sim *s, uint32_t index) {
  fake_replica *g = &s->replicas[index];
  tri_replica_msg m = {.op = TRI_REPLICA_READY, .ready = {.replica = index, .epoch = g->epoch}};
  if (g->state != FAKE_READY || !g->line || !g->welcomed || !g->cleared || g->told_ready) return;
  g->told_ready = true;
  network_replica_says(s, index, &m);
}

/* ---- connections ---- */

static bool attempts(const sim *s, const event *e) {
  const fake_replica *g = &s->replicas[e->who];
  return g->attempt == e->number && (g->state == FAKE_LOADING || g->state == FAKE_READY);
}

/* A leader says nothing of jobs of another coordinator; where it does nevertheless, they must not be taken. */
static void connect(sim *s, const event *e) {
  fake_replica *g = &s->replicas[e->who];
  if (!attempts(s, e)) return;
  if (!s->core) {
    events_add(s, (event){.at = s->now + rng_range(s, 20, 200) * MS,
                          .run = connect,
                          .who = e->who,
                          .number = e->number,
                          .lasts = true});
    return;
  }
  g->line = ++s->numbers;
  g->net = (connection){.closed = false};
  say_register(s, e->who);
  if (!g->cleared && rng_chance(s, 30)) steps_say_leftovers(s, e->who);
}

/* The leader has ended what an earlier coordinator had given. One that stands still cannot. */
static void clear(sim *s, const event *e) {
  fake_replica *g = &s->replicas[e->who];
  if (!attempts(s, e) || g->stalled) return;
  g->num_jobs = 0;
  g->cleared = true;
  replicas_say_ready(s, e->who);
}

void replicas_lose_line(sim *s, uint32_t index) {
  fake_replica *g = &s->replicas[index];
  if (g->state != FAKE_LOADING && g->state != FAKE_READY) return;
  int64_t notices = s->now + rng_range(s, 0, 200) * MS, clears = notices + rng_range(s, 0, 100) * MS;
  bool is_slow = rng_chance(s, 10); /* its step takes so long */
  if (is_slow) clears += rng_range(s, 0, 6000) * MS;
  if (is_slow && g->excused_ns < clears + 2 * SECOND) g->excused_ns = clears + 2 * SECOND;
  g->lost_line = g->line;
  g->lost_ns = s->now + rng_range(s, 0, 500) * MS;
  g->line = 0;
  g->welcomed = g->cleared = g->told_ready = false;
  g->attempt = ++s->numbers;
  events_add(s, (event){.at = notices, .run = connect, .who = index, .number = g->attempt, .lasts = true});
  events_add(s, (event){.at = clears, .run = clear, .who = index, .number = g->attempt, .lasts = true});
}

void replicas_lose_coordinator(sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++) replicas_lose_line(s, i);
}

/* ---- starts ---- */

static void become_ready(sim *s, const event *e) {
  if (!replicas_lives(s, e)) return;
  s->replicas[e->who].state = FAKE_READY;
  replicas_say_ready(s, e->who);
  steps_begin(s, e->who);
}

static void boot(sim *s, const event *e) {
  fake_replica *g = &s->replicas[e->who];
  if (e->number != s->lives.cluster || g->state != FAKE_DOWN || s->draining || s->abandoned) return;
  *g = (fake_replica){.state = FAKE_LOADING,
                      .epoch = g->epoch + 1,
                      .process = ++s->numbers,
                      .attempt = ++s->numbers,
                      .cleared = true,
                      .cut_line = g->cut_line,
                      .counted_epoch = g->counted_epoch,
                      .slots = g->slots};
  if (s->core) tri_core_replica_expected(s->core, e->who, g->epoch);
  connect(s, &(event){.who = e->who, .number = g->attempt});
  events_add(s, (event){.at = s->now + rng_range(s, 50, 1500) * MS,
                        .run = become_ready,
                        .who = e->who,
                        .number = g->process,
                        .lasts = true});
  events_add(s, (event){.at = s->now + SECOND / 2, .run = report, .who = e->who, .number = g->process, .lasts = true});
}

static void boot_later(sim *s, uint32_t index, int64_t most_ms) {
  int64_t at = s->now + rng_range(s, 0, most_ms) * MS;
  events_add(s, (event){.at = at, .run = boot, .who = index, .number = s->lives.cluster, .lasts = true});
}

void replica_fakes_open(sim *s) {
  s->num_replicas = s->day == DAY_ONE_LIFE ? 1 : (uint32_t)rng_range(s, 1, MAX_REPLICAS - 1);
  for (uint32_t i = 0; i < s->num_replicas; i++) {
    s->replicas[i].slots = (int)rng_range(s, MAX_CHOICES, 8);
    boot_later(s, i, 500);
  }
  events_add(s, (event){.at = s->now + rng_range(s, 500, 5000) * MS, .run = replicas_fault, .lasts = true});
}

void replicas_begin_all(sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++) boot_later(s, i, 500);
}

/* The supervisor counts on, or is another one that begins anew. */
void replicas_end_all(sim *s) {
  bool anew = rng_chance(s, 50);
  s->lives.cluster = ++s->numbers;
  for (uint32_t i = 0; i < s->num_replicas; i++) {
    const fake_replica *g = &s->replicas[i];
    s->replicas[i] = (fake_replica){.epoch = anew ? 0 : g->epoch, .slots = g->slots};
  }
}

/* A start that is known to have ended is no news to a coordinator that begins. */
void replicas_tell_expected(sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++) {
    fake_replica *g = &s->replicas[i];
    bool runs = g->state == FAKE_LOADING || g->state == FAKE_READY;
    g->counted_epoch = runs && g->epoch ? g->epoch - 1 : g->epoch;
    if (g->epoch) tri_core_replica_expected(s->core, i, runs ? g->epoch : g->epoch + 1);
  }
}

/* ---- ends ---- */

void replicas_count_death(sim *s, uint32_t index, uint64_t epoch) {
  fake_replica *g = &s->replicas[index];
  if (epoch <= g->counted_epoch) return;
  g->counted_epoch = epoch;
  for (int i = 0; i < s->num_requests; i++) s->requests[i].deaths += s->requests[i].submitted_ns > 0;
}

/* The supervisor has seen its end, and tells the coordinator. */
static void tell_death(sim *s, const event *e) {
  tri_core_replica_died(s->core, world_clock(s), e->who, e->number, "its process has ended");
}

static void say_failed(sim *s, uint32_t index) {
  static const char code[] = "device_lost", why[] = "a device is gone";
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED,
                       .failed = {.replica = index,
                                  .epoch = s->replicas[index].epoch,
                                  .code = {code, sizeof code - 1},
                                  .message = {why, sizeof why - 1}}};
  network_replica_says(s, index, &m);
}

void replicas_end(sim *s, uint32_t index, bool has_words) {
  fake_replica *g = &s->replicas[index];
  if (g->state != FAKE_LOADING && g->state != FAKE_READY) return;
  s->kills++;
  if (has_words) say_failed(s, index);
  g->state = FAKE_DOWN;
  g->num_jobs = 0;
  if (rng_chance(s, 30)) g->cut_line = g->line;
  if (s->verbose)
    printf("%8.3f group %u dies, epoch %llu\n", (double)s->now / 1e9, index, (unsigned long long)g->epoch);
  int64_t at = s->now + rng_range(s, 0, 50) * MS;
  if (s->day == DAY_ONE_LIFE) { /* mpirun ends the rest of the job */
    events_add(s, (event){.at = at + rng_range(s, 1, 6) * SECOND, .run = world_abandon, .inside = true});
    return;
  }
  if (s->lives.supervised && s->core)
    events_add(s, (event){.at = at, .run = tell_death, .who = index, .number = g->epoch, .inside = true});
  boot_later(s, index, 5000);
}

static void kill_lost(sim *s, const event *e) {
  if (replicas_lives(s, e)) replicas_end(s, e->who, false);
}

void replicas_lost(sim *s, const tri_core_loss *loss) {
  const fake_replica *g = &s->replicas[loss->replica];
  replicas_count_death(s, loss->replica, loss->epoch);
  if (g->epoch != loss->epoch) return;
  bool runs = g->state == FAKE_LOADING || g->state == FAKE_READY;
  if (runs && !g->stalled && s->now > g->excused_ns)
    fail(s, "group %u is lost, and nothing ails it: %s", loss->replica, loss->reason);
  events_add(
      s,
      (event){.at = s->now + SECOND / 2, .run = kill_lost, .who = loss->replica, .number = g->process, .lasts = true});
}

/* ---- from the core ---- */

static void take_assign(sim *s, fake_replica *g, const tri_replica_assign *a) {
  if (!g->told_ready || a->epoch != g->epoch)
    fail(s, "a group is given job %llu that is not ready", (unsigned long long)a->job);
  check_assign(s, a);
  request *r = request_of_seed(s, a->seed);
  if (!r || g->num_jobs == MAX_REQUESTS) return;
  replica_job *j = &g->jobs[g->num_jobs++];
  *j = (replica_job){.id = a->job, .request = r, .num_scored = a->num_scored ? a->num_scored : 1};
  if (a->remaining_ms >= 0) j->deadline_ns = s->now + a->remaining_ms * MS;
  for (size_t i = 0; i < a->num_sampled_counts; i++) {
    j->ended[i] = a->sampled_counts[i] == TRI_SAMPLED_ENDED;
    if (!j->ended[i]) j->num[i] = a->sampled_counts[i];
  }
}

void replicas_receive(sim *s, const event *e) {
  fake_replica *g = &s->replicas[e->who];
  tri_replica_msg m;
  tri_error err = {0};
  bool lives = g->state == FAKE_LOADING || g->state == FAKE_READY;
  if (!lives || g->line != e->number) return;
  tri_arena_reset(s->arena);
  if (tri_replica_msg_unpack(e->data, e->len, s->arena, &m, &err) != TRI_OK) {
    fail(s, "a message to a group does not unpack: %s: %s", err.field, err.message);
    return;
  }
  bool is_refused = m.op == TRI_REPLICA_WELCOME && !m.welcome.ok;
  if (is_refused && g->epoch > g->counted_epoch) fail(s, "group %u is refused", e->who); /* else it was given up */
  if (is_refused) return;
  if (m.op == TRI_REPLICA_WELCOME) g->welcomed = true;
  if (m.op == TRI_REPLICA_WELCOME) replicas_say_ready(s, e->who);
  if (m.op == TRI_REPLICA_ASSIGN) take_assign(s, g, &m.assign);
  if (m.op == TRI_REPLICA_DRAIN) g->leaving = true;
  for (int i = 0; m.op == TRI_REPLICA_ABORT && i < g->num_jobs; i++)
    if (g->jobs[i].id == m.abort.job) g->jobs[i].aborted = true; /* said with the next step */
}
