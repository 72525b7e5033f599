/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a status and of rooflines, each declared once: the wire's structs and fields, what libtrireme copies
 * and what the command prints as JSON follow from these lists. A new one needs a row here, a member of the same name in
 * client/trireme.h, and coordinator/stats/report.c, which knows it.
 *
 * X(context, type, name, json): U32, U64, I64, F64, STR, or LAYER, a U64 that JSON shows as null where it is none. */
#ifndef TRI_COMM_WIRE_STATUS_FIELDS_H
#define TRI_COMM_WIRE_STATUS_FIELDS_H

/* clang-format off */
#define TRI_STATUS_FIELDS(X, context)                                                                                  \
  X(context, STR, version, "version")                                                                                  \
  X(context, STR, model, "model")                                                                                      \
  X(context, STR, state, "state") /* "starting" "serving" "draining" */                                                \
  X(context, STR, task, "task")   /* of the model: "generate" "embed" "classify" */                                    \
  X(context, F64, uptime_s, "uptime_s")                                                                                \
  /* connections that have jobs; jobs that have their first token, and jobs that do not have it yet */                 \
  X(context, U64, clients, "clients")                                                                                  \
  X(context, U64, running, "running")                                                                                  \
  X(context, U64, waiting, "waiting")                                                                                  \
  /* totals since the start, up to generation_tokens */                                                                \
  X(context, U64, requests_done, "requests_done")                                                                      \
  X(context, U64, requests_failed, "requests_failed")                                                                  \
  X(context, U64, requests_aborted, "requests_aborted")                                                                \
  X(context, U64, requests_invalid, "requests_invalid") /* refused for what they asked: no failures */                  \
  X(context, U64, requests_refused, "requests_refused") /* for want of room, or ended in the queue: none, either */     \
  X(context, STR, journal_full, "journal_full") /* its folder, where new requests are refused for that; else empty */   \
  X(context, U64, requests_replayed, "requests_replayed") /* given to a replica again, as theirs was lost */              \
  X(context, U64, prompt_tokens, "prompt_tokens")                                                                      \
  X(context, U64, generation_tokens, "generation_tokens")                                                              \
  X(context, F64, tokens_per_second, "tokens_per_second") /* over the last 10 s */                                     \
  /* CPU time of the coordinator per generated token, over the last 10 s of work */                                    \
  X(context, F64, coordinator_us_per_token, "coordinator_us_per_token")                                                \
  X(context, F64, coordinator_cpu_s, "coordinator_cpu_s") /* since the start; 0: not said */                           \
  X(context, F64, resident_mb, "resident_mb")                                                                          \
  X(context, U64, max_model_len, "max_model_len")                                                                      \
  X(context, U64, vocab_size, "vocab_size")                                                                            \
  /* the response cache: since the start, and what it holds; zeros without one */                                      \
  X(context, U64, response_cache_hits, "response_cache_hits")                                                          \
  X(context, U64, response_cache_misses, "response_cache_misses")                                                      \
  X(context, U64, response_cache_evictions, "response_cache_evictions")                                                \
  X(context, U64, response_cache_entries, "response_cache_entries")                                                    \
  X(context, U64, response_cache_bytes, "response_cache_bytes")                                                        \
  X(context, U64, response_cache_limit, "response_cache_limit")                                                        \
  /* since the start: jobs that were refused, or ended in the queue, by the limit; and connections */                  \
  X(context, U64, refused_max_queue, "refused_max_queue")                                                              \
  X(context, U64, refused_max_queue_bytes, "refused_max_queue_bytes")                                                  \
  X(context, U64, refused_client_jobs, "refused_client_jobs")                                                          \
  X(context, U64, refused_client_bytes, "refused_client_bytes")                                                        \
  X(context, U64, expired_max_queue_time, "expired_max_queue_time")                                                    \
  X(context, U64, refused_connections, "refused_connections") /* no files, or too many a second */                     \
  X(context, U64, cut_connections, "cut_connections")         /* of messages that did not end */

/* Weights that do not stay in memory; zeros where all do. */
#define TRI_STREAM_FIELDS(X, context)                                                                                  \
  X(context, U64, streamed_bytes, "streamed_bytes")       /* that have come since the start */                         \
  X(context, U64, stream_pass_bytes, "stream_pass_bytes") /* of every pass over the layers */                          \
  X(context, F64, stream_pass_s, "stream_pass_s") /* from the end of the last pass but one to that of the last */      \
  X(context, F64, stream_stall_s, "stream_stall_s") /* that steps have waited since the start */                       \
  X(context, F64, stream_bytes_per_s, "stream_bytes_per_s") /* that the source has shown to give */                    \
  X(context, U64, stream_peer_bytes, "stream_peer_bytes") /* of streamed_bytes: that another data-parallel rank has read or brought */

