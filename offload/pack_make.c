#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "offload/pack.h"
#include "offload/pack_form.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/wait.h"
#include "runtime/base/xxh3.h"

/* Bytes of the file between two waits for the disk: parts may be small, and each wait takes milliseconds. */
#define SYNC_BYTES ((uint64_t)16 << 20)

struct work {
  const tri_weight_pack_layout *layout;
  const tri_weight_pack_maker *maker;
  const char *path;      /* the pack's */
  char name[PATH_MAX];   /* the file's, until it is the pack */
  tri_weight_pack *pack; /* that file, open to be written, and locked */
  tri_weight_pack_header header;
  void *memory; /* of the largest part, with the padding */
  size_t memory_bytes;
  int sealed, written; /* parts: with an entry; in the file */
  bool empty;          /* nothing in the file is of use to another maker */
  uint64_t bytes_done, bytes;
};

static bool stopped(const tri_weight_pack_maker *maker) {
  return maker->stop && atomic_load_explicit(maker->stop, memory_order_relaxed);
}

static tri_status abort_making(const char *path, tri_error *err) {
  return tri_fail(err, TRI_ABORTED, path, "the pack %s is not made: Trireme stops", path);
}

static tri_status refuse(const char *path, const char *what, int code, tri_error *err) {
  return tri_fail(err, TRI_IO, path, "%s cannot %s: %s", path, what,
                  code == ELOOP ? "it is a symbolic link" : strerror(code));
}

/* Gives back what the file has before it looks how much there is. */
static tri_status no_room(struct work *w, int code, tri_error *err) {
  struct statvfs v;
  bool known = !ftruncate(w->pack->fd, 0) && !fstatvfs(w->pack->fd, &v);
  return tri_fail(err, TRI_NO_CAPACITY, w->path, "the pack %s needs %llu bytes, its file system has %llu free: %s",
                  w->path, (unsigned long long)w->pack->file_bytes,
                  known ? (unsigned long long)v.f_bavail * v.f_frsize : 0, strerror(code));
}

static tri_status refuse_write(struct work *w, int code, tri_error *err) {
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) return no_room(w, code, err);
  return refuse(w->name, "be written", code, err);
}

/* Takes the room for all of the file. A file system that can say how little it has is asked first: one that tries to
 * give it is full for everybody while it does. */
static tri_status allocate(struct work *w, tri_error *err) {
  int fd = w->pack->fd;
  uint64_t bytes = w->pack->file_bytes;
  struct stat s;
  struct statvfs v;
  if (fstat(fd, &s) || fstatvfs(fd, &v)) return refuse(w->name, "be looked at", errno, err);
  uint64_t room = (uint64_t)v.f_bavail * v.f_frsize + (uint64_t)s.st_blocks * 512;
  if (v.f_blocks && room < bytes) return no_room(w, ENOSPC, err);
  while (fallocate(fd, 0, 0, (off_t)bytes)) {
    if (errno == EOPNOTSUPP) return ftruncate(fd, (off_t)bytes) ? refuse_write(w, errno, err) : TRI_OK;
    if (errno != EINTR) return refuse_write(w, errno, err);
    if (stopped(w->maker)) return abort_making(w->path, err);
  }
  return TRI_OK;
}

static tri_status write_at(struct work *w, const void *data, size_t bytes, uint64_t offset, tri_error *err) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pwrite(w->pack->fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return refuse_write(w, n ? errno : EIO, err);
    done += (size_t)n;
  }
  return TRI_OK;
}

/* Finds what an earlier maker has left, or begins anew. */
static tri_status begin(struct work *w, const char *why, tri_error *err) {
  tri_error fault = {0};
  tri_weight_pack_header_fill(&w->header, w->layout);
  tri_status st = tri_weight_pack_scan(w->pack, w->layout, &w->sealed, &fault);
  if (st != TRI_OK && st != TRI_NOT_FOUND) return tri_fail(err, st, w->path, "%s", fault.message);
  w->empty = !w->sealed;
  if (w->empty && ftruncate(w->pack->fd, 0)) return refuse_write(w, errno, err);
  TRI_CHECK(allocate(w, err)); /* also what a file system without fallocate may still lack */
  if (w->empty) TRI_CHECK(write_at(w, &w->header, sizeof w->header, 0, err));
  w->written = w->sealed;
  for (int i = 0; i < w->layout->num_parts; i++) w->bytes += w->layout->part_bytes[i];
  for (int i = 0; i < w->sealed; i++) w->bytes_done += w->layout->part_bytes[i];
  tri_log(TRI_LOG_INFO, "pack", "%s; making it, from part %d of %d on", why, w->sealed, w->layout->num_parts);
  return TRI_OK;
}

