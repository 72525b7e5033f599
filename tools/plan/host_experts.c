/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of a plan that lie in the host's memory: where, and what steps take because of them. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "tools/plan/plan.h"

/* A token reads the experts that it is routed to, of which `hot_share` are on the device already: the expected bytes,
 * summed over the stages that it passes. */
static void count(const struct plan *p, const tri_cost_model *m, struct plan_host_experts *h) {
  for (int i = 0; i < p->num_made; i++) {
    const tri_ledger *l = &p->ranks[i].ledger;
    if (l->host_experts && (!h->bytes || l->hot_experts < h->hot)) h->hot = l->hot_experts;
    if (l->host_experts > h->bytes) h->bytes = l->host_experts;
  }
  for (int i = 0; i < p->layout.pp; i++) {
    tri_expert_load one = tri_cost_experts(m->experts, m->top_k, tri_parallel_ep(m->p), 1);
    h->token_bytes += m->stages[i].host_layers * one.experts * m->stages[i].expert_bytes * (1 - m->stages[i].hot_share);
    h->token_s += tri_cost_host_experts(m, i, 1);
  }
}

/* One sequence waits for reads alone: where the host's bandwidth was given, what its products take is not known. */
static void predict(const struct plan *p, const tri_cost_model *m, struct plan_host_experts *h) {
  tri_cost ignored;
  int loads = plan_loads(p, h->loads, &h->context);
  h->num_loads = isinf(m->machine.host_flops_per_s) ? 1 : loads;
  for (int i = 0; i < h->num_loads; i++)
    h->loads[i].seconds = tri_cost_decode(m, h->loads[i].sequences, h->context, &ignored);
  if (isinf(m->machine.host_flops_per_s)) return;
  tri_cost prompt = tri_cost_prompt(m, p->limits.max_num_batched_tokens);
  h->prompt_s = tri_cost_seconds(&prompt);
}

/* Finds what a step would take if the host had all of its experts alone. */
static void predict_without(const struct plan *p, tri_cost_model *m, tri_cost_share *stages,
                            struct plan_host_experts *h) {
  tri_cost ignored;
  for (int i = 0; i < p->layout.pp; i++) stages[i].hot_share = 0;
  h->without_s = tri_cost_decode(m, 1, h->context, &ignored);
}

tri_status plan_host_experts(struct plan *p, tri_error *err) {
  struct plan_host_experts *h = &p->host_experts;
  tri_status st = TRI_OK;
  if (!p->ranks[0].ledger.host_experts) return TRI_OK;
  tri_cost_share *stages = tri_calloc((size_t)p->layout.pp, sizeof *stages);
  if (!stages) return tri_fail(err, TRI_NO_MEMORY, "pipeline_parallel_size", "no memory for the stages");
  h->machine = p->streaming.machine;
  TRI_TRY(plan_add_stages(p, stages, err));
  if (!h->machine.host_source[0]) TRI_TRY(plan_find_machine(p, &stages[0], &h->machine, err));
  tri_cost_model m = plan_cost_model(p, &h->machine, stages);
  h->on = true;
  count(p, &m, h);
  if (!p->streaming.on) predict(p, &m, h);
  if (h->hot && h->num_loads) predict_without(p, &m, stages, h);
cleanup:
  tri_free(stages);
  return st;
}
