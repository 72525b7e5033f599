/* SPDX-License-Identifier: Apache-2.0 */
/* A reader's slot is free, or its range is under way, or it is the caller's until the release:
 *
 *   free --start--> under way --next--> the caller's --release--> free
 *
 * A range is one read at a time: a short one is followed by one for the rest, as long as bytes come. A direct read that
 * the file system refuses makes the file's later reads go through the page cache, without an error. */
#include "offload/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

/* RETRIES: of one range without a byte in between. */
enum { BLOCK = TRI_READER_BLOCK, PIECE_BYTES = 4 << 20, NUM_BUFFERS = 32, TIMEOUT_MS = 60000, RETRIES = 1000 };

struct file {
  int fd, own; /* the caller's; ours with O_DIRECT, or -1 */
  bool direct; /* ours serves */
  const char *path;
};

struct slot {
  char *buffer, *to; /* the reader's; where the range goes */
  int file;
  bool taken, direct;
  uint64_t begin;          /* in the file, of the buffer's first byte */
  size_t skip, want, done; /* bytes: before the range, up to its end, read so far */
  int retries;
};

struct tri_reader {
  tri_reader_config config;
  tri_aio *aio;
  char *memory;
  bool owns_memory, stuck; /* stuck: the queue has failed, or a disk has said nothing for too long */
  struct slot *slots;
  struct file *files;
  int num_files, under_way;
  uint64_t bytes;
};

tri_reader_config tri_reader_config_default(void) {
  return (tri_reader_config){.piece_bytes = PIECE_BYTES, .num_buffers = NUM_BUFFERS};
}

/* A range may begin one byte before a block's end. */
static size_t buffer_bytes(const tri_reader_config *c) { return c->piece_bytes + BLOCK; }

size_t tri_reader_memory_bytes(const tri_reader_config *c) {
  size_t bytes;
  if (!c->piece_bytes || c->piece_bytes % BLOCK || c->piece_bytes > INT32_MAX / 2 || c->num_buffers < 1 ||
      c->num_buffers > TRI_AIO_MAX_DEPTH)
    return 0;
  return tri_size_mul(buffer_bytes(c), (size_t)c->num_buffers, &bytes) ? bytes : 0;
}

tri_status tri_reader_create(const tri_reader_config *config, tri_reader **out, tri_error *err) {
  tri_status st = TRI_OK;
  size_t bytes = tri_reader_memory_bytes(config);
  tri_reader *r = tri_calloc(1, sizeof *r);
  if (!r) {
    if (config->aio) config->aio->ops->destroy(config->aio);
    return tri_fail(err, TRI_NO_MEMORY, "io", "no memory for a reader");
  }
  r->config = *config;
  r->aio = config->aio;
  if (!r->config.timeout_ms) r->config.timeout_ms = TIMEOUT_MS;
  if (!bytes)
    TRI_TRY(tri_fail(err, TRI_OUT_OF_RANGE, "io", "%d buffers of %zu bytes: not what a reader can have",
                     config->num_buffers, config->piece_bytes));
  r->slots = tri_calloc((size_t)config->num_buffers, sizeof *r->slots);
  r->memory = config->memory;
  if (r->slots && !r->memory && tri_pages_alloc(bytes, (void **)&r->memory) == TRI_OK) r->owns_memory = true;
  if (!r->slots || !r->memory)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "io", "no memory for %zu bytes of buffers to read into", bytes));
  for (int i = 0; i < config->num_buffers; i++) r->slots[i].buffer = r->memory + (size_t)i * buffer_bytes(config);
  if (!r->aio) TRI_TRY(tri_aio_create(config->kind, config->num_buffers, &r->aio, err));
  *out = r;
  return TRI_OK;
cleanup:
  tri_reader_destroy(r);
  return st;
}

/* Waits for the reads under way, which write to the buffers: those must not go before. A reader that has waited in vain
 * once does not wait again. */