/* Waits until the parts are on the disk, then says so in the table; the next wait takes the entries along. A disk that
 * fails is not asked twice: it would say yes to the second question, and the parts would be lost all the same. */
static tri_status seal(struct work *w, tri_error *err) {
  if (w->sealed == w->written) return TRI_OK;
  if (fdatasync(w->pack->fd)) {
    w->written = w->sealed;
    return refuse_write(w, errno, err);
  }
  for (; w->sealed < w->written; w->sealed++) {
    int part = w->sealed;
    tri_weight_pack_entry e = tri_weight_pack_entry_make(&w->header, w->pack->offsets[part],
                                                         w->layout->part_bytes[part], w->pack->checksums[part]);
    TRI_CHECK(write_at(w, &e, sizeof e, tri_weight_pack_entry_offset(part), err));
    w->empty = false;
  }
  return TRI_OK;
}

static tri_status make_part(struct work *w, int part, tri_error *err) {
  tri_weight_pack *p = w->pack;
  size_t bytes = w->layout->part_bytes[part], padded = tri_weight_pack_padded(bytes);
  if (stopped(w->maker)) return abort_making(w->path, err);
  memset(w->memory, 0, padded);
  TRI_CHECK(w->maker->fill(w->maker->ctx, part, w->memory, err));
  if (p->offsets[part] - p->offsets[w->sealed] >= SYNC_BYTES) TRI_CHECK(seal(w, err));
  p->checksums[part] = tri_xxh3(w->memory, bytes);
  TRI_CHECK(write_at(w, w->memory, padded, p->offsets[part], err));
  /* The disk begins now, while the next part is filled, and not when it is waited for. */
  sync_file_range(p->fd, (off_t)p->offsets[part], (off_t)padded, SYNC_FILE_RANGE_WRITE);
  w->written = part + 1;
  w->bytes_done += bytes;
  if (w->maker->progress) w->maker->progress(w->maker->ctx, part + 1, w->layout->num_parts, w->bytes_done, w->bytes);
  return TRI_OK;
}

static tri_status make_parts(struct work *w, tri_error *err) {
  for (int i = 0; i < w->layout->num_parts; i++)
    if (tri_weight_pack_padded(w->layout->part_bytes[i]) > w->memory_bytes)
      w->memory_bytes = tri_weight_pack_padded(w->layout->part_bytes[i]);
  if (tri_pages_alloc(w->memory_bytes, &w->memory) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, w->path, "no memory for the %zu bytes of the largest part of %s",
                    w->memory_bytes, w->path);
  tri_status st = TRI_OK;
  for (int i = w->sealed; i < w->layout->num_parts && st == TRI_OK; i++) st = make_part(w, i, err);
  if (st == TRI_NO_CAPACITY) return st;
  tri_status last = seal(w, st == TRI_OK ? err : NULL); /* whatever the reason: what is whole stays */
  return st == TRI_OK ? last : st;
}

/* A name is on the disk when its folder is. */
static tri_status sync_folder(const char *path, tri_error *err) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[slash == folder] = 0;
  else
    snprintf(folder, sizeof folder, ".");
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int code = fd < 0 || fsync(fd) ? errno : 0;
  if (fd >= 0) close(fd);
  return code && code != EINVAL ? refuse(folder, "be written", code, err) : TRI_OK; /* EINVAL: has no such thing */
}

