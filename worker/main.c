/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-worker: one rank of a replica.
 *
 * A start is a chain of collectives in the same order on every rank: the world, how to wait, the options, the layout,
 * the weights' hash, loading, the hash again. What one rank alone may find wrong is agreed on inside of them, so that
 * no rank waits in a collective that another has left; where that is not possible the rank ends its process (leave) and
 * the launcher ends the others. The control thread runs from the moment the rank is known, so that the coordinator
 * hears of a start that takes minutes, and of the reason where it fails. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "comm/wire/network.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "runtime/engine/offload_options.h"
#include "runtime/model/weights_hash.h"
#include "worker/process/agreement.h"
#include "worker/placement/eplb_run.h"
#include "worker/process/rank_hardware.h"
#include "worker/cost/stream_hiding.h"
#include "worker/process/worker.h"

enum {
  COMM_TIMEOUT_MS = 300000,
  BOOT_WAIT_MS = 30000,
  POOL_SPIN_US = 100,    /* of the pool's threads, longer than what lies between two ops */
  SPIN_US = 20,          /* of a rank with a core to itself: less than a sleep and its end take */
  YIELD_US = 2000,       /* then: about a step, so that a wait for the next one needs no sleep */
  SHARED_YIELD_US = 500, /* of ranks that share cores, whose turns are shorter */
  START_YIELD_US = 1000, /* before it is known which of both they are */
};

static const tri_options_spec spec = {
    .program = "trireme-worker",
    .usage = "--model DIR [OPTION]...",
    .summary = "A worker of a Trireme cluster: one rank of a replica. mpirun, srun or `trireme up` starts it.",
    .version = "trireme-worker " TRIREME_VERSION,
    .config_file = true,
};

static void log_as(const tri_worker *w, int rank) {
  char who[16];
  if (tri_serve_num_replicas(&w->opts) > 1)
    snprintf(who, sizeof who, "%d:%d", w->opts.group, rank);
  else
    snprintf(who, sizeof who, "%d", rank);
  tri_log_setup((tri_log_level)w->opts.log_level, who);
}

/* Until MPI tells the rank, the log has what the launcher calls it. */
static void log_as_launched(const tri_worker *w) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
  tri_log_setup((tri_log_level)w->opts.log_level, "-");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *rank = getenv(names[i]);
    if (!rank) continue;
    log_as(w, atoi(rank) - (w->opts.launch == TRI_LAUNCH_MPI)); /* after the coordinator */
    return;
  }
}

/* Reads what the launcher has handed to all ranks of the replica, of which each keeps its own key alone. A variable
 * that a shell has kept from another start does not take the place of a file that this one was told of. */
static tri_status read_boot(const tri_worker *w, tri_boot *boot, tri_error *err) {
  tri_status st = TRI_NOT_FOUND;
  if (w->boot_file_said)
    tri_boot_clear_env();
  else
    st = tri_boot_from_env(boot, err);
  if (st != TRI_NOT_FOUND) return st;
  if (w->opts.boot_file) return tri_boot_load(w->opts.boot_file, tri_deadline_after_ms(BOOT_WAIT_MS), boot, err);
  return tri_fail(err, TRI_USAGE, "boot_file", "--boot-file is missing: it holds the coordinator's address and keys");
}

/* In one MPI job, where the coordinator is rank 0, a secret key need not leave its process: ranks of a host see each
 * other's messages in shared memory. */
static tri_status swap_public_keys(tri_worker *w, tri_comm *all, tri_error *err) {
  tri_boot_rank *b = &w->boot;
  tri_comm_req req = {0};
  TRI_CHECK(tri_zkeypair_make(&b->own, err));
  TRI_CHECK(tri_comm_isend(all, b->own.public_key, sizeof b->own.public_key, 0, TRI_BOOT_TAG, &req));
  TRI_CHECK(tri_comm_wait(all, &req));
  TRI_CHECK(tri_comm_broadcast(all, b->endpoint, sizeof b->endpoint, 0));
  return tri_comm_broadcast(all, b->server_key, sizeof b->server_key, 0);
}

/* Joins MPI where there is one and learns the coordinator's address. With --launch mpi the coordinator is rank 0 of the
 * same job. */
