/* SPDX-License-Identifier: Apache-2.0 */
#include "base/model_folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "models--";
enum { PREFIX = sizeof prefix - 1, REVISION = 256 };

static bool is_folder(const char *path) {
  struct stat sb;
  return !stat(path, &sb) && S_ISDIR(sb.st_mode);
}

/* Joins two parts of a path. Returns false where they are too long. */
static bool join(char out[TRI_MODEL_FOLDER], const char *folder, const char *name) {
  int n = snprintf(out, TRI_MODEL_FOLDER, "%s/%s", folder, name);
  return n > 0 && n < TRI_MODEL_FOLDER;
}

/* Writes the path of the revision that refs/main names. Returns false where there is none. */
static bool find_main(const char *folder, char out[TRI_MODEL_FOLDER]) {
  char path[TRI_MODEL_FOLDER], revision[REVISION], snapshot[REVISION + 16];
  FILE *f = join(path, folder, "refs/main") ? fopen(path, "re") : NULL;
  if (!f) return false;
  bool read = fgets(revision, sizeof revision, f);
  fclose(f);
  if (!read) return false;
  revision[strcspn(revision, " \t\r\n/")] = '\0';
  snprintf(snapshot, sizeof snapshot, "snapshots/%s", revision);
  return revision[0] && revision[0] != '.' && join(out, folder, snapshot) && is_folder(out);
}

/* Counts the snapshots of a folder, and writes the path of one of them. */
static int count_snapshots(const char *folder, char out[TRI_MODEL_FOLDER]) {
  char path[TRI_MODEL_FOLDER], one[TRI_MODEL_FOLDER];
  int count = 0;
  DIR *d = join(path, folder, "snapshots") ? opendir(path) : NULL;
  if (!d) return 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.' || !join(one, path, e->d_name) || !is_folder(one)) continue;
    memcpy(out, one, sizeof one);
    count++;
  }
  closedir(d);
  return count;
}

static tri_status find_snapshot(const char *folder, char out[TRI_MODEL_FOLDER], tri_error *err) {
  char one[TRI_MODEL_FOLDER];
  if (find_main(folder, out)) return TRI_OK;
  int count = count_snapshots(folder, one);
  if (count == 1) memcpy(out, one, sizeof one);
  if (count == 1) return TRI_OK;
  if (!count)
    return tri_fail(err, TRI_NOT_FOUND, "model",
                    "%.200s is a folder of the Hugging Face cache without a snapshot: the model was not fetched",
                    folder);
  return tri_fail(err, TRI_INVALID_ARGUMENT, "model",
                  "%.200s has %d snapshots, and refs/main names none of them: say which, as %.80s/snapshots/REVISION",
                  folder, count, folder);
}

/* Writes the path of a cache of this user, as Hugging Face's tools find it. Returns false where there is none. */
static bool find_cache(char out[TRI_MODEL_FOLDER]) {
  static const struct {
    const char *variable, *below;
  } places[] = {{"HF_HUB_CACHE", ""},
                {"HUGGINGFACE_HUB_CACHE", ""},
                {"HF_HOME", "/hub"},
                {"XDG_CACHE_HOME", "/huggingface/hub"},
                {"HOME", "/.cache/huggingface/hub"}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char *value = getenv(places[i].variable);
    if (!value || !*value) continue;
    int n = snprintf(out, TRI_MODEL_FOLDER, "%s%s", value, places[i].below);
    return n < TRI_MODEL_FOLDER && is_folder(out);
  }
  return false;
}

/* Writes the folder of a repository ORG/NAME, or NAME, in the cache. Returns false where it is not there. */
static bool find_repository(const char *name, char out[TRI_MODEL_FOLDER]) {
  char cache[TRI_MODEL_FOLDER], entry[PREFIX + TRI_MODEL_NAME + 2];
  const char *slash = strchr(name, '/');
  bool plain = name[0] != '.' && name[0] != '/' && !strstr(name, "..") && strlen(name) < TRI_MODEL_NAME;
  if (!plain || (slash && (!slash[1] || strchr(slash + 1, '/'))) || !find_cache(cache)) return false;
  if (slash)
    snprintf(entry, sizeof entry, "%s%.*s--%s", prefix, (int)(slash - name), name, slash + 1);
  else
    snprintf(entry, sizeof entry, "%s%s", prefix, name);
  return join(out, cache, entry) && is_folder(out);
}

tri_status tri_model_folder_find(const char *given, char out[TRI_MODEL_FOLDER], tri_error *err) {
  char path[TRI_MODEL_FOLDER];
  if (strlen(given) >= TRI_MODEL_FOLDER)
    return tri_fail(err, TRI_TOO_LARGE, "model", "the model's path has %zu bytes, the limit is %d", strlen(given),
                    TRI_MODEL_FOLDER - 1);
  if (access(given, F_OK) && find_repository(given, path)) return find_snapshot(path, out, err);
  bool here = join(path, given, "config.json") && !access(path, F_OK);
  if (!here && join(path, given, "snapshots") && is_folder(path)) return find_snapshot(given, out, err);
  memcpy(out, given, strlen(given) + 1);
  return TRI_OK;
}

/* Returns where the last part of a path begins, and sets its length. */
static const char *last_part(const char *path, size_t len, size_t *part) {
  while (len > 1 && path[len - 1] == '/') len--;
  size_t at = len;
  while (at && path[at - 1] != '/') at--;
  *part = len - at;
  return path + at;
}

/* models--ORG--NAME to ORG/NAME. Returns false for another name. */
static bool read_entry(const char *entry, size_t len, char out[TRI_MODEL_NAME]) {
  if (len <= PREFIX || memcmp(entry, prefix, PREFIX) != 0 || len - PREFIX >= TRI_MODEL_NAME) return false;
  snprintf(out, TRI_MODEL_NAME, "%.*s", (int)(len - PREFIX), entry + PREFIX);
  char *dashes = strstr(out, "--");
  if (!dashes) return true;
  *dashes = '/';
  memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
  return true;
}

void tri_model_folder_name(const char *folder, char out[TRI_MODEL_NAME]) {
  char real[PATH_MAX], plain[TRI_MODEL_FOLDER];
  size_t len, above;
  struct stat sb;
  const char *part = last_part(folder, strlen(folder), &len);
  snprintf(plain, sizeof plain, "%.*s", (int)(part + len - folder), folder);
  /* A link that a user has made has a name of its own; "." has none. */
  if (!lstat(plain, &sb) && !S_ISLNK(sb.st_mode) && realpath(plain, real))
    part = last_part(folder = real, strlen(real), &len);
  if (part > folder) {
    const char *up = last_part(folder, (size_t)(part - folder), &above);
    bool snapshot = above == 9 && !memcmp(up, "snapshots", 9) && up > folder;
    const char *entry = last_part(folder, snapshot ? (size_t)(up - folder) : 0, &above);
    if (snapshot && read_entry(entry, above, out)) return;
  }
  if (read_entry(part, len, out)) return;
  int most = len < TRI_MODEL_NAME ? (int)len : TRI_MODEL_NAME - 1;
  snprintf(out, TRI_MODEL_NAME, "%.*s", len ? most : 5, len ? part : "model"); /* "/" has no name */
}
