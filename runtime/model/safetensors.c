/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/gguf_files.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/folder.h"
#include "runtime/model/gguf_model.h"

/* The format: 8 bytes with the header's length (little endian), the header, a JSON object of {"dtype", "shape",
 * "data_offsets": [begin, end]} by tensor, and the data, from whose start offsets count. Headers are walked over
 * twice: `measure` counts tensors and bytes of names, so that parse_tensor fills arrays that never move, as names are
 * pointed to. Offsets become places in the file when a file's tensors join the checkpoint's. */
enum { MAX_FILES = 4096, MAX_INDEX_BYTES = 64 << 20 };

struct file {
  char *path;
  int fd;
  char *names;
  uint64_t data_start;
};

struct tri_checkpoint {
  struct file *files;
  int num_files;
  tri_st_tensor *tensors;
  size_t num_tensors;
};

/* Types that may stand in a file though no weight may have them: their size is needed to check the offsets. */
static const struct {
  const char *name;
  unsigned bytes;
} other_types[] = {{"BOOL", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"U32", 4}, {"F64", 8}, {"U64", 8}};

static tri_status parse_dtype(const char *name, tri_dtype *out, unsigned *bytes) {
  if (!name) return TRI_CORRUPT;
  if (tri_dtype_from_safetensors(name, out)) {
    *bytes = (unsigned)tri_dtype_size(*out);
    return TRI_OK;
  }
  for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++)
    if (!strcmp(other_types[i].name, name)) {
      *out = TRI_DTYPE_COUNT;
      *bytes = other_types[i].bytes;
      return TRI_OK;
    }
  return TRI_UNSUPPORTED;
}

struct parser {
  tri_st_tensor *tensors;
  size_t count, cap, name_bytes, name_cap;
  char *names;
  uint64_t data_len, data_end; /* bytes of data, and where the last tensor ends */
  const char *last;
  tri_error *err;
};

static tri_status parse_shape(const tri_json *shape, tri_st_tensor *t, uint64_t *elements) {
  if (tri_json_kind_of(shape) != TRI_JSON_ARRAY || tri_json_size(shape) > TRI_ST_MAX_RANK) return TRI_CORRUPT;
  t->rank = (int)tri_json_size(shape);
  *elements = 1;
  for (int i = 0; i < t->rank; i++) {
    if (!tri_json_as_int(tri_json_at(shape, (size_t)i), &t->shape[i]) || t->shape[i] < 0) return TRI_CORRUPT;
    if (__builtin_mul_overflow(*elements, (uint64_t)t->shape[i], elements)) return TRI_OVERFLOW;
  }
  return TRI_OK;
}

static tri_status parse_tensor(void *ctx, const char *key, const tri_json *value) {
  struct parser *p = ctx;
  if (!strcmp(key, "__metadata__")) return TRI_OK;
  size_t len = strlen(key) + 1;
  tri_st_tensor *t = &p->tensors[p->count];
  *t = (tri_st_tensor){.name = p->names + p->name_bytes};
  memcpy(p->names + p->name_bytes, key, len);
  p->name_bytes += len;

  unsigned size;
  uint64_t elements, bytes;
  const char *dtype = tri_json_get_str(value, "dtype");
  if (parse_dtype(dtype, &t->dtype, &size) != TRI_OK)
    return tri_fail(p->err, TRI_CORRUPT, key, "tensor %.80s has the unknown type \"%.20s\"", key, dtype ? dtype : "");
  if (parse_shape(tri_json_get(value, "shape"), t, &elements) != TRI_OK ||
      __builtin_mul_overflow(elements, size, &bytes))
    return tri_fail(p->err, TRI_CORRUPT, key, "tensor %.80s has no valid shape (at most %d non-negative sizes)", key,
                    TRI_ST_MAX_RANK);
  const tri_json *offsets = tri_json_get(value, "data_offsets");
  int64_t begin, end;
  if (tri_json_size(offsets) != 2 || !tri_json_as_int(tri_json_at(offsets, 0), &begin) ||
      !tri_json_as_int(tri_json_at(offsets, 1), &end) || begin < 0 || end < begin || (uint64_t)end > p->data_len)
    return tri_fail(p->err, TRI_CORRUPT, key,
                    "tensor %.80s: data_offsets must be two offsets inside the %llu bytes of data", key,
                    (unsigned long long)p->data_len);
  if ((uint64_t)(end - begin) != bytes)
    return tri_fail(p->err, TRI_CORRUPT, key, "tensor %.80s: %lld bytes in the file, its shape and type need %llu", key,
                    (long long)(end - begin), (unsigned long long)bytes);
  t->offset = (uint64_t)begin;
  t->bytes = bytes;
  p->count++;
  return TRI_OK;
}

