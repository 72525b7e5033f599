/* SPDX-License-Identifier: Apache-2.0 */
/* Making a pack. For each of its files:
 *
 *   NAME.part, locked    header, room for all of it, then parts and their entries
 *   NAME                 fsync, rename, fsync of the folder: it is whole
 *
 * The order on the disk is part, fdatasync, entry: an entry never stands for bytes that a power cut could have lost.
 * The lock (flock) is of the open file, so that it ends with the process; a maker that gets the lock of a file which
 * was renamed or unlinked meanwhile begins again (TRI_AGAIN). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "offload/pack_form.h"
#include "offload/pack_room.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "base/xxh3.h"

/* Bytes of a file between two waits for the disk: parts may be small, and each wait takes milliseconds. */
#define SYNC_BYTES ((uint64_t)16 << 20)

/* One of the pack's files. Its parts are stripes of the pack's. */
struct file {
  const tri_weight_pack_layout *layout;
  const char *path;      /* when it is whole */
  char name[PATH_MAX];   /* until then */
  int fd;                /* of that name, which is locked; -1: none, or the pack's by now */
  tri_weight_pack *pack; /* the whole file, or the one that it is made in, open to be written */
  tri_weight_pack_header header;
  int sealed, written; /* parts: with an entry; in the file */
  bool whole;          /* it was there, and stays as it is */
  bool empty;          /* nothing in it is of use to another maker */
};

struct work {
  const tri_weight_pack_layout *layout;
  const tri_weight_pack_maker *maker;
  tri_stripes *stripes;
  struct file files[TRI_STRIPES_MAX_FILES];
  int num_files;
  void *memory; /* of the largest part, with the padding */
  size_t memory_bytes;
  int first; /* part that is not in every file */
  uint64_t bytes_done, bytes;
};

static bool stopped(const tri_weight_pack_maker *maker) {
  return maker->stop && atomic_load_explicit(maker->stop, memory_order_relaxed);
}

static tri_status abort_making(const char *path, tri_error *err) {
  return tri_fail(err, TRI_ABORTED, path, "the pack %s is not made: Trireme stops", path);
}

/* Gives back what the file has before it looks how much there is. */
static tri_status no_room(const struct file *f, int code, tri_error *err) {
  struct statvfs v;
  bool known = !ftruncate(f->pack->fd, 0) && !fstatvfs(f->pack->fd, &v);
  return tri_pack_refuse_room(f->path, f->pack->file_bytes, known ? (uint64_t)v.f_bavail * v.f_frsize : 0, code, err);
}

static tri_status refuse_write(const struct file *f, int code, tri_error *err) {
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) return no_room(f, code, err);
  return tri_pack_refuse(f->name, "be written", code, err);
}

/* Takes the room for all of the file. A file system that can say how little it has is asked first: one that tries to
 * give it is full for everybody while it does. */
static tri_status allocate(const struct file *f, const tri_weight_pack_maker *maker, tri_error *err) {
  int fd = f->pack->fd;
  uint64_t bytes = f->pack->file_bytes;
  struct stat s;
  struct statvfs v;
  if (fstat(fd, &s) || fstatvfs(fd, &v)) return tri_pack_refuse(f->name, "be looked at", errno, err);
  uint64_t room = (uint64_t)v.f_bavail * v.f_frsize + (uint64_t)s.st_blocks * 512;
  if (v.f_blocks && room < bytes) return no_room(f, ENOSPC, err);
  while (fallocate(fd, 0, 0, (off_t)bytes)) {
    if (errno == EOPNOTSUPP) return ftruncate(fd, (off_t)bytes) ? refuse_write(f, errno, err) : TRI_OK;
    if (errno != EINTR) return refuse_write(f, errno, err);
    if (stopped(maker)) return abort_making(f->path, err);
  }
  return TRI_OK;
}

