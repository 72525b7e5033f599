/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/rank.h"

#include "runtime/engine/offload_options.h"
#include "runtime/step/limits.h"
#include "worker/process/rank_hardware.h"
#include "worker/cost/stream_hiding.h"

/* Whole blocks for each sequence and one token more, and one block: the count that tri_bench_rank_open promises. */
static int blocks_for(int num_seqs, int seq_len, int block_size) {
  int64_t blocks = (int64_t)num_seqs * (seq_len / block_size + 1) + 1;
  return blocks < INT32_MAX ? (int)blocks : INT32_MAX;
}

tri_status tri_bench_rank_check(const tri_serve_options *o, tri_error *err) {
  if (!o->model) return tri_fail(err, TRI_USAGE, "model", "--model is missing");
  if (tri_serve_is_one_rank(o)) return TRI_OK;
  return tri_fail(err, TRI_USAGE, "tensor_parallel_size",
                  "it times one rank: --tensor-parallel-size, --pipeline-parallel-size and --data-parallel-size can "
                  "only be 1; trireme up and trireme bench serve measure several");
}

tri_status tri_bench_rank_open(const tri_serve_options *o, const tri_engine_config *sizes, int num_seqs, int seq_len,
                               tri_bench_rank *out, tri_error *err) {
  tri_comm *world;
  tri_comm_config cc = {.timeout_ms = 1000};
  *out = (tri_bench_rank){0};
  TRI_CHECK(tri_comm_self_create(&cc, &world));
  return tri_bench_rank_open_in(world, (tri_parallel){.tp = 1, .pp = 1}, 0, 1, o, sizes, num_seqs, seq_len, out, err);
}

/* Sets up a rank as a worker does, with the limits that `sizes` has in the place of a coordinator's. */
tri_status tri_bench_rank_open_in(tri_comm *world, tri_parallel layout, int local_rank, int local_size,
                                  const tri_serve_options *o, const tri_engine_config *sizes, int num_seqs, int seq_len,
                                  tri_bench_rank *out, tri_error *err) {
  tri_engine_config ec = *sizes;
  tri_rank_hardware hardware = {0};
  *out = (tri_bench_rank){0};
  tri_status st = tri_replica_create(world, layout, &out->replica, err);
  if (st != TRI_OK) tri_comm_destroy(world);
  TRI_CHECK(st);
  st = tri_rank_hardware_take(o, world, local_rank, local_size, 200, &hardware, err);
  /* Set before st is looked at: tri_bench_rank_close then frees what was made. */
  out->backend = hardware.backend;
  out->pool = hardware.pool;
  out->threads = hardware.threads;
  TRI_CHECK(st);
  ec.model_dir = o->model;
  ec.config_rules = TRI_CONFIG_RULES(o);
  ec.load_format = (tri_load_format)o->load_format;
  ec.seed = o->seed;
  ec.dtype = o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype;
  ec.kv_dtype = o->kv_cache_dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->kv_cache_dtype;
  ec.quantization = (tri_quantization)o->quantization;
  ec.block_size = tri_limits_block_size(o->block_size, !out->backend->host_memory);
  if (!ec.kv_bytes && !ec.num_kv_blocks) ec.num_kv_blocks = blocks_for(num_seqs, seq_len, ec.block_size);
  ec.local_ranks = local_size;
  ec.autotune = o->autotune;
  tri_stream_hiding hiding = {.opts = o, .local_ranks = local_size};
  ec.hiding_tokens = tri_stream_hiding_tokens;
  ec.hiding_ctx = &hiding;
  TRI_CHECK(tri_offload_of_options(o, &ec.offload, err));
  TRI_CHECK(tri_engine_create(&ec, out->backend, &out->replica, &out->engine, err));
  return st;
}

/* Users are destroyed before what they use: the engine uses all, and a backend works with the pool's threads. */
void tri_bench_rank_close(tri_bench_rank *r) {
  tri_engine_destroy(r->engine);
  tri_backend_destroy(r->backend);
  tri_replica_destroy(&r->replica);
  tri_pool_destroy(r->pool);
  *r = (tri_bench_rank){0};
}
