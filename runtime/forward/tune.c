/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/tune.h"

#include <string.h>

#include "kernels/random.h"
#include "base/log.h"
#include "base/wait.h"
#include "runtime/forward/tactic_files.h"
#include "runtime/forward/forward_state.h"

/* Everything here is collective, and a rank that fails still takes part in every broadcast: it must not leave the
 * others waiting. So statuses are kept until the last exchange has been made. */
enum { SECONDS = 60, ENCODERS_FROM = 16 };

int tri_tune_sizes(const tri_limits *limits, bool encoder, int out[TRI_TUNE_SIZES]) {
  int tokens = limits->max_num_batched_tokens, seqs = encoder ? 0 : limits->max_num_seqs, n = 0;
  for (int m = encoder ? ENCODERS_FROM : 1; m < tokens && n < TRI_TUNE_SIZES - 2; m = tri_padded_rows(m + 1)) {
    if (seqs < m && n && seqs > out[n - 1]) out[n++] = seqs; /* where padding ends */
    out[n++] = m;
  }
  if (seqs < tokens && n && seqs > out[n - 1]) out[n++] = seqs;
  out[n++] = tokens;
  return n;
}

/* ---- the replica ---- */

/* A broadcast in parts of a size that needs no memory: a rank without room for all of it takes part, too. */
static tri_status broadcast(tri_comm *world, char *text, size_t len, int root) {
  char part[4096];
  tri_status st = TRI_OK;
  for (size_t at = 0, n; at < len && st == TRI_OK; at += n) {
    n = len - at < sizeof part ? len - at : sizeof part;
    if (world->rank == root) memcpy(part, text + at, n);
    st = tri_comm_broadcast(world, part, n, root);
    if (st == TRI_OK && world->rank != root && text) memcpy(text + at, part, n);
  }
  return st;
}

/* One rank's tactics go to all, itself too. tactics: that rank's; either may be NULL where there was no memory. */
static tri_status share(const tri_forward_config *config, const tri_tactics *tactics, int root, tri_tactics *into) {
  tri_comm *world = config->replica->world;
  const char *key = config->backend->tactics_key;
  char *text = NULL;
  size_t len = 0;
  tri_status st = TRI_OK;
  if (world->rank == root) st = tactics ? tri_tactics_write(tactics, key, &text, &len) : TRI_NO_MEMORY;
  tri_status sent = tri_comm_broadcast(world, &len, sizeof len, root);
  if (sent == TRI_OK && len && world->rank != root) text = tri_calloc(len, 1);
  if (sent == TRI_OK && len) sent = broadcast(world, text, len, root);
  if (sent == TRI_OK && len && (!text || !into)) st = TRI_NO_MEMORY;
  /* A device of another kind finds nothing for itself. */
  if (sent == TRI_OK && len && st == TRI_OK) st = tri_tactics_read(into, text, len, key, "tactics", NULL, NULL);
  tri_free(text);
  return sent == TRI_OK ? st : sent;
}

/* ---- measuring ---- */

/* Products of zeros take less power, and so less time, than those of numbers. */
static void fill(const tri_forward *f) {
  enum { WIDTH = 1024 };
  tri_backend *be = f->cfg.backend;
  tri_dtype type = f->buf.h.dtype; /* two narrow numbers are a float32 that is no larger */
  tri_random_fill a = {.to = f->memory, .dtype = type, .cols = WIDTH, .ld = WIDTH, .row_step = 1, .width = 1};
  a.rows = (int64_t)(f->bytes / tri_dtype_size(type) / WIDTH);
  be->ops.fill_random(be, &a);
}

static void log_tactics(const tri_tactics *c) {
  static const char *const kinds[TRI_TACTIC_COUNT] = {"default", "own kernel", "library", "algorithm"};
  for (size_t i = 0; tri_log_threshold() >= TRI_LOG_DEBUG && i < c->capacity; i++) {
    const tri_tactic *a = &c->slots[i];
    if (a->shape.m)
      tri_log(TRI_LOG_DEBUG, "tune", "m %d n %d k %d: %s, %.2f us instead of %.2f%s%s", a->shape.m, a->shape.n,
              a->shape.k, kinds[a->kind], a->ns * 1e-3, a->default_ns * 1e-3, a->note[0] ? ", " : "", a->note);
  }
}

static void add_up(tri_tune_result *sum, const tri_tune_result *one) {
  sum->shapes += one->shapes;
  sum->known += one->known;
  sum->measured += one->measured;
  sum->saved += one->saved;
}

static tri_status measure_sizes(tri_forward *f, tri_tactics *out, tri_tune_result *sum) {
  tri_backend *be = f->cfg.backend;
  int64_t until = tri_deadline_after_ms(SECONDS * 1000);
  int sizes[TRI_TUNE_SIZES], n = tri_tune_sizes(&f->cfg.limits, f->cfg.model->encoder, sizes);
  int most = tri_forward_gemms(f, sizes[0], NULL);
  tri_tune_gemm *gemms = tri_calloc((size_t)most, sizeof *gemms);
  tri_status st = gemms ? TRI_OK : TRI_NO_MEMORY;
  for (int i = 0; i < n && st == TRI_OK; i++) {
    tri_tune_result one = {0};
    int count = tri_forward_gemms(f, sizes[i], gemms);
    fill(f); /* buffers share memory: some hold results by now */
    st = be->ops.tune(be, gemms, count, until, out, &one);
    add_up(sum, &one);
  }
  tri_free(gemms);
  return st;
}

