/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights out of a pack. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/wait.h"
#include "base/xxh3.h"
#include "runtime/engine/offload_folders.h"
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
  tri_pack_paths paths;
  char *names[TRI_STRIPES_MAX_FILES]; /* what the paths are */
  char path[PATH_MAX];                /* the first one */
};

/* A pack's name has a hash of everything that decides its bytes: the checkpoint's files by size and time, where
 * tensors lie in them, the rank's share, and where weights lie in memory. So a pack that is found is the right one,
 * without reading the checkpoint. */
static uint64_t hash_word(uint64_t h, uint64_t word) { return tri_hash_bytes(h, &word, sizeof word); }

static uint64_t hash_file(uint64_t h, int fd) {
  struct stat s;
  if (fstat(fd, &s)) return h;
  h = hash_word(h, (uint64_t)s.st_size);
  return hash_word(hash_word(h, (uint64_t)s.st_mtim.tv_sec), (uint64_t)s.st_mtim.tv_nsec);
}

uint64_t tri_offload_hash_source(uint64_t h, const tri_weights_config *w) {
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

/* The meaning of a quantized checkpoint's bytes. */
static uint64_t hash_stored(uint64_t h, const tri_stored *s) {
  if (s->method == TRI_STORED_PLAIN) return h;
  h = hash_word(hash_word(h, (uint64_t)s->method), (uint64_t)s->zeros_less_one);
  for (int i = 0; i < s->num_schemes; i++) {
    const tri_stored_scheme *x = &s->schemes[i];
    h = hash_word(hash_word(h, (uint64_t)x->bits << 1 | x->is_float), (uint64_t)x->rows);
    h = hash_word(h, (uint64_t)x->cols);
  }
  return h;
}

/* The rank's share of the model, and the types and places of it. */
static uint64_t hash_share(uint64_t h, const tri_weights_config *w, const tri_weight_map *all) {
  const tri_shard *s = w->shard;
  const tri_range ranges[] = {s->layers,          s->q_heads,      s->kv_heads, s->global_q_heads,
                              s->global_kv_heads, s->ff,           s->slots,    s->expert_ff,
                              s->shared_ff,       s->shared_kv_ff, s->vocab};
  h = tri_hash_bytes(h, w->model->arch->model_type, strlen(w->model->arch->model_type));
  h = hash_word(h, (uint64_t)w->quantization);
  h = hash_stored(h, &w->model->stored);
  h = hash_word(h, tri_expert_placement_hash(s->p.placement));
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) h = hash_range(h, ranges[i]);
  for (int i = 0; i < s->layers.count * TRI_W_COUNT; i++) {
    const tri_weight_place *p = &all->layers[i];
    h = hash_word(hash_word(h, p->offset), p->bytes);
    h = hash_word(hash_word(h, p->scale_offset), (uint64_t)p->dtype << 32 | (uint32_t)p->part);
    h = hash_word(hash_word(h, (uint64_t)p->groups.rows << 32 | (uint32_t)p->groups.cols), p->scale_bytes);
    h = hash_word(h, (uint64_t)p->groups.skip_col);
  }
  return h;
}

