#include "pack_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/reader.h"
#include "runtime/base/mem.h"

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
  *k = (pack_kit){.path = path, .fail_at = -1, .stop_at = -1};
  snprintf(k->part, sizeof k->part, "%s.part", path);
  for (int i = 0; i < KIT_PARTS; i++) k->sizes[i] = i < 6 ? sizes[i] : (size_t)i * 777;
  k->layout = (tri_weight_pack_layout){.key = {{3, 4}}, .part_bytes = k->sizes, .num_parts = KIT_PARTS};
  k->maker = (tri_weight_pack_maker){.ctx = k, .fill = fill, .progress = progress, .stop = &k->stop};
  remove(k->path); /* also a folder that a test left */
  remove(k->part);
}

tri_status pack_kit_make(pack_kit *k, int *made, tri_error *err) {
  tri_weight_pack *p = NULL;
  *made = -1;
  k->fills = k->last_done = 0;
  k->bytes_done = k->bytes = 0;
  tri_status st = tri_weight_pack_make(k->path, &k->layout, &k->maker, &p, made, err);
  if (p) k->odd |= fcntl(p->fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK) || !(fcntl(p->fd, F_GETFD) & FD_CLOEXEC);
  tri_weight_pack_close(p);
  return st;
}

bool pack_kit_exists(const char *path) {
  struct stat s;
  return !lstat(path, &s);
}

static const char *part_fault(const pack_kit *k, const tri_weight_pack *p, int part, unsigned char *memory) {
  size_t bytes = k->sizes[part], padded = (bytes + TRI_READER_BLOCK - 1) / TRI_READER_BLOCK * TRI_READER_BLOCK;
  if (p->offsets[part] % TRI_WEIGHT_PACK_ALIGN) return "a part that is not aligned";
  if (pread(p->fd, memory, padded, (off_t)p->offsets[part]) != (ssize_t)padded) return "a part that is not there";
  for (size_t i = 0; i < padded; i++)
    if (memory[i] != (i < bytes ? pack_kit_byte(k, part, i) : 0)) return "a part of other bytes";
  if (tri_weight_pack_check(p, part, memory, bytes, NULL) != TRI_OK) return "a part of another checksum";
  memory[bytes / 2] ^= 1;
  return tri_weight_pack_check(p, part, memory, bytes, NULL) == TRI_CORRUPT ? NULL : "a checksum that covers nothing";
}

const char *pack_kit_fault(const pack_kit *k) {
  tri_weight_pack *p = NULL;
  struct stat s;
  const char *fault = NULL;
  if (tri_weight_pack_open(k->path, &k->layout, &p, NULL) != TRI_OK) return "no pack";
  unsigned char *memory = tri_malloc(TRI_WEIGHT_PACK_ALIGN + TRI_READER_BLOCK, 1);
  for (int i = 0; i < KIT_PARTS && !fault; i++) fault = part_fault(k, p, i, memory);
  if (fstat(p->fd, &s) || (s.st_mode & 07777) != 0600) fault = "not for its owner alone";
  if ((uint64_t)s.st_size != p->file_bytes || p->file_bytes != tri_weight_pack_file_bytes(&k->layout))
    fault = "another length";
  if (pack_kit_exists(k->part)) fault = "something left beside it";
  tri_free(memory);
  tri_weight_pack_close(p);
  return fault;
}