/* With a forward pass of its own, whose memory goes back with what was measured in it. */
static tri_status measure(const tri_forward_config *config, tri_tactics *out, tri_error *err) {
  int64_t begun = tri_now_ns();
  tri_tune_result sum = {0};
  tri_forward *f = NULL;
  tri_status st;
  tri_forward_config bare = *config;
  bare.shard.p.hot_experts = 0; /* they are no products of those that are measured, and take long to come */
  TRI_TRY(tri_forward_create(&bare, &f, err));
  TRI_TRY(measure_sizes(f, out, &sum));
  log_tactics(out);
  tri_log(TRI_LOG_INFO, "tune",
          "measured %d of %d shapes of products in %.1f s, %d were known%s; launches take %.1f%% less time in the mean",
          sum.measured, sum.shapes, (double)(tri_now_ns() - begun) * 1e-9, sum.known,
          sum.measured + sum.known < sum.shapes ? ", the others were not measured" : "",
          sum.measured ? 100 * sum.saved / sum.measured : 0.0);
cleanup:
  tri_forward_destroy(f);
  if (st == TRI_DEVICE_LOST) return tri_fail(err, st, "autotune", "%s", config->backend->failure);
  return st == TRI_OK ? st : tri_fail(err, st, "autotune", "products cannot be measured: %s", tri_status_text(st));
}

/* Keeps what was measured in the user's file; without one it is measured again the next time. */
static void keep(const tri_forward_config *config, const tri_tactics *measured) {
  char path[PATH_MAX];
  tri_error err = {0};
  tri_tactic_file_cache(config->backend->tactics_key, path);
  if (!path[0])
    tri_log(TRI_LOG_WARN, "tune", "neither XDG_CACHE_HOME nor HOME is set: tactics cannot be saved");
  else if (tri_tactic_file_add(path, config->backend->tactics_key, measured, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "tune", "tactics are not saved: %s", err.message);
  else
    tri_log(TRI_LOG_INFO, "tune", "tactics are saved in %s", path);
}

/* The stages measure at the same time, each on its own devices. Where two have measured the same shape, the first one's
 * tactic is everybody's. */
static tri_status measure_stages(const tri_forward_config *config, tri_error *err) {
  const tri_replica *g = config->replica;
  tri_tactics *own = NULL, *all = NULL;
  tri_status st = tri_tactics_create(&own), measured = TRI_OK;
  if (st == TRI_OK) st = tri_tactics_create(&all);
  if (st == TRI_OK && !g->p.tp_rank && !g->p.dp_rank) st = measured = measure(config, own, err);
  /* The first stage is the last to share: what it has replaces the tactics of others. */
  for (int stage = g->p.pp - 1; stage >= 0; stage--) {
    tri_status shared = share(config, own, tri_replica_rank(g, stage, 0, 0), all);
    if (st == TRI_OK) st = shared;
  }
  if (st == TRI_OK) st = tri_tactics_put_all(config->backend->tactics, all);
  if (st == TRI_OK && tri_replica_is_leader(g) && all->count) keep(config, all);
  tri_tactics_destroy(own);
  tri_tactics_destroy(all);
  return measured != TRI_OK ? measured : st;
}

static tri_status load(const tri_forward_config *config) {
  const tri_backend *be = config->backend;
  char shipped[PATH_MAX], cache[PATH_MAX];
  int counts[2] = {0};
  if (tri_replica_is_leader(config->replica)) {
    tri_tactic_file_shipped(shipped);
    tri_tactic_file_cache(be->tactics_key, cache);
    tri_tactic_files_load(be->tactics, be->tactics_key, shipped, cache, counts);
    if (counts[0] + counts[1])
      tri_log(TRI_LOG_INFO, "tune", "%zu tactics for products: %d of %s, %d of %s", be->tactics->count, counts[0],
              shipped, counts[1], cache);
  }
  return share(config, be->tactics, 0, be->tactics);
}

tri_status tri_tune(const tri_forward_config *config, bool measure, tri_error *err) {
  const tri_backend *be = config->backend;
  bool leads = tri_replica_is_leader(config->replica);
  if (!be->tactics) {
    if (measure && leads)
      tri_log(TRI_LOG_INFO, "tune", "--autotune has no effect: there is one kernel for each product on backend %s",
              be->name);
    return TRI_OK;
  }
  tri_status st = load(config);
  if (measure && be->tunes) { /* by all ranks or by none, whatever happened to one of them */
    tri_status measured = measure_stages(config, err);
    if (st == TRI_OK) st = measured;
  }
  if (st == TRI_OK) tri_log(TRI_LOG_DEBUG, "tune", "this rank has %zu tactics", be->tactics->count);
  return st == TRI_OK ? st : tri_fail(err, st, "autotune", "tactics for products: %s", tri_status_text(st));
}
