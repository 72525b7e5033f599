/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's weights, from a checkpoint or made up: what stays in memory as a whole, what is streamed part by part. */
#include "runtime/load/part_loader.h"

#include "base/wait.h"
#include "runtime/load/finite_weights.h"
#include "runtime/load/form_check.h"
#include "runtime/load/load_impl.h"

/* ---- what stays ---- */

static tri_load load_of(const tri_weights_config *c, tri_error *err) {
  return (tri_load){.be = c->backend, .c = c->model, .s = c->shard, .ckpt = c->ckpt, .err = err};
}

static tri_status map_of(const tri_weights_config *c, tri_weight_map *m, tri_error *err) {
  return tri_weight_map_make(c->model, c->shard, c->ckpt, c->dtype, c->quantization, c->tiers, m, err);
}

/* Uploads run concurrently with the stream that has cleared the memory. */
static tri_status read_weights(const tri_weights_config *c, const tri_weight_map *m, tri_weights *w, tri_error *err) {
  tri_reader_config io = c->io ? *c->io : tri_reader_config_default();
  tri_load l = load_of(c, err);
  tri_status st;
  l.to = w->memory;
  TRI_TRY(tri_load_check_all_known(&l));
  TRI_TRY(tri_load_pipe_create(c->backend, c->ckpt, &io, m->bytes, &l.pipe, err));
  l.most = tri_load_pipe_piece_bytes(l.pipe);
  TRI_TRY(c->backend->ops.stream_sync(c->backend));
  TRI_TRY(tri_weights_each(c->model, c->shard, m, TRI_PART_STAYS, tri_load_tensor, &l));
  TRI_TRY(tri_load_pipe_drain(l.pipe));
  w->read_bytes = tri_load_pipe_bytes_read(l.pipe);
cleanup:
  tri_load_pipe_destroy(l.pipe);
  tri_load_free_sides(&l);
  return st;
}

/* A tensor of experts on the host. Who watches the start looks at the device's backend. */
struct host_load {
  tri_load load;
  tri_backend *watched;
};

static tri_status load_on_host(void *ctx, const tri_weight_target *t) {
  struct host_load *h = ctx;
  __atomic_fetch_add(&h->watched->loaded, 1, __ATOMIC_RELAXED);
  return tri_load_tensor(&h->load, t);
}

/* Experts on the host, as the backend wants them that computes them. */
static tri_status fill_host(const tri_weights_config *config, const tri_weight_map *m, tri_weights *w, tri_error *err) {
  tri_weights_config c = *config;
  tri_reader_config io = c.io ? *c.io : tri_reader_config_default();
  tri_status st;
  if (!m->host_bytes) return TRI_OK;
  c.backend = c.host;
  if (!c.ckpt) return tri_dummy_fill(&c, m, TRI_PART_ON_HOST, w->host_memory);
  struct host_load h = {.load = load_of(&c, err), .watched = config->backend};
  h.load.to = w->host_memory;
  TRI_TRY(tri_load_pipe_create(c.backend, c.ckpt, &io, m->host_bytes, &h.load.pipe, err));
  h.load.most = tri_load_pipe_piece_bytes(h.load.pipe);
  TRI_TRY(tri_weights_each(c.model, c.shard, m, TRI_PART_ON_HOST, load_on_host, &h));
  TRI_TRY(tri_load_pipe_drain(h.load.pipe));
  w->read_bytes += tri_load_pipe_bytes_read(h.load.pipe);
cleanup:
  tri_load_pipe_destroy(h.load.pipe);
  tri_load_free_sides(&h.load);
  return st;
}

static tri_status check_finite(const tri_weights_config *c, const tri_weights *w, tri_error *err) {
  tri_weights_count_resident(w, c->shard->layers.count);
  return tri_weights_check_counts(w, c->model, c->shard, err);
}

/* Compares what the backend makes of weights that are stored with the files, for a second at most. One layer of each
 * kind does for int8, whose blocks all layers have alike. */
