/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static disk *mounted;

void disk_mount(disk *d) { mounted = d; }
disk *disk_mounted(void) { return mounted; }

static uint64_t draw(disk *d, uint64_t below) { return tri_mix64(d->rng += TRI_SPLITMIX_STEP) % below; }

bool disk_chance(disk *d, int percent) { return (int)draw(d, 100) < percent; }

/* ---- faults ---- */

bool disk_counts_call(disk *d) {
  if (d->dead) return false;
  d->calls++;
  if (d->dies_in && !--d->dies_in) d->dead = true;
  return !d->dead;
}

/* Returns whether a call that changes something fails, with errno. */
static bool is_broken(disk *d) {
  if (!d->broken || !disk_chance(d, d->broken)) return false;
  d->faults++;
  errno = EIO;
  return true;
}

/* ---- the folder ---- */

static int find(const disk_folder *f, const char *name) {
  for (int i = 0; i < f->num; i++)
    if (!strcmp(f->entries[i].name, name)) return i;
  return -1;
}

static void apply(disk_folder *f, const disk_change *c) {
  int at = find(f, c->name), from = c->from[0] ? find(f, c->from) : -1;
  if (from >= 0) f->entries[from] = f->entries[--f->num];
  if (at < 0 && c->file < 0) return;
  if (at >= 0) at = find(f, c->name); /* it may have moved */
  if (c->file < 0) {
    f->entries[at] = f->entries[--f->num];
    return;
  }
  if (at < 0) {
    if (f->num == DISK_ENTRIES) abort();
    at = f->num++;
  }
  snprintf(f->entries[at].name, DISK_NAME, "%s", c->name);
  f->entries[at].file = c->file;
}

static void keep_folder(disk *d, int changes) {
  for (int i = 0; i < changes; i++) apply(&d->kept, &d->changes[i]);
  d->num_changes = 0;
}

static void change(disk *d, disk_change c) {
  apply(&d->now, &c);
  if (d->num_changes == DISK_CHANGES) keep_folder(d, DISK_CHANGES); /* no system waits for ever */
  d->changes[d->num_changes++] = c;
}

/* ---- files ---- */

disk_file *disk_file_of(disk *d, int fd) {
  int file = d->fds[fd - DISK_FD].file;
  return file >= 0 ? &d->files[file] : NULL;
}

disk_file *disk_file_named(disk *d, const char *name) {
  int at = find(&d->now, name);
  return at < 0 ? NULL : &d->files[d->now.entries[at].file];
}

static void drop_file(disk_file *f) {
  free(f->now);
  free(f->kept);
  free(f->leaving);
  free(f->dirty);
  free(f->on_its_way);
  *f = (disk_file){.used = false};
}

static bool is_named(const disk *d, const disk_folder *f, int file) {
  for (int i = 0; i < f->num; i++)
    if (f->entries[i].file == file) return true;
  for (int i = 0; i < d->num_changes; i++)
    if (d->changes[i].file == file) return true;
  return false;
}

/* Frees what neither a name, one that may come back, nor a descriptor has. */
static void drop_lost_files(disk *d) {
  for (int i = 0; i < DISK_FILES; i++) {
    bool is_open = false;
    for (int k = 0; k < DISK_FDS; k++) is_open |= d->fds[k].used && d->fds[k].file == i;
    if (d->files[i].used && !is_open && !is_named(d, &d->now, i) && !is_named(d, &d->kept, i)) drop_file(&d->files[i]);
  }
}

static int new_file(disk *d) {
  int i = 0;
  drop_lost_files(d);
  while (i < DISK_FILES && d->files[i].used) i++;
  if (i == DISK_FILES) abort();
  d->files[i].used = true;
  return i;
}

static int new_fd(disk *d, int file) {
  int i = 0;
  while (i < DISK_FDS && d->fds[i].used) i++;
  if (i == DISK_FDS) abort();
  d->fds[i] = (disk_fd){true, file};
  return DISK_FD + i;
}