static tri_weight_pack_key key_of(const tri_weights_config *w, const tri_weight_map *all) {
  uint64_t source = tri_offload_hash_source(TRI_HASH_SEED, w);
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

/* Reads a stripe once more, and compares it with its checksum. */
static tri_status check_extent(tri_offload *o, const tri_stream_extent *x, char *memory, tri_error *err) {
  const tri_stream_file *f = &o->files[x->file];
  if (!read_all(f->fd, x->offset, memory, x->bytes))
    return tri_fail(err, TRI_IO, f->path, "cannot read %zu bytes at %llu of %s", x->bytes,
                    (unsigned long long)x->offset, f->path);
  if (tri_xxh3(memory, x->bytes) == x->checksum) return TRI_OK;
  o->damaged = x->file;
  return tri_fail(err, TRI_IO, f->path, "%s is damaged: the %zu bytes at %llu are not those that were written", f->path,
                  x->bytes, (unsigned long long)x->offset); /* another start can be better */
}

/* Looks at what a device gets: that is never in one piece in the host's memory. */
static tri_status check_parts(tri_offload *o, tri_error *err) {
  tri_status st = TRI_OK;
  for (int i = 0; st == TRI_OK && i < o->tiers->num_streamed; i++) {
    const tri_stream_part *p = &o->parts[i];
    if (!tri_offload_is_read(o, i)) continue;
    char *memory = p->num_extents ? tri_malloc(p->extents[0].bytes, 1) : NULL; /* the first one is as long as any */
    if (p->num_extents && !memory)
      return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to check %zu bytes of a pack", p->extents[0].bytes);
    for (int k = 0; st == TRI_OK && k < p->num_extents; k++) st = check_extent(o, &p->extents[k], memory, err);
    tri_free(memory);
  }
  return st;
}

/* Points a streamed part to its stripes in the pack. */
static tri_status point_part(tri_offload *o, int part, int number, tri_error *err) {
  const tri_stripes *s = o->pack->stripes;
  tri_part_extents *x = &o->extents[part];
  x->num = s->first[number + 1] - s->first[number];
  x->extents = tri_calloc((size_t)x->num, sizeof *x->extents);
  if (!x->extents) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
  for (int i = 0; i < x->num; i++) {
    const tri_stripe *at = &s->list[s->first[number] + i];
    const tri_weight_pack *file = o->pack->files[at->file];
    x->extents[i] = (tri_stream_extent){.file = at->file,
                                        .offset = file->offsets[at->number],
                                        .bytes = at->bytes,
                                        .at = at->at,
                                        .checksum = file->checksums[at->number]};
  }
  o->parts[part] = (tri_stream_part){.extents = x->extents, .num_extents = x->num};
  return TRI_OK;
}

/* Points the stream's parts into the pack. */
static tri_status use_pack(tri_offload *o, const tri_tiers *all, tri_error *err) {
  o->num_files = o->pack->stripes->num_files;
  o->files = tri_calloc((size_t)o->num_files, sizeof *o->files);
  if (!o->files) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to stream weights");
  for (int i = 0; i < o->num_files; i++)
    o->files[i] = (tri_stream_file){o->pack->files[i]->fd, o->pack->files[i]->path};
  for (int i = 0; i < o->tiers->num_streamed; i++)
    if (tri_offload_is_read(o, i)) TRI_CHECK(point_part(o, i, all->number[o->tiers->parts[i]], err));
  return o->backend ? check_parts(o, err) : TRI_OK;
}

/* A file in each folder, whose name tells those of one key apart: a folder can be the first of some packs' and the
 * second of others'. */
static tri_status name_files(struct packing *p, const char *list, const char *model, const tri_weight_pack_key *key,
                             tri_error *err) {
  tri_offload_folders folders;
  TRI_CHECK(tri_offload_folders_make(list, &folders, err));
  tri_status st = TRI_OK;
  for (int i = 0; i < folders.count && st == TRI_OK; i++) {
    char path[PATH_MAX], which[32] = "";
    if (folders.count > 1) snprintf(which, sizeof which, "-%d-of-%d", i + 1, folders.count);
    int n = snprintf(path, sizeof path, "%s/%s-%016llx%s.pack", folders.list[i], model,
                     (unsigned long long)key->words[0], which);
    p->names[i] = n < PATH_MAX ? tri_strdup(path) : NULL;
    if (!p->names[i]) st = tri_fail(err, TRI_TOO_LARGE, "nvme_path", "%s: the path is too long", folders.list[i]);
    p->paths.list[i] = p->names[i];
  }
  p->paths.count = folders.count;
  if (st == TRI_OK) snprintf(p->path, sizeof p->path, "%s", p->names[0]);
  tri_offload_folders_free(&folders);
  return st;
}

/* Finds out what the rank's pack is and where. The layout's sizes are p's. */
static tri_status find_layout(const char *folders, const tri_weights_config *weights, struct packing *p,
                              tri_weight_pack_layout *out, tri_error *err) {
  tri_weights_config all;
  tri_weight_map m = {0};
  tri_status st;
  TRI_TRY(make_loader(weights, &all, p, &m, err));
  *out = (tri_weight_pack_layout){
      .key = key_of(&all, &m), .part_bytes = p->tiers->bytes, .num_parts = p->tiers->num_streamed};
  TRI_TRY(name_files(p, folders, weights->model->arch->model_type, &out->key, err));
cleanup:
  tri_weight_map_free(&m);
  return st;
}

/* Opens the rank's pack, which is made where there is none; p is to be ended in either case. */
static tri_status open_pack(const char *folders, const tri_weights_config *weights, struct packing *p,
                            const atomic_bool *stop, tri_striped_pack **out, tri_error *err) {
  tri_weight_pack_layout layout;
  TRI_CHECK(find_layout(folders, weights, p, &layout, err));
  tri_weight_pack_maker maker = {
      .ctx = p, .fill = fill_part, .progress = tell_progress, .other_wrote = show_life, .stop = stop};
  tri_status st = tri_striped_pack_make(&p->paths, &layout, &maker, out, &p->made, err);
  tri_part_loader_destroy(p->loader);
  p->loader = NULL;
  return st;
}

static void end_packing(struct packing *p) {
  for (int i = 0; i < TRI_STRIPES_MAX_FILES; i++) tri_free(p->names[i]);
  tri_part_loader_destroy(p->loader);
  tri_tiers_free(p->tiers);
  if (p->own) tri_backend_destroy(p->own);
}

tri_status tri_offload_use_pack(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                const atomic_bool *stop, tri_error *err) {
  struct packing p = {.backend = weights->backend, .tell = log_progress};
  tri_status st;
  TRI_CHECK(tri_offload_check_pack(config, !weights->ckpt, err));
  TRI_TRY(open_pack(config->nvme_path, weights, &p, stop, &o->pack, err));
  TRI_TRY(use_pack(o, p.tiers, err));
  size_t at = strlen(o->about);
  snprintf(o->about + at, sizeof o->about - at, "the pack %.180s%s", p.path, p.made ? " (just made)" : "");
  at = strlen(o->about);
  if (o->num_files > 1) snprintf(o->about + at, sizeof o->about - at, ", in %d folders", o->num_files);
cleanup:
  end_packing(&p);
  return st;
}

tri_status tri_offload_make_pack(const char *folders, const tri_weights_config *weights, tri_pack_progress tell,
                                 const atomic_bool *stop, char path[static PATH_MAX], bool *made, tri_error *err) {
  struct packing p = {.backend = weights->backend, .tell = tell};
  tri_striped_pack *pack = NULL;
  tri_status st = open_pack(folders, weights, &p, stop, &pack, err);
  snprintf(path, PATH_MAX, "%s", p.path);
  *made = p.made > 0;
  tri_striped_pack_close(pack);
  end_packing(&p);
  return st;
}

tri_status tri_offload_check_room(const char *folders, const tri_weights_config *weights, tri_pack_rooms *rooms,
                                  tri_error *err) {
  struct packing p = {.backend = weights->backend};
  tri_weight_pack_layout layout;
  tri_status st = find_layout(folders, weights, &p, &layout, err);
  if (st == TRI_OK) st = tri_striped_pack_check(&p.paths, &layout, rooms, err);
  end_packing(&p);
  return st;
}
