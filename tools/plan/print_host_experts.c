/* SPDX-License-Identifier: Apache-2.0 */
/* Experts in the host's memory, as a table or as JSON. */
#include <stdio.h>

#include "tools/plan/plan.h"

static void print_text(const struct plan *p, const struct plan_host_experts *h) {
  printf("\nexperts of %s: %.1f MiB stay in host memory; a token reads %.1f MiB of them in %.3g s, at %.3g GB/s (%s)\n",
         p->num_ranks > 1 ? "the rank that has most of them there" : "the rank", (double)h->bytes / 0x1p20,
         h->token_bytes / 0x1p20, h->token_s, h->machine.machine.host_read_bytes_per_s * 1e-9, h->machine.host_source);
  if (!plan_is_for_this_host(p))
    printf("host memory is assumed to suffice; this host has %.1f MiB free for all ranks\n",
           (double)tri_host_memory_available() / 0x1p20);
  if (!plan_is_for_this_host(p) && p->o->host_bandwidth <= 0)
    printf("its bandwidth is assumed to be this host's: --host-bandwidth BYTES/S sets another\n");
  if (h->hot)
    printf("the GPU also holds and computes %d of the %d experts of each such layer, the most used ones; the "
           "prediction assumes that all are used equally\n",
           h->hot, p->ranks[0].shard.slots.count);
  if (!h->num_loads) return;
  if (h->without_s > 0) printf("without them a step of 1 sequence would take %.3g s\n", h->without_s);
  plan_print_ceilings(&h->machine);
  plan_print_loads(h->loads, h->num_loads, h->context);
  if (h->prompt_s > 0)
    printf("predicted for a prompt: %d tokens in %.3g s\n", p->limits.max_num_batched_tokens, h->prompt_s);
}

static void print_json(const struct plan *p, const struct plan_host_experts *h) {
  printf(",\"host_experts\":{\"bytes\":%zu,\"token_bytes\":%.0f,\"token_seconds\":%.6g,\"host_bandwidth\":%.6g,"
         "\"host_bandwidth_source\":\"%s\",\"decode\":[",
         h->bytes, h->token_bytes, h->token_s, h->machine.machine.host_read_bytes_per_s, h->machine.host_source);
  plan_print_json_loads(h->loads, h->num_loads);
  printf("],\"host_memory_assumed\":%s,\"hot_experts\":%d", plan_is_for_this_host(p) ? "false" : "true", h->hot);
  if (h->without_s > 0) printf(",\"without_hot_seconds\":%.6g", h->without_s);
  if (h->prompt_s > 0) printf(",\"prompt_step_seconds\":%.6g", h->prompt_s);
  printf("}");
}

void plan_print_host_experts(const struct plan *p) {
  const struct plan_host_experts *h = &p->host_experts;
  if (!h->on) return;
  if (p->o->json)
    print_json(p, h);
  else
    print_text(p, h);
}
