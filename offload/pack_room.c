/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a plan, which changes nothing: it asks what a maker would ask, and counts the room that the packs looked
 * at before will take of the same file systems. */
#include "offload/pack_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- refusals ---- */

tri_status tri_pack_refuse(const char *name, const char *what, int code, tri_error *err) {
  return tri_fail(err, TRI_IO, name, "%s cannot %s: %s", name, what,
                  code == ELOOP ? "it is a symbolic link" : strerror(code));
}

tri_status tri_pack_refuse_room(const char *path, uint64_t bytes, uint64_t available, int code, tri_error *err) {
  return tri_fail(err, TRI_NO_CAPACITY, path, "the pack %s needs %llu bytes, its file system has %llu free: %s", path,
                  (unsigned long long)bytes, (unsigned long long)available, strerror(code));
}

/* A folder that may not be written to is what was asked for wrongly, and not a disk that may do it the next time. */
tri_status tri_pack_refuse_open(const char *name, int code, tri_error *err) {
  bool lasts = code == EROFS || code == EACCES || code == EPERM;
  if (!lasts) return tri_pack_refuse(name, "be opened", code, err);
  return tri_fail(err, TRI_PERMISSION, name, "%s cannot be made, and there is no pack that fits: %s", name,
                  strerror(code));
}

/* ---- a look ---- */

void tri_pack_folder(const char *path, char folder[static PATH_MAX]) {
  snprintf(folder, PATH_MAX, "%s", path);
  char *slash = strrchr(folder, '/');
  if (!slash)
    snprintf(folder, PATH_MAX, ".");
  else
    slash[slash == folder] = 0;
}

/* Finds out whether a file could be made there: with one that has no name, or by asking where there are none such. */
static int try_folder(const char *folder) {
  int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) return close(fd) ? errno : 0;
  if (errno != EOPNOTSUPP && errno != EISDIR) return errno;
  return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) ? errno : 0;
}

/* Opens what an earlier maker has left, or finds out that nothing was. *held: the bytes that it has of the disk. */
static tri_status look_at_begun(const char *path, uint64_t *held, tri_error *err) {
  char name[PATH_MAX], folder[PATH_MAX];
  struct stat s;
  *held = 0;
  if ((size_t)snprintf(name, sizeof name, "%s.part", path) >= sizeof name)
    return tri_fail(err, TRI_TOO_LARGE, path, "%.200s...: the path is too long", path);
  int fd = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), code = fd < 0 ? errno : 0;
  if (fd >= 0 && !fstat(fd, &s)) *held = (uint64_t)s.st_blocks * 512;
  if (fd >= 0) close(fd);
  tri_pack_folder(path, folder);
  if (code == ENOENT) code = try_folder(folder);
  return code ? tri_pack_refuse_open(name, code, err) : TRI_OK;
}

static struct tri_pack_room *room_of(tri_pack_rooms *rooms, dev_t device) {
  for (int i = 0; i < rooms->count; i++)
    if (rooms->list[i].device == device) return &rooms->list[i];
  if (rooms->count == TRI_STRIPES_MAX_FILES) return NULL;
  rooms->list[rooms->count] = (struct tri_pack_room){.device = device};
  return &rooms->list[rooms->count++];
}

/* Takes the room of a file that is to be made. */
static tri_status take_room(const char *path, const tri_weight_pack_layout *layout, uint64_t held,
                            tri_pack_rooms *rooms, tri_error *err) {
  uint64_t bytes = tri_weight_pack_file_bytes(layout);
  char folder[PATH_MAX];
  struct stat s;
  struct statvfs v;
  tri_pack_folder(path, folder);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool known = fd >= 0 && !fstat(fd, &s) && !fstatvfs(fd, &v);
  int code = errno;
  if (fd >= 0) close(fd);
  if (!known) return tri_pack_refuse(folder, "be looked at", code, err);
  struct tri_pack_room *room = room_of(rooms, s.st_dev);
  if (!room || !v.f_blocks) return TRI_OK; /* it is not known what it has */
  uint64_t available = (uint64_t)v.f_bavail * v.f_frsize;
  available = available > room->taken ? available - room->taken : 0;
  if (available + held < bytes) return tri_pack_refuse_room(path, bytes, available + held, ENOSPC, err);
  room->taken += bytes > held ? bytes - held : 0;
  return TRI_OK;
}

static tri_status check_files(const tri_pack_paths *paths, const tri_stripes *s, tri_pack_rooms *rooms,
                              tri_error *err) {
  for (int i = 0; i < paths->count; i++) {
    const char *path = paths->list[i];
    tri_weight_pack *whole = NULL;
    tri_error why = {0};
    uint64_t held;
    TRI_CHECK(look_at_begun(path, &held, err)); /* all are locked, also those that are whole */
    tri_status st = tri_weight_pack_open(path, &s->files[i], &whole, &why);
    tri_weight_pack_close(whole);
    if (st == TRI_OK) continue;
    if (st != TRI_NOT_FOUND) return tri_fail(err, st, path, "%s", why.message);
    TRI_CHECK(take_room(path, &s->files[i], held, rooms, err));
  }
  return TRI_OK;
}

/* Ranks that hold the same weights have one pack. */
static bool is_known(tri_pack_rooms *rooms, const tri_weight_pack_key *key) {
  for (int i = 0; i < rooms->num_keys; i++)
    if (!memcmp(&rooms->keys[i], key, sizeof *key)) return true;
  rooms->keys[rooms->num_keys++] = *key;
  return false;
}

tri_status tri_striped_pack_check(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                  tri_pack_rooms *rooms, tri_error *err) {
  tri_striped_pack *there = NULL;
  tri_stripes *stripes = NULL;
  tri_error why = {0};
  if (is_known(rooms, &layout->key)) return TRI_OK;
  tri_status st = tri_striped_pack_open(paths, layout, &there, &why);
  tri_striped_pack_close(there);
  if (st == TRI_OK) return TRI_OK;
  if (st != TRI_NOT_FOUND) return tri_fail(err, st, why.field, "%s", why.message);
  TRI_CHECK(tri_stripes_make(paths->list[0], layout, paths->count, &stripes, err));
  st = check_files(paths, stripes, rooms, err);
  tri_stripes_free(stripes);
  return st;
}
