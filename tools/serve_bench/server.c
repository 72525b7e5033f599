/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster tells of itself before and after a load: its floors, and what it has spent. */
#include <time.h>
#include <unistd.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/wait.h"

/* REPORT_MS: in which every replica has reported, which they do once a second. */
enum { FLOORS_MS = 40000, REPORT_MS = 1500, ASK_AGAIN_MS = 20 };

/* ---- floors ---- */

/* Rates of replicas add up; of floors per token the best replica's counts, since one sequence is on one replica. */
void bench_ask_floors(bench_run *b) {
  trireme_event e;
  uint64_t id;
  if (trireme_ask_floors(b->c, &id, NULL)) return;
  if (isatty(STDERR_FILENO)) fprintf(stderr, "trireme: measuring the machine (--no-floors skips this)\n");
  do
    if (trireme_next(b->c, FLOORS_MS, &e, NULL)) return;
  while (e.id != id);
  if (e.kind != TRIREME_EVENT_FLOORS) return;
  if (!e.floors.num) fprintf(stderr, "trireme: no replica is ready: no floors are shown\n");
  bench_floors f = {0};
  double soonest = 0;
  for (size_t i = 0; i < e.floors.num; i++) {
    const trireme_group_floors *g = e.floors.groups[i];
    if (g->measured < g->ranks || !(g->flops_per_s > 0) || !(g->weight_bytes > 0)) {
      fprintf(stderr, "trireme: replica %u has not measured its floors, which it does only when idle: none are shown\n",
              g->group);
      return;
    }
    f.flops_per_s += g->flops_per_s;
    f.prompt_token_flops = g->prompt_token_flops;
    f.output_token_flops = g->output_token_flops;
    if (g->read_bytes_per_s / g->weight_bytes <= soonest) continue;
    soonest = g->read_bytes_per_s / g->weight_bytes;
    f.read_bytes_per_s = g->read_bytes_per_s;
    f.weight_bytes = g->weight_bytes;
  }
  b->floors = f;
}

/* ---- what the run costs the processes that hand out work ---- */

int bench_ask_cost(const bench_run *b, bench_cost *out) {
  trireme_event e;
  int code = cli_ask_status(b->c, (int)b->o->connection.connect_timeout_ms, &e);
  if (code) return code;
  *out = (bench_cost){.coordinator_s = e.status.coordinator_cpu_s, .generated = e.status.generation_tokens};
  for (size_t i = 0; i < e.status.num_groups; i++) {
    out->scheduler_s += e.status.groups[i]->scheduler_cpu_s;
    out->drawn += e.status.groups[i]->tokens;
  }
  return TRI_EXIT_OK;
}

/* The difference to `before`; what has become less was counted by a process that is no more. The coordinator's is of
 * now; the schedulers' reports may not know of all tokens yet. */
void bench_take_cost(const bench_run *b, const bench_cost *before, bench_load *l) {
  bench_cost now, later;
  int64_t until = tri_deadline_after_ms(REPORT_MS);
  if (!(before->coordinator_s > 0) || bench_ask_cost(b, &now) != TRI_EXIT_OK || now.generated < before->generated)
    return;
  l->cost.coordinator_s = now.coordinator_s - before->coordinator_s;
  l->cost.generated = now.generated - before->generated;
  for (later = now; later.drawn < before->drawn + l->cost.generated && tri_now_ns() < until;) {
    struct timespec pause = {.tv_nsec = ASK_AGAIN_MS * 1000000};
    nanosleep(&pause, NULL);
    if (bench_ask_cost(b, &later) != TRI_EXIT_OK) return;
  }
  if (later.drawn < before->drawn) return;
  l->cost.scheduler_s = later.scheduler_s - before->scheduler_s;
  l->cost.drawn = later.drawn - before->drawn;
}
