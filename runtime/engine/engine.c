/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/engine.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/wait.h"
#include "runtime/engine/embed_result.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/all2all_choice.h"
#include "runtime/engine/expert_transfer.h"
#include "runtime/engine/swap_turns.h"
#include "runtime/model/sentence.h"
#include "runtime/forward/tune.h"

/* Blocks until a rank reports, however long that takes. For the watch of the start a wait is progress: each rank has a
 * watch of its own, and the replica ends with the first that gives up. */
static tri_status await_word(tri_engine *e, int peer) {
  tri_comm *c = e->replica->world;
  tri_wait wait = tri_wait_begin(&c->cfg.policy, TRI_NEVER);
  tri_status st;
  size_t len;
  char word;
  while ((st = tri_comm_try_recv(c, &word, sizeof word, peer, TRI_TAG_LOADED, &len)) == TRI_AGAIN) {
    __atomic_fetch_add(&e->backend->loaded, 1, __ATOMIC_RELAXED);
    TRI_CHECK(tri_wait_pause(&wait));
  }
  return st;
}

static tri_status send_word(tri_comm *c, int peer) {
  tri_comm_req sent = {0};
  char word = 0;
  TRI_CHECK(tri_comm_isend(c, &word, sizeof word, peer, TRI_TAG_LOADED, &sent));
  return tri_comm_wait(c, &sent);
}

static tri_status await_ranks(tri_engine *e) {
  tri_comm *c = e->replica->world;
  tri_status st = TRI_OK;
  if (c->rank) TRI_CHECK(send_word(c, 0));
  if (c->rank) return await_word(e, 0);
  for (int r = 1; r < c->size && st == TRI_OK; r++) st = await_word(e, r);
  for (int r = 1; r < c->size && st == TRI_OK; r++) st = send_word(c, r);
  return st;
}

/* One rank that makes a pack takes minutes longer than another that has its pack or needs none: more than a collective
 * waits, and too long for who has failed to wait for the others. */
static tri_status agree_loaded(tri_engine *e, const tri_engine_config *config, tri_status mine, tri_error *err) {
  if (mine != TRI_OK && config->leave) {
    tri_fail(err, mine, "engine", "%s", tri_status_text(mine));
    config->leave(config->leave_ctx, mine, err);
  }
  await_ranks(e); /* what fails there is the communicator's end, which the next call tells */
  return tri_engine_agree(e->replica, mine, err);
}

/* Finds how long the slowest rank's layer takes to come: the leader tells the watchdog. */
static tri_status agree_layer_seconds(tri_engine *e, tri_error *err) {
  double own = e->offload ? tri_offload_layer_seconds(e->offload) : 0, *all;
  TRI_CHECK(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  for (int r = 0; r < e->replica->world->size; r++)
    if (all[r] > e->streamed_layer_seconds) e->streamed_layer_seconds = all[r];
  tri_free(all);
  return TRI_OK;
}

/* Refuses a model that the caller cannot use, and notes how it wants sequences pooled. */
static tri_status set_use(tri_model_config *c, const tri_engine_config *config, tri_error *err) {
  if (c->encoder && !config->encoders)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "model_type %s is an encoder: it does not generate text",
                    c->arch->model_type);
  return tri_model_config_pool(config->model_dir, config->pooling, c, err);
}

/* All ranks have read the same placement, or all fail. Those without one take part. */
static tri_status compare_placements(const tri_engine *e, tri_error *err) {
  int size = e->replica->world->size, other = -1;
  uint64_t own = tri_expert_placement_hash(e->placement), *all;
  if (size == 1) return TRI_OK;
  TRI_CHECK(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  for (int r = size; r-- > 0;)
    if (all[r] != all[0]) other = r;
  tri_free(all);
  if (other < 0) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "init_expert_location",
                  "ranks 0 and %d have different placements of the experts: are their files the same?", other);
}