static void drain(tri_reader *r) {
  int tag, timeout_ms = r->stuck ? 0 : r->config.timeout_ms;
  int64_t result;
  while (r->under_way && !r->aio->ops->wait(r->aio, timeout_ms, &tag, &result)) r->under_way--;
}

bool tri_reader_destroy(tri_reader *r) {
  if (!r) return true;
  if (r->aio) drain(r);
  bool ended = !r->under_way;
  /* A read that a disk has taken and does not answer cannot be cancelled, and to wait for it is to wait for the disk:
   * without end, as a thread in pread would be. So its queue, its descriptors and the buffers are left where they are.
   * The process has failed to load and is about to end. */
  if (!ended)
    tri_log(TRI_LOG_WARN, "io", "%d reads do not end: their buffers, up to %.1f MiB, are never freed", r->under_way,
            (double)tri_reader_memory_bytes(&r->config) / 0x1p20);
  if (ended && r->aio) r->aio->ops->destroy(r->aio);
  for (int i = 0; ended && i < r->num_files; i++)
    if (r->files[i].own >= 0) close(r->files[i].own);
  if (ended && r->owns_memory) tri_pages_free(r->memory, tri_reader_memory_bytes(&r->config));
  tri_free(r->files);
  tri_free(r->slots);
  tri_free(r);
  return ended;
}

tri_status tri_reader_add_file(tri_reader *r, int fd, const char *path, int *file, tri_error *err) {
  struct file *files = tri_grow(r->files, (size_t)r->num_files, (size_t)r->num_files + 1, sizeof *files);
  if (!files) return tri_fail(err, TRI_NO_MEMORY, path, "no memory to read %s", path);
  r->files = files;
  /* Opens the same file again, whatever has its name by now. If that fails, the caller's descriptor serves. */
  char same[64];
  snprintf(same, sizeof same, "/proc/self/fd/%d", fd);
  int own = r->config.buffered ? -1 : open(same, O_RDONLY | O_CLOEXEC | O_DIRECT);
  files[r->num_files] = (struct file){fd, own, own >= 0, path};
  *file = r->num_files++;
  return TRI_OK;
}

static tri_status fail(tri_reader *r, const struct slot *s, const char *why, tri_error *err) {
  const char *path = r->files[s->file].path;
  return tri_fail(err, TRI_IO, path, "cannot read bytes %llu to %llu of %s: %s",
                  (unsigned long long)(s->begin + s->skip), (unsigned long long)(s->begin + s->want), path, why);
}

/* Asks for what a range still lacks. */
static tri_status submit(tri_reader *r, int slot, tri_error *err) {
  struct slot *s = &r->slots[slot];
  const struct file *f = &r->files[s->file];
  if (!f->direct || s->done % BLOCK) s->direct = false; /* the rest of a block comes through the page cache */
  size_t rest = s->want - s->done;
  tri_aio_read read = {.fd = s->direct ? f->own : f->fd,
                       .direct = s->direct,
                       .to = s->to + s->done,
                       .bytes = s->direct ? (rest + BLOCK - 1) / BLOCK * BLOCK : rest,
                       .offset = s->begin + s->done,
                       .tag = slot};
  int code = r->aio->ops->submit(r->aio, &read);
  if (code) return fail(r, s, strerror(-code), err);
  r->under_way++;
  return TRI_OK;
}

/* to NULL: into the slot's buffer. A range is widened to whole blocks: `skip` bytes before it are read along, and where
 * the read is direct what is left of its last block. */