#define TRI_REPLICA_STATUS_FIELDS(X, context)                                                                            \
  X(context, U32, group, "group")                                                                                        \
  /* how often it was started */                                                                                       \
  X(context, U64, epoch, "epoch")                                                                                      \
  /* "absent" "starting" "ready" "draining" "lost" "given_up" "quarantined" */                                         \
  X(context, STR, state, "state")                                                                                      \
  X(context, U32, tp, "tensor_parallel_size")                                                                          \
  X(context, U32, pp, "pipeline_parallel_size")                                                                        \
  X(context, U32, dp, "data_parallel_size")                                                                            \
  X(context, U32, ep, "expert_parallel_size")                                                                          \
  /* sequences */                                                                                                      \
  X(context, U32, running, "running")                                                                                  \
  X(context, U32, waiting, "waiting")                                                                                  \
  X(context, U64, kv_pages, "kv_pages") /* KV blocks */                                                                \
  X(context, U64, kv_pages_used, "kv_pages_used")                                                                      \
  X(context, U64, steps, "steps")                                                                                      \
  X(context, U64, tokens, "tokens")                                                                                    \
  X(context, F64, scheduler_us_per_token, "scheduler_us_per_token") /* CPU time */                                     \
  X(context, F64, scheduler_cpu_s, "scheduler_cpu_s") /* since the start, for these tokens; 0: not said */             \
  TRI_STREAM_FIELDS(X, context)                       /* bytes of all ranks, seconds of the one that has most */       \
  /* KV blocks in the host's memory; sequences and bytes swapped out, and in again, since the start */   \
  X(context, U64, host_kv_pages, "host_kv_pages")                                                                      \
  X(context, U64, host_kv_pages_used, "host_kv_pages_used")                                                            \
  X(context, U64, swaps_out, "swaps_out")                                                                              \
  X(context, U64, swaps_in, "swaps_in")                                                                                \
  X(context, U64, swapped_out_bytes, "swapped_out_bytes")                                                              \
  X(context, U64, swapped_in_bytes, "swapped_in_bytes")                                                                \
  /* the prefix cache since the start: tokens of prompts, those whose KV blocks were there, blocks that have left it */ \
  X(context, U64, prefix_cache_queries, "prefix_cache_queries")                                                        \
  X(context, U64, prefix_cache_hits, "prefix_cache_hits")                                                              \
  X(context, U64, prefix_cache_evictions, "prefix_cache_evictions")                                                    \
  X(context, STR, reason, "reason")   /* why it does not serve, once it has ended; else empty */                       \
  X(context, F64, retry_s, "retry_s") /* until one that is given up or quarantined is tried again; else 0 */

#define TRI_RANK_STATUS_FIELDS(X, context)                                                                             \
  X(context, U32, group, "group")                                                                                        \
  X(context, U32, rank, "rank")                                                                                        \
  X(context, STR, host, "host")                                                                                        \
  X(context, I64, pid, "pid")                                                                                          \
  X(context, U64, step, "step")                                                                                        \
  /* the layer that it computes, none between steps; collectives that it has begun */                                  \
  X(context, LAYER, block, "block")                                                                                    \
  X(context, U64, collective, "collective")                                                                            \
  X(context, STR, exchange, "exchange") /* "dispatch", "combine" or "move", else empty */                              \
  X(context, F64, seconds_since_report, "seconds_since_report")                                                        \
  X(context, U32, dp_rank, "data_parallel_rank") /* its data-parallel rank, and of that: */                                         \
  X(context, U32, shard_running, "shard_running")                                                                      \
  X(context, U32, shard_waiting, "shard_waiting")                                                                      \
  TRI_STREAM_FIELDS(X, context)

#define TRI_CALLER_STATUS_FIELDS(X, context)                                                                           \
  X(context, STR, name, "name")                                                                                        \
  X(context, U64, running, "running")                                                                                  \
  X(context, U64, waiting, "waiting")

/* The best that a rank's machine could do, or those of all ranks of a replica, and what a token costs there at least. */
#define TRI_ROOFLINES_FIELDS(X, context)                                                                                  \
  X(context, F64, read_bytes_per_s, "read_bytes_per_s") /* of the backend's memory */                                  \
  X(context, F64, flops_per_s, "flops_per_s")           /* of its BLAS's best product */                               \
  X(context, F64, weight_bytes, "weight_bytes")         /* that a decode step reads */                                 \
  /* of matrices: a sampled token needs the output layer as well */                                                      \
  X(context, F64, prompt_token_flops, "prompt_token_flops")                                                            \
  X(context, F64, output_token_flops, "output_token_flops")
/* clang-format on */

#endif
