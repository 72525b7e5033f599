#include "runtime/engine/offload.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/wait.h"
#include "runtime/load/part_loader.h"

struct tri_offload {
  const tri_tiers *tiers;
  tri_stream_part *parts;    /* [num_streamed] */
  tri_part_extents *extents; /* [num_streamed] */
  tri_stream_file *files;
  int num_files;
  tri_weight_pack *pack; /* NULL: from the checkpoint itself */
  tri_weight_stream *stream;
  char about[256];
  double bandwidth;
};

/* ---- from the checkpoint itself ---- */

static tri_status list_files(tri_offload *o, const tri_checkpoint *ckpt) {
  o->num_files = tri_checkpoint_num_files(ckpt);
  o->files = tri_calloc((size_t)o->num_files, sizeof *o->files);
  if (!o->files) return TRI_NO_MEMORY;
  for (int i = 0; i < o->num_files; i++)
    o->files[i] = (tri_stream_file){tri_checkpoint_fd(ckpt, i), tri_checkpoint_path(ckpt, i)};
  return TRI_OK;
}

/* *all false: some part is stored in another way than it lies in memory. */
static tri_status find_extents(tri_offload *o, tri_part_loader *loader, bool *all, tri_error *err) {
  *all = true;
  for (int i = 0; *all && i < o->tiers->num_streamed; i++) {
    tri_part_extents *x = &o->extents[i];
    TRI_CHECK(tri_part_extents_find(loader, o->tiers->parts[i], x, all, err));
    o->parts[i] = (tri_stream_part){.extents = x->extents, .num_extents = x->num};
  }
  return TRI_OK;
}

/* ---- from a pack ---- */

/* The pack of a rank has all parts, whatever of them is streamed: more memory at the next start needs no new one. */
struct packing {
  tri_part_loader *loader;
  tri_tiers *tiers; /* everything is streamed */
  int64_t told_ns;
  const char *path;
};

static uint64_t hash_word(uint64_t h, uint64_t word) { return tri_hash_bytes(h, &word, sizeof word); }

static uint64_t hash_file(uint64_t h, int fd) {
  struct stat s;
  if (fstat(fd, &s)) return h;
  h = hash_word(h, (uint64_t)s.st_size);
  return hash_word(hash_word(h, (uint64_t)s.st_mtim.tv_sec), (uint64_t)s.st_mtim.tv_nsec);
}

/* Hashes where each tensor lies, in files that have not changed since; or the seed of what is made up. */
static uint64_t hash_source(uint64_t h, const tri_weights_config *w) {
  if (!w->ckpt) return hash_word(h, w->seed);
  for (int i = 0; i < tri_checkpoint_num_files(w->ckpt); i++) h = hash_file(h, tri_checkpoint_fd(w->ckpt, i));
  for (size_t i = 0; i < tri_checkpoint_num_tensors(w->ckpt); i++) {
    const tri_st_tensor *t = tri_checkpoint_tensor(w->ckpt, i);
    h = tri_hash_bytes(h, t->name, strlen(t->name));
    h = hash_word(hash_word(h, (uint64_t)t->file << 8 | (uint64_t)t->dtype), t->offset);
    h = tri_hash_bytes(h, t->shape, (size_t)t->rank * sizeof *t->shape);
  }
  return h;
}

static uint64_t hash_range(uint64_t h, tri_range r) {
  return hash_word(h, (uint64_t)(uint32_t)r.first << 32 | (uint32_t)r.count);
}

/* The rank's share of the model, and the types and places of it. */
static uint64_t hash_share(uint64_t h, const tri_weights_config *w, const tri_weight_map *all) {
  const tri_shard *s = w->shard;
  const tri_range ranges[] = {s->layers, s->q_heads,   s->kv_heads,  s->ff,
                              s->slots,  s->expert_ff, s->shared_ff, s->vocab};
  h = tri_hash_bytes(h, w->model->arch->model_type, strlen(w->model->arch->model_type));
  h = hash_word(h, (uint64_t)w->quantization);
  h = hash_word(h, tri_expert_placement_hash(s->p.placement));
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) h = hash_range(h, ranges[i]);
  for (int i = 0; i < s->layers.count * TRI_W_COUNT; i++) {
    const tri_weight_place *p = &all->layers[i];
    h = hash_word(hash_word(h, p->offset), p->bytes);
    h = hash_word(hash_word(h, p->scale_offset), (uint64_t)p->dtype << 32 | (uint32_t)p->part);
  }
  return h;
}

