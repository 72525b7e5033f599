/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/machine_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/cost/disk_read.h"

/* {"NAME": {"read_bytes_per_s": x, "TYPE_flops_per_s": x, ...}, "disk M:N of HOST": {"disk_bytes_per_s": x}}. A cache:
 * what cannot be read counts as not measured, and is written anew. */
enum { MOST_BYTES = 1 << 20, MOST_DEVICES = 64, MOST_NAME = TRI_DISK_NAME };
_Static_assert((int)MOST_NAME >= (int)TRI_MACHINE_NAME, "holds names of both");

/* A device with the products of each type, or a disk; 0: not measured. */
struct device {
  char name[MOST_NAME];
  double read, flops[TRI_DTYPE_COUNT], disk;
};

struct devices {
  struct device list[MOST_DEVICES];
  int count;
};

void tri_machine_file_path(char out[PATH_MAX]) { tri_cache_file("machine.json", out); }

void tri_machine_name(const char *tactics_key, char out[TRI_MACHINE_NAME]) {
  snprintf(out, TRI_MACHINE_NAME, "%s", tactics_key);
  char *library = strstr(out, ", cuBLAS");
  if (library) *library = 0;
}

/* ---- reading ---- */

struct reading {
  struct devices *all;
  struct device *at;
  char field[TRI_ERROR_FIELD];
  tri_error *err;
};

static tri_status refuse(const struct reading *r, const char *why) {
  return tri_fail(r->err, TRI_CORRUPT, r->field, "%s %s", r->field, why);
}

/* A key that is not known may be a later version's. */
static tri_status read_figure(void *ctx, const char *key, const tri_json *value) {
  struct reading *r = ctx;
  double *to = strcmp(key, "read_bytes_per_s") ? NULL : &r->at->read, x = 0;
  if (!strcmp(key, "disk_bytes_per_s")) to = &r->at->disk;
  for (int t = 0; t < TRI_DTYPE_COUNT; t++) {
    char name[64];
    snprintf(name, sizeof name, "%s_flops_per_s", tri_dtype_name((tri_dtype)t));
    if (!strcmp(key, name)) to = &r->at->flops[t];
  }
  if (!to) return TRI_OK;
  snprintf(r->field, sizeof r->field, "%.40s.%.40s", r->at->name, key);
  if (!tri_json_as_num(value, &x) || !isfinite(x) || x <= 0) return refuse(r, "must be a number above 0");
  *to = x;
  return TRI_OK;
}

static tri_status read_device(void *ctx, const char *key, const tri_json *value) {
  struct reading *r = ctx;
  snprintf(r->field, sizeof r->field, "%.80s", key);
  if (tri_json_kind_of(value) != TRI_JSON_OBJECT) return refuse(r, "must be an object");
  if (strlen(key) >= MOST_NAME) return refuse(r, "is too long for a GPU's name");
  if (r->all->count == MOST_DEVICES) return refuse(r, "is one GPU too many");
  r->at = &r->all->list[r->all->count++];
  snprintf(r->at->name, sizeof r->at->name, "%s", key);
  TRI_CHECK(tri_json_each(value, read_figure, r));
  snprintf(r->field, sizeof r->field, "%.40s.read_bytes_per_s", key);
  return r->at->read > 0 || r->at->disk > 0 ? TRI_OK : refuse(r, "is missing");
}

static tri_status read_devices(const char *path, struct devices *all, tri_error *err) {
  char *text = NULL;
  size_t len = 0;
  tri_json_doc *doc = NULL;
  struct reading r = {.all = all, .err = err};
  tri_status st;
  TRI_TRY(tri_file_read(path, MOST_BYTES, &text, &len, err));
  TRI_TRY(tri_json_parse(text, len, &doc, err));
  snprintf(r.field, sizeof r.field, "the file");
  if (tri_json_kind_of(tri_json_root(doc)) != TRI_JSON_OBJECT) TRI_TRY(refuse(&r, "must be an object"));
  TRI_TRY(tri_json_each(tri_json_root(doc), read_device, &r));
cleanup:
  tri_json_free(doc);
  tri_free(text);
  return st;
}

/* No memory for the list counts as no file. */
static struct devices *load(const char *path) {
  struct devices *all = tri_calloc(1, sizeof *all);
  tri_error err = {0};
  tri_status st = all && path[0] ? read_devices(path, all, &err) : TRI_NOT_FOUND;
  if (st == TRI_OK || !all) return all;
  if (st != TRI_NOT_FOUND) tri_log(TRI_LOG_WARN, "plan", "%s: %s: the file is not used", path, err.message);
  all->count = 0;
  return all;
}

static struct device *find(struct devices *all, const char *name) {
  for (int i = 0; i < all->count; i++)
    if (!strcmp(all->list[i].name, name)) return &all->list[i];
  return NULL;
}

