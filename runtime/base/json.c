#include "runtime/base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"

/* A document is jansson's root, a node jansson's value: the two types only keep jansson.h out of every other file. */
static json_t *raw(const tri_json *j) { return (json_t *)(uintptr_t)j; }

/* jansson limits recursion to 2048 levels itself; the tighter limit keeps our own recursive readers shallow. */
enum { MAX_DEPTH = 64 };

static bool too_deep(const char *s, size_t n) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < n; i++) {
    char c = s[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > MAX_DEPTH) return true;
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
  return false;
}

tri_status tri_json_parse(const char *text, size_t len, tri_json_doc **out, tri_error *err) {
  if (too_deep(text, len)) return tri_fail(err, TRI_TOO_LARGE, NULL, "JSON nested deeper than %d levels", MAX_DEPTH);
  json_error_t e;
  json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
  if (!j) return tri_fail(err, TRI_CORRUPT, NULL, "JSON line %d column %d: %s", e.line, e.column, e.text);
  *out = (tri_json_doc *)j;
  return TRI_OK;
}

tri_status tri_json_read_file(const char *path, size_t max_bytes, tri_json_doc **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_error inner = {0};
  char *text = NULL;
  /* Not blocking: a pipe without a writer would hold open() for ever. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
  if (!f)
    return tri_fail(err, errno == ENOENT ? TRI_NOT_FOUND : TRI_IO, path, "cannot open %s: %s", path, strerror(errno));
  struct stat sb;
  size_t size = 0;
  if (fstat(fileno(f), &sb) || !S_ISREG(sb.st_mode))
    st = tri_fail(err, TRI_IO, path, "%s is not a regular file", path);
  else if ((size = (size_t)sb.st_size) > max_bytes)
    st = tri_fail(err, TRI_TOO_LARGE, path, "%s has %zu bytes, the limit is %zu", path, size, max_bytes);
  else if (!(text = tri_malloc(size + 1, 1)))
    st = tri_fail(err, TRI_NO_MEMORY, path, "no memory for %zu bytes of %s", size, path);
  else if (fread(text, 1, size, f) != size)
    st = tri_fail(err, TRI_IO, path, "cannot read %s", path);
  else if (tri_file_is_lfs_pointer(text, size))
    st = tri_fail(err, TRI_CORRUPT, path, "%s is a Git LFS pointer: the file itself was not fetched", path);
  else if ((st = tri_json_parse(text, size, out, &inner)) != TRI_OK)
    tri_fail(err, st, path, "%s: %s", path, inner.message);
  tri_free(text);
  fclose(f);
  return st;
}

void tri_json_free(tri_json_doc *doc) {
  if (doc) json_decref((json_t *)doc);
}

const tri_json *tri_json_root(const tri_json_doc *doc) { return (const tri_json *)doc; }

tri_json_kind tri_json_kind_of(const tri_json *j) {
  if (!j) return TRI_JSON_NULL;
  switch (json_typeof(raw(j))) {
  case JSON_OBJECT: return TRI_JSON_OBJECT;
  case JSON_ARRAY: return TRI_JSON_ARRAY;
  case JSON_STRING: return TRI_JSON_STRING;
  case JSON_INTEGER: return TRI_JSON_INT;
  case JSON_REAL: return TRI_JSON_REAL;
  case JSON_TRUE:
  case JSON_FALSE: return TRI_JSON_BOOL;
  case JSON_NULL: break;
  }
  return TRI_JSON_NULL;
}

size_t tri_json_size(const tri_json *j) {
  if (!j) return 0;
  return json_is_array(raw(j)) ? json_array_size(raw(j)) : json_object_size(raw(j));
}

const tri_json *tri_json_at(const tri_json *array, size_t i) {
  return array ? (const tri_json *)json_array_get(raw(array), i) : NULL;
}

const tri_json *tri_json_get(const tri_json *object, const char *key) {
  return object ? (const tri_json *)json_object_get(raw(object), key) : NULL;
}

bool tri_json_as_int(const tri_json *j, int64_t *out) {
  if (!j || !json_is_integer(raw(j))) return false;
  *out = json_integer_value(raw(j));
  return true;
}

bool tri_json_as_num(const tri_json *j, double *out) {
  if (!j || !json_is_number(raw(j))) return false;
  *out = json_number_value(raw(j));
  return true;
}

bool tri_json_as_bool(const tri_json *j, bool *out) {
  if (!j || !json_is_boolean(raw(j))) return false;
  *out = json_is_true(raw(j));
  return true;
}

const char *tri_json_as_str(const tri_json *j, size_t *len) {
  if (!j || !json_is_string(raw(j))) return NULL;
  size_t n = json_string_length(raw(j));
  const char *s = json_string_value(raw(j));
  if (!len) return strlen(s) == n ? s : NULL; /* a C string would silently be another one */
  *len = n;
  return s;
}

bool tri_json_get_int(const tri_json *o, const char *key, int64_t *out) {
  return tri_json_as_int(tri_json_get(o, key), out);
}
const char *tri_json_get_str(const tri_json *o, const char *key) { return tri_json_as_str(tri_json_get(o, key), NULL); }

tri_status tri_json_each(const tri_json *object, tri_status (*fn)(void *, const char *, const tri_json *), void *ctx) {
  const char *key;
  json_t *value;
  json_object_foreach(raw(object), key, value) {
    tri_status st = fn(ctx, key, (const tri_json *)value);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}