static tri_status join(tri_worker *w, int *argc, char ***argv, const tri_comm_config *cc, tri_comm **out,
                       tri_error *err) {
  tri_status st = TRI_OK;
  tri_comm *all = NULL;
  tri_boot boot = {.replicas = 0};
  if (w->opts.launch == TRI_LAUNCH_AUTO) w->opts.launch = tri_boot_under_mpi() ? TRI_LAUNCH_REPLICA : TRI_LAUNCH_SELF;
  if (w->opts.launch != TRI_LAUNCH_MPI) TRI_TRY(read_boot(w, &boot, err));
  if (w->opts.launch == TRI_LAUNCH_SELF) {
    TRI_TRY(tri_boot_of_rank(&boot, (uint32_t)w->opts.group, 0, &w->boot, err));
    st = tri_comm_self_create(cc, out);
    goto cleanup;
  }
  tri_start_watch_phase(&w->start_watch, "connect", NULL);
  TRI_TRY(tri_network_use(w->opts.interface, boot.endpoint, err));
  TRI_TRY(tri_mpi_init(argc, argv, err));
  TRI_TRY(tri_comm_mpi_world(cc, &all));
  TRI_TRY(tri_mpi_confine(all));
  if (w->opts.launch == TRI_LAUNCH_REPLICA) {
    *out = all;
    st = tri_boot_of_rank(&boot, (uint32_t)w->opts.group, (uint32_t)all->rank, &w->boot, err);
    goto cleanup;
  }
  int32_t is_coordinator = 0, local_rank, local_size;
  if (all->size < 2 || all->rank == 0)
    return tri_fail(err, TRI_USAGE, "launch",
                    "--launch mpi needs the coordinator as the first process: mpirun -n 1 trireme-coordinator ... : -n "
                    "N trireme-worker ...");
  /* The coordinator takes part, to learn whether one host has all. */
  TRI_TRY(tri_comm_mpi_local(all, &local_rank, &local_size));
  TRI_TRY(swap_public_keys(w, all, err));
  TRI_TRY(tri_comm_split(all, is_coordinator, all->rank, NULL, out));
cleanup:
  tri_boot_free(&boot);
  if (all != *out) tri_comm_destroy(all);
  return st == TRI_OK || err->status ? st
                                     : tri_fail(err, st, "mpi", "cannot join the MPI job: %s", tri_status_text(st));
}

/* Any host with more threads than cores decides for all ranks how they wait and whether they open shared memory, which
 * is a collective: ranks that each went by their own host would wait in two different ones. */
static tri_status agree_on_cores(tri_comm *world, bool mine, bool *any, tri_error *err) {
  float hosts = mine;
  tri_status st = tri_comm_all_reduce(world, &hosts, 1);
  *any = hosts > 0;
  return st == TRI_OK ? st
                      : tri_fail(err, st, "comm", "the ranks cannot agree on how to wait: %s", tri_status_text(st));
}

/* The backend and the threads, and with them how all ranks wait. */
static tri_status take_hardware(tri_worker *w, tri_comm *world, int local_rank, int local_size, tri_wait_policy *policy,
                                int *local_ranks, tri_error *err) {
  tri_rank_hardware hardware;
  tri_status st = tri_rank_hardware_take(&w->opts, world, local_rank, local_size, POOL_SPIN_US, &hardware, err);
  w->backend = hardware.backend;
  w->pool = hardware.pool;
  *local_ranks = hardware.local_ranks;
  bool shared;
  if (st == TRI_OK) st = agree_on_cores(world, hardware.oversubscribed, &shared, err);
  if (st != TRI_OK) return st;
  /* A process that spins takes the core from one that computes, if processes outnumber cores. */
  policy->spin_us = shared ? 0 : SPIN_US;
  policy->yield_us = shared ? SHARED_YIELD_US : YIELD_US;
  const char *elsewhere = shared ? " (another host is oversubscribed)" : "";
  if (w->rank == 0)
    tri_log(TRI_LOG_INFO, "worker", "%d %s, %d on this host with %d threads each on %d cores%s", w->world,
            w->world == 1 ? "rank" : "ranks", local_size, hardware.threads, hardware.cores,
            hardware.oversubscribed ? " (oversubscribed)" : elsewhere);
  return TRI_OK;
}

