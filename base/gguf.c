/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

/* The format: "GGUF", u32 version, u64 tensors, u64 keys; keys (name, u32 type, value), tensors (name, u32 rank, u64
 * sizes, u32 type of elements, u64 offset), padding, data. A text is a u64 length and its bytes, an array a u32 type, a
 * u64 count and its items. Offsets count from the data, which begins at a multiple of general.alignment. */
enum { DEFAULT_ALIGNMENT = 32, LEAST_KEY = 8 + 1 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };

static const tri_gguf_block blocks[] = {
    {TRI_GGUF_BLOCK_F32, "F32", 1, 4},           {TRI_GGUF_BLOCK_F16, "F16", 1, 2},
    {TRI_GGUF_BLOCK_BF16, "BF16", 1, 2},         {TRI_GGUF_BLOCK_Q4_0, "Q4_0", 32, 18},
    {TRI_GGUF_BLOCK_Q4_1, "Q4_1", 32, 20},       {TRI_GGUF_BLOCK_Q5_0, "Q5_0", 32, 22},
    {TRI_GGUF_BLOCK_Q5_1, "Q5_1", 32, 24},       {TRI_GGUF_BLOCK_Q8_0, "Q8_0", 32, 34},
    {TRI_GGUF_BLOCK_Q2_K, "Q2_K", 256, 84},      {TRI_GGUF_BLOCK_Q3_K, "Q3_K", 256, 110},
    {TRI_GGUF_BLOCK_Q4_K, "Q4_K", 256, 144},     {TRI_GGUF_BLOCK_Q5_K, "Q5_K", 256, 176},
    {TRI_GGUF_BLOCK_Q6_K, "Q6_K", 256, 210},     {TRI_GGUF_BLOCK_IQ4_NL, "IQ4_NL", 32, 18},
    {TRI_GGUF_BLOCK_IQ4_XS, "IQ4_XS", 256, 136}, {TRI_GGUF_BLOCK_MXFP4, "MXFP4", 32, 17},
};

