/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/tactic_files.h"

#include <ctype.h>
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"

void tri_tactic_file_shipped(char out[PATH_MAX]) {
  char folder[PATH_MAX];
  tri_program_folder(folder);
  int n = folder[0] ? snprintf(out, PATH_MAX, "%s../share/trireme/cuda-gemm-tactics.txt", folder) : 0;
  if (n <= 0 || n >= PATH_MAX) out[0] = 0;
}

/* "NVIDIA H200, sm_90" becomes "nvidia-h200-sm-90". What is no letter or digit becomes a hyphen, one for several: a
 * device's name cannot lead out of the folder. */
static void name_of(const char *key, char out[TRI_TACTICS_KEY]) {
  size_t n = 0;
  for (; *key && n + 1 < TRI_TACTICS_KEY; key++) {
    if (isalnum((unsigned char)*key))
      out[n++] = (char)tolower((unsigned char)*key);
    else if (n && out[n - 1] != '-')
      out[n++] = '-';
  }
  out[n] = 0;
}

void tri_tactic_file_cache(const char *key, char out[PATH_MAX]) {
  char name[TRI_TACTICS_KEY], file[TRI_TACTICS_KEY + 16];
  name_of(key, name);
  snprintf(file, sizeof file, "tactics-%s.txt", name);
  tri_cache_file(file, out);
}

static tri_status load(tri_tactics *c, const char *key, const char *path, int *count, tri_error *err) {
  char *text = NULL;
  size_t len = 0;
  *count = 0;
  if (!path[0]) return TRI_NOT_FOUND;
  tri_status st = tri_file_read(path, TRI_TACTICS_TEXT_MOST, &text, &len, err);
  if (st == TRI_OK) st = tri_tactics_read(c, text, len, key, path, count, err);
  tri_free(text);
  return st;
}

/* A file that is absent is the usual case. A wrong one costs measuring again, and no more: it is a warning. */
static void load_or_say(tri_tactics *c, const char *key, const char *path, int *count) {
  tri_error err = {0};
  tri_status st = load(c, key, path, count, &err);
  if (st != TRI_OK && st != TRI_NOT_FOUND) tri_log(TRI_LOG_WARN, "tactics", "%s: the file is not used", err.message);
}

void tri_tactic_files_load(tri_tactics *c, const char *key, const char *shipped, const char *cache, int counts[2]) {
  load_or_say(c, key, shipped, &counts[0]);
  load_or_say(c, key, cache, &counts[1]);
}

/* A file that cannot be read counts as empty: the new one replaces it. */
tri_status tri_tactic_file_add(const char *path, const char *key, const tri_tactics *measured, tri_error *err) {
  tri_tactics *all = NULL;
  char *text = NULL;
  size_t len = 0;
  int count;
  tri_status st;
  TRI_TRY(tri_tactics_create(&all));
  load_or_say(all, key, path, &count);
  TRI_TRY(tri_tactics_put_all(all, measured));
  TRI_TRY(tri_tactics_write(all, key, &text, &len));
  TRI_TRY(tri_file_replace(path, text, len, err));
cleanup:
  tri_free(text);
  tri_tactics_destroy(all);
  return st == TRI_OK ? st : tri_fail(err, st, path, "%s: %s", path, tri_status_text(st));
}
