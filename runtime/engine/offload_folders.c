/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/offload_folders.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

static tri_status refuse(const char *folder, const char *why, tri_error *err) {
  return tri_fail(err, TRI_INVALID_ARGUMENT, "nvme_path", "there is no folder %s for packs: %s", folder, why);
}

/* By device and inode: realpath resolves links, but a folder that is mounted twice has two paths. */
static bool is_same(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Returns whether names of the list, of which [begin, end) is one, and the commas between them are a folder's name. */
static bool is_cut_apart(const char *list, size_t begin, size_t end, char joined[PATH_MAX]) {
  for (size_t from = 0; from <= begin; from++) {
    if (from && list[from - 1] != ',') continue;
    for (size_t to = end; to <= strlen(list); to++) {
      struct stat s;
      if (list[to] && list[to] != ',') continue;
      int n = snprintf(joined, PATH_MAX, "%.*s", (int)(to - from), list + from);
      if (n < PATH_MAX && !stat(joined, &s) && S_ISDIR(s.st_mode)) return true;
    }
  }
  return false;
}

/* Says why a name of the list is no folder's. */
static tri_status refuse_name(const char *list, size_t begin, const char *name, int number, int code, tri_error *err) {
  char joined[PATH_MAX];
  bool is_missing = !name[0] || code == ENOENT;
  if (is_missing && is_cut_apart(list, begin, begin + strlen(name), joined))
    return tri_fail(
        err, TRI_INVALID_ARGUMENT, "nvme_path",
        "the folder %s for packs has a comma in its name, which ends a name in --nvme-path: give it another "
        "name, or a symbolic link without one",
        joined);
  if (!name[0])
    return tri_fail(err, TRI_INVALID_ARGUMENT, "nvme_path", "folder %d of the list for packs has no name", number);
  return refuse(name, code == ENOENT ? "--nvme-path makes none" : strerror(code), err);
}

/* Puts a folder, whose name begins there in the list, to its place among the others. */
static tri_status add(tri_offload_folders *f, const char *list, size_t begin, const char *name, tri_error *err) {
  char path[PATH_MAX];
  struct stat s;
  int at = f->count;
  if (at == TRI_STRIPES_MAX_FILES)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "nvme_path", "%s is one folder more than the %d that a pack can have",
                    name, TRI_STRIPES_MAX_FILES);
  if (!name[0] || !realpath(name, path)) return refuse_name(list, begin, name, at + 1, errno, err);
  if (stat(path, &s) || !S_ISDIR(s.st_mode)) return refuse(name, "it is something else", err);
  for (int i = 0; i < f->count; i++)
    if (is_same(f->list[i], path))
      return tri_fail(err, TRI_INVALID_ARGUMENT, "nvme_path", "the folder %s for packs is named twice", name);
  char *copy = tri_strdup(path);
  if (!copy) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory for the names of folders");
  for (; at > 0 && strcmp(f->list[at - 1], copy) > 0; at--) f->list[at] = f->list[at - 1];
  f->list[at] = copy;
  f->count++;
  return TRI_OK;
}

tri_status tri_offload_folders_make(const char *list, tri_offload_folders *out, tri_error *err) {
  char *names = tri_strdup(list), *rest = names;
  tri_status st = TRI_OK;
  *out = (tri_offload_folders){0};
  if (!names) return tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory for the names of folders");
  while (rest && st == TRI_OK) {
    const char *name = strsep(&rest, ",");
    st = add(out, list, (size_t)(name - names), name, err);
  }
  tri_free(names);
  if (st != TRI_OK) tri_offload_folders_free(out);
  return st;
}

tri_status tri_offload_folders_check(const char *list, tri_error *err) {
  tri_offload_folders f;
  TRI_CHECK(tri_offload_folders_make(list, &f, err));
  tri_offload_folders_free(&f);
  return TRI_OK;
}

void tri_offload_folders_free(tri_offload_folders *f) {
  for (int i = 0; i < f->count; i++) tri_free(f->list[i]);
  *f = (tri_offload_folders){0};
}