/* Names of types that are not read, by their numbers; those that are missing here have never been in files. */
static const struct {
  uint32_t id;
  const char *name;
} other_blocks[] = {{9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
                    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
                    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"}};

static const unsigned char sizes[TRI_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Memory of a header: what callers see comes first. */
struct header {
  tri_gguf g;
  tri_gguf_value *keys;
  tri_gguf_tensor *tensors;
  tri_arena *names;
  void *file; /* the bytes that values point into, where tri_gguf_open has read them */
};

/* The bytes that are left to read. */
struct reader {
  const uint8_t *data;
  size_t at, len;
  uint64_t file_bytes;
  struct header *h;
  tri_error *err;
};

/* The header wants more than there is: of the file, or of the part that was read so far. */
static tri_status run_out(const struct reader *r) {
  if (r->len < r->file_bytes) return TRI_AGAIN;
  return tri_fail(r->err, TRI_CORRUPT, "header",
                  "the file ends inside its header, after %llu bytes: an incomplete "
                  "download?",
                  (unsigned long long)r->file_bytes);
}

static tri_status take(struct reader *r, uint64_t bytes, const uint8_t **out) {
  if (bytes > r->len - r->at) return run_out(r);
  *out = r->data + r->at;
  r->at += (size_t)bytes;
  return TRI_OK;
}

static uint64_t load_le(const uint8_t *p, int bytes) {
  uint64_t x = 0;
  for (int i = bytes; i-- > 0;) x = x << 8 | p[i];
  return x;
}

static tri_status take_u32(struct reader *r, uint32_t *out) {
  const uint8_t *p = NULL;
  TRI_CHECK(take(r, 4, &p));
  *out = (uint32_t)load_le(p, 4);
  return TRI_OK;
}

static tri_status take_u64(struct reader *r, uint64_t *out) {
  const uint8_t *p = NULL;
  TRI_CHECK(take(r, 8, &p));
  *out = load_le(p, 8);
  return TRI_OK;
}

static tri_status no_memory(tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, "header", "no memory for the header of a GGUF file");
}

/* A name of a key or a tensor, printable, as a text of its own. what: for errors. */
static tri_status take_name(struct reader *r, const char *what, uint64_t number, const char **out) {
  uint64_t len;
  const uint8_t *p = NULL;
  TRI_CHECK(take_u64(r, &len));
  if (!len || len > TRI_GGUF_MAX_NAME)
    return tri_fail(r->err, TRI_CORRUPT, "header", "the name of %s %llu has %llu bytes, the limits are 1 and %d", what,
                    (unsigned long long)number, (unsigned long long)len, TRI_GGUF_MAX_NAME);
  TRI_CHECK(take(r, len, &p));
  for (uint64_t i = 0; i < len; i++)
    if (p[i] <= ' ' || p[i] >= 127)
      return tri_fail(r->err, TRI_CORRUPT, "header", "the name of %s %llu has the byte %u", what,
                      (unsigned long long)number, p[i]);
  *out = tri_arena_strndup(r->h->names, (const char *)p, (size_t)len);
  return *out ? TRI_OK : no_memory(r->err);
}

/* ---- keys ---- */

static tri_status take_texts(struct reader *r, tri_gguf_value *v) {
  for (uint64_t i = 0; i < v->count; i++) {
    uint64_t len;
    const uint8_t *p = NULL;
    TRI_CHECK(take_u64(r, &len));
    if (len > r->file_bytes)
      return tri_fail(r->err, TRI_CORRUPT, v->name, "%s: a text of %llu bytes, the file has %llu", v->name,
                      (unsigned long long)len, (unsigned long long)r->file_bytes);
    TRI_CHECK(take(r, len, &p));
  }
  return TRI_OK;
}

static tri_status take_type(struct reader *r, const tri_gguf_value *v, tri_gguf_type *out) {
  uint32_t type;
  TRI_CHECK(take_u32(r, &type));
  if (type >= TRI_GGUF_TYPES)
    return tri_fail(r->err, TRI_CORRUPT, v->name, "%s has a value of the unknown type %u", v->name, (unsigned)type);
  *out = (tri_gguf_type)type;
  return TRI_OK;
}

/* Every item has a byte at least, so that a count is bounded by the file. */
static tri_status take_array(struct reader *r, tri_gguf_value *v) {
  TRI_CHECK(take_type(r, v, &v->type));
  if (v->type == TRI_GGUF_ARRAY)
    return tri_fail(r->err, TRI_UNSUPPORTED, v->name, "%s is an array of arrays, which is not supported", v->name);
  TRI_CHECK(take_u64(r, &v->count));
  if (v->count > r->file_bytes)
    return tri_fail(r->err, TRI_CORRUPT, v->name, "%s has %llu items, the file %llu bytes", v->name,
                    (unsigned long long)v->count, (unsigned long long)r->file_bytes);
  v->is_array = true;
  return TRI_OK;
}

static tri_status take_key(struct reader *r, uint64_t number, tri_gguf_value *v) {
  uint64_t bytes;
  *v = (tri_gguf_value){.count = 1};
  TRI_CHECK(take_name(r, "key", number, &v->name));
  TRI_CHECK(take_type(r, v, &v->type));
  if (v->type == TRI_GGUF_ARRAY) TRI_CHECK(take_array(r, v));
  size_t from = r->at;
  v->data = r->data + from;
  if (v->type == TRI_GGUF_STRING) {
    TRI_CHECK(take_texts(r, v));
  } else {
    const uint8_t *p = NULL;
    if (__builtin_mul_overflow(v->count, (uint64_t)sizes[v->type], &bytes)) return run_out(r);
    TRI_CHECK(take(r, bytes, &p));
  }
  v->bytes = r->at - from;
  return TRI_OK;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const tri_gguf_value *)a)->name, ((const tri_gguf_value *)b)->name);
}

static tri_status read_keys(struct reader *r, uint64_t count) {
  struct header *h = r->h;
  if (count > TRI_GGUF_MAX_KEYS || count > r->file_bytes / LEAST_KEY)
    return tri_fail(r->err, TRI_CORRUPT, "header", "%llu keys in %llu bytes, the limit is %d",
                    (unsigned long long)count, (unsigned long long)r->file_bytes, TRI_GGUF_MAX_KEYS);
  h->keys = tri_calloc((size_t)count + 1, sizeof *h->keys);
  if (!h->keys) return no_memory(r->err);
  for (uint64_t i = 0; i < count; i++) TRI_CHECK(take_key(r, i, &h->keys[i]));
  qsort(h->keys, (size_t)count, sizeof *h->keys, by_key);
  for (size_t i = 1; i < count; i++)
    if (!by_key(&h->keys[i - 1], &h->keys[i]))
      return tri_fail(r->err, TRI_CORRUPT, h->keys[i].name, "there are two keys %s", h->keys[i].name);
  h->g.keys = h->keys;
  h->g.num_keys = (size_t)count;
  return TRI_OK;
}

/* ---- tensors ---- */