/* Says what a sentence-transformers folder has decided, and what of it an option has decided otherwise. */
static void log_sentence(const tri_serve_options *o, const tri_model_config *c) {
  const tri_sentence_config *s = &c->sentence;
  if (!s->on) return;
  tri_log(TRI_LOG_INFO, "worker", "modules.json: pooling %s%s, texts of up to %lld tokens",
          tri_pooling_names[c->head.pooling], s->normalize ? ", vectors of length 1" : "",
          (long long)tri_model_config_length(c));
  if (o->pooling != TRI_POOL_NONE && s->pooling != (tri_pooling)o->pooling)
    tri_log(TRI_LOG_WARN, "worker", "--pooling %s is not the pooling that modules.json asks for: the option wins",
            tri_pooling_names[o->pooling]);
  if (o->max_model_len && s->max_seq_length && o->max_model_len != s->max_seq_length)
    tri_log(TRI_LOG_WARN, "worker",
            "--max-model-len %lld is not the max_seq_length %lld of the folder: the option wins",
            (long long)o->max_model_len, (long long)s->max_seq_length);
}

/* Others may wait in a collective for this rank: leaves without finalizing, and lets the launcher end them. A folder
 * that is gone may return: that the supervisor tries again. */
static void leave(void *ctx, tri_status st, const tri_error *err) {
  tri_worker *w = ctx;
  bool asked = st == TRI_ABORTED && atomic_load(&w->drain);
  const char *field = tri_error_field_beside(err);
  if (asked)
    tri_log(TRI_LOG_INFO, "worker", "told to exit before it was ready: %s", err->message);
  else if (st != TRI_OK)
    tri_log(TRI_LOG_ERROR, "worker", "%s%s%s", err->message, *field ? " -- " : "", field);
  if (!asked) w->failure = *err;
  tri_control_stop(w);
  bool served = atomic_load(&w->loaded) && !w->refused && st != TRI_DEVICE_LOST;
  bool again = st == TRI_OK || st == TRI_NOT_FOUND || served;
  _exit(again ? TRI_EXIT_FAILED : tri_exit_code(st));
}

/* Hashes this host's copy of the weights. Those that are sampled have none. */
static tri_status hash_weights(const tri_worker *w, int local_rank, uint64_t *hash, tri_error *err) {
  const tri_serve_options *o = &w->opts;
  *hash = 0;
  return local_rank || o->load_format == TRI_LOAD_DUMMY ? TRI_OK : tri_weights_hash(o->model, hash, err);
}

/* Files that were replaced meanwhile may be a mixture in memory. */
static tri_status check_weights(const tri_worker *w, int local_rank, tri_error *err) {
  uint64_t hash;
  TRI_CHECK(hash_weights(w, local_rank, &hash, err));
  return hash == w->weights_hash ? TRI_OK
                                 : tri_fail(err, TRI_IO, "model",
                                            "the weights of %.200s were changed while they were loaded", w->opts.model);
}

static tri_status load(tri_worker *w, int local_ranks, tri_error *err) {
  w->local_ranks = local_ranks;
  const tri_serve_options *o = &w->opts;
  tri_stream_hiding hiding = {.opts = o, .local_ranks = local_ranks};
  tri_engine_config ec = {
      .model_dir = o->model,
      .config_rules = TRI_CONFIG_RULES(o),
      .load_format = (tri_load_format)o->load_format,
      .seed = o->seed,
      .dtype = o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype,
      .kv_dtype = o->kv_cache_dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->kv_cache_dtype,
      .quantization = (tri_quantization)o->quantization,
      .max_num_seqs = o->max_num_seqs,
      .max_num_batched_tokens = o->max_num_batched_tokens,
      .block_size = o->block_size,
      .max_model_len = o->max_model_len,
      .kv_bytes = (int64_t)o->kv_cache_memory,
      .num_kv_blocks = o->num_kv_blocks,
      .prefix_caching = o->enable_prefix_caching,
      .local_ranks = local_ranks,
      .encoders = true,
      .pooling = (tri_pooling)o->pooling,
      .autotune = o->autotune,
      .all2all = o->all2all_backend,
      .expert_strategy = (tri_expert_strategy)o->expert_placement_strategy,
      .num_redundant_experts = o->num_redundant_experts,
      .expert_location = o->init_expert_location,
      .experts_move = o->enable_eplb,
      .hiding_tokens = tri_stream_hiding_tokens,
      .hiding_ctx = &hiding,
      .leave = leave,
      .leave_ctx = w,
  };
  int64_t start = tri_now_ns();
  TRI_CHECK(tri_offload_of_options(o, &ec.offload, err));
  tri_status st = tri_engine_create(&ec, w->backend, &w->replica, &w->engine, err);
  w->load_seconds = (double)(tri_now_ns() - start) / 1e9;
  if (st != TRI_OK) return st;
  atomic_store(&w->loaded, true);
  char dp_rank[40] = "", cache[80];
  const tri_limits *limits = &w->engine->limits;
  if (w->engine->model.encoder)
    snprintf(cache, sizeof cache, "K and V of %lld tokens", (long long)limits->num_blocks * limits->block_size);
  else
    snprintf(cache, sizeof cache, "%d KV blocks of %d tokens", limits->num_blocks, limits->block_size);
  if (w->layout.dp > 1) snprintf(dp_rank, sizeof dp_rank, "dp %d/%d ", w->replica.p.dp_rank, w->layout.dp);
  tri_log(TRI_LOG_INFO, "worker",
          "%stp %d/%d pp %d/%d: %.1f MiB weights (quantization %s), %s (%.1f MiB), %.1f MiB "
          "activations, backend %s "
          "%s, loaded in %.2f s",
          dp_rank, w->replica.p.tp_rank, w->replica.p.tp, w->replica.p.pp_rank, w->replica.p.pp,
          (double)(w->engine->weights->bytes + w->engine->weights->ring_bytes) / 0x1p20,
          tri_quantization_names[w->engine->quantization], cache, (double)w->engine->kv->bytes / 0x1p20,
          (double)w->backend->allocated[TRI_MEM_ACTIVATIONS] / 0x1p20, w->backend->name, w->backend->isa,
          w->load_seconds);
  if (w->engine->limits.num_host_blocks)
    tri_log(TRI_LOG_INFO, "worker", "%d KV blocks in host memory (%.1f MiB), for preempted sequences",
            w->engine->limits.num_host_blocks, (double)w->engine->kv->pool_bytes / 0x1p20);
  else if (w->rank == 0 && o->kv_offloading_size > 0)
    tri_log(TRI_LOG_INFO, "worker", "--kv-offloading-size has no effect: only decoders' sequences are swapped");
  if (w->rank == 0 && w->layout.dp == 1 && o->all2all_backend != TRI_SERVE_FASTEST)
    tri_log(TRI_LOG_INFO, "worker", "--all2all-backend has no effect: the replica has one data-parallel rank");
  if (w->rank == 0) log_sentence(o, &w->engine->model);
  return TRI_OK;
}