static tri_weight_pack_key key_of(const tri_weights_config *w, const tri_weight_map *all) {
  uint64_t source = hash_source(TRI_HASH_SEED, w);
  return (tri_weight_pack_key){{hash_share(source, w, all), tri_mix64(hash_share(~source, w, all))}};
}

static tri_status fill_part(void *ctx, int number, void *memory, tri_error *err) {
  struct packing *p = ctx;
  return tri_part_loader_fill(p->loader, p->tiers->parts[number], memory, err);
}

static void tell_progress(void *ctx, int done, int parts, uint64_t bytes_done, uint64_t bytes) {
  enum { SECOND = 1000000000 };
  struct packing *p = ctx;
  int64_t now = tri_now_ns();
  if (done < parts && now - p->told_ns < SECOND) return;
  p->told_ns = now;
  tri_log(TRI_LOG_INFO, "engine", "packing weights into %s: %.1f of %.1f MiB (%.0f%%)", p->path,
          (double)bytes_done / 0x1p20, (double)bytes / 0x1p20, 100 * (double)bytes_done / (double)bytes);
}

/* Everything is streamed, as far as the pack is concerned. */
static tri_status make_loader(const tri_weights_config *weights, tri_weights_config *all, struct packing *p,
                              tri_weight_map *m, tri_error *err) {
  *all = *weights;
  all->tiers = NULL;
  TRI_CHECK(tri_weight_map_make(all->model, all->shard, all->ckpt, all->dtype, all->quantization, NULL, m, err));
  tri_tiers_config tc = {.part_bytes = m->part_bytes,
                         .num_parts = all->shard->layers.count * TRI_LAYER_PARTS,
                         .room = SIZE_MAX,
                         .max_resident = SIZE_MAX,
                         .ring_parts = 1};
  TRI_CHECK(tri_tiers_plan(&tc, &p->tiers, err));
  tri_weight_map_free(m);
  all->tiers = p->tiers;
  TRI_CHECK(tri_weight_map_make(all->model, all->shard, all->ckpt, all->dtype, all->quantization, p->tiers, m, err));
  return tri_part_loader_create(all, &p->loader, err);
}

/* Points the stream's parts into the pack. */
static tri_status use_pack(tri_offload *o, const tri_tiers *all, tri_error *err) {
  o->num_files = 1;
  o->files = tri_calloc(1, sizeof *o->files);
  if (!o->files) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
  o->files[0] = (tri_stream_file){o->pack->fd, o->pack->path};
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    tri_part_extents *x = &o->extents[i];
    int number = all->number[o->tiers->parts[i]];
    x->extents = tri_calloc(1, sizeof *x->extents);
    if (!x->extents) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
    x->num = 1;
    x->extents[0] = (tri_stream_extent){.offset = o->pack->offsets[number], .bytes = all->bytes[number]};
    o->parts[i] = (tri_stream_part){.extents = x->extents, .num_extents = 1};
  }
  return TRI_OK;
}

static tri_status open_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                            const atomic_bool *stop, tri_error *err) {
  char path[PATH_MAX];
  struct packing p = {.path = path};
  tri_weights_config all;
  tri_weight_map m = {0};
  tri_status st;
  int made = 0;
  if (!config->nvme_path)
    return tri_fail(err, TRI_NO_CAPACITY, "nvme_path",
                    "the weights do not lie in the checkpoint as they lie in this rank's memory (they are cut, "
                    "transposed, interleaved or quantized): --nvme-path DIR says where a pack of them may be made");
  TRI_TRY(make_loader(weights, &all, &p, &m, err));
  tri_weight_pack_layout layout = {
      .key = key_of(&all, &m), .part_bytes = p.tiers->bytes, .num_parts = p.tiers->num_streamed};
  snprintf(path, sizeof path, "%s/%s-%016llx.pack", config->nvme_path, weights->model->arch->model_type,
           (unsigned long long)layout.key.words[0]);
  tri_weight_pack_maker maker = {.ctx = &p, .fill = fill_part, .progress = tell_progress, .stop = stop};
  TRI_TRY(tri_weight_pack_make(path, &layout, &maker, &o->pack, &made, err));
  TRI_TRY(use_pack(o, p.tiers, err));
  snprintf(o->about, sizeof o->about, "the pack %.180s%s", path, made ? ", just made" : "");
cleanup:
  tri_part_loader_destroy(p.loader);
  tri_tiers_free(p.tiers);
  tri_weight_map_free(&m);
  return st;
}

