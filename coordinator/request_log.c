/* SPDX-License-Identifier: Apache-2.0 */
/* The log's line of a request that has ended: who asked, how much, how long it took and how it ended. It has words of
 * the form KEY=VALUE alone, and nothing of what was asked or answered. */
#include <stdio.h>

#include "comm/wire/zsock.h"
#include "coordinator/state.h"
#include "runtime/base/log.h"

enum { TIME_BYTES = 24 };

/* A time that is not known (at_ns 0) is a dash. */
static const char *since(const job *j, int64_t at_ns, char out[TIME_BYTES]) {
  if (at_ns)
    snprintf(out, TIME_BYTES, "%.1f", (double)(at_ns - j->submitted_ns) / 1e6);
  else
    snprintf(out, TIME_BYTES, "-");
  return out;
}

static const char *end_name(const job *j) {
  return j->error ? tri_status_code(j->error->status) : tri_finish_name(j->choices[0].reason);
}

void request_log(const tri_core *c, const job *j, int64_t now) {
  char id[TRI_REQUEST_ID_TEXT], client[TRI_OWNER_TEXT], queue[TIME_BYTES], first[TIME_BYTES];
  uint64_t drawn = 0;
  tri_log_level level = c->cfg.log_requests ? TRI_LOG_INFO : TRI_LOG_DEBUG;
  if (tri_log_threshold() < level || c->restoring) return;
  tri_request_id_format(&j->request_id, id);
  for (int64_t i = 0; i < j->sampling.n; i++) drawn += j->choices[i].num;
  tri_log(level, "request",
          "id=%s client=%s%s%s prompt_tokens=%zu generation_tokens=%llu cached_tokens=%u queue_ms=%s first_token_ms=%s "
          "total_ms=%.1f %s=%s%s",
          id, tri_owner_text(&j->peer.owner, client), j->caller[0] ? " caller=" : "", j->caller, j->num_prompt,
          (unsigned long long)drawn, j->cached_tokens, since(j, j->begun_ns, queue), since(j, j->first_token_ns, first),
          (double)(now - j->submitted_ns) / 1e6, j->error ? "error" : "finish", end_name(j),
          j->timed_out ? " timed_out=true" : "");
}
