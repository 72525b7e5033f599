/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/reader.h"
#include "base/mem.h"
#include "base/xxh3.h"

unsigned char pack_kit_byte(const pack_kit *k, int part, size_t i) {
  return (unsigned char)(k->layout.key.words[0] + (unsigned)part * 31 + i * 7 + i / 251);
}

static tri_status fill(void *ctx, int part, void *memory, tri_error *err) {
  pack_kit *k = ctx;
  unsigned char *to = memory;
  size_t bytes = k->sizes[part], padded = (bytes + TRI_READER_BLOCK - 1) / TRI_READER_BLOCK * TRI_READER_BLOCK;
  k->fills++;
  if ((uintptr_t)memory % 4096) k->odd = true;
  for (size_t i = 0; i < padded; i++) k->odd |= to[i] != 0;
  if (part == k->fail_at) return tri_fail(err, TRI_DEVICE_LOST, "fill", "part %d cannot be had", part);
  if (part == k->stop_at) atomic_store(&k->stop, true);
  for (size_t i = 0; i < bytes; i++) to[i] = pack_kit_byte(k, part, i);
  return TRI_OK;
}

static void progress(void *ctx, int parts_done, int num_parts, uint64_t bytes_done, uint64_t bytes) {
  pack_kit *k = ctx;
  k->odd |= parts_done <= k->last_done || num_parts != KIT_PARTS || bytes_done <= k->bytes_done || bytes_done > bytes;
  k->last_done = parts_done;
  k->bytes_done = bytes_done;
  k->bytes = bytes;
}

void pack_kit_init(pack_kit *k, const char *path, size_t largest) {
  const size_t sizes[] = {1, 4096, 4097, largest, 100, 4095};
  *k = (pack_kit){.paths = {.list = {path}, .count = 1}, .path = path, .fail_at = -1, .stop_at = -1};
  snprintf(k->part, sizeof k->part, "%s.part", path);
  for (int i = 0; i < KIT_PARTS; i++) k->sizes[i] = i < 6 ? sizes[i] : (size_t)i * 777;
  k->layout = (tri_weight_pack_layout){.key = {{3, 4}}, .part_bytes = k->sizes, .num_parts = KIT_PARTS};
  k->maker = (tri_weight_pack_maker){.ctx = k, .fill = fill, .progress = progress, .stop = &k->stop};
  remove(k->path); /* also a folder that a test left */
  remove(k->part);
}

void pack_kit_spread(pack_kit *k, const char *path) {
  char *part = k->others[k->paths.count];
  snprintf(part, sizeof k->others[0], "%s.part", path);
  k->paths.list[k->paths.count++] = path;
  remove(path);
  remove(part);
}

uint64_t pack_kit_file_bytes(const pack_kit *k, int file) {
  tri_stripes *s = NULL;
  if (tri_stripes_make(k->path, &k->layout, k->paths.count, &s, NULL) != TRI_OK) return 0;
  uint64_t bytes = tri_weight_pack_file_bytes(&s->files[file]);
  tri_stripes_free(s);
  return bytes;
}

tri_status pack_kit_make(pack_kit *k, int *made, tri_error *err) {
  tri_striped_pack *p = NULL;
  *made = -1;
  k->fills = k->last_done = 0;
  k->bytes_done = k->bytes = 0;
  tri_status st = tri_striped_pack_make(&k->paths, &k->layout, &k->maker, &p, made, err);
  for (int i = 0; p && i < k->paths.count; i++) {
    int fd = p->files[i]->fd;
    k->odd |= fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK) || !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  }
  tri_striped_pack_close(p);
  return st;
}

bool pack_kit_exists(const char *path) {
  struct stat s;
  return !lstat(path, &s);
}

static const char *stripe_fault(const pack_kit *k, const tri_striped_pack *p, int part, const tri_stripe *x,
                                unsigned char *memory) {
  const tri_weight_pack *f = p->files[x->file];
  size_t padded = (x->bytes + TRI_READER_BLOCK - 1) / TRI_READER_BLOCK * TRI_READER_BLOCK;
  uint64_t offset = f->offsets[x->number];
  if (offset % TRI_WEIGHT_PACK_ALIGN || x->at % TRI_READER_BLOCK) return "a stripe that is not aligned";
  if (pread(f->fd, memory, padded, (off_t)offset) != (ssize_t)padded) return "a stripe that is not there";
  for (size_t i = 0; i < padded; i++)
    if (memory[i] != (i < x->bytes ? pack_kit_byte(k, part, x->at + i) : 0)) return "a stripe of other bytes";
  return tri_xxh3(memory, x->bytes) == f->checksums[x->number] ? NULL : "a stripe of another checksum";
}

/* All of its bytes, once, from each file as much as from the others. */
static const char *part_fault(const pack_kit *k, const tri_striped_pack *p, int part, unsigned char *memory) {
  const tri_stripes *s = p->stripes;
  size_t end = 0, of_file[TRI_STRIPES_MAX_FILES] = {0}, first = 0;
  for (int i = s->first[part]; i < s->first[part + 1]; i++) {
    const char *fault = stripe_fault(k, p, part, &s->list[i], memory);
    if (fault) return fault;
    if (s->list[i].at != end) return "a hole in a part";
    if (s->list[i].file != (i - s->first[part]) % k->paths.count) return "a file that is not read in its turn";
    end += s->list[i].bytes;
    of_file[s->list[i].file] += s->list[i].bytes;
    first = i == s->first[part] ? s->list[i].bytes : first;
  }
  if (end != k->sizes[part]) return "a part that is cut off";
  for (int i = 0; i < k->paths.count; i++)
    if (of_file[0] > of_file[i] + (s->first[part + 1] - s->first[part]) * TRI_READER_BLOCK && first > TRI_READER_BLOCK)
      return "a file with more of a part than another";
  return NULL;
}

static const char *file_fault(const pack_kit *k, const tri_weight_pack *p, int file) {
  struct stat s;
  const char *part = file ? k->others[file] : k->part;
  if (fstat(p->fd, &s) || (s.st_mode & 07777) != 0600) return "not for its owner alone";
  if ((uint64_t)s.st_size != p->file_bytes || p->file_bytes != pack_kit_file_bytes(k, file)) return "another length";
  return pack_kit_exists(part) ? "something left beside it" : NULL;
}

const char *pack_kit_fault(const pack_kit *k) {
  tri_striped_pack *p = NULL;
  const char *fault = NULL;
  if (tri_striped_pack_open(&k->paths, &k->layout, &p, NULL) != TRI_OK) return "no pack";
  unsigned char *memory = tri_malloc(5 * TRI_WEIGHT_PACK_ALIGN, 1);
  for (int i = 0; i < KIT_PARTS && !fault; i++) fault = part_fault(k, p, i, memory);
  for (int i = 0; i < k->paths.count && !fault; i++) fault = file_fault(k, p->files[i], i);
  tri_free(memory);
  tri_striped_pack_close(p);
  return fault;
}