static tri_status place_experts(tri_engine *e, const tri_engine_config *config, tri_parallel p, tri_error *err) {
  tri_expert_placement_config pc = {.ep = tri_parallel_ep(p),
                                    .strategy = config->expert_strategy,
                                    .num_redundant = config->num_redundant_experts,
                                    .file = config->expert_location,
                                    .moves = config->experts_move};
  TRI_CHECK(tri_expert_placement_make(&e->model, &pc, &e->placement, err));
  if (e->backend->deterministic && tri_expert_most_copies(e->placement) > 1 && tri_replica_is_leader(e->replica))
    tri_log(TRI_LOG_WARN, "engine", "--deterministic: only the first copy of an expert is used");
  return TRI_OK;
}

/* A rank's wishes about FP8, which are its backend's, and whether that lacks kernels. */
typedef struct fp8_wishes {
  bool prefers, wide_blocks_only, lacks;
} fp8_wishes;

/* Says once for a replica that devices lack kernels, whichever rank's they are. */
static void tell_lacking(const tri_engine *e, int ranks) {
  const char *lacks = e->backend->lacks;
  if (!ranks || !tri_replica_is_leader(e->replica)) return;
  if (!lacks) lacks = "devices of other ranks lack kernels that this one's has";
  tri_log(TRI_LOG_WARN, "engine", "%s (%d of %d ranks)", lacks, ranks, e->replica->world->size);
}

/* FP8 stays where all ranks do well with it, and in forms that all take: experts move between them as they lie. */
static tri_status agree_on_fp8(const tri_engine *e, fp8_wishes *out, tri_error *err) {
  fp8_wishes own = {e->backend->prefers_fp8, e->backend->wide_blocks_only, e->backend->lacks != NULL}, *all;
  int lacking = own.lacks;
  *out = own;
  if (e->replica->world->size == 1) {
    tell_lacking(e, lacking);
    return TRI_OK;
  }
  TRI_CHECK(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  lacking = 0;
  for (int r = 0; r < e->replica->world->size; r++) {
    out->prefers &= all[r].prefers;
    out->wide_blocks_only |= all[r].wide_blocks_only;
    lacking += all[r].lacks;
  }
  tri_free(all);
  tell_lacking(e, lacking);
  return TRI_OK;
}

static tri_status choose_quantization(tri_engine *e, tri_quantization asked, bool prefers_fp8, tri_error *err) {
  e->quantization = tri_stored_quantization(&e->model.stored, asked, prefers_fp8);
  if (e->quantization != TRI_QUANTIZE_FP8 || e->backend->ops.takes_form(e->backend, TRI_F8_E4M3, (tri_groups){0}))
    return TRI_OK;
  return tri_fail(
      err, TRI_UNSUPPORTED, "quantization",
      "--quantization fp8: of GPUs, only Hopper (H100, H200) computes with FP8 weights; with none they have 16 bits, "
      "with int8 eight");
}

/* Options that do something else than they seem to. */
static void log_odd_options(const tri_engine *e, const tri_engine_config *config, bool host_experts) {
  int kept = config->offload.gpu_layers;
  const char *backend = e->backend->name;
  if (config->offload.host_experts && !host_experts)
    tri_log(TRI_LOG_INFO, "engine", "--cpu-moe has no effect: on backend %s all weights are in host memory", backend);
  if (e->backend->host_memory && kept >= 0 && kept < e->model.num_layers)
    tri_log(TRI_LOG_WARN, "engine",
            "--gpu-layers %d: on backend %s the weights of the other layers are read from files in every step; without "
            "the option they stay in memory if they fit",
            kept, backend);
  if (config->load_format == TRI_LOAD_DUMMY)
    tri_log(TRI_LOG_WARN, "engine", "--load-format dummy: weights are random numbers, and answers mean nothing");
}

/* The model, this rank's share of it, and the checkpoint: what can fail for reasons of files and options, and takes no
 * memory to speak of. */
static tri_status prepare(tri_engine *e, const tri_engine_config *config, fp8_wishes wishes, tri_error *err) {
  tri_checkpoint **ckpt = &e->ckpt;
  TRI_CHECK(tri_model_config_load(config->model_dir, config->config_rules, &e->model, err));
  TRI_CHECK(set_use(&e->model, config, err));
  e->model.stored.wide_blocks_only = wishes.wide_blocks_only;
  TRI_CHECK(choose_quantization(e, config->quantization, wishes.prefers, err));
  tri_parallel p = e->replica->p;
  p.quantized = e->quantization != TRI_QUANTIZE_NONE;
  TRI_CHECK(place_experts(e, config, p, err));
  p.placement = e->placement;
  TRI_CHECK(tri_offload_check_experts(&config->offload, &e->model, p, e->backend->deterministic, err));
  p.host_experts = tri_offload_host_experts(&config->offload, !e->backend->host_memory);
  if (tri_replica_is_leader(e->replica)) log_odd_options(e, config, p.host_experts);
  TRI_CHECK(tri_shard_make(&e->model, p, &e->shard, err));
  if (config->load_format != TRI_LOAD_DUMMY) {
    TRI_CHECK(tri_checkpoint_open(config->model_dir, ckpt, err));
    TRI_CHECK(tri_sentence_add_weights(config->model_dir, &e->model, *ckpt, err));
  }
  tri_weights_find_head(&e->model, *ckpt);
  return TRI_OK;
}

/* Communicators for buffers that the host's do not reach. */
static tri_status connect(tri_engine *e, tri_error *err) {
  tri_backend *be = e->backend;
  tri_replica *g = e->replica;
  if (g->p.tp > 1) TRI_CHECK(be->ops.comm_create(be, g->tensor, TRI_COMM_SUMS, &e->device_tensor, err));
  if (tri_dp_ranks_exchange(&e->model, g->p))
    TRI_CHECK(be->ops.comm_create(be, g->column, TRI_COMM_ROWS, &e->device_column, err));
  if (g->p.pp > 1) TRI_CHECK(be->ops.comm_create(be, g->world, TRI_COMM_TRANSFERS, &e->device_world, err));
  const tri_comm *made[] = {e->device_tensor, e->device_column, e->device_world};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++)
    if (made[i] && made[i]->about[0] && g->world->rank == 0) tri_log(TRI_LOG_INFO, "engine", "%s", made[i]->about);
  return TRI_OK;
}