static tri_status write_at(const struct file *f, const void *data, size_t bytes, uint64_t offset, tri_error *err) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pwrite(f->pack->fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return refuse_write(f, n ? errno : EIO, err);
    done += (size_t)n;
  }
  return TRI_OK;
}

/* ---- what is there ---- */

/* Finds out whether the file is whole already, as it is where another one of the pack's is missing. */
static tri_status find_whole(struct file *f, tri_error *err) {
  tri_error why = {0};
  tri_status st = tri_weight_pack_open(f->path, f->layout, &f->pack, &why);
  if (st == TRI_NOT_FOUND) return TRI_OK;
  if (st != TRI_OK) return tri_fail(err, st, f->path, "%s", why.message);
  f->whole = true;
  f->sealed = f->written = f->layout->num_parts;
  return TRI_OK;
}

/* Finds what an earlier maker has left in the file, or begins anew. f->fd becomes the pack's descriptor, so that unlock
 * leaves it alone: from here on the lock ends with the pack, or when publish_file has closed it. */
static tri_status begin_file(struct file *f, const tri_weight_pack_maker *maker, tri_error *err) {
  tri_error fault = {0};
  int fd = f->fd;
  TRI_CHECK(find_whole(f, err));
  if (f->whole) return TRI_OK;
  f->fd = -1;
  TRI_CHECK(tri_weight_pack_wrap(fd, f->path, f->layout, &f->pack, err));
  tri_weight_pack_header_fill(&f->header, f->layout);
  tri_status st = tri_weight_pack_scan(f->pack, f->layout, &f->sealed, &fault);
  if (st != TRI_OK && st != TRI_NOT_FOUND) return tri_fail(err, st, f->path, "%s", fault.message);
  f->empty = !f->sealed;
  if (f->empty && ftruncate(f->pack->fd, 0)) return refuse_write(f, errno, err);
  TRI_CHECK(allocate(f, maker, err)); /* also what a file system without fallocate may still lack */
  if (f->empty) TRI_CHECK(write_at(f, &f->header, sizeof f->header, 0, err));
  f->written = f->sealed;
  return TRI_OK;
}

/* Returns the first part of which a stripe is missing. */
static int first_missing(const struct work *w) {
  for (int part = 0; part < w->layout->num_parts; part++)
    for (int i = w->stripes->first[part]; i < w->stripes->first[part + 1]; i++)
      if (w->stripes->list[i].number >= w->files[w->stripes->list[i].file].sealed) return part;
  return w->layout->num_parts;
}

static tri_status begin(struct work *w, const char *why, tri_error *err) {
  for (int i = 0; i < w->num_files; i++) TRI_CHECK(begin_file(&w->files[i], w->maker, err));
  w->first = first_missing(w);
  for (int i = 0; i < w->layout->num_parts; i++) w->bytes += w->layout->part_bytes[i];
  for (int i = 0; i < w->first; i++) w->bytes_done += w->layout->part_bytes[i];
  tri_log(TRI_LOG_INFO, "pack", "%s; making it, from part %d of %d on", why, w->first, w->layout->num_parts);
  return TRI_OK;
}

/* ---- parts ---- */

/* Waits until the parts are on the disk, then says so in the table; the next wait takes the entries along. A disk that
 * fails is not asked twice: it would say yes to the second question, and the parts would be lost all the same. */
static tri_status seal_file(struct file *f, tri_error *err) {
  if (f->sealed == f->written) return TRI_OK;
  if (fdatasync(f->pack->fd)) {
    f->written = f->sealed;
    return refuse_write(f, errno, err);
  }
  for (; f->sealed < f->written; f->sealed++) {
    int part = f->sealed;
    tri_weight_pack_entry e = tri_weight_pack_entry_make(&f->header, f->pack->offsets[part],
                                                         f->layout->part_bytes[part], f->pack->checksums[part]);
    TRI_CHECK(write_at(f, &e, sizeof e, tri_weight_pack_entry_offset(part), err));
    f->empty = false;
  }
  return TRI_OK;
}