/* A tensor group sums in every layer. */
static tri_status warn_of_network(tri_worker *w) {
  const tri_replica *g = &w->replica;
  int rank, here;
  if (g->p.tp == 1 || w->opts.launch == TRI_LAUNCH_SELF) return TRI_OK;
  TRI_CHECK(tri_comm_mpi_local(g->tensor, &rank, &here));
  if (here < g->p.tp && !g->p.tp_rank)
    tri_log(TRI_LOG_WARN, "worker",
            "ranks %d to %d, a tensor-parallel group, are on several hosts: every layer's all-reduces use the network",
            w->rank, w->rank + g->p.tp - 1);
  return TRI_OK;
}

static tri_status start(tri_worker *w, int *argc, char ***argv, tri_error *err) {
  tri_comm_config cc = {.deterministic = w->opts.deterministic,
                        .messages_only = true,
                        .policy = {.yield_us = START_YIELD_US, .stop = &w->stop},
                        .timeout_ms = COMM_TIMEOUT_MS};
  tri_comm *joined = NULL, *world;
  tri_status st;
  int local_rank = 0, local_size = 1, local_ranks;
  TRI_TRY(join(w, argc, argv, &cc, &joined, err));
  w->rank = joined->rank;
  w->world = joined->size;
  log_as(w, w->rank);
  TRI_TRY(tri_control_start(w, err));
  if (w->opts.launch != TRI_LAUNCH_SELF) TRI_TRY(tri_comm_mpi_local(joined, &local_rank, &local_size));
  tri_start_watch_phase(&w->start_watch, "backend", NULL);
  TRI_TRY(take_hardware(w, joined, local_rank, local_size, &cc.policy, &local_ranks, err));
  /* On shared cores, shared memory saves most of a collective. With a core for each rank, another
   * program that takes one makes rounds through shared memory ten times slower than MPI's messages, which is not
   * understood yet. */
  cc.messages_only = cc.policy.spin_us > 0;
  /* The same ranks again, in a communicator that waits as has been agreed: the first one had to be made before. */
  st = tri_comm_split(joined, 0, w->rank, &cc, &world);
  if (st != TRI_OK) {
    tri_fail(err, st, "comm", "cannot form the replica: %s", tri_status_text(st));
    goto cleanup;
  }
  TRI_TRY(tri_agree_on_options(&w->opts, world, err));
  const tri_serve_layout *l = &w->layout;
  TRI_TRY(
      tri_replica_create(world, (tri_parallel){.tp = l->tp, .pp = l->pp, .dp = l->dp, .ep = l->ep}, &w->replica, err));
  TRI_TRY(warn_of_network(w));
  tri_start_watch_phase(&w->start_watch, "load", &w->backend->loaded);
  TRI_TRY(hash_weights(w, local_rank, &w->weights_hash, err));
  atomic_store(&w->hashed, true);
  tri_control_notify(w);
  TRI_TRY(tri_agree_on_weights(w->weights_hash, w->replica.world, err));
  TRI_TRY(load(w, local_ranks, err));
  TRI_TRY(check_weights(w, local_rank, err));
  TRI_TRY(tri_eplb_find_hosts(w->engine, &w->host_of, err));
  tri_start_watch_phase(&w->start_watch, "canary", NULL);
cleanup:
  if (st == TRI_OK) tri_comm_destroy(joined);
  return st;
}

