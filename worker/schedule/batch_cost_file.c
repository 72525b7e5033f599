/* SPDX-License-Identifier: Apache-2.0 */
/* The file, of which each key has its own:
 *
 *   {"key": "version 1.0, model ..., weights bf16, ...", "cells": [
 *   [8, 1, 0.0012],
 *   [8, 2, 0.0013]]}
 *
 * A cell is the length, the number of sequences and the seconds. The file's name is a hash of the key, which may
 * collide, and the key inside is compared. It is replaced as a whole, so that a reader never sees half of one. */
#include "worker/schedule/batch_cost_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/mem.h"

enum { MOST_BYTES = 1 << 16 };
static const double MOST_SECONDS = 1e6;

void tri_batch_cost_file_path(const char *key, char out[PATH_MAX]) {
  char name[48];
  snprintf(name, sizeof name, "batch-cost-%016" PRIx64 ".json", tri_hash_bytes(TRI_HASH_SEED, key, strlen(key)));
  tri_cache_file(name, out);
}

static int index_of(const int *axis, int n, int64_t value) {
  for (int i = 0; i < n; i++)
    if (axis[i] == value) return i;
  return -1;
}

/* A cell whose length or number is not on this table's axes comes from a start with other limits: it is passed over,
 * and the file is good all the same. */
static bool read_cell(const tri_json *cell, tri_batch_cost *c) {
  int64_t length, size;
  double seconds;
  if (tri_json_size(cell) != 3 || !tri_json_as_int(tri_json_at(cell, 0), &length) ||
      !tri_json_as_int(tri_json_at(cell, 1), &size) || !tri_json_as_num(tri_json_at(cell, 2), &seconds))
    return false;
  if (!(seconds > 0) || !(seconds < MOST_SECONDS)) return false;
  int l = index_of(c->lengths, c->num_lengths, length), s = index_of(c->sizes, c->num_sizes, size);
  if (l >= 0 && s >= 0) c->measured[l][s] = seconds;
  return true;
}

static tri_status read_cells(const tri_json *cells, const char *path, tri_batch_cost *c, tri_error *err) {
  if (tri_json_kind_of(cells) != TRI_JSON_ARRAY) return tri_fail(err, TRI_CORRUPT, "cells", "%s has no cells", path);
  if (!tri_json_size(cells)) return TRI_NOT_FOUND;
  for (size_t i = 0; i < tri_json_size(cells); i++)
    if (!read_cell(tri_json_at(cells, i), c))
      return tri_fail(err, TRI_CORRUPT, "cells",
                      "cell %zu of %s is not a length, a number of sequences and seconds from 0 to %g", i, path,
                      MOST_SECONDS);
  return TRI_OK;
}

tri_status tri_batch_cost_file_read(const char *path, const char *key, tri_batch_cost *c, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_batch_cost read = *c;
  char *text = NULL;
  size_t len = 0;
  tri_status st = path[0] ? tri_file_read(path, MOST_BYTES, &text, &len, err) : TRI_NOT_FOUND;
  if (st == TRI_OK) st = tri_json_parse(text, len, &doc, err);
  if (st == TRI_OK) {
    const char *of = tri_json_get_str(tri_json_root(doc), "key");
    st = of && !strcmp(of, key) ? read_cells(tri_json_get(tri_json_root(doc), "cells"), path, &read, err)
                                : TRI_NOT_FOUND;
  }
  if (st == TRI_OK) {
    *c = read;
    tri_batch_cost_complete(c);
  }
  tri_json_free(doc);
  tri_free(text);
  return st;
}

static tri_status append_cell(const tri_batch_cost *c, int length, int size, bool first, tri_buf *b) {
  char text[96];
  int n = snprintf(text, sizeof text, "%s\n[%d, %d, %.6g]", first ? "" : ",", c->lengths[length], c->sizes[size],
                   c->measured[length][size]);
  return tri_buf_append(b, text, (size_t)n);
}

tri_status tri_batch_cost_file_write(const char *path, const char *key, const tri_batch_cost *c, tri_error *err) {
  static const char head[] = "{\"key\": \"", middle[] = "\", \"cells\": [", tail[] = "]}\n";
  tri_buf b = {0};
  bool first = true;
  tri_status st = path[0] && !strpbrk(key, "\"\\") ? TRI_OK : TRI_INVALID_ARGUMENT;
  TRI_TRY(st);
  TRI_TRY(tri_buf_append(&b, head, sizeof head - 1));
  TRI_TRY(tri_buf_append(&b, key, strlen(key)));
  TRI_TRY(tri_buf_append(&b, middle, sizeof middle - 1));
  for (int l = 0; l < c->num_lengths; l++)
    for (int s = 0; s < c->num_sizes; s++) {
      if (!(c->measured[l][s] > 0)) continue;
      TRI_TRY(append_cell(c, l, s, first, &b));
      first = false;
    }
  TRI_TRY(tri_buf_append(&b, tail, sizeof tail - 1));
  TRI_TRY(tri_file_replace(path, b.data, b.len, err));
cleanup:
  tri_buf_free(&b);
  return st;
}