/* A wrong entry is neither counted nor refused here: parse_tensor sees it again. `last` is for the
 * message about a file that ends too early, which is worth more than one about its first tensor beyond the end. */
static tri_status measure(void *ctx, const char *key, const tri_json *value) {
  struct parser *p = ctx;
  int64_t end;
  p->cap++;
  p->name_cap += strlen(key) + 1;
  if (strcmp(key, "__metadata__") != 0 && tri_json_as_int(tri_json_at(tri_json_get(value, "data_offsets"), 1), &end) &&
      end > 0 && (uint64_t)end > p->data_end) {
    p->data_end = (uint64_t)end;
    p->last = key;
  }
  return TRI_OK;
}

static int by_offset(const void *a, const void *b) {
  const tri_st_tensor *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors first */
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const tri_st_tensor *)a)->name, ((const tri_st_tensor *)b)->name);
}

/* Sorted by offset, each tensor must begin where the one before it ends: no byte of the data belongs to two tensors or
 * to none, as the format demands. */
static tri_status check_cover(struct parser *p) {
  uint64_t at = 0;
  if (p->count) qsort(p->tensors, p->count, sizeof *p->tensors, by_offset);
  for (size_t i = 0; i < p->count; at += p->tensors[i++].bytes)
    if (p->tensors[i].offset != at)
      return tri_fail(p->err, TRI_CORRUPT, p->tensors[i].name,
                      "tensor %.80s starts at %llu, the one before it ends at %llu", p->tensors[i].name,
                      (unsigned long long)p->tensors[i].offset, (unsigned long long)at);
  if (at != p->data_len)
    return tri_fail(p->err, TRI_CORRUPT, "data_offsets", "the tensors cover %llu of %llu bytes", (unsigned long long)at,
                    (unsigned long long)p->data_len);
  return TRI_OK;
}

tri_status tri_st_parse_header(const char *header, size_t header_len, uint64_t data_len, tri_st_tensor **tensors,
                               size_t *count, char **names, tri_error *err) {
  tri_status st;
  tri_json_doc *doc = NULL;
  struct parser p = {.data_len = data_len, .err = err};
  TRI_TRY(tri_json_parse(header, header_len, &doc, err));
  const tri_json *root = tri_json_root(doc);
  if (tri_json_kind_of(root) != TRI_JSON_OBJECT)
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "header", "the safetensors header is not an object"));
  TRI_TRY(tri_json_each(root, measure, &p));
  if (p.data_end > data_len) {
    uint64_t before = 8 + (uint64_t)header_len; /* the header's length and the header */
    st = tri_fail(err, TRI_CORRUPT, p.last,
                  "%llu bytes, but its header wants %llu (up to the end of tensor %.80s): an incomplete download?",
                  (unsigned long long)(before + data_len), (unsigned long long)(before + p.data_end), p.last);
    goto cleanup;
  }
  p.tensors = tri_calloc(p.cap, sizeof *p.tensors);
  p.names = tri_calloc(p.name_cap, 1);
  if (!p.tensors || !p.names) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "header", "no memory for %zu tensors", p.cap));
  TRI_TRY(tri_json_each(root, parse_tensor, &p));
  TRI_TRY(check_cover(&p));
  *tensors = p.tensors;
  *count = p.count;
  *names = p.names;
  p.tensors = NULL;
  p.names = NULL;
cleanup:
  tri_free(p.tensors);
  tri_free(p.names);
  tri_json_free(doc);
  return st;
}

static tri_status read_exact(int fd, void *buf, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(fd, (char *)buf + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return TRI_IO;
    done += (size_t)n;
  }
  return TRI_OK;
}

