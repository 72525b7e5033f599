/* Streamed weights out of a pack. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/wait.h"
#include "runtime/engine/offload_impl.h"

/* The pack of a rank has all parts, whatever of them is streamed: more memory at the next start needs no new one. */
struct packing {
  tri_part_loader *loader;
  tri_tiers *tiers;     /* everything is streamed */
  tri_backend *backend; /* the rank's */
  tri_backend *own;     /* of a device: one of the host, which fills the parts */
  tri_pack_progress tell;
  int64_t told_ns;
  int made;
  char path[PATH_MAX];
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

static void log_progress(const char *path, uint64_t done, uint64_t all) {
  tri_log(TRI_LOG_INFO, "engine", "packing weights into %s: %.1f of %.1f MiB (%.0f%%)", path, (double)done / 0x1p20,
          (double)all / 0x1p20, 100 * (double)done / (double)all);
}

/* For who watches the start. */
static void show_life(void *ctx) {
  struct packing *p = ctx;
  __atomic_fetch_add(&p->backend->loaded, 1, __ATOMIC_RELAXED);
}

/* Once a second, and at the end. */
static void tell_progress(void *ctx, int done, int parts, uint64_t bytes_done, uint64_t bytes) {
  enum { SECOND = 1000000000 };
  struct packing *p = ctx;
  int64_t now = tri_now_ns();
  show_life(p);
  if (done < parts && now - p->told_ns < SECOND) return;
  p->told_ns = now;
  p->tell(p->path, bytes_done, bytes);
}

/* Everything is streamed, as far as the pack is concerned. */
static tri_status make_loader(const tri_weights_config *weights, tri_weights_config *all, struct packing *p,
                              tri_weight_map *m, tri_error *err) {
  tri_backend_config bc = {.name = "cpu", .pool = weights->backend->pool};
  *all = *weights;
  all->tiers = NULL;
  if (!weights->backend->host_memory) TRI_CHECK(tri_backend_create(&bc, &p->own, err));
  if (p->own) all->backend = p->own;
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

static bool read_all(int fd, uint64_t offset, char *to, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t n = pread(fd, to + at, bytes - at, (off_t)(offset + at));
    if (n <= 0) return false;
    at += (size_t)n;
  }
  return true;
}

/* Reads once more what a device gets: that is never in one piece in the host's memory. */
static tri_status check_parts(tri_offload *o, const tri_tiers *all, tri_error *err) {
  tri_status st = TRI_OK;
  for (int i = 0; st == TRI_OK && i < o->tiers->num_streamed; i++) {
    int number = all->number[o->tiers->parts[i]];
    size_t bytes = all->bytes[number];
    if (!tri_offload_is_read(o, i)) continue;
    char *memory = tri_malloc(bytes, 1);
    if (!memory) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to check %zu bytes of a pack", bytes);
    if (!read_all(o->pack->fd, o->pack->offsets[number], memory, bytes))
      st = tri_fail(err, TRI_IO, o->pack->path, "cannot read part %d of %s", number, o->pack->path);
    else
      st = tri_weight_pack_check(o->pack, number, memory, bytes, err);
    tri_free(memory);
  }
  o->damaged = st == TRI_CORRUPT;
  return o->damaged ? TRI_IO : st; /* another start can be better */
}

/* Points the stream's parts into the pack. */
static tri_status use_pack(tri_offload *o, const tri_tiers *all, tri_error *err) {
  o->num_files = 1;
  o->files = tri_calloc(1, sizeof *o->files);
  if (!o->files) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
  o->checksums = tri_calloc((size_t)o->tiers->num_streamed, sizeof *o->checksums);
  if (!o->checksums) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
  o->files[0] = (tri_stream_file){o->pack->fd, o->pack->path};
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (!tri_offload_is_read(o, i)) continue;
    tri_part_extents *x = &o->extents[i];
    int number = all->number[o->tiers->parts[i]];
    x->extents = tri_calloc(1, sizeof *x->extents);
    if (!x->extents) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
    x->num = 1;
    x->extents[0] = (tri_stream_extent){.offset = o->pack->offsets[number], .bytes = all->bytes[number]};
    o->parts[i] = (tri_stream_part){.extents = x->extents, .num_extents = 1};
    o->checksums[i] = o->pack->checksums[number];
  }
  return o->backend ? check_parts(o, all, err) : TRI_OK;
}

/* Opens the rank's pack, which is made where there is none; p is to be ended in either case. */
static tri_status open_pack(const char *folder, const tri_weights_config *weights, struct packing *p,
                            const atomic_bool *stop, tri_weight_pack **out, tri_error *err) {
  tri_weights_config all;
  tri_weight_map m = {0};
  tri_status st;
  TRI_TRY(make_loader(weights, &all, p, &m, err));
  tri_weight_pack_layout layout = {
      .key = key_of(&all, &m), .part_bytes = p->tiers->bytes, .num_parts = p->tiers->num_streamed};
  snprintf(p->path, sizeof p->path, "%s/%s-%016llx.pack", folder, weights->model->arch->model_type,
           (unsigned long long)layout.key.words[0]);
  tri_weight_pack_maker maker = {
      .ctx = p, .fill = fill_part, .progress = tell_progress, .other_wrote = show_life, .stop = stop};
  TRI_TRY(tri_weight_pack_make(p->path, &layout, &maker, out, &p->made, err));
cleanup:
  tri_part_loader_destroy(p->loader);
  p->loader = NULL;
  tri_weight_map_free(&m);
  return st;
}

static void end_packing(struct packing *p) {
  tri_tiers_free(p->tiers);
  if (p->own) tri_backend_destroy(p->own);
}

tri_status tri_offload_use_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                const atomic_bool *stop, tri_error *err) {
  struct packing p = {.backend = weights->backend, .tell = log_progress};
  tri_status st;
  TRI_CHECK(tri_offload_check_pack(config, err));
  TRI_TRY(open_pack(config->nvme_path, weights, &p, stop, &o->pack, err));
  TRI_TRY(use_pack(o, p.tiers, err));
  size_t at = strlen(o->about);
  snprintf(o->about + at, sizeof o->about - at, "the pack %.180s%s", p.path, p.made ? ", just made" : "");
cleanup:
  end_packing(&p);
  return st;
}

tri_status tri_offload_make_pack(const char *folder, const tri_weights_config *weights, tri_pack_progress tell,
                                 const atomic_bool *stop, char path[static PATH_MAX], bool *made, tri_error *err) {
  struct packing p = {.backend = weights->backend, .tell = tell};
  tri_weight_pack *pack = NULL;
  tri_status st = open_pack(folder, weights, &p, stop, &pack, err);
  snprintf(path, PATH_MAX, "%s", p.path);
  *made = p.made > 0;
  tri_weight_pack_close(pack);
  end_packing(&p);
  return st;
}