/* Gives the file its name, and keeps it open to be read alone, which ends the lock. */
static tri_status publish(struct work *w, tri_error *err) {
  tri_status st = TRI_OK;
  if (fsync(w->pack->fd)) return refuse_write(w, errno, err);
  int fd = open(w->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return refuse(w->name, "be opened", errno, err);
  if (rename(w->name, w->path)) {
    st = refuse(w->path, "be written", errno, err);
    goto cleanup;
  }
  TRI_TRY(sync_folder(w->path, err));
  close(w->pack->fd);
  w->pack->fd = fd;
  return TRI_OK;
cleanup:
  close(fd);
  return st;
}

/* Tells whether the file has been written to since `*seen`, which becomes now. */
static bool was_written(int fd, struct timespec *seen) {
  struct stat s;
  if (fstat(fd, &s) || (s.st_mtim.tv_sec == seen->tv_sec && s.st_mtim.tv_nsec == seen->tv_nsec)) return false;
  *seen = s.st_mtim;
  return true;
}

/* The lock is one of the open file, and ends with it or its process. Other makers are waited for. */
static tri_status lock(int fd, const char *name, const tri_weight_pack_maker *maker, tri_error *err) {
  tri_wait_policy policy = {.stop = maker->stop};
  tri_wait wait = tri_wait_begin(&policy, TRI_NEVER);
  struct timespec seen = {0};
  bool told = false;
  while (flock(fd, LOCK_EX | LOCK_NB)) {
    if (errno != EWOULDBLOCK && errno != EINTR) return refuse(name, "be locked", errno, err);
    if (!told) tri_log(TRI_LOG_INFO, "pack", "%s is being written by another process, which is waited for", name);
    told = true;
    if (was_written(fd, &seen) && maker->other_wrote) maker->other_wrote(maker->ctx);
    if (tri_wait_pause(&wait) != TRI_OK) return abort_making(name, err);
  }
  return TRI_OK;
}

/* A folder that may not be written to is what was asked for wrongly, and not a disk that may do it the next time. */
static tri_status refuse_open(const char *name, int code, tri_error *err) {
  bool lasts = code == EROFS || code == EACCES || code == EPERM;
  if (!lasts) return refuse(name, "be opened", code, err);
  return tri_fail(err, TRI_PERMISSION, name, "%s cannot be made, and there is no pack that fits: %s", name,
                  strerror(code));
}

/* Opens the file that the pack is made in and locks it. TRI_AGAIN: it got its name, or went, before we had the lock. */
static tri_status open_locked(const char *name, const tri_weight_pack_maker *maker, int *out, tri_error *err) {
  tri_status st = TRI_OK;
  struct stat s, now;
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) return refuse_open(name, errno, err);
  if (fstat(fd, &s) || !S_ISREG(s.st_mode)) {
    st = tri_fail(err, TRI_IO, name, "%s is not a file, so no pack can be made in it", name);
    goto cleanup;
  }
  TRI_TRY(lock(fd, name, maker, err));
  if (lstat(name, &now) || now.st_dev != s.st_dev || now.st_ino != s.st_ino) {
    st = TRI_AGAIN;
    goto cleanup;
  }
  if (fchmod(fd, 0600)) { /* whatever the umask has left, or somebody else has made */
    st = refuse(name, "be kept from others", errno, err);
    goto cleanup;
  }
  *out = fd;
  return TRI_OK;
cleanup:
  close(fd);
  return st;
}

/* Opens a pack that is there; TRI_NOT_FOUND with the reason in *why, which is no error. */
static tri_status look(const char *path, const tri_weight_pack_layout *layout, tri_weight_pack **out, tri_error *why,
                       tri_error *err) {
  tri_error_clear(why);
  tri_status st = tri_weight_pack_open(path, layout, out, why);
  return st == TRI_OK || st == TRI_NOT_FOUND ? st : tri_fail(err, st, path, "%s", why->message);
}

/* Makes the pack in a file that is locked; takes the descriptor over. */
static tri_status make(struct work *w, int fd, const char *why, tri_weight_pack **out, int *made, tri_error *err) {
  tri_status st = TRI_OK;
  TRI_TRY(tri_weight_pack_wrap(fd, w->path, w->layout, &w->pack, err));
  TRI_TRY(begin(w, why, err));
  int first = w->sealed;
  TRI_TRY(make_parts(w, err));
  TRI_TRY(publish(w, err));
  *out = w->pack;
  w->pack = NULL;
  if (made) *made = w->layout->num_parts - first;
cleanup:
  if (st == TRI_NO_CAPACITY || w->empty) unlink(w->name);
  tri_pages_free(w->memory, w->memory_bytes);
  tri_weight_pack_close(w->pack);
  return st;
}

/* Finds the pack, or locks the file to make it in: TRI_NOT_FOUND, with the reason in *why. */
static tri_status find_or_lock(const struct work *w, tri_weight_pack **out, int *fd, tri_error *why, tri_error *err) {
  tri_status st = TRI_AGAIN;
  while (st == TRI_AGAIN) {
    st = look(w->path, w->layout, out, why, err);
    if (st != TRI_NOT_FOUND) return st;
    st = open_locked(w->name, w->maker, fd, err);
  }
  TRI_CHECK(st);
  st = look(w->path, w->layout, out, why, err); /* another has made it while we waited */
  if (st == TRI_OK) unlink(w->name);
  if (st != TRI_NOT_FOUND) close(*fd);
  return st;
}

tri_status tri_weight_pack_make(const char *path, const tri_weight_pack_layout *layout,
                                const tri_weight_pack_maker *maker, tri_weight_pack **out, int *made, tri_error *err) {
  struct work w = {.layout = layout, .maker = maker, .path = path};
  tri_error why;
  int fd = -1;
  if ((size_t)snprintf(w.name, sizeof w.name, "%s.part", path) >= sizeof w.name)
    return tri_fail(err, TRI_TOO_LARGE, path, "%.200s...: the path is too long", path);
  tri_status st = find_or_lock(&w, out, &fd, &why, err);
  if (st == TRI_NOT_FOUND) return make(&w, fd, why.message, out, made, err);
  if (st == TRI_OK && made) *made = 0;
  return st;
}
