/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/weights_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/xxh3.h"
#include "runtime/model/safetensors.h"

enum { HEADER_PIECE = 1 << 16 };

/* Files are hashed each on its own and their hashes added, so that the sum does not depend on their order. */
typedef struct file_hash {
  int fd;
  const char *path;
  uint64_t hash;
  uint8_t bytes[HEADER_PIECE];
} file_hash;

/* Adds bytes of the file, as many of them as are left from there on. The state is mixed between two reads: the same
 * blocks in another order have another hash. */
static tri_status add(file_hash *f, uint64_t at, size_t n, tri_error *err) {
  ssize_t got = pread(f->fd, f->bytes, n, (off_t)at);
  if (got < 0) return tri_fail(err, TRI_IO, "model", "cannot read %.200s: %s", f->path, strerror(errno));
  f->hash = tri_mix64(f->hash + TRI_SPLITMIX_STEP) ^ tri_xxh3(f->bytes, (size_t)got);
  return TRI_OK;
}

static tri_status add_header(file_hash *f, uint64_t end, tri_error *err) {
  for (uint64_t at = 0; at < end; at += HEADER_PIECE)
    TRI_CHECK(add(f, at, end - at < HEADER_PIECE ? (size_t)(end - at) : HEADER_PIECE, err));
  return TRI_OK;
}

/* The stride is the same in all files, so that each has blocks in proportion to its size. The last block of a file is
 * always one of them: a file that was allocated whole and filled in part differs there. */
static tri_status add_file(const tri_checkpoint *c, int number, uint64_t stride, uint64_t *sum, tri_error *err) {
  file_hash f = {.fd = tri_checkpoint_fd(c, number), .path = tri_checkpoint_path(c, number)};
  struct stat sb;
  uint64_t begin = tri_checkpoint_data_start(c, number);
  if (fstat(f.fd, &sb)) return tri_fail(err, TRI_IO, "model", "cannot read %.200s: %s", f.path, strerror(errno));
  uint64_t size = (uint64_t)sb.st_size;
  posix_fadvise(f.fd, 0, 0, POSIX_FADV_RANDOM); /* the blocks are far apart */
  f.hash = size;
  if (begin > size) return tri_fail(err, TRI_CORRUPT, "model", "%.200s has changed while it was read", f.path);
  TRI_CHECK(add_header(&f, begin, err));
  for (uint64_t at = begin; at < size; at += stride) TRI_CHECK(add(&f, at, TRI_WEIGHTS_HASH_BLOCK, err));
  if (size - begin > TRI_WEIGHTS_HASH_BLOCK)
    TRI_CHECK(add(&f, size - TRI_WEIGHTS_HASH_BLOCK, TRI_WEIGHTS_HASH_BLOCK, err));
  *sum += tri_mix64(f.hash); /* in whatever order the index names the files */
  return TRI_OK;
}

tri_status tri_weights_hash(const char *dir, uint64_t *out, tri_error *err) {
  tri_checkpoint *c = NULL;
  uint64_t bytes = 0, sum = 0;
  tri_status st;
  TRI_TRY(tri_checkpoint_open(dir, &c, err));
  for (size_t i = 0; i < tri_checkpoint_num_tensors(c); i++) bytes += tri_checkpoint_tensor(c, i)->bytes;
  uint64_t stride = bytes / TRI_WEIGHTS_HASH_BLOCKS;
  if (stride < TRI_WEIGHTS_HASH_BLOCK) stride = TRI_WEIGHTS_HASH_BLOCK;
  for (int i = 0; i < tri_checkpoint_num_files(c); i++) TRI_TRY(add_file(c, i, stride, &sum, err));
  *out = sum ? sum : 1;
cleanup:
  tri_checkpoint_close(c);
  return st;
}