static tri_status start(tri_reader *r, int file, uint64_t offset, size_t bytes, void *to, int *slot, tri_error *err) {
  int n = r->config.num_buffers, i = 0;
  if (!bytes || bytes > r->config.piece_bytes || offset > INT64_MAX - bytes - BLOCK || file < 0 || file >= r->num_files)
    return tri_fail(err, TRI_OUT_OF_RANGE, "io", "%zu bytes at %llu are no range that can be read", bytes,
                    (unsigned long long)offset);
  while (i < n && r->slots[i].taken) i++; /* the first: who reads little touches little memory */
  if (i == n) return TRI_AGAIN;
  *slot = i;
  struct slot *s = &r->slots[*slot];
  size_t skip = offset % BLOCK;
  *s = (struct slot){.buffer = s->buffer,
                     .to = to ? to : s->buffer,
                     .file = file,
                     .taken = true,
                     .direct = true,
                     .begin = offset - skip,
                     .skip = skip,
                     .want = skip + bytes};
  r->bytes += bytes;
  return submit(r, *slot, err);
}

tri_status tri_reader_start(tri_reader *r, int file, uint64_t offset, size_t bytes, int *slot, tri_error *err) {
  return start(r, file, offset, bytes, NULL, slot, err);
}

tri_status tri_reader_start_at(tri_reader *r, int file, uint64_t offset, size_t bytes, void *to, int *slot,
                               tri_error *err) {
  if (!to || (offset | bytes | (uintptr_t)to) % BLOCK)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "io", "%zu bytes at %llu are not whole blocks", bytes,
                    (unsigned long long)offset);
  return start(r, file, offset, bytes, to, slot, err);
}

/* The file system has no direct reads after all, or none like these, or none into this memory. The descriptor stays:
 * others may be under way. */
static void leave_direct(tri_reader *r, struct slot *s) {
  struct file *f = &r->files[s->file];
  s->direct = false;
  if (f->direct) tri_log(TRI_LOG_DEBUG, "io", "%s is read through the page cache", f->path);
  f->direct = false;
}

/* Takes a read's result in. TRI_OK: the range is complete; TRI_AGAIN: its rest is under way. */
static tri_status absorb(tri_reader *r, int slot, int64_t result, tri_error *err) {
  struct slot *s = &r->slots[slot];
  if (result > 0) {
    s->retries = 0;
    s->done += (size_t)result; /* a direct read may bring more than was wanted */
    if (s->done >= s->want) return TRI_OK;
  } else if (!result) {
    return fail(r, s, "the file became shorter", err);
  } else if (result == -EINTR || result == -EAGAIN) {
    if (++s->retries > RETRIES) return fail(r, s, strerror((int)-result), err);
    sched_yield();
  } else if (s->direct && (result == -EINVAL || result == -EOPNOTSUPP || result == -EFAULT)) {
    leave_direct(r, s);
  } else {
    return fail(r, s, strerror((int)-result), err);
  }
  tri_status st = submit(r, slot, err);
  return st == TRI_OK ? TRI_AGAIN : st;
}

tri_status tri_reader_next(tri_reader *r, int *slot, void **data, tri_error *err) {
  tri_status st = TRI_AGAIN;
  while (r->under_way && st == TRI_AGAIN) {
    int64_t result;
    int code = r->aio->ops->wait(r->aio, r->config.timeout_ms, slot, &result);
    r->stuck = code != 0;
    if (code)
      return tri_fail(err, code == -ETIME ? TRI_TIMEOUT : TRI_IO, "io", "%d reads are under way and do not end: %s",
                      r->under_way, strerror(-code));
    r->under_way--;
    st = absorb(r, *slot, result, err);
  }
  if (st == TRI_OK) *data = r->slots[*slot].to + r->slots[*slot].skip;
  return st;
}

void tri_reader_release(tri_reader *r, int slot) { r->slots[slot].taken = false; }

const char *tri_reader_name(const tri_reader *r) { return r->aio->name; }

bool tri_reader_is_direct(const tri_reader *r) {
  for (int i = 0; i < r->num_files; i++)
    if (!r->files[i].direct) return false;
  return r->num_files > 0;
}

uint64_t tri_reader_bytes(const tri_reader *r) { return r->bytes; }