/* ---- from nothing and back ---- */

static tri_status find_source(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                              const atomic_bool *stop, tri_error *err) {
  tri_part_loader *loader = NULL;
  bool all = false;
  tri_status st = TRI_OK;
  if (weights->ckpt && !config->always_pack) {
    TRI_TRY(tri_part_loader_create(weights, &loader, err));
    TRI_TRY(find_extents(o, loader, &all, err));
  }
  if (!all) {
    TRI_TRY(open_pack(o, config, weights, stop, err));
  } else {
    TRI_TRY(list_files(o, weights->ckpt));
    snprintf(o->about, sizeof o->about, "the checkpoint");
  }
cleanup:
  tri_part_loader_destroy(loader);
  return st;
}

static tri_status start(tri_offload *o, const tri_offload_config *config, char *ring, const atomic_bool *stop,
                        tri_error *err) {
  const tri_tiers *t = o->tiers;
  tri_weight_stream_config sc = {.files = o->files,
                                 .num_files = o->num_files,
                                 .parts = o->parts,
                                 .part_bytes = t->bytes,
                                 .places = t->places,
                                 .num_parts = t->num_streamed,
                                 .ring = ring,
                                 .reads = tri_offload_reads(),
                                 .stop = stop,
                                 .poison = config->poison};
  memset(ring, 0, t->ring_bytes); /* its pages must be there before its bandwidth is measured */
  TRI_CHECK(tri_weight_stream_create(&sc, &o->stream, err));
  tri_status st = tri_weight_stream_fill(o->stream, &o->bandwidth);
  const char *why = tri_weight_stream_failure(o->stream);
  if (st != TRI_OK) tri_fail(err, st, "offload_weights", "%s", why[0] ? why : tri_status_text(st));
  return st;
}

tri_status tri_offload_create(const tri_offload_config *config, const tri_weights_config *weights, char *ring,
                              const atomic_bool *stop, tri_offload **out, tri_error *err) {
  tri_status st;
  tri_offload *o = tri_calloc(1, sizeof *o);
  if (!o) return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
  size_t n = (size_t)weights->tiers->num_streamed;
  o->tiers = weights->tiers;
  o->parts = tri_calloc(n, sizeof *o->parts);
  o->extents = tri_calloc(n, sizeof *o->extents);
  if (!o->parts || !o->extents) {
    st = tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
    goto cleanup;
  }
  TRI_TRY(find_source(o, config, weights, stop, err));
  TRI_TRY(start(o, config, ring, stop, err));
  *out = o;
  return TRI_OK;
cleanup:
  tri_offload_destroy(o);
  return st == TRI_OK || (err && err->status) ? st : tri_fail(err, st, "offload_weights", "%s", tri_status_text(st));
}

bool tri_offload_destroy(tri_offload *o) {
  if (!o) return true;
  bool ended = tri_weight_stream_destroy(o->stream);
  for (int i = 0; o->extents && i < o->tiers->num_streamed; i++) tri_part_extents_free(&o->extents[i]);
  tri_free(o->extents);
  tri_free(o->parts);
  tri_free(o->files);
  tri_weight_pack_close(o->pack);
  tri_free(o);
  return ended;
}

tri_weight_stream *tri_offload_stream(const tri_offload *o) { return o->stream; }
double tri_offload_bandwidth(const tri_offload *o) { return o->bandwidth; }
double tri_offload_layer_seconds(const tri_offload *o) {
  const tri_tiers *t = o->tiers;
  size_t most = 0;
  for (int i = 0; i < t->num_streamed; i++) {
    bool second = i && t->parts[i] / TRI_LAYER_PARTS == t->parts[i - 1] / TRI_LAYER_PARTS;
    size_t bytes = t->bytes[i] + (second ? t->bytes[i - 1] : 0);
    if (bytes > most) most = bytes;
  }
  return (double)most / o->bandwidth;
}

const char *tri_offload_about(const tri_offload *o) { return o->about; }
