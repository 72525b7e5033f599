/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

/* A part's name ends as "-00001-of-00003.gguf". */
static const char ending[] = ".gguf";
enum { DIGITS = 5, PART = 1 + DIGITS + 4 + DIGITS };

static bool read_digits(const char *s, int *out) {
  *out = 0;
  for (int i = 0; i < DIGITS; i++) {
    if (s[i] < '0' || s[i] > '9') return false;
    *out = 10 * *out + (s[i] - '0');
  }
  return true;
}

/* Returns whether a name is that of a part. *at: where its numbers begin. */
static bool read_part(const char *name, size_t *at, int *number, int *count) {
  size_t len = strlen(name), end = sizeof ending - 1;
  if (len <= PART + end) return false;
  *at = len - PART - end;
  const char *s = name + *at;
  return *s == '-' && read_digits(s + 1, number) && !memcmp(s + 1 + DIGITS, "-of-", 4) &&
         read_digits(s + 5 + DIGITS, count);
}

void tri_gguf_files_part(const char *first, int i, int count, char out[TRI_MODEL_FOLDER]) {
  size_t at;
  int number, all;
  if (read_part(first, &at, &number, &all))
    snprintf(out, TRI_MODEL_FOLDER, "%.*s-%05d-of-%05d%s", (int)at, first, i + 1, count, ending);
  else
    snprintf(out, TRI_MODEL_FOLDER, "%s", first);
}

tri_status tri_gguf_files_count(const tri_gguf *first, const char *path, int *count, tri_error *err) {
  uint64_t parts = 1, number = 0;
  size_t at;
  int named = 0, all = 1;
  tri_gguf_uint(first, "split.count", &parts);
  tri_gguf_uint(first, "split.no", &number);
  if (!parts) parts = 1;
  bool is_part = read_part(path, &at, &named, &all);
  if (parts > TRI_GGUF_MAX_FILES || number || (parts > 1 && (!is_part || (uint64_t)all != parts)))
    return tri_fail(err, TRI_CORRUPT, "split.count",
                    "%s has part %llu of %llu: its name does not say so, and the others are not found by it", path,
                    (unsigned long long)number + 1, (unsigned long long)parts);
  *count = (int)parts;
  return TRI_OK;
}

/* A file that was named. */
static tri_status take_file(const char *path, char out[TRI_MODEL_FOLDER], tri_error *err) {
  char first[TRI_MODEL_FOLDER];
  size_t at;
  int number, count;
  if (read_part(path, &at, &number, &count) && number != 1) {
    tri_gguf_files_part(path, 0, count, first);
    return tri_fail(err, TRI_INVALID_ARGUMENT, "model", "%.150s is part %d of %d: give the first one, %.150s", path,
                    number, count, first);
  }
  snprintf(out, TRI_MODEL_FOLDER, "%s", path);
  return TRI_OK;
}

/* A folder: parts but for the first of a set do not count. */
static tri_status search(const char *folder, char out[TRI_MODEL_FOLDER], bool *found, tri_error *err) {
  char first[256] = "", second[256] = "";
  DIR *d = opendir(folder);
  if (!d) return TRI_OK; /* what reads the folder says why */
  for (struct dirent *e; !*second && (e = readdir(d));) {
    size_t at;
    int number = 1, count;
    if (e->d_name[0] == '.' || !tri_text_ends_with(e->d_name, ending)) continue;
    if (read_part(e->d_name, &at, &number, &count) && number != 1) continue;
    snprintf(*first ? second : first, sizeof first, "%s", e->d_name);
  }
  closedir(d);
  if (*second)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "model",
                    "%.120s has several GGUF files, such as %.80s and %.80s: give "
                    "one of them as the model",
                    folder, first, second);
  int n = *first ? snprintf(out, TRI_MODEL_FOLDER, "%s/%s", folder, first) : 0;
  *found = n > 0 && n < TRI_MODEL_FOLDER;
  return TRI_OK;
}

tri_status tri_gguf_files_find(const char *model, char out[TRI_MODEL_FOLDER], bool *found, tri_error *err) {
  struct stat sb;
  char config[TRI_MODEL_FOLDER];
  *found = false;
  if (strlen(model) >= TRI_MODEL_FOLDER - 16 || stat(model, &sb)) return TRI_OK;
  if (!S_ISDIR(sb.st_mode)) {
    if (!tri_text_ends_with(model, ending)) return TRI_OK;
    TRI_CHECK(take_file(model, out, err));
    *found = true;
    return TRI_OK;
  }
  int n = snprintf(config, sizeof config, "%s/config.json", model);
  if (n >= (int)sizeof config || !access(config, F_OK)) return TRI_OK;
  return search(model, out, found, err);
}

tri_status tri_gguf_files_open(const char *model, char path[TRI_MODEL_FOLDER], tri_gguf **out, tri_error *err) {
  bool found;
  *out = NULL;
  TRI_CHECK(tri_gguf_files_find(model, path, &found, err));
  return found ? tri_gguf_open(path, out, err) : TRI_OK;
}