/* Names are not copied: they stay in the memory of the file, which lives as long as the checkpoint. */
static tri_status append_tensors(tri_checkpoint *c, int file, tri_st_tensor *t, size_t n, uint64_t data_start) {
  tri_st_tensor *all = tri_grow(c->tensors, c->num_tensors, c->num_tensors + n, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (size_t i = 0; i < n; i++) {
    t[i].file = file;
    t[i].offset += data_start;
    all[c->num_tensors + i] = t[i];
  }
  c->tensors = all;
  c->num_tensors += n;
  return TRI_OK;
}

/* Reads how long the header is; *size is the file's. */
static tri_status read_header_length(int fd, const char *path, uint64_t *out, uint64_t *size, tri_error *err) {
  struct stat sb;
  uint8_t start[32];
  uint64_t len = 0;
  if (fstat(fd, &sb) || !S_ISREG(sb.st_mode) || sb.st_size < 8 || read_exact(fd, start, 8, 0) != TRI_OK)
    return tri_fail(err, TRI_CORRUPT, path, "%s is no safetensors file: shorter than 8 bytes or not a regular file",
                    path);
  if (sb.st_size >= (off_t)sizeof start && read_exact(fd, start, sizeof start, 0) == TRI_OK &&
      tri_file_is_lfs_pointer(start, sizeof start))
    return tri_fail(err, TRI_CORRUPT, path, "%s is a Git LFS pointer: the file itself was not fetched", path);
  for (int i = 7; i >= 0; i--) len = len << 8 | start[i];
  if (len > TRI_ST_MAX_HEADER)
    return tri_fail(err, TRI_CORRUPT, path, "%s claims a header of %llu bytes, the limit is %llu: no safetensors file?",
                    path, (unsigned long long)len, (unsigned long long)TRI_ST_MAX_HEADER);
  if (len > (uint64_t)sb.st_size - 8)
    return tri_fail(err, TRI_CORRUPT, path, "%s has %lld bytes, but its header alone %llu: an incomplete download?",
                    path, (long long)sb.st_size, (unsigned long long)len);
  *out = len;
  *size = (uint64_t)sb.st_size;
  return TRI_OK;
}

/* Opens a file as the checkpoint's last one. missing: what it means that there is no such file */
static tri_status open_last(tri_checkpoint *c, const char *path, tri_status missing, tri_error *err) {
  struct file *files = tri_grow(c->files, (size_t)c->num_files, (size_t)c->num_files + 1, sizeof *files);
  if (!files) return tri_fail(err, TRI_NO_MEMORY, path, "no memory for %s", path);
  c->files = files;
  struct file *f = &files[c->num_files];
  f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of this name must not hold us up */
  if (f->fd < 0)
    return tri_fail(err, errno == ENOENT ? missing : TRI_IO, path, "cannot open %s: %s", path, strerror(errno));
  /* From here on tri_checkpoint_close closes and frees the file, whatever fails below. */
  c->num_files++;
  f->path = tri_strdup(path);
  return f->path ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, path, "no memory for %s", path);
}

static tri_status add_file(tri_checkpoint *c, const char *path, tri_status missing, tri_error *err) {
  tri_status st;
  char *header = NULL;
  tri_st_tensor *tensors = NULL;
  size_t count = 0;
  TRI_CHECK(open_last(c, path, missing, err));
  struct file *f = &c->files[c->num_files - 1];
  uint64_t len = 0, size = 0;
  TRI_TRY(read_header_length(f->fd, path, &len, &size, err));
  header = tri_malloc(len + 1, 1);
  if (!header) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, path, "no memory for the header of %s", path));
  if (read_exact(f->fd, header, len, 8) != TRI_OK)
    TRI_TRY(tri_fail(err, TRI_IO, path, "cannot read the header of %s", path));
  st = tri_st_parse_header(header, len, size - 8 - len, &tensors, &count, &f->names, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
  TRI_TRY(st);
  f->data_start = 8 + len;
  st = append_tensors(c, c->num_files - 1, tensors, count, f->data_start);
cleanup:
  tri_free(header);
  tri_free(tensors);
  return st;
}

/* Sorts by name for tri_checkpoint_find. */
static tri_status finish_open(tri_checkpoint *c, tri_error *err) {
  if (c->num_tensors) qsort(c->tensors, c->num_tensors, sizeof *c->tensors, by_name);
  for (size_t i = 1; i < c->num_tensors; i++)
    if (!strcmp(c->tensors[i - 1].name, c->tensors[i].name))
      return tri_fail(err, TRI_CORRUPT, c->tensors[i].name, "tensor %.80s is in two files: %s and %s",
                      c->tensors[i].name, c->files[c->tensors[i - 1].file].path, c->files[c->tensors[i].file].path);
  return TRI_OK;
}

/* Gives the caller a checkpoint that is whole, or closes it. */
static tri_status hand_over(tri_checkpoint *c, tri_status st, tri_checkpoint **out) {
  if (st == TRI_OK)
    *out = c;
  else
    tri_checkpoint_close(c);
  return st;
}

