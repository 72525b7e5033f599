/* SPDX-License-Identifier: Apache-2.0 */
/* The log's line of a request that has ended: who asked, how much, how long it took and how it ended. It has words of
 * the form KEY=VALUE alone, and nothing of what was asked or answered. */
#include <stdio.h>

#include "comm/wire/zsock.h"
#include "coordinator/jobs/jobs_impl.h"
#include "base/log.h"

enum { TIME_BYTES = 24 };

/* A time that is not known (at_ns 0) is a dash. */
static const char *since(const job *j, int64_t at_ns, char out[TIME_BYTES]) {
  if (at_ns)
    snprintf(out, TIME_BYTES, "%.1f", (double)(at_ns - j->submitted_ns) / 1e6);
  else
    snprintf(out, TIME_BYTES, "-");
  return out;
}

enum { END_BYTES = 2 * TRI_ERROR_FIELD };

/* Whose fault it was: an error is the cluster's; what is refused is the request's own, or came when there was no room.
 */
static const char *error_words(const tri_error *err, char out[END_BYTES]) {
  bool invalid = admission_is_invalid(err);
  snprintf(out, END_BYTES, "%s=%s%s%s", invalid || admission_is_turned_away(err) ? "refused" : "error",
           invalid ? admission_reason(err->status) : tri_status_code(err->status),
           invalid && err->field[0] ? " field=" : "", invalid ? err->field : "");
  return out;
}

static const char *end_words(const job *j, char out[END_BYTES]) {
  if (j->error) return error_words(j->error, out);
  snprintf(out, END_BYTES, "finish=%s", tri_finish_name(j->choices[0].reason));
  return out;
}

static bool is_wanted(const tri_core *c, tri_log_level *level) {
  *level = c->cfg.log_requests ? TRI_LOG_INFO : TRI_LOG_DEBUG;
  return tri_log_threshold() >= *level && !c->restoring;
}

void request_log(const tri_core *c, const job *j, int64_t now) {
  char id[TRI_REQUEST_ID_TEXT], client[TRI_OWNER_TEXT], queue[TIME_BYTES], first[TIME_BYTES], end[END_BYTES];
  uint64_t sampled = 0;
  tri_log_level level;
  if (!is_wanted(c, &level)) return;
  tri_request_id_format(&j->request_id, id);
  for (int64_t i = 0; i < j->sampling.n; i++) sampled += j->choices[i].num;
  tri_log(
      level, "request",
      "id=%s%s%s client=%s%s%s prompt_tokens=%zu generation_tokens=%llu cached_tokens=%u queue_ms=%s first_token_ms=%s "
      "total_ms=%.1f %s%s",
      id, j->external_id ? " external_id=" : "", j->external_id ? j->external_id : "",
      tri_owner_text(&j->peer.owner, client), j->caller[0] ? " caller=" : "", j->caller, j->num_prompt,
      (unsigned long long)sampled, j->cached_tokens, since(j, j->begun_ns, queue), since(j, j->first_token_ns, first),
      (double)(now - j->submitted_ns) / 1e6, end_words(j, end), j->timed_out ? " timed_out=true" : "");
}

void request_log_refusal(const tri_core *c, const tri_peer *from, const tri_submit *s, const tri_error *err) {
  char id[TRI_REQUEST_ID_TEXT] = "-", client[TRI_OWNER_TEXT], end[END_BYTES];
  tri_log_level level;
  if (!is_wanted(c, &level)) return;
  if (s->has_request_id) tri_request_id_format(&s->request_id, id);
  tri_log(level, "request", "id=%s%s%.*s client=%s%s%.*s %s", id, s->external_id.len ? " external_id=" : "",
          (int)s->external_id.len, s->external_id.len ? s->external_id.s : "", tri_owner_text(&from->owner, client),
          s->caller.len ? " caller=" : "", (int)s->caller.len, s->caller.len ? s->caller.s : "", error_words(err, end));
}