/* How far ahead of the device the host may be. Encoders answer from the step's own buffers: they take their steps one
 * by one. */
static int depth_of(const tri_engine *e) {
  bool ahead = e->backend->async && !e->model.encoder && !e->model.seq2seq.on && !e->replica_streams;
  return ahead ? TRI_ENGINE_DEPTH : 1;
}

static tri_status allocate_steps(tri_engine *e) {
  tri_backend *be = e->backend;
  size_t n = (size_t)e->limits.max_num_seqs;
  tri_status st = TRI_OK;
  const tri_wait_policy *p = &e->replica->world->cfg.policy;
  e->depth = depth_of(e);
  /* Draws of stages go from rank to rank through the host: their steps ahead are other micro-batches'. */
  e->micro_batch_depth = e->replica->p.pp == 1 ? e->depth : 1;
  e->wait_policy = (tri_wait_policy){.spin_us = p->spin_us, .yield_us = INT32_MAX - p->spin_us, .stop = p->stop};
  for (int i = 0; i < e->depth && st == TRI_OK; i++) {
    tri_engine_step_state *s = &e->steps[i];
    if (!(s->samples = tri_calloc(n, sizeof *s->samples))) return TRI_NO_MEMORY;
    st = be->ops.host_alloc(be, n * sizeof *s->results, (void **)&s->results);
  }
  if (st == TRI_OK && e->micro_batch_depth > 1)
    st = be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, n * sizeof *e->sampled, (void **)&e->sampled);
  return st;
}

/* Counts for the penalties, of a device that samples ahead of the host. */
static tri_status allocate_counts(tri_engine *e) {
  tri_backend *be = e->backend;
  size_t n = (size_t)e->limits.max_num_seqs;
  if (!be->async || e->model.encoder || !tri_replica_is_sampler(e->replica)) return TRI_OK;
  e->counted = tri_calloc(n, sizeof *e->counted);
  e->fresh = tri_calloc(n, sizeof *e->fresh);
  e->sequence = tri_calloc(n, sizeof *e->sequence);
  if (!e->counted || !e->fresh || !e->sequence) return TRI_NO_MEMORY;
  e->counts_bytes = n * (size_t)e->model.vocab_size * sizeof *e->counts;
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, e->counts_bytes, (void **)&e->counts));
  return be->ops.reserve_samples(be, e->limits.max_num_seqs, TRI_MAX_LOGIT_BIAS + TRI_MAX_BANNED,
                                 (int)e->limits.vocab_size);
}

