/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of a status, for status and top. Each writes one sentence about one replica, without a line's end, or an
 * empty text where there is nothing to say; totals count since the replica's start. */
#include "client/cli/status_text.h"

#include <stdio.h>

const char *cli_layer_text(uint64_t layer, char out[24]) {
  if (layer >= UINT32_MAX)
    snprintf(out, 24, "-");
  else
    snprintf(out, 24, "%llu", (unsigned long long)layer);
  return out;
}

/* A pause between two steps counts as well, hence the words. */
const char *cli_stream_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]) {
  char apart[64] = "", once[64] = "";
  out[0] = '\0';
  if (!g->stream_pass_bytes) return out;
  if (g->stream_pass_s > 0) snprintf(apart, sizeof apart, " the last two ended %.2f s apart,", g->stream_pass_s);
  if (g->stream_peer_bytes)
    snprintf(once, sizeof once, ", %.1f of them read by other data-parallel ranks",
             (double)g->stream_peer_bytes * 1e-9);
  snprintf(out, CLI_STREAM_TEXT,
           "replica %u streams %.2f GB of weights in every step, at %.2f GB/s;%s steps have waited %.1f s in all for "
           "%.1f GB%s",
           g->group, (double)g->stream_pass_bytes * 1e-9, g->stream_bytes_per_s * 1e-9, apart, g->stream_stall_s,
           (double)g->streamed_bytes * 1e-9, once);
  return out;
}

const char *cli_swap_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]) {
  out[0] = '\0';
  if (!g->host_kv_pages) return out;
  snprintf(out, CLI_STREAM_TEXT,
           "replica %u uses %llu of %llu KV blocks in host memory; %llu sequences were swapped out with %.2f GB, %llu "
           "were swapped in",
           g->group, (unsigned long long)g->host_kv_pages_used, (unsigned long long)g->host_kv_pages,
           (unsigned long long)g->swaps_out, (double)g->swapped_out_bytes * 1e-9, (unsigned long long)g->swaps_in);
  return out;
}

const char *cli_prefix_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]) {
  out[0] = '\0';
  if (!g->prefix_cache_queries) return out;
  snprintf(out, CLI_STREAM_TEXT,
           "replica %u found %llu of %llu prompt tokens (%.0f %%) in the prefix cache; %llu blocks were evicted",
           g->group, (unsigned long long)g->prefix_cache_hits, (unsigned long long)g->prefix_cache_queries,
           100 * (double)g->prefix_cache_hits / (double)g->prefix_cache_queries,
           (unsigned long long)g->prefix_cache_evictions);
  return out;
}

const char *cli_down_text(const trireme_group_status *g, char out[CLI_STREAM_TEXT]) {
  char retry[64] = "";
  out[0] = '\0';
  if (!g->reason || !g->reason[0]) return out;
  if (g->retry_s > 0) snprintf(retry, sizeof retry, "; next start in %.0f s", g->retry_s);
  snprintf(out, CLI_STREAM_TEXT, "replica %u is %s: %.200s%s", g->group, g->state, g->reason, retry);
  return out;
}

const char *cli_cache_text(const trireme_status *s, char out[CLI_STREAM_TEXT]) {
  out[0] = '\0';
  if (!s->response_cache_limit) return out;
  snprintf(out, CLI_STREAM_TEXT,
           "response cache: %llu hits, %llu misses, %llu evictions; %llu answers in %.2f of %.2f MiB",
           (unsigned long long)s->response_cache_hits, (unsigned long long)s->response_cache_misses,
           (unsigned long long)s->response_cache_evictions, (unsigned long long)s->response_cache_entries,
           (double)s->response_cache_bytes / 0x1p20, (double)s->response_cache_limit / 0x1p20);
  return out;
}