const tri_gguf_block *tri_gguf_block_find(uint32_t id) {
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if ((uint32_t)blocks[i].id == id) return &blocks[i];
  return NULL;
}

static tri_status find_block(struct reader *r, tri_gguf_tensor *t, uint32_t id) {
  t->block = tri_gguf_block_find(id);
  if (t->block) return TRI_OK;
  const char *name = "unknown";
  for (size_t i = 0; i < sizeof other_blocks / sizeof *other_blocks; i++)
    if (other_blocks[i].id == id) name = other_blocks[i].name;
  return tri_fail(r->err, TRI_UNSUPPORTED, t->name, "tensor %.80s has elements of the type %s (%u), which is not read",
                  t->name, name, (unsigned)id);
}

static tri_status measure(struct reader *r, tri_gguf_tensor *t) {
  uint64_t elements = 1;
  bool fits = true;
  for (int i = 0; i < t->rank; i++) {
    fits = fits && t->shape[i] && t->shape[i] <= INT64_MAX;
    fits = fits && !__builtin_mul_overflow(elements, t->shape[i], &elements);
  }
  if (!fits || elements > INT64_MAX / 4)
    return tri_fail(r->err, TRI_CORRUPT, t->name, "tensor %.80s has a size of 0, or more elements than can be counted",
                    t->name);
  if (t->shape[0] % (uint64_t)t->block->weights)
    return tri_fail(r->err, TRI_CORRUPT, t->name, "tensor %.80s: a row of %llu elements is not made of blocks of %d",
                    t->name, (unsigned long long)t->shape[0], t->block->weights);
  t->bytes = elements / (uint64_t)t->block->weights;
  if (__builtin_mul_overflow(t->bytes, (uint64_t)t->block->bytes, &t->bytes) || t->bytes > r->file_bytes)
    return tri_fail(r->err, TRI_CORRUPT, t->name,
                    "tensor %.80s is larger than the file's %llu bytes: an incomplete "
                    "download?",
                    t->name, (unsigned long long)r->file_bytes);
  return TRI_OK;
}

static tri_status take_tensor(struct reader *r, uint64_t number, tri_gguf_tensor *t) {
  uint32_t rank, id;
  TRI_CHECK(take_name(r, "tensor", number, &t->name));
  TRI_CHECK(take_u32(r, &rank));
  if (!rank || rank > TRI_GGUF_MAX_RANK)
    return tri_fail(r->err, TRI_CORRUPT, t->name, "tensor %.80s has %u dimensions, the limits are 1 and %d", t->name,
                    (unsigned)rank, TRI_GGUF_MAX_RANK);
  t->rank = (int)rank;
  for (int i = 0; i < t->rank; i++) TRI_CHECK(take_u64(r, &t->shape[i]));
  TRI_CHECK(take_u32(r, &id));
  TRI_CHECK(take_u64(r, &t->offset));
  TRI_CHECK(find_block(r, t, id));
  return measure(r, t);
}