tri_status tri_checkpoint_open_file(const char *path, tri_checkpoint **out, tri_error *err) {
  tri_checkpoint *c = tri_calloc(1, sizeof *c);
  if (!c) return tri_fail(err, TRI_NO_MEMORY, path, "no memory");
  tri_status st = add_file(c, path, TRI_NOT_FOUND, err);
  if (st == TRI_OK) st = finish_open(c, err);
  return hand_over(c, st, out);
}

struct index_reader {
  tri_checkpoint *c;
  const char *dir;
  tri_error *err;
};

static tri_status read_index_entry(void *ctx, const char *key, const tri_json *value) {
  struct index_reader *r = ctx;
  const char *name = tri_json_as_str(value, NULL);
  /* A file name and nothing else: an index must not lead out of its folder. */
  if (!name || !*name || strchr(name, '/') || !strcmp(name, "..") || strlen(name) > 255)
    return tri_fail(r->err, TRI_CORRUPT, key, "the index places tensor %.80s in something that is no file name", key);
  char path[4096 + 256];
  snprintf(path, sizeof path, "%.4095s/%s", r->dir, name);
  for (int i = 0; i < r->c->num_files; i++)
    if (!strcmp(r->c->files[i].path, path)) return TRI_OK;
  if (r->c->num_files == MAX_FILES)
    return tri_fail(r->err, TRI_TOO_LARGE, "weight_map", "more than %d files", MAX_FILES);
  return add_file(r->c, path, TRI_CORRUPT, r->err);
}

/* The index must be right about each tensor: else files of two releases have been mixed. */
static tri_status check_index_entry(void *ctx, const char *key, const tri_json *value) {
  struct index_reader *r = ctx;
  const tri_st_tensor *t = tri_checkpoint_find(r->c, key);
  /* read_index_entry has put a folder and a slash before every name. */
  const char *file = t ? strrchr(r->c->files[t->file].path, '/') + 1 : NULL;
  if (!t || strcmp(file, tri_json_as_str(value, NULL)))
    return tri_fail(r->err, TRI_CORRUPT, key, "tensor %.80s is not in the file that the index names", key);
  return TRI_OK;
}

/* Three walks: the index opens each file that it names, the tensors of all files are sorted, and the index is checked
 * against them. */
static tri_status open_sharded(tri_checkpoint *c, const char *dir, const char *index_path, tri_error *err) {
  tri_status st;
  tri_json_doc *doc = NULL;
  TRI_TRY(tri_json_read_file(index_path, MAX_INDEX_BYTES, &doc, err));
  const tri_json *map = tri_json_get(tri_json_root(doc), "weight_map");
  if (tri_json_kind_of(map) != TRI_JSON_OBJECT)
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "weight_map", "%s has no weight_map", index_path));
  struct index_reader r = {.c = c, .dir = dir, .err = err};
  TRI_TRY(tri_json_each(map, read_index_entry, &r));
  TRI_TRY(finish_open(c, err));
  TRI_TRY(tri_json_each(map, check_index_entry, &r));
cleanup:
  tri_json_free(doc);
  return st;
}

/* ---- GGUF ---- */

/* One file of a model. */
static tri_status add_gguf(tri_checkpoint *c, const char *path, const tri_gguf *g, const tri_gguf *first,
                           const tri_gguf_arch *arch, tri_error *err) {
  tri_st_tensor *tensors = NULL;
  size_t count = 0;
  TRI_CHECK(open_last(c, path, TRI_CORRUPT, err));
  struct file *f = &c->files[c->num_files - 1];
  tri_status st = tri_gguf_tensors(g, first, arch, &tensors, &count, &f->names, err);
  if (st == TRI_OK) st = append_tensors(c, c->num_files - 1, tensors, count, 0);
  f->data_start = g->header_bytes;
  tri_free(tensors);
  return st;
}

static tri_status add_ggufs(tri_checkpoint *c, const tri_gguf *first, const char *path, tri_error *err) {
  char part[TRI_MODEL_FOLDER];
  int count = 1;
  const tri_gguf_arch *arch = tri_gguf_arch_of(first, err);
  if (!arch) return TRI_UNSUPPORTED;
  TRI_CHECK(tri_gguf_files_count(first, path, &count, err));
  TRI_CHECK(add_gguf(c, path, first, first, arch, err));
  for (int i = 1; i < count; i++) {
    tri_gguf *g = NULL;
    tri_gguf_files_part(path, i, count, part);
    TRI_CHECK(tri_gguf_open(part, &g, err));
    tri_status st = add_gguf(c, part, g, first, arch, err);
    tri_gguf_close(g);
    TRI_CHECK(st);
  }
  return finish_open(c, err);
}