static tri_status check_forms(const tri_weights_config *c, const tri_weight_map *m, tri_weights *w, tri_error *err) {
  enum { MOST_NS = 1000000000 };
  if (!c->ckpt || c->quantization == TRI_QUANTIZE_NONE) return TRI_OK;
  int64_t most = c->quantization == TRI_QUANTIZE_FP8 ? MOST_NS : 0;
  return tri_form_check(c, m, w, tri_now_ns() + most, &w->num_checked, err);
}

/* Everything that stays: memory, the files' bytes or dummy numbers, the host's experts, and a check that no weight is
 * infinite or NaN. Streamed parts come later, through the part loader below. */
tri_status tri_weights_make(const tri_weights_config *c, tri_weights **out, tri_error *err) {
  tri_weight_map m;
  tri_weights *w = NULL;
  tri_status st = map_of(c, &m, err);
  if (st != TRI_OK) return st;
  TRI_TRY(tri_weights_alloc(c, &m, &w, err));
  TRI_TRY(c->ckpt ? read_weights(c, &m, w, err) : tri_dummy_fill(c, &m, TRI_PART_STAYS, w->memory));
  TRI_TRY(fill_host(c, &m, w, err));
  if (c->ckpt) TRI_TRY(check_finite(c, w, err));
  TRI_TRY(check_forms(c, &m, w, err));
  *out = w;
  w = NULL;
cleanup:
  tri_weights_destroy(w);
  tri_weight_map_free(&m);
  return st;
}

tri_status tri_weights_load_with(tri_backend *be, const tri_model_config *c, const tri_shard *s,
                                 const tri_checkpoint *ckpt, tri_dtype dtype, tri_quantization quantization,
                                 const tri_reader_config *io, tri_weights **out, tri_error *err) {
  return tri_weights_make(
      &(tri_weights_config){
          .backend = be, .model = c, .shard = s, .ckpt = ckpt, .dtype = dtype, .quantization = quantization, .io = io},
      out, err);
}

tri_status tri_weights_load(tri_backend *be, const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                            tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err) {
  return tri_weights_load_with(be, c, s, ckpt, dtype, quantization, NULL, out, err);
}

tri_status tri_weights_dummy(tri_backend *be, const tri_model_config *c, const tri_shard *s, uint64_t seed,
                             tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err) {
  return tri_weights_make(
      &(tri_weights_config){
          .backend = be, .model = c, .shard = s, .dtype = dtype, .quantization = quantization, .seed = seed},
      out, err);
}

/* ---- what a checkpoint lacks, before any of it is read ---- */

void tri_weights_find_head(tri_model_config *c, const tri_checkpoint *ckpt) {
  for (const tri_tensor_rule *r = c->arch->tensors; c->seq2seq.on && ckpt && r->name; r++)
    if (r->weight == TRI_W_HEAD && tri_rule_find(c, ckpt, r, 0, 0)) c->head.tie_word_embeddings = false;
}

/* Takes the place of reading where only names, types and shapes are looked at. */
static tri_status pass_over(void *ctx, const tri_st_tensor *t, uint64_t offset, size_t bytes, size_t at) {
  (void)ctx;
  (void)t;
  (void)offset;
  (void)bytes;
  (void)at;
  return TRI_OK;
}

/* Looks at one of the two halves of an encoder-decoder, or at the whole of another model. */
static tri_status check_tensors(const tri_model_config *c, const tri_checkpoint *ckpt, tri_error *err) {
  tri_shard whole;
  tri_weight_map m;
  tri_load l = {.c = c, .s = &whole, .ckpt = ckpt, .err = err, .found = pass_over};
  TRI_CHECK(tri_shard_make(c, (tri_parallel){.tp = 1, .pp = 1, .dp = 1}, &whole, err));
  TRI_CHECK(tri_load_check_all_known(&l));
  TRI_CHECK(tri_weight_map_make(c, &whole, ckpt, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, NULL, &m, err));
  tri_status st = tri_weights_each(c, &whole, &m, TRI_PART_STAYS, tri_load_tensor, &l);
  tri_weight_map_free(&m);
  return st;
}

/* Goes the way of a load without its reads: names, types and shapes are checked by the same code, against the whole
 * model on one rank. */