/* One that fails keeps no other from what it has. */
static tri_status seal(struct work *w, tri_error *err) {
  tri_status st = TRI_OK;
  for (int i = 0; i < w->num_files; i++) {
    tri_status one = seal_file(&w->files[i], st == TRI_OK ? err : NULL);
    if (st == TRI_OK) st = one;
  }
  return st;
}

/* A file is sealed when its parts are SYNC_BYTES ahead of its table. A stripe that is there from an earlier maker is
 * filled again with its part, but not written. */
static tri_status write_stripe(struct work *w, const tri_stripe *x, tri_error *err) {
  struct file *f = &w->files[x->file];
  tri_weight_pack *p = f->pack;
  const char *from = (const char *)w->memory + x->at;
  size_t padded = tri_weight_pack_padded(x->bytes);
  if (x->number < f->sealed) return TRI_OK;
  if (p->offsets[x->number] - p->offsets[f->sealed] >= SYNC_BYTES) TRI_CHECK(seal_file(f, err));
  p->checksums[x->number] = tri_xxh3(from, x->bytes);
  TRI_CHECK(write_at(f, from, padded, p->offsets[x->number], err));
  /* The disk begins now, while the next part is filled, and not when it is waited for. */
  sync_file_range(p->fd, (off_t)p->offsets[x->number], (off_t)padded, SYNC_FILE_RANGE_WRITE);
  f->written = x->number + 1;
  return TRI_OK;
}

/* Touches the first file: who waits for its lock sees that we get on, also where only others are written. */
static void show_life(const struct work *w) {
  const struct file *f = &w->files[0];
  futimens(f->whole ? f->fd : f->pack->fd, NULL);
}

static tri_status make_part(struct work *w, int part, tri_error *err) {
  size_t bytes = w->layout->part_bytes[part];
  if (stopped(w->maker)) return abort_making(w->files[0].path, err);
  memset(w->memory, 0, tri_weight_pack_padded(bytes));
  TRI_CHECK(w->maker->fill(w->maker->ctx, part, w->memory, err));
  for (int i = w->stripes->first[part]; i < w->stripes->first[part + 1]; i++)
    TRI_CHECK(write_stripe(w, &w->stripes->list[i], err));
  show_life(w);
  w->bytes_done += bytes;
  if (w->maker->progress) w->maker->progress(w->maker->ctx, part + 1, w->layout->num_parts, w->bytes_done, w->bytes);
  return TRI_OK;
}

static tri_status make_parts(struct work *w, tri_error *err) {
  for (int i = 0; i < w->layout->num_parts; i++)
    if (tri_weight_pack_padded(w->layout->part_bytes[i]) > w->memory_bytes)
      w->memory_bytes = tri_weight_pack_padded(w->layout->part_bytes[i]);
  if (tri_pages_alloc(w->memory_bytes, &w->memory) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, w->files[0].path, "no memory for the %zu bytes of the largest part of %s",
                    w->memory_bytes, w->files[0].path);
  tri_status st = TRI_OK;
  for (int i = w->first; i < w->layout->num_parts && st == TRI_OK; i++) st = make_part(w, i, err);
  if (st == TRI_NO_CAPACITY) return st;
  tri_status last = seal(w, st == TRI_OK ? err : NULL); /* whatever the reason: what is whole stays */
  return st == TRI_OK ? last : st;
}

/* ---- names ---- */

