/* SPDX-License-Identifier: Apache-2.0 */
/* A step with streamed weights takes the longer of two times that overlap: bringing the weights, which does not depend
 * on the step, and computing, which grows with its tokens. The tokens at which both are equal hide the streaming; more
 * only make the step longer. */
#include "worker/cost/stream_hiding.h"

#include "base/log.h"
#include "runtime/engine/offload_options.h"
#include "runtime/cost/disk_rate.h"
#include "runtime/cost/machine.h"
#include "runtime/cost/streaming.h"
#include "worker/cost/rank_cost.h"

/* ---- what the machine gives ---- */

/* Finds what this rank has of its disks; 0: unknown. What is measured now is a part already, since all ranks of a
 * host read at a time. */
static tri_status find_disk(const tri_stream_hiding *h, const tri_engine *e, double *bytes_per_s, tri_error *err) {
  tri_disk_figures f;
  tri_disk_rate kept;
  *bytes_per_s = 0;
  if (tri_disk_rate_kept(e->ckpt, h->opts->nvme_path, &kept)) {
    *bytes_per_s = kept.bytes_per_s / h->local_ranks;
    return TRI_OK;
  }
  if (!e->ckpt) return TRI_OK;
  TRI_CHECK(tri_disk_rate_measure(e->ckpt, &f, err));
  *bytes_per_s = (double)f.bytes / f.seconds;
  return TRI_OK;
}

/* ---- what the rank has ---- */

static tri_status find_share(const tri_stream_hiding *h, const tri_engine *e, tri_streaming_share *out,
                             tri_error *err) {
  tri_offload_config offload;
  double streamed = (double)e->ledger.streamed, common = (double)e->ledger.common, room;
  int dp_ranks = h->local_ranks < e->replica->world->size ? 1 : tri_replica_num_dp_ranks(e->replica); /* of this host */
  TRI_CHECK(tri_offload_of_options(h->opts, &offload, err));
  room = e->backend->host_memory ? 0 : (double)tri_offload_host_room(&offload, h->local_ranks);
  double own = streamed - common * (dp_ranks - 1) / dp_ranks; /* what it reads or brings; of the host's memory, too */
  double files = own > room ? own - room : 0;
  *out = (tri_streaming_share){.file_bytes = files, .streamed_bytes = streamed, .link_bytes = own};
  return TRI_OK;
}

static tri_status predict(const tri_stream_hiding *h, const tri_engine *e, int64_t most, int64_t *tokens,
                          tri_error *err) {
  tri_streaming_share share;
  tri_rank_cost cost;
  tri_streaming s = {.model = &cost.model, .shares = &share};
  if (!e->backend->host_memory) s.link_bytes_per_s = tri_device_kind_find(e->backend->tactics_key)->host_bytes_per_s;
  TRI_CHECK(find_share(h, e, &share, err));
  if (share.file_bytes > 0) TRI_CHECK(find_disk(h, e, &s.disk_bytes_per_s, err));
  if (share.file_bytes > 0 && s.disk_bytes_per_s <= 0) return TRI_OK;
  TRI_CHECK(tri_rank_cost_find(h->opts, e, &cost, err));
  *tokens = tri_streaming_hiding_tokens(&s, most);
  if (!*tokens) *tokens = most;
  return TRI_OK;
}

int64_t tri_stream_hiding_tokens(void *ctx, const tri_engine *e, int64_t most) {
  const tri_stream_hiding *h = ctx;
  tri_error err = {0};
  int64_t tokens = 0;
  if (h->opts->prompt_micro_batch_tokens) return 0;
  tri_status st = predict(h, e, most, &tokens, &err);
  if (st == TRI_OK) return tokens;
  tri_log(TRI_LOG_WARN, "engine", "steps with streamed weights have the usual number of tokens: %s",
          err.message[0] ? err.message : tri_status_text(st));
  return 0;
}
