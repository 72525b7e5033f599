/* SPDX-License-Identifier: Apache-2.0 */
#include "base/last_hang.h"

#include <stdio.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"

enum { MOST_BYTES = 4 << 20 };

tri_status tri_last_hang_keep(const char *model, const char *report, size_t len, tri_error *err) {
  char path[PATH_MAX], head[400], when[40] = "";
  struct tm utc;
  time_t now = time(NULL);
  tri_buf text = {0};
  tri_status st;
  tri_state_file("last-hang.txt", path);
  if (!path[0])
    return tri_fail(err, TRI_NOT_FOUND, "XDG_STATE_HOME", "neither XDG_STATE_HOME nor HOME names a folder for it");
  if (gmtime_r(&now, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
  int n = snprintf(head, sizeof head, "%s, model %.200s\n", when, model);
  TRI_TRY(tri_buf_append(&text, head, (size_t)n));
  TRI_TRY(tri_buf_append(&text, report, len));
  TRI_TRY(tri_file_replace(path, text.data, text.len, err));
cleanup:
  tri_buf_free(&text);
  return st == TRI_OK ? st : tri_fail(err, st, "last-hang.txt", "%.300s: %s", path, tri_status_text(st));
}

tri_status tri_last_hang_read(char path[PATH_MAX], char **out, size_t *len, tri_error *err) {
  tri_state_file("last-hang.txt", path);
  return path[0] ? tri_file_read(path, MOST_BYTES, out, len, err) : TRI_NOT_FOUND;
}