/* All memory that depends on the number of sequences, before the first step: steps allocate nothing. */
static tri_status allocate(tri_engine *e, const tri_engine_config *config, tri_error *err) {
  tri_status st = TRI_OK;
  size_t n = (size_t)e->limits.max_num_seqs;
  TRI_CHECK(tri_kv_cache_create(e->backend, &e->model, &e->shard, tri_engine_kv_dtype(e, config), e->limits.block_size,
                                e->limits.num_blocks, &e->kv, err));
  TRI_CHECK(tri_kv_cache_add_pool(e->kv, e->limits.num_host_blocks, err));
  TRI_CHECK(tri_slots_create(&e->limits, &e->slots));
  TRI_CHECK(tri_batch_builder_create(&e->limits, &e->batch));
  e->result.tokens = tri_calloc(n, sizeof *e->result.tokens);
  e->sample_params = tri_calloc(n, sizeof *e->sample_params);
  e->row_params = tri_calloc(n, sizeof *e->row_params);
  e->history = tri_calloc(n, sizeof *e->history);
  e->num_prompt = tri_calloc(n, sizeof *e->num_prompt);
  e->num_history = tri_calloc(n, sizeof *e->num_history);
  e->counters = tri_calloc(n, sizeof *e->counters);
  e->targets = tri_calloc(n, sizeof *e->targets);
  if (!e->result.tokens || !e->sample_params || !e->row_params || !e->history || !e->num_prompt || !e->num_history ||
      !e->counters || !e->targets)
    st = TRI_NO_MEMORY;
  if (st == TRI_OK) st = allocate_steps(e);
  if (st == TRI_OK) st = allocate_counts(e);
  if (st == TRI_OK && tri_replica_is_sampler(e->replica) && config->observer.logits) {
    e->sample_bytes = n * (size_t)e->model.vocab_size * sizeof(float);
    st = e->backend->ops.mem_alloc(e->backend, TRI_MEM_ACTIVATIONS, e->sample_bytes, (void **)&e->sample_logits);
  }
  if (st != TRI_OK)
    return tri_fail(err, st, "max_num_seqs", "no memory for the state of %d sequences", e->limits.max_num_seqs);
  size_t rows, cols;
  if (!e->model.encoder || e->backend->host_memory) return TRI_OK;
  if (!tri_embed_result_max(&e->model, &e->limits, &rows, &cols)) return TRI_OVERFLOW;
  e->answer = tri_malloc(rows * cols, sizeof *e->answer);
  return e->answer ? TRI_OK : TRI_NO_MEMORY;
}

/* Returns whether the devices that record the same steps are of one kind: their numbers of processors decide how a step
 * is cut. */
static tri_status compare_devices(const tri_engine *e, bool *alike) {
  tri_comm *c = e->replica->stage ? e->replica->stage : e->replica->tensor;
  uint64_t own = tri_hash_bytes(TRI_HASH_SEED, e->backend->tactics_key, strlen(e->backend->tactics_key)), *all;
  *alike = true;
  if (c->size == 1) return TRI_OK;
  all = tri_calloc((size_t)c->size, sizeof *all);
  tri_status st = tri_comm_agree(c, all ? TRI_OK : TRI_NO_MEMORY); /* one without memory takes part, too */
  if (st == TRI_OK) st = tri_comm_all_gather(c, &own, all, sizeof own);
  for (int r = 0; st == TRI_OK && r < c->size; r++) *alike &= all[r] == own;
  tri_free(all);
  return st;
}

static void tell_hot(const tri_engine *e) {
  int hot = e->ledger.hot_experts;
  if (hot)
    tri_log(TRI_LOG_INFO, "engine", "the GPU also holds %d of the %d experts of each such layer: %.1f MiB", hot,
            e->shard.slots.count, (double)e->ledger.hot / 0x1p20);
  else if (e->ledger.host_experts && e->backend->deterministic)
    tri_log(TRI_LOG_INFO, "engine", "--deterministic: the CPU computes all of them");
}