bool tri_machine_file_find(const char *path, const char *device, tri_dtype type, tri_machine_figures *out) {
  struct devices *all = load(path);
  const struct device *d = all ? find(all, device) : NULL;
  bool has = d && d->flops[type] > 0;
  if (has) *out = (tri_machine_figures){d->read, d->flops[type]};
  tri_free(all);
  return has;
}

bool tri_machine_file_find_disk(const char *path, const char *disk, double *bytes_per_s) {
  struct devices *all = load(path);
  const struct device *d = all ? find(all, disk) : NULL;
  bool has = d && d->disk > 0;
  if (has) *bytes_per_s = d->disk;
  tri_free(all);
  return has;
}

/* ---- writing ---- */

static tri_status append_device(const struct device *d, bool last, tri_buf *b) {
  char text[64 + 2 * MOST_NAME];
  size_t n = 0;
  text[n++] = '"';
  for (const char *c = d->name; *c; c++) {
    if (*c == '"' || *c == '\\') text[n++] = '\\';
    text[n++] = *c;
  }
  bool is_disk = d->disk > 0;
  n += (size_t)snprintf(text + n, sizeof text - n, "\": {\"%s_bytes_per_s\": %.6g", is_disk ? "disk" : "read",
                        is_disk ? d->disk : d->read);
  TRI_CHECK(tri_buf_append(b, text, n));
  for (int t = 0; t < TRI_DTYPE_COUNT; t++) {
    if (d->flops[t] <= 0) continue;
    n = (size_t)snprintf(text, sizeof text, ", \"%s_flops_per_s\": %.6g", tri_dtype_name((tri_dtype)t), d->flops[t]);
    TRI_CHECK(tri_buf_append(b, text, n));
  }
  return last ? tri_buf_append(b, "}\n", 2) : tri_buf_append(b, "},\n ", 4);
}

static tri_status write_devices(const char *path, const struct devices *all, tri_error *err) {
  tri_buf b = {0};
  tri_status st;
  TRI_TRY(tri_buf_append(&b, "{", 1));
  for (int i = 0; i < all->count; i++) TRI_TRY(append_device(&all->list[i], i + 1 == all->count, &b));
  TRI_TRY(tri_buf_append(&b, "}\n", 2));
  /* Control threads write it, and a disk that is busy for seconds would make their rank look silent. */
  TRI_TRY(tri_file_replace_soon(path, b.data, b.len, err));
cleanup:
  tri_buf_free(&b);
  return st;
}

static bool is_printable(const char *name) {
  for (; *name; name++)
    if (*name < ' ' || *name > '~') return false;
  return true;
}

static bool is_figure(double x) { return isfinite(x) && x > 0; }

/* Finds or begins the entry of a name. */
static struct device *entry(struct devices *all, const char *name) {
  struct device *d = find(all, name);
  if (d) return d;
  if (all->count == MOST_DEVICES) all->count = 0; /* a cache: the others will be measured again */
  d = &all->list[all->count++];
  *d = (struct device){0};
  snprintf(d->name, sizeof d->name, "%s", name);
  return d;
}

/* Puts the figures that `from` has into the file. */
static tri_status add(const char *path, const struct device *from, tri_error *err) {
  struct devices *all = load(path);
  if (!all) return tri_fail(err, TRI_NO_MEMORY, path, "no memory for the figures of %d GPUs", MOST_DEVICES);
  struct device *d = entry(all, from->name);
  if (from->read > 0) d->read = from->read;
  for (int t = 0; t < TRI_DTYPE_COUNT; t++)
    if (from->flops[t] > 0) d->flops[t] = from->flops[t];
  if (from->disk > 0) d->disk = from->disk;
  tri_status st = write_devices(path, all, err);
  tri_free(all);
  return st;
}

static bool is_name(const char *name) { return name[0] && strlen(name) < MOST_NAME && is_printable(name); }

tri_status tri_machine_file_add(const char *path, const char *device, tri_dtype type, const tri_machine_figures *f,
                                tri_error *err) {
  if (!is_name(device) || !is_figure(f->read_bytes_per_s) || !is_figure(f->flops_per_s))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "device", "these are no figures of a GPU");
  struct device from = {.read = f->read_bytes_per_s};
  from.flops[type] = f->flops_per_s;
  snprintf(from.name, sizeof from.name, "%s", device);
  return add(path, &from, err);
}

tri_status tri_machine_file_add_disk(const char *path, const char *disk, double bytes_per_s, tri_error *err) {
  if (!is_name(disk) || !is_figure(bytes_per_s))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "disk", "this is no bandwidth of a disk");
  struct device from = {.disk = bytes_per_s};
  snprintf(from.name, sizeof from.name, "%s", disk);
  return add(path, &from, err);
}
