/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/stats/throughput.h"

#include <stdio.h>
#include <string.h>

#define PERIOD_NS (10 * 1000000000LL)

bool tri_throughput_is_due(const tri_throughput *t, int64_t now) { return now - t->since_ns >= PERIOD_NS; }

/* A replica that was started again counts from 0. */
static uint64_t growth(uint64_t now, uint64_t before) { return now >= before ? now - before : now; }

static void add_share(char *out, const char *what, uint64_t part, uint64_t whole) {
  size_t n = strlen(out);
  if (whole) snprintf(out + n, TRI_THROUGHPUT_LINE - n, ", %s %.1f%%", what, 100 * (double)part / (double)whole);
}

/* An encoder's prompts are texts, and it generates nothing. */
static void write_rates(const tri_core_load *load, double prompt, double generated, char *out) {
  if (load->encoder)
    snprintf(out, TRI_THROUGHPUT_LINE, "texts %.1f tokens/s", prompt);
  else
    snprintf(out, TRI_THROUGHPUT_LINE, "prompt %.1f tokens/s, generated %.1f tokens/s", prompt, generated);
  size_t n = strlen(out);
  snprintf(out + n, TRI_THROUGHPUT_LINE - n, ", %llu running, %llu waiting", (unsigned long long)load->running,
           (unsigned long long)load->waiting);
}

bool tri_throughput_text(tri_throughput *t, const tri_core_load *load, int64_t now, char out[TRI_THROUGHPUT_LINE]) {
  const tri_core_load *b = &t->before;
  double seconds = (double)(now - t->since_ns) * 1e-9;
  uint64_t prompt = growth(load->prompt_tokens, b->prompt_tokens);
  uint64_t generated = growth(load->generation_tokens, b->generation_tokens);
  uint64_t queries = growth(load->prefix_queries, b->prefix_queries);
  uint64_t hits = growth(load->prefix_hits, b->prefix_hits);
  write_rates(load, (double)prompt / seconds, (double)generated / seconds, out);
  if (!load->encoder) add_share(out, "KV", load->kv_blocks_used, load->kv_blocks);
  add_share(out, "prefix hits", hits, queries);
  *t = (tri_throughput){*load, now};
  return prompt || generated || load->running || load->waiting;
}