/* A name is on the disk when its folder is. */
static tri_status sync_folder(const char *path, tri_error *err) {
  char folder[PATH_MAX];
  tri_pack_folder(path, folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int code = fd < 0 || fsync(fd) ? errno : 0;
  if (fd >= 0) close(fd);
  return code && code != EINVAL ? tri_pack_refuse(folder, "be written", code, err)
                                : TRI_OK; /* EINVAL: has no such thing */
}

/* Gives the file its name, and keeps it open to be read alone, which ends the lock. */
static tri_status publish_file(struct file *f, tri_error *err) {
  tri_status st = TRI_OK;
  if (fsync(f->pack->fd)) return refuse_write(f, errno, err);
  int fd = open(f->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return tri_pack_refuse(f->name, "be opened", errno, err);
  if (rename(f->name, f->path)) TRI_TRY(tri_pack_refuse(f->path, "be written", errno, err));
  TRI_TRY(sync_folder(f->path, err));
  close(f->pack->fd);
  f->pack->fd = fd;
  return TRI_OK;
cleanup:
  close(fd);
  return st;
}

/* The first file that has no name yet gets it last: until then its lock keeps other makers from all of them. */
static tri_status publish(struct work *w, tri_error *err) {
  for (int i = 0; i < w->num_files; i++)
    if (w->files[i].whole) unlink(w->files[i].name);
  for (int i = w->num_files - 1; i >= 0; i--)
    if (!w->files[i].whole) TRI_CHECK(publish_file(&w->files[i], err));
  return TRI_OK;
}

/* Returns whether the file has been written to since `*seen`, which becomes now. */
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
    if (errno != EWOULDBLOCK && errno != EINTR) return tri_pack_refuse(name, "be locked", errno, err);
    if (!told) tri_log(TRI_LOG_INFO, "pack", "%s is being written by another process: waiting for it", name);
    told = true;
    if (was_written(fd, &seen) && maker->other_wrote) maker->other_wrote(maker->ctx);
    if (tri_wait_pause(&wait) != TRI_OK) return abort_making(name, err);
  }
  return TRI_OK;
}

/* Opens the file that the pack is made in and locks it. TRI_AGAIN: it got its name, or went, before we had the lock. */
static tri_status open_locked(const char *name, const tri_weight_pack_maker *maker, int *out, tri_error *err) {
  tri_status st = TRI_OK;
  struct stat s, now;
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd < 0) return tri_pack_refuse_open(name, errno, err);
  if (fstat(fd, &s) || !S_ISREG(s.st_mode))
    TRI_TRY(tri_fail(err, TRI_IO, name, "%s is not a file, so no pack can be made in it", name));
  TRI_TRY(lock(fd, name, maker, err));
  if (lstat(name, &now) || now.st_dev != s.st_dev || now.st_ino != s.st_ino) TRI_TRY(TRI_AGAIN);
  if (fchmod(fd, 0600)) /* whatever the umask has left, or another process has made */
    TRI_TRY(tri_pack_refuse(name, "be kept from others", errno, err));
  *out = fd;
  return TRI_OK;
cleanup:
  close(fd);
  return st;
}

/* Opens a pack that is there; TRI_NOT_FOUND with the reason in *why, which is no error. */
static tri_status look(const tri_pack_paths *paths, const tri_weight_pack_layout *layout, tri_striped_pack **out,
                       tri_error *why, tri_error *err) {
  tri_error_clear(why);
  tri_status st = tri_striped_pack_open(paths, layout, out, why);
  return st == TRI_OK || st == TRI_NOT_FOUND ? st : tri_fail(err, st, why->field, "%s", why->message);
}

/* Ends the locks. Files in which there is nothing were begun by us. */
static void unlock(struct work *w) {
  for (int i = 0; i < w->num_files; i++) {
    struct stat s;
    int fd = w->files[i].fd;
    if (fd < 0) continue;
    if (!fstat(fd, &s) && !s.st_size && s.st_nlink) unlink(w->files[i].name);
    close(fd);
    w->files[i].fd = -1;
  }
}

static tri_status lock_files(struct work *w, tri_error *err) {
  tri_status st = TRI_OK;
  for (int i = 0; i < w->num_files && st == TRI_OK; i++)
    st = open_locked(w->files[i].name, w->maker, &w->files[i].fd, err);
  if (st != TRI_OK) unlock(w);
  return st;
}

/* Finds the pack, or locks the files to make it in: TRI_NOT_FOUND, with the reason in *why. It looks before it locks,
 * as a pack that is there needs no lock (nor a folder that can be written to), and again after. */