/* A coordinator that goes by turns assigns a data-parallel rank four jobs for each of 4,096 slots at most, which fit,
 * and their cancellations. Where more come in one step they wait, and jobs that have ended are freed by the leader
 * itself. */
static tri_status make_rings(tri_worker *w) {
  enum { MAX_JOBS = 4 * 4096 };
  const size_t jobs = (size_t)w->layout.dp * MAX_JOBS;
  TRI_CHECK(tri_commands_init(&w->commands, 2 * jobs));
  TRI_CHECK(tri_ring_init(&w->retired, jobs));
  TRI_CHECK(tri_ring_init(&w->outbox_full, TRI_NUM_OUTBOXES));
  return tri_ring_init(&w->outbox_free, TRI_NUM_OUTBOXES);
}

static tri_status init(tri_worker *w, tri_error *err) {
  TRI_CHECK(tri_serve_model_find(&w->opts, err));
  TRI_CHECK(tri_serve_layout_make(&w->opts, &w->layout, err));
  if (make_rings(w) != TRI_OK) return tri_fail(err, TRI_NO_MEMORY, "worker", "no memory for the rings");
  if (w->layout.dp > 1 && !(w->dp_ranks = tri_calloc(2 * (size_t)w->layout.dp, sizeof *w->dp_ranks)))
    return tri_fail(err, TRI_NO_MEMORY, "data_parallel_size", "no memory for the data-parallel ranks' figures");
  return tri_start_watch_begin(&w->start_watch, w->opts.start_timeout, err);
}

static void clean_up(tri_worker *w) {
  tri_start_watch_end(&w->start_watch);
  tri_control_stop(w);
  tri_commands_free(&w->commands);
  for (tri_job *j; (j = tri_ring_pop(&w->retired));) tri_job_destroy(j);
  tri_answer_grammars_free(&w->grammars);
  tri_engine_destroy(w->engine);
  tri_replica_destroy(&w->replica);
  tri_backend_destroy(w->backend);
  tri_pool_destroy(w->pool);
  tri_free(w->host_of);
  tri_free(w->dp_ranks);
  tri_expert_rows_free(&w->experts);
  for (int i = 0; i < TRI_NUM_OUTBOXES; i++) tri_outbox_free(&w->outboxes[i]);
  tri_ring_free(&w->retired);
  tri_ring_free(&w->outbox_full);
  tri_ring_free(&w->outbox_free);
}

int main(int argc, char **argv) {
  static tri_worker w; /* large, and alive as long as the process */
  tri_options *opts = NULL;
  tri_error err = {0};
  tri_file_open_standard(true);
  tri_options_spec s = spec;
  s.options = tri_serve_option_table;
  s.count = tri_serve_option_count;
  int code = tri_options_main(&s, &w.opts, argc, argv, &opts);
  if (code >= 0) return code;
  /* The launcher's end is ours; draining is the coordinator's business, so that the signals which ask for it pass by.
   */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGTERM, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  w.boot_file_said = tri_options_commanded(opts, "boot-file");
  log_as_launched(&w);
  tri_log_with_time(true);

  tri_status st = init(&w, &err);
  if (st == TRI_OK) st = start(&w, &argc, &argv, &err);
  if (st == TRI_OK) st = w.rank ? tri_follower_run(&w, &err) : tri_leader_run(&w, &err);
  if (st != TRI_OK || atomic_load(&w.stop)) leave(&w, st, &err);
  bool mpi = w.opts.launch != TRI_LAUNCH_SELF;
  clean_up(&w);
  if (mpi) tri_mpi_finalize();
  tri_options_free(opts);
  return TRI_EXIT_OK;
}
