/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights of a plan as text or as JSON. */
#include <stdio.h>

#include "tools/plan/plan.h"

static double mib(size_t n) { return (double)n / 0x1p20; }

static const char *source(const struct plan_streaming *s) {
  if (s->from_checkpoint && s->from_pack) return "the checkpoint or a pack";
  if (s->from_checkpoint) return "the checkpoint";
  return s->from_pack ? "a pack" : "files";
}

/* ---- text ---- */

static void print_tiers(const struct plan *p, const struct plan_streaming *s) {
  printf("\nweights of %s: %.1f MiB stay, %.1f MiB are a ring",
         p->num_ranks > 1 ? "the rank that streams most" : "the rank", mib(s->stay), mib(s->ring));
  if (s->dram) printf(", %.1f MiB are read from host memory in every step", mib(s->dram));
  if (s->files) printf(", %.1f MiB from %s%s", mib(s->files), source(s), s->dram ? "" : " in every step");
  if (s->common)
    printf("; it %s 1/%d of the %.1f MiB that the %d data-parallel ranks of its host share",
           s->link_bytes_per_s > 0 ? "copies over its own link" : "reads", s->readers, mib(s->common), s->readers);
  printf("\n");
}

static void print_pass(const struct plan *p, const struct plan_streaming *s) {
  printf("a step reads them in %.3g s at least:", s->pass_s);
  if (s->files) {
    if (s->num_disks > 1)
      printf(" %d disks give %.3g GB/s together (%s)", s->num_disks, s->disk_bytes_per_s * 1e-9, s->disk_source);
    else
      printf(" the disk gives %.3g GB/s (%s)", s->disk_bytes_per_s * 1e-9, s->disk_source);
    if (s->slowest_disk[0]) printf(", where all wait for that of %s", s->slowest_disk);
    if (s->sharing > 1) printf(", which %d ranks share", s->sharing);
  }
  if (s->link_bytes_per_s > 0)
    printf("%s a GPU's link gives %.3g GB/s (%s)", s->files ? ";" : "", s->link_bytes_per_s * 1e-9, p->kind->title);
  printf("\n");
}

static void print_text(const struct plan *p, const struct plan_streaming *s) {
  print_tiers(p, s);
  if (!s->num_loads) {
    printf("the disk's bandwidth is unknown: give --disk-bandwidth BYTES/S to predict steps\n");
    if (s->link_bytes_per_s > 0 && !p->devices && !p->offload.max_in_cpu)
      printf("host memory is assumed to be this host's: --max-in-cpu BYTES sets another size\n");
    return;
  }
  print_pass(p, s);
  plan_print_ceilings(&s->machine);
  plan_print_loads(s->loads, s->num_loads, s->context);
  if (s->hiding)
    printf("compute hides the reads in steps of %lld tokens and more\n", (long long)s->hiding);
  else
    printf("compute hides the reads in no step of up to %lld tokens\n", (long long)s->most);
  if (s->usual_tokens)
    printf("steps therefore have up to %d tokens instead of %d\n", p->limits.max_num_batched_tokens, s->usual_tokens);
}

/* ---- JSON ---- */

static void print_json(const struct plan *p, const struct plan_streaming *s) {
  printf(",\"streaming\":{\"stay\":%zu,\"ring\":%zu,\"host_memory\":%zu,\"files\":%zu,\"source\":\"%s\"", s->stay,
         s->ring, s->dram, s->files, source(s));
  if (s->common) printf(",\"common\":%zu,\"readers\":%d", s->common, s->readers);
  if (s->disk_bytes_per_s > 0)
    printf(",\"disk_bandwidth\":%.6g,\"disk_bandwidth_source\":\"%s\",\"disks\":%d,\"ranks_per_disk\":%d",
           s->disk_bytes_per_s, s->disk_source, s->num_disks, s->sharing);
  if (s->link_bytes_per_s > 0) printf(",\"device_link_bandwidth\":%.6g", s->link_bytes_per_s);
  if (s->num_loads) {
    printf(",\"pass_seconds\":%.6g,\"hiding_tokens\":", s->pass_s);
    printf(s->hiding ? "%lld" : "null", (long long)s->hiding);
    printf(",\"step_tokens\":%d", p->limits.max_num_batched_tokens);
    printf(
        ",\"read_bandwidth\":%.6g,\"read_source\":\"%s\",\"flops\":%.6g,\"flops_source\":\"%s\",\"context_len\":%.0f,"
        "\"decode\":[",
        s->machine.best.read_bytes_per_s, s->machine.read_source, s->machine.best.flops_per_s, s->machine.flops_source,
        s->context);
    plan_print_json_loads(s->loads, s->num_loads);
    printf("]");
  }
  printf("}");
}

void plan_print_streaming(const struct plan *p) {
  const struct plan_streaming *s = &p->streaming;
  if (!s->on) return;
  if (p->o->json)
    print_json(p, s);
  else
    print_text(p, s);
}