static tri_status find_or_lock(struct work *w, const tri_pack_paths *paths, tri_striped_pack **out, tri_error *why,
                               tri_error *err) {
  tri_status st = TRI_AGAIN;
  while (st == TRI_AGAIN) {
    st = look(paths, w->layout, out, why, err);
    if (st != TRI_NOT_FOUND) return st;
    st = lock_files(w, err);
  }
  TRI_CHECK(st);
  st = look(paths, w->layout, out, why, err); /* another has made it while we waited */
  for (int i = 0; st == TRI_OK && i < w->num_files; i++) unlink(w->files[i].name);
  if (st != TRI_NOT_FOUND) unlock(w);
  return st;
}

/* Hands the files over. */
static void give(struct work *w, tri_striped_pack *to) {
  for (int i = 0; i < w->num_files; i++) {
    to->files[i] = w->files[i].pack;
    w->files[i].pack = NULL;
  }
  to->stripes = w->stripes;
  w->stripes = NULL;
}

/* Takes away what is of no use to another maker. */
static void discard(const struct work *w, tri_status st) {
  for (int i = 0; i < w->num_files; i++) {
    const struct file *f = &w->files[i];
    if (st == TRI_NO_CAPACITY || f->empty || f->whole) unlink(f->name);
  }
}

/* Makes the pack in files that are locked. */
static tri_status make(struct work *w, const char *why, tri_striped_pack **out, int *made, tri_error *err) {
  tri_status st = TRI_OK;
  tri_striped_pack *p = tri_calloc(1, sizeof *p);
  if (!p) return tri_fail(err, TRI_NO_MEMORY, w->files[0].path, "no memory for the pack %s", w->files[0].path);
  TRI_TRY(begin(w, why, err));
  TRI_TRY(make_parts(w, err));
  TRI_TRY(publish(w, err));
  give(w, p);
  *out = p;
  if (made) *made = w->layout->num_parts - w->first;
  return TRI_OK;
cleanup:
  discard(w, st);
  tri_free(p);
  return st;
}

/* Nothing is open or locked yet. */
static tri_status set_up(struct work *w, const tri_pack_paths *paths, tri_error *err) {
  w->num_files = paths->count;
  TRI_CHECK(tri_stripes_make(paths->list[0], w->layout, paths->count, &w->stripes, err));
  for (int i = 0; i < paths->count; i++) {
    struct file *f = &w->files[i];
    const char *path = paths->list[i];
    f->path = path;
    f->layout = &w->stripes->files[i];
    if ((size_t)snprintf(f->name, sizeof f->name, "%s.part", path) >= sizeof f->name)
      return tri_fail(err, TRI_TOO_LARGE, path, "%.200s...: the path is too long", path);
  }
  return TRI_OK;
}

static void tear_down(struct work *w) {
  unlock(w);
  for (int i = 0; i < w->num_files; i++) tri_weight_pack_close(w->files[i].pack);
  tri_stripes_free(w->stripes);
  tri_pages_free(w->memory, w->memory_bytes);
  tri_free(w);
}

tri_status tri_striped_pack_make(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                 const tri_weight_pack_maker *maker, tri_striped_pack **out, int *made,
                                 tri_error *err) {
  tri_error why;
  tri_status st;
  struct work *w = tri_calloc(1, sizeof *w);
  if (!w) return tri_fail(err, TRI_NO_MEMORY, paths->list[0], "no memory to make the pack %s", paths->list[0]);
  w->layout = layout;
  w->maker = maker;
  for (int i = 0; i < TRI_STRIPES_MAX_FILES; i++) w->files[i].fd = -1;
  TRI_TRY(set_up(w, paths, err));
  st = find_or_lock(w, paths, out, &why, err);
  if (st == TRI_OK && made) *made = 0;
  if (st == TRI_NOT_FOUND) st = make(w, why.message, out, made, err);
cleanup:
  tear_down(w);
  return st;
}