/* Tactics of products are chosen before anything is planned. */
static tri_status make_forward(tri_engine *e, const tri_engine_config *config, const tri_checkpoint *ckpt,
                               tri_error *err) {
  tri_forward_config fc = {.model = &e->model,
                           .shard = e->shard,
                           .limits = e->limits,
                           .num_micro_batches = e->num_micro_batches,
                           .backend = e->backend,
                           .weights = e->weights,
                           .tiers = e->tiers,
                           .replica_streams = e->replica_streams,
                           .stream = e->offload ? tri_offload_stream(e->offload) : NULL,
                           .host = e->host,
                           .hot_window = config->offload.hot_window,
                           .hot_step_bytes = config->offload.hot_step_bytes,
                           .kv = e->kv,
                           .replica = e->replica,
                           .tensor = e->device_tensor ? e->device_tensor : e->replica->tensor,
                           .stages = e->device_world ? e->device_world : e->replica->world,
                           .all2all = e->all2all,
                           .all2all_choice = e->all2all_choice,
                           .sampled = e->sampled,
                           .int8_activations = e->quantization == TRI_QUANTIZE_W8A8,
                           .progress = &e->progress,
                           .observer = config->observer};
  TRI_CHECK(compare_devices(e, &fc.alike));
  TRI_CHECK(tri_tune(&fc, config->autotune, err));
  TRI_CHECK(tri_forward_create(&fc, &e->forward, err));
  e->hot = tri_forward_hot_experts(e->forward);
  tell_hot(e);
  if (e->all2all) TRI_CHECK(tri_forward_reserve_batch(e->forward, e->batch));
  if (!e->model.seq2seq.on) return TRI_OK;
  return tri_source_create(&fc, ckpt, config->dtype, e->quantization, config->seed, &e->source, err);
}

/* Another program has taken what the ledger counted on: says what it was for. */
static tri_status refuse_memory(const tri_engine *e) {
  char lines[TRI_LEDGER_TEXT];
  tri_ledger_text(&e->ledger, lines);
  tri_log(TRI_LOG_ERROR, "engine", "out of memory; this rank wants %s", lines);
  return TRI_NO_CAPACITY;
}

/* All that a step will ask for: when it grows, what was recorded is dropped, and by one rank alone perhaps. */
static tri_status reserve(tri_engine *e) {
  size_t of_side = e->ledger.side_workspace;
  return e->backend->ops.reserve(e->backend, e->ledger.workspace - of_side, of_side);
}

static void close_checkpoint(tri_engine *e) {
  tri_checkpoint_close(e->ckpt);
  e->ckpt = NULL;
}

/* The order of creation is that of what each part knows of memory: communicators take theirs first, the ledger counts
 * what is left, exchanges are measured while there is room, and then weights, cache and activations take what the
 * ledger has said. Whatever a rank does alone may fail on it alone, so that an agreement follows each such part: else
 * the others would wait in the next collective. */