tri_status tri_weights_check(const tri_model_config *c, const tri_checkpoint *ckpt, tri_error *err) {
  tri_status st = check_tensors(c, ckpt, err);
  if (st != TRI_OK || !c->seq2seq.on) return st;
  tri_model_config *source = tri_malloc(1, sizeof *source);
  if (!source) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  tri_model_config_source(c, source);
  st = check_tensors(source, ckpt, err);
  tri_free(source);
  return st;
}

/* ---- what is streamed ---- */

/* Kept between parts: the map, which is the same for all of them, and the pipe with its buffers. */
struct tri_part_loader {
  tri_weights_config cfg;
  tri_weight_map map;
  tri_load load;
};

tri_status tri_part_loader_create(const tri_weights_config *config, tri_part_loader **out, tri_error *err) {
  tri_status st;
  tri_part_loader *p = tri_calloc(1, sizeof *p);
  if (!p) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory to load weights");
  p->cfg = *config;
  p->load = load_of(config, NULL);
  TRI_TRY(map_of(config, &p->map, err));
  if (config->ckpt) {
    tri_reader_config io = config->io ? *config->io : tri_reader_config_default();
    TRI_TRY(tri_load_pipe_create(config->backend, config->ckpt, &io, UINT64_MAX, &p->load.pipe, err));
    p->load.most = tri_load_pipe_piece_bytes(p->load.pipe);
  }
  *out = p;
  return TRI_OK;
cleanup:
  tri_part_loader_destroy(p);
  return st;
}

void tri_part_loader_destroy(tri_part_loader *p) {
  if (!p) return;
  tri_load_pipe_destroy(p->load.pipe);
  tri_load_free_sides(&p->load);
  tri_weight_map_free(&p->map);
  tri_free(p);
}

tri_status tri_part_loader_fill(tri_part_loader *p, int part, char *memory, tri_error *err) {
  const tri_weights_config *c = &p->cfg;
  if (!c->ckpt) return tri_dummy_fill(c, &p->map, part, memory);
  p->load.err = err;
  p->load.to = memory;
  tri_load_pipe_tell(p->load.pipe, err);
  TRI_CHECK(tri_weights_each(c->model, c->shard, &p->map, part, tri_load_tensor, &p->load));
  return tri_load_pipe_drain(p->load.pipe);
}

/* ---- where it lies in the checkpoint ---- */

/* Notes a run of bytes, as one with the run before it where both follow each other in the file and in memory: a part
 * is then few large reads. */
static tri_status add_extent(void *ctx, const tri_st_tensor *t, uint64_t offset, size_t bytes, size_t at) {
  tri_part_extents *x = ctx;
  tri_stream_extent *last = x->num ? &x->extents[x->num - 1] : NULL;
  tri_stream_extent next = {.file = t->file, .offset = t->offset + offset, .bytes = bytes, .at = at};
  if (!bytes) return TRI_OK;
  bool follows =
      last && last->file == next.file && last->offset + last->bytes == next.offset && last->at + last->bytes == next.at;
  if (follows) {
    last->bytes += bytes;
    return TRI_OK;
  }
  if (x->num == x->room) {
    int room = x->room ? 2 * x->room : 4;
    last = tri_grow(x->extents, (size_t)x->num, (size_t)room, sizeof *last);
    if (!last) return TRI_NO_MEMORY;
    x->extents = last;
    x->room = room;
  }
  x->extents[x->num++] = next;
  return TRI_OK;
}

tri_status tri_part_extents_find(tri_part_loader *p, int part, tri_part_extents *out, bool *all, tri_error *err) {
  const tri_weights_config *c = &p->cfg;
  tri_load l = load_of(c, err);
  *out = (tri_part_extents){0};
  *all = false;
  if (!c->ckpt) return TRI_OK;
  l.found = add_extent;
  l.found_ctx = out;
  tri_status st = tri_weights_each(c->model, c->shard, &p->map, part, tri_load_tensor, &l);
  *all = st == TRI_OK && !l.found_others;
  if (*all) return TRI_OK;
  tri_part_extents_free(out);
  return st;
}

void tri_part_extents_free(tri_part_extents *x) {
  tri_free(x->extents);
  *x = (tri_part_extents){0};
}