static int by_offset(const void *a, const void *b) {
  const tri_gguf_tensor *x = a, *y = b;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Turns offsets into places in the file. */
static tri_status place_tensors(struct reader *r, uint64_t count, uint64_t alignment) {
  tri_gguf_tensor *t = r->h->tensors;
  uint64_t start = (r->at + alignment - 1) / alignment * alignment, end = start;
  qsort(t, (size_t)count, sizeof *t, by_offset);
  for (uint64_t i = 0; i < count; i++) {
    if (t[i].offset % alignment)
      return tri_fail(r->err, TRI_CORRUPT, t[i].name, "tensor %.80s is at %llu, no multiple of the alignment %llu",
                      t[i].name, (unsigned long long)t[i].offset, (unsigned long long)alignment);
    if (__builtin_add_overflow(t[i].offset, start, &t[i].offset) || t[i].offset > r->file_bytes ||
        t[i].bytes > r->file_bytes - t[i].offset)
      return tri_fail(r->err, TRI_CORRUPT, t[i].name,
                      "tensor %.80s lies beyond the file's %llu bytes: an incomplete download?", t[i].name,
                      (unsigned long long)r->file_bytes);
    if (t[i].offset < end)
      return tri_fail(r->err, TRI_CORRUPT, t[i].name,
                      "tensor %.80s begins at %llu, before the end of the one before it "
                      "at %llu",
                      t[i].name, (unsigned long long)t[i].offset, (unsigned long long)end);
    end = t[i].offset + t[i].bytes;
  }
  return TRI_OK;
}

static tri_status read_tensors(struct reader *r, uint64_t count) {
  struct header *h = r->h;
  uint64_t alignment = DEFAULT_ALIGNMENT;
  const tri_gguf_value *v = tri_gguf_find(&h->g, "general.alignment");
  if (v && (!tri_gguf_uint(&h->g, v->name, &alignment) || !alignment || alignment % 8 || alignment > 1 << 20))
    return tri_fail(r->err, TRI_CORRUPT, v->name, "general.alignment must be a multiple of 8, at most %d", 1 << 20);
  if (count > TRI_GGUF_MAX_TENSORS || count > r->file_bytes / LEAST_TENSOR)
    return tri_fail(r->err, TRI_CORRUPT, "header", "%llu tensors in %llu bytes, the limit is %d",
                    (unsigned long long)count, (unsigned long long)r->file_bytes, TRI_GGUF_MAX_TENSORS);
  h->tensors = tri_calloc((size_t)count + 1, sizeof *h->tensors);
  if (!h->tensors) return no_memory(r->err);
  for (uint64_t i = 0; i < count; i++) TRI_CHECK(take_tensor(r, i, &h->tensors[i]));
  TRI_CHECK(place_tensors(r, count, alignment));
  h->g.tensors = h->tensors;
  h->g.num_tensors = (size_t)count;
  h->g.header_bytes = r->at;
  return TRI_OK;
}

/* ---- the whole ---- */

static tri_status read_version(struct reader *r) {
  const uint8_t *p = NULL;
  uint32_t version;
  TRI_CHECK(take(r, 4, &p));
  if (memcmp(p, "GGUF", 4))
    return tri_fail(r->err, TRI_CORRUPT, "header", "the file does not begin with GGUF: it is no GGUF file");
  TRI_CHECK(take_u32(r, &version));
  if (version == 2u << 24 || version == 3u << 24)
    return tri_fail(r->err, TRI_UNSUPPORTED, "header", "big-endian GGUF files are not supported");
  if (version != 2 && version != 3)
    return tri_fail(r->err, TRI_UNSUPPORTED, "header", "version %u of GGUF is not supported: 2 and 3 are",
                    (unsigned)version);
  return TRI_OK;
}

static tri_status read_header(struct reader *r) {
  uint64_t tensors, keys;
  TRI_CHECK(read_version(r));
  TRI_CHECK(take_u64(r, &tensors));
  TRI_CHECK(take_u64(r, &keys));
  TRI_CHECK(read_keys(r, keys));
  return read_tensors(r, tensors);
}

tri_status tri_gguf_parse(const void *data, size_t len, uint64_t file_bytes, tri_gguf **out, tri_error *err) {
  struct header *h = tri_calloc(1, sizeof *h);
  struct reader r = {.data = data, .len = len, .file_bytes = file_bytes, .h = h, .err = err};
  if (!h || tri_arena_create(1 << 14, &h->names) != TRI_OK) {
    tri_free(h);
    return no_memory(err);
  }
  tri_status st = read_header(&r);
  if (st == TRI_OK)
    *out = &h->g;
  else
    tri_gguf_close(&h->g);
  return st;
}

static tri_status read_more(int fd, char *data, size_t from, size_t to, const char *path, tri_error *err) {
  while (from < to) {
    ssize_t n = pread(fd, data + from, to - from, (off_t)from);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return tri_fail(err, TRI_IO, path, "cannot read %s: %s", path, n ? strerror(errno) : "it has shrunk");
    from += (size_t)n;
  }
  return TRI_OK;
}

/* The header's length is not known before it is read: twice as much is read until it is whole. Memory and not a mapping
 * of the file, since the file may shrink while it is looked at. */
static tri_status open_file(int fd, const char *path, uint64_t size, tri_gguf **out, tri_error *err) {
  tri_status st = TRI_AGAIN;
  char *data = NULL;
  for (size_t have = 0, want = 4 << 20; st == TRI_AGAIN; have = want, want *= 2) {
    if (have >= TRI_GGUF_MAX_HEADER)
      TRI_TRY(tri_fail(err, TRI_TOO_LARGE, path, "the header has more than %d bytes, which is the limit",
                       TRI_GGUF_MAX_HEADER));
    if (want > size) want = (size_t)size;
    char *grown = tri_grow(data, have, want, 1);
    if (!grown) TRI_TRY(no_memory(err));
    data = grown;
    TRI_TRY(read_more(fd, data, have, want, path, err));
    if (!have && tri_file_is_lfs_pointer(data, want))
      TRI_TRY(tri_fail(err, TRI_CORRUPT, path, "it is a Git LFS pointer: the file itself was not fetched"));
    st = tri_gguf_parse(data, want, size, out, err);
  }
cleanup:
  if (st == TRI_OK)
    ((struct header *)*out)->file = data;
  else
    tri_free(data);
  return st;
}

tri_status tri_gguf_open(const char *path, tri_gguf **out, tri_error *err) {
  struct stat sb;
  tri_error why = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe of this name must not hold us up */
  if (fd < 0)
    return tri_fail(err, errno == ENOENT || errno == ENOTDIR ? TRI_NOT_FOUND : TRI_IO, path, "cannot open %s: %s", path,
                    strerror(errno));
  tri_status st = TRI_OK;
  if (fstat(fd, &sb) || !S_ISREG(sb.st_mode) || !sb.st_size)
    st = tri_fail(&why, TRI_CORRUPT, path, "it is empty, or no regular file");
  if (st == TRI_OK) st = open_file(fd, path, (uint64_t)sb.st_size, out, &why);
  close(fd);
  if (st == TRI_OK) return TRI_OK;
  tri_error_in_file(&why, path);
  return tri_fail(err, st, why.field, "%s", why.message);
}

void tri_gguf_close(tri_gguf *g) {
  struct header *h = (struct header *)g;
  if (!h) return;
  tri_arena_destroy(h->names);
  tri_free(h->keys);
  tri_free(h->tensors);
  tri_free(h->file);
  tri_free(h);
}

/* ---- values ---- */

const tri_gguf_value *tri_gguf_find(const tri_gguf *g, const char *name) {
  tri_gguf_value key = {.name = name};
  return g->num_keys ? bsearch(&key, g->keys, g->num_keys, sizeof key, by_key) : NULL;
}

bool tri_gguf_item_uint(const tri_gguf_value *v, uint64_t i, uint64_t *out) {
  if (i >= v->count || v->type == TRI_GGUF_STRING || v->type == TRI_GGUF_F32 || v->type == TRI_GGUF_F64) return false;
  int size = sizes[v->type];
  uint64_t x = load_le(v->data + i * (uint64_t)size, size);
  bool is_signed =
      v->type == TRI_GGUF_I8 || v->type == TRI_GGUF_I16 || v->type == TRI_GGUF_I32 || v->type == TRI_GGUF_I64;
  if (is_signed && x >> (8 * size - 1)) return false;
  *out = x;
  return true;
}

bool tri_gguf_item_number(const tri_gguf_value *v, uint64_t i, double *out) {
  uint64_t n;
  float f;
  if (i >= v->count) return false;
  if (v->type == TRI_GGUF_F32) {
    uint32_t bits = (uint32_t)load_le(v->data + 4 * i, 4);
    memcpy(&f, &bits, sizeof f);
    *out = (double)f;
    return true;
  }
  if (v->type == TRI_GGUF_F64) {
    n = load_le(v->data + 8 * i, 8);
    memcpy(out, &n, sizeof n);
    return true;
  }
  if (!tri_gguf_item_uint(v, i, &n)) return false;
  *out = (double)n;
  return true;
}

static const tri_gguf_value *find_single(const tri_gguf *g, const char *name) {
  const tri_gguf_value *v = tri_gguf_find(g, name);
  return v && !v->is_array ? v : NULL;
}

bool tri_gguf_uint(const tri_gguf *g, const char *name, uint64_t *out) {
  const tri_gguf_value *v = find_single(g, name);
  return v && v->type != TRI_GGUF_BOOL && tri_gguf_item_uint(v, 0, out);
}

bool tri_gguf_bool(const tri_gguf *g, const char *name, bool *out) {
  const tri_gguf_value *v = find_single(g, name);
  if (!v || v->type != TRI_GGUF_BOOL) return false;
  *out = v->data[0] != 0;
  return true;
}

bool tri_gguf_text(const tri_gguf *g, const char *name, const char **s, size_t *len) {
  const tri_gguf_value *v = find_single(g, name);
  size_t at = 0;
  if (!v || v->type != TRI_GGUF_STRING) return false;
  tri_gguf_next_text(v, &at, s, len);
  return true;
}

bool tri_gguf_is(const tri_gguf *g, const char *name, const char *text) {
  const char *s;
  size_t len;
  return tri_gguf_text(g, name, &s, &len) && len == strlen(text) && !memcmp(s, text, len);
}

void tri_gguf_next_text(const tri_gguf_value *v, size_t *at, const char **s, size_t *len) {
  *len = (size_t)load_le(v->data + *at, 8);
  *s = (const char *)v->data + *at + 8;
  *at += 8 + *len;
}