tri_status tri_engine_create(const tri_engine_config *config, tri_backend *backend, tri_replica *replica,
                             tri_engine **out, tri_error *err) {
  tri_engine *e = tri_calloc(1, sizeof *e);
  fp8_wishes wishes;
  tri_status st = e ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "engine", "no memory");
  if (st != TRI_OK) return tri_engine_agree(replica, st, err);
  e->backend = backend;
  e->replica = replica;
  e->num_micro_batches = replica->p.pp;
  atomic_store(&e->progress.layer, TRI_LAYER_IDLE);
  TRI_TRY(agree_on_fp8(e, &wishes, err));
  TRI_TRY(tri_engine_agree(replica, prepare(e, config, wishes, err), err));
  TRI_TRY(compare_placements(e, err));
  TRI_TRY(tri_engine_agree(replica, connect(e, err), err));
  /* After the communicators, whose memory is not to be had any more. */
  TRI_TRY(tri_engine_set_limits(e, config, err));
  e->shard.p.hot_experts = e->ledger.hot_experts;
  /* While there is room for what measuring takes. */
  TRI_TRY(tri_engine_agree(replica, tri_engine_make_all2all(e, config->all2all, err), err));
  TRI_TRY(tri_engine_join_ranks(e, config, err));
  st = tri_engine_load_weights(e, config, err);
  if (st == TRI_OK) st = allocate(e, config, err);
  if (st == TRI_OK) st = reserve(e);
  if (st == TRI_OK) st = tri_engine_make_transfer(e, err);
  if (st == TRI_NO_MEMORY) st = refuse_memory(e);
  if (st != TRI_OK && e->split) tri_split_leave(e->split); /* others may wait for its words */
  TRI_TRY(agree_loaded(e, config, st, err));
  st = make_forward(e, config, e->ckpt, err);
  if (st == TRI_NO_MEMORY) st = refuse_memory(e);
  TRI_TRY(tri_engine_agree(replica, st, err));
  TRI_TRY(agree_layer_seconds(e, err));
  TRI_TRY(tri_engine_measure_swaps(e, err));
  if (!e->offload) close_checkpoint(e);
  *out = e;
  e = NULL;
cleanup:
  tri_engine_destroy(e);
  return st;
}

static void free_steps(tri_engine *e) {
  tri_backend *be = e->backend;
  be->ops.stream_sync(be); /* downloads may be under way even after a step that failed to begin */
  for (int i = 0; i < TRI_ENGINE_DEPTH; i++) {
    tri_free(e->steps[i].samples);
    be->ops.host_free(be, e->steps[i].results, (size_t)e->limits.max_num_seqs * sizeof *e->steps[i].results);
  }
  if (e->sampled)
    be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, e->sampled, (size_t)e->limits.max_num_seqs * sizeof *e->sampled);
}

static bool is_sound(const tri_engine *e) {
  return (!e->device_tensor || tri_comm_query(e->device_tensor) == TRI_OK) &&
         (!e->device_column || tri_comm_query(e->device_column) == TRI_OK) &&
         (!e->device_world || tri_comm_query(e->device_world) == TRI_OK);
}

static void disconnect(tri_engine *e) {
  tri_comm_destroy(e->device_tensor);
  tri_comm_destroy(e->device_column);
  tri_comm_destroy(e->device_world);
  e->device_tensor = e->device_column = e->device_world = NULL;
}

void tri_engine_destroy(tri_engine *e) {
  if (!e) return;
  if (!is_sound(e)) { /* first: kernels that wait for a lost peer would be waited for, and so do recorded steps */
    e->backend->ops.graph_drop(e->backend);
    disconnect(e);
  }
  free_steps(e);
  tri_source_destroy(e->source);
  tri_forward_destroy(e->forward);
  tri_all2all_destroy(e->all2all);
  tri_batch_builder_destroy(e->batch);
  tri_slots_destroy(e->slots);
  tri_kv_cache_destroy(e->kv);
  if (tri_offload_destroy(e->offload))
    tri_engine_close_split(e);
  else
    e->weights = NULL; /* a disk may still write to their ring, and to the split's buffers */
  tri_weights_destroy(e->weights);
  tri_backend_destroy(e->host);
  tri_tiers_free(e->tiers);
  close_checkpoint(e);
  tri_expert_transfer_destroy(e->transfer);
  tri_expert_placement_free(e->placement);
  disconnect(e);
  tri_free(e->result.tokens);
  tri_free(e->sample_params);
  tri_free(e->row_params);
  tri_free(e->history);
  tri_free(e->num_prompt);
  tri_free(e->num_history);
  tri_free(e->counters);
  tri_free(e->targets);
  tri_free(e->answer);
  if (e->counts) e->backend->ops.mem_free(e->backend, TRI_MEM_ACTIVATIONS, e->counts, e->counts_bytes);
  tri_free(e->counted);
  tri_free(e->fresh);
  tri_free(e->sequence);
  if (e->sample_logits) e->backend->ops.mem_free(e->backend, TRI_MEM_ACTIVATIONS, e->sample_logits, e->sample_bytes);
  tri_free(e);
}