static void *grown(void *p, size_t before, size_t size) {
  char *q = calloc(size, 1);
  if (!q) abort();
  if (before) memcpy(q, p, before);
  free(p);
  return q;
}

static void reserve(disk_file *f, size_t size) {
  size_t cap = (size + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK, blocks = cap / DISK_BLOCK;
  if (cap <= f->cap) return;
  f->now = grown(f->now, f->cap, cap);
  f->kept = grown(f->kept, f->cap, cap);
  f->leaving = grown(f->leaving, f->cap, cap);
  f->dirty = grown(f->dirty, f->cap / DISK_BLOCK, blocks);
  f->on_its_way = grown(f->on_its_way, f->cap / DISK_BLOCK, blocks);
  f->cap = cap;
}

static void truncate_file(disk_file *f) {
  if (f->cap) memset(f->now, 0, f->cap);
  for (size_t b = 0; b < f->cap / DISK_BLOCK; b++) f->dirty[b] = true;
  f->size = 0;
}

int disk_open(disk *d, const char *name, int flags) {
  bool alive = !(flags & (O_CREAT | O_TRUNC)) || disk_counts_call(d);
  int at = find(&d->now, name);
  if (!strcmp(name, ".")) return new_fd(d, -1);
  if (at < 0 && !(flags & O_CREAT)) {
    errno = ENOENT;
    return -1;
  }
  if (at < 0) {
    if (alive && d->is_full && strcmp(name, "lock") != 0 && disk_chance(d, 30)) {
      d->faults++;
      errno = ENOSPC;
      return -1;
    }
    int file = new_file(d), fd = new_fd(d, file);
    disk_change c = {.file = file};
    snprintf(c.name, sizeof c.name, "%s", name);
    if (alive) change(d, c);
    return fd;
  }
  if (alive && flags & O_TRUNC) truncate_file(&d->files[d->now.entries[at].file]);
  return new_fd(d, d->now.entries[at].file);
}

/* The system writes back what it likes when it likes. */
static void write_back(disk *d, disk_file *f) {
  for (size_t b = 0; b < f->cap / DISK_BLOCK; b++)
    if (f->dirty[b] && disk_chance(d, 50)) memcpy(f->kept + b * DISK_BLOCK, f->now + b * DISK_BLOCK, DISK_BLOCK);
}

ssize_t disk_write(disk *d, int fd, const void *p, size_t n, off_t at) {
  disk_file *f = disk_file_of(d, fd);
  bool was_dead = d->dead;
  if (disk_counts_call(d)) {
    if (is_broken(d)) return -1;
    if (n > 1 && disk_chance(d, 5)) n = 1 + (size_t)draw(d, n - 1); /* a short one */
  } else {
    if (was_dead) return (ssize_t)n;
    n = (size_t)draw(d, n + 1); /* what the call came to */
  }
  if (!n) return 0;
  reserve(f, (size_t)at + n);
  memcpy(f->now + at, p, n);
  if (f->size < (size_t)at + n) f->size = (size_t)at + n;
  for (size_t b = (size_t)at / DISK_BLOCK; b <= ((size_t)at + n - 1) / DISK_BLOCK; b++) f->dirty[b] = true;
  if (disk_chance(d, 2)) write_back(d, f);
  return (ssize_t)n;
}

int disk_allocate(disk *d, int fd, size_t n) {
  disk_file *f = disk_file_of(d, fd);
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return EIO;
  if (d->is_full && n > f->size && (n >= d->segment_bytes || !disk_chance(d, 70))) {
    d->faults++;
    return ENOSPC;
  }
  reserve(f, n);
  if (f->size < n) f->size = n;
  return 0;
}

int disk_truncate(disk *d, int fd, size_t size) {
  disk_file *f = disk_file_of(d, fd);
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return -1;
  reserve(f, size);
  if (size < f->cap) memset(f->now + size, 0, f->cap - size);
  for (size_t b = size / DISK_BLOCK; b < f->cap / DISK_BLOCK; b++) f->dirty[b] = true;
  f->size = size;
  return 0;
}

/* ---- syncs ---- */

int disk_begin_sync(disk *d, int fd) {
  disk_file *f = disk_file_of(d, fd);
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return -1;
  for (size_t b = 0; b < f->cap / DISK_BLOCK; b++) {
    if (!f->dirty[b]) continue; /* it may be on its way for another sync */
    f->on_its_way[b] = true;
    f->dirty[b] = false;
    memcpy(f->leaving + b * DISK_BLOCK, f->now + b * DISK_BLOCK, DISK_BLOCK);
  }
  return 0;
}

int disk_end_sync(disk *d, int fd) {
  disk_file *f = disk_file_of(d, fd);
  bool broken = !d->dead && is_broken(d);
  for (size_t b = 0; b < f->cap / DISK_BLOCK; b++) {
    if (f->on_its_way[b] && !d->dead && !broken)
      memcpy(f->kept + b * DISK_BLOCK, f->leaving + b * DISK_BLOCK, DISK_BLOCK);
    else if (f->on_its_way[b])
      f->dirty[b] = true; /* the system tries again */
    f->on_its_way[b] = false;
  }
  if (broken) return -1;
  if (!d->dead) f->kept_size = f->size;
  return 0;
}

int disk_sync(disk *d, int fd) {
  if (disk_file_of(d, fd)) return disk_begin_sync(d, fd) || disk_end_sync(d, fd) ? -1 : 0;
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return -1;
  keep_folder(d, d->num_changes);
  return 0;
}

/* ---- names ---- */

int disk_rename(disk *d, const char *from, const char *to) {
  int at = find(&d->now, from);
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return -1;
  if (at < 0) {
    errno = ENOENT;
    return -1;
  }
  disk_change c = {.file = d->now.entries[at].file};
  snprintf(c.name, sizeof c.name, "%s", to);
  snprintf(c.from, sizeof c.from, "%s", from);
  change(d, c);
  return 0;
}

int disk_unlink(disk *d, const char *name) {
  disk_change c = {.file = -1};
  if (!disk_counts_call(d)) return 0;
  if (is_broken(d)) return -1;
  if (find(&d->now, name) < 0) {
    errno = ENOENT;
    return -1;
  }
  snprintf(c.name, sizeof c.name, "%s", name);
  change(d, c);
  return 0;
}

/* ---- ends ---- */

void disk_restart(disk *d) {
  for (int i = 0; i < DISK_FDS; i++) d->fds[i].used = false;
  free(d->map);
  d->map = NULL;
  d->dead = false;
  d->dies_in = 0;
  drop_lost_files(d);
}

static void fail_file(disk *d, disk_file *f) {
  if (disk_chance(d, 50)) f->kept_size = f->size; /* the file's length is a block, too */
  f->size = f->kept_size;
  for (size_t b = 0; b < f->cap / DISK_BLOCK; b++) {
    uint8_t *now = f->now + b * DISK_BLOCK, *kept = f->kept + b * DISK_BLOCK;
    if (f->on_its_way[b] && disk_chance(d, 50)) memcpy(kept, f->leaving + b * DISK_BLOCK, DISK_BLOCK);
    if (f->dirty[b] && disk_chance(d, 50)) memcpy(kept, now, DISK_BLOCK);
    if (b * DISK_BLOCK >= f->size) memset(kept, 0, DISK_BLOCK);
    memcpy(now, kept, DISK_BLOCK);
    f->dirty[b] = f->on_its_way[b] = false;
  }
}

void disk_lose_power(disk *d) {
  for (int i = 0; i < DISK_FILES; i++)
    if (d->files[i].used) fail_file(d, &d->files[i]);
  keep_folder(d, (int)draw(d, (uint64_t)d->num_changes + 1));
  d->now = d->kept;
  disk_restart(d);
}

void disk_free(disk *d) {
  disk_restart(d);
  for (int i = 0; i < DISK_FILES; i++) drop_file(&d->files[i]);
}