static tri_status open_gguf(const tri_gguf *first, const char *path, tri_checkpoint **out, tri_error *err) {
  tri_error why = {0};
  tri_checkpoint *c = tri_calloc(1, sizeof *c);
  if (!c) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  tri_status st = hand_over(c, add_ggufs(c, first, path, &why), out);
  if (st == TRI_OK) return st;
  tri_error_in_file(&why, path);
  return tri_fail(err, st, why.field, "%s", why.message[0] ? why.message : tri_status_text(st));
}

tri_status tri_checkpoint_open(const char *dir, tri_checkpoint **out, tri_error *err) {
  char path[4096 + 64];
  tri_gguf *g;
  TRI_CHECK(tri_gguf_files_open(dir, path, &g, err));
  if (g) {
    tri_status st = open_gguf(g, path, out, err);
    tri_gguf_close(g);
    return st;
  }
  snprintf(path, sizeof path, "%.4095s/model.safetensors", dir);
  if (!access(path, F_OK)) return tri_checkpoint_open_file(path, out, err);
  snprintf(path, sizeof path, "%.4095s/model.safetensors.index.json", dir);
  if (access(path, F_OK)) return tri_folder_no_weights(dir, err);
  tri_checkpoint *c = tri_calloc(1, sizeof *c);
  if (!c) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  return hand_over(c, open_sharded(c, dir, path, err), out);
}

/* Puts a prefix before the names of the last file's tensors, of which none has been sorted. */
static tri_status prefix_names(tri_checkpoint *c, size_t from, const char *prefix) {
  size_t bytes = 0, at = 0, len = strlen(prefix);
  for (size_t i = from; i < c->num_tensors; i++) bytes += len + strlen(c->tensors[i].name) + 1;
  char *names = tri_malloc(bytes + 1, 1);
  if (!names) return TRI_NO_MEMORY;
  for (size_t i = from; i < c->num_tensors; i++) {
    const char *name = c->tensors[i].name;
    c->tensors[i].name = names + at;
    at += (size_t)snprintf(names + at, bytes + 1 - at, "%s%s", prefix, name) + 1;
  }
  tri_free(c->files[c->num_files - 1].names);
  c->files[c->num_files - 1].names = names;
  return TRI_OK;
}

tri_status tri_checkpoint_add(tri_checkpoint *c, const char *path, const char *prefix, tri_error *err) {
  size_t from = c->num_tensors;
  if (c->num_files == MAX_FILES) return tri_fail(err, TRI_TOO_LARGE, path, "more than %d files", MAX_FILES);
  TRI_CHECK(add_file(c, path, TRI_NOT_FOUND, err));
  if (prefix_names(c, from, prefix) != TRI_OK) return tri_fail(err, TRI_NO_MEMORY, path, "no memory for %s", path);
  return finish_open(c, err);
}

void tri_checkpoint_close(tri_checkpoint *c) {
  if (!c) return;
  for (int i = 0; i < c->num_files; i++) {
    if (c->files[i].fd >= 0) close(c->files[i].fd);
    tri_free(c->files[i].path);
    tri_free(c->files[i].names);
  }
  tri_free(c->files);
  tri_free(c->tensors);
  tri_free(c);
}

size_t tri_checkpoint_num_tensors(const tri_checkpoint *c) { return c->num_tensors; }
const tri_st_tensor *tri_checkpoint_tensor(const tri_checkpoint *c, size_t i) { return &c->tensors[i]; }
int tri_checkpoint_num_files(const tri_checkpoint *c) { return c->num_files; }
int tri_checkpoint_fd(const tri_checkpoint *c, int file) { return c->files[file].fd; }
const char *tri_checkpoint_path(const tri_checkpoint *c, int file) { return c->files[file].path; }
uint64_t tri_checkpoint_data_start(const tri_checkpoint *c, int file) { return c->files[file].data_start; }

/* Only after finish_open, which sorts. */
const tri_st_tensor *tri_checkpoint_find(const tri_checkpoint *c, const char *name) {
  tri_st_tensor key = {.name = name};
  return c->num_tensors ? bsearch(&key, c->tensors, c->num_tensors, sizeof key, by_name) : NULL;
}
