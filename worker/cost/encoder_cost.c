/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cost/encoder_cost.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/version.h"
#include "worker/schedule/batch_cost_file.h"

enum { OBSERVED = 64 }; /* steps after which the scheduler gets the refined table */

/* Everything that decides how long a step takes. A quote or backslash of a device's name would need escapes in JSON. */
static void make_key(const tri_engine *e, int threads, char out[TRI_ENCODER_COST_KEY]) {
  const tri_limits *l = &e->limits;
  const tri_backend *be = e->backend;
  char device[TRI_TACTICS_KEY];
  snprintf(device, sizeof device, "%s", be->tactics_key);
  for (char *c = device; (c = strpbrk(c, "\"\\"));) *c = '_';
  snprintf(out, TRI_ENCODER_COST_KEY,
           "version %s, model %016llx, weights %s, quantization %s, tp %d, pp %d, %d threads, backend %s %s, %s, "
           "limits %d %d %d",
           TRIREME_VERSION, (unsigned long long)tri_model_config_hash(&e->model), tri_dtype_name(e->weights->gemms),
           tri_quantization_names[e->quantization], e->replica->p.tp, e->replica->p.pp, threads, be->name, be->isa,
           device, l->max_model_len, l->max_num_seqs, l->max_num_batched_tokens);
}

static void keep(const tri_encoder_cost *c) {
  tri_error err = {0};
  tri_status st = c->path[0] ? tri_batch_cost_file_write(c->path, c->key, &c->table, &err) : TRI_OK;
  if (st != TRI_OK)
    tri_log(TRI_LOG_WARN, "worker", "the costs of batches are not saved: %s",
            err.message[0] ? err.message : tri_status_text(st));
}

tri_status tri_encoder_cost_start(const tri_engine *e, int threads, const tri_batch_measure *m, tri_encoder_cost *out) {
  const tri_limits *l = &m->limits;
  tri_error err = {0};
  *out = (tri_encoder_cost){0};
  tri_batch_cost_init(&out->table, l->max_model_len, l->max_num_seqs, l->max_num_batched_tokens);
  make_key(e, threads, out->key);
  tri_batch_cost_file_path(out->key, out->path);
  tri_status st = tri_batch_cost_file_read(out->path, out->key, &out->table, &err);
  out->known = st == TRI_OK;
  if (out->known) return TRI_OK;
  if (st != TRI_NOT_FOUND) tri_log(TRI_LOG_WARN, "worker", "%s: the file is not used", err.message);
  int64_t start = tri_now_ns();
  int cells = 0;
  TRI_CHECK(tri_batch_measure_run(m, &out->table, &cells));
  if (!cells) return TRI_OK;
  out->known = true;
  tri_log(TRI_LOG_INFO, "worker", "what batches cost: %d sizes measured in %.2f s; %d tokens of a step are enough",
          cells, (double)(tri_now_ns() - start) / 1e9, tri_batch_cost_enough_tokens(&out->table));
  keep(out);
  return TRI_OK;
}

void tri_encoder_cost_begin(tri_encoder_cost *c, const tri_plan_header *plan, int64_t now_ns) {
  if (!c->known) return;
  c->size = plan->num_seqs;
  c->length = (double)plan->num_tokens / c->size;
  c->began_ns = now_ns;
}

bool tri_encoder_cost_end(tri_encoder_cost *c, int64_t now_ns) {
  if (!c->began_ns) return false;
  bool taken = tri_batch_cost_observe(&c->table, c->length, c->size, (double)(now_ns - c->began_ns) * 1e-9);
  c->began_ns = 0;
  if (!taken) return false;
  c->refined = true;
  if (++c->observed < OBSERVED) return false;
  c->observed = 0;
  return true;
}

void tri_encoder_cost_keep(tri_encoder_cost *c) {
  if (c->refined) keep(c);
  c->refined = false;
}
