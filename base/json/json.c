/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/foreign.h"
#include "base/json/json_rewrite.h"
#include "base/mem.h"
#include "base/text.h"

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

/* Without memory jansson calls a text invalid, or leaves a byte out of a string and says nothing. Its allocator has no
 * context to say so with. */
static _Thread_local bool out_of_memory, beyond_limit;

/* Documents are freed by other threads than those that read them, too. */
static atomic_size_t memory, most_memory;

static void release(void *p) {
  if (p) atomic_fetch_sub(&memory, malloc_usable_size(p));
  free(p);
}

static void *allocate(size_t n) {
  void *p = malloc(n);
  size_t most = atomic_load(&most_memory), size = p ? malloc_usable_size(p) : 0;
  if (atomic_fetch_add(&memory, size) + size > most && most && p) {
    release(p);
    p = NULL;
    beyond_limit = true;
  }
  out_of_memory |= !p;
  if (p) TRI_FOREIGN_WROTE(p, n);
  return p;
}

static void use_allocator(void) { json_set_alloc_funcs(allocate, release); }

void tri_json_limit_memory(size_t bytes) { atomic_store(&most_memory, bytes); }
size_t tri_json_memory(void) { return atomic_load(&memory); }

static json_t *load(const char *text, size_t len, size_t flags, json_error_t *e) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, use_allocator);
  out_of_memory = false;
  TRI_FOREIGN_BEGIN();
  json_t *j = json_loadb(text, len, flags | JSON_DECODE_ANY | JSON_ALLOW_NUL, e);
  TRI_FOREIGN_END();
  TRI_FOREIGN_WROTE(e, sizeof *e);
  if (!out_of_memory) return j;
  json_decref(j);
  return NULL;
}

/* Parses a text, or the copy of it that jansson takes. */
static tri_status parse(const char *text, size_t len, const tri_json_rewriting *how, bool last_key, tri_json_doc **out,
                        tri_error *err) {
  json_error_t e;
  json_t *j = NULL;
  tri_buf copy = {0};
  beyond_limit = false;
  if (too_deep(text, len)) return tri_fail(err, TRI_TOO_LARGE, NULL, "JSON nested deeper than %d levels", MAX_DEPTH);
  tri_status st = tri_json_rewrite(text, len, how, &copy);
  if (st == TRI_OK) {
    j = load(copy.len ? copy.data : text, copy.len ? copy.len : len, last_key ? 0 : JSON_REJECT_DUPLICATES, &e);
    if (!j) st = out_of_memory ? TRI_NO_MEMORY : TRI_CORRUPT;
  }
  tri_buf_free(&copy);
  if (st == TRI_CORRUPT) return tri_fail(err, st, NULL, "JSON line %d column %d: %s", e.line, e.column, e.text);
  if (st == TRI_NO_MEMORY && beyond_limit)
    return tri_fail(err, st, NULL, "no memory for %zu bytes of JSON: all that is read at a time may take %zu bytes",
                    len, atomic_load(&most_memory));
  if (st != TRI_OK) return tri_fail(err, st, NULL, "no memory for %zu bytes of JSON", len);
  *out = (tri_json_doc *)j;
  return TRI_OK;
}

tri_status tri_json_parse(const char *text, size_t len, tri_json_doc **out, tri_error *err) {
  return parse(text, len, &(tri_json_rewriting){.words = false}, false, out, err);
}

tri_status tri_json_parse_file(const char *text, size_t len, tri_json_doc **out, tri_error *err) {
  return parse(text, len, &(tri_json_rewriting){.words = true}, false, out, err);
}

tri_status tri_json_parse_python(const char *text, size_t len, tri_json_doc **out, tri_error *err) {
  return parse(text, len, &(tri_json_rewriting){.words = true}, true, out, err);
}

tri_status tri_json_read_text(const char *path, size_t max_bytes, char **out, size_t *len, tri_error *err) {
  tri_status st = TRI_OK;
  char *text = NULL;
  /* Not blocking: a pipe without a writer would hold open() for ever. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
  int e = errno;
  if (!f && fd >= 0) close(fd);
  errno = e;
  if (!f && e == ENOMEM) return tri_fail(err, TRI_NO_MEMORY, path, "no memory to read %s", path);
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
  fclose(f);
  if (st != TRI_OK) {
    tri_free(text);
    return st;
  }
  *out = text;
  *len = size;
  return TRI_OK;
}

tri_status tri_json_read_file(const char *path, size_t max_bytes, tri_json_doc **out, tri_error *err) {
  tri_error inner = {0};
  char *text;
  size_t len;
  TRI_CHECK(tri_json_read_text(path, max_bytes, &text, &len, err));
  tri_status st = tri_json_parse_file(text, len, out, &inner);
  if (st != TRI_OK) tri_fail(err, st, path, "%s: %s", path, inner.message);
  tri_free(text);
  return st;
}

tri_status tri_json_read_input(const char *path, size_t max_bytes, tri_json_doc **out, tri_error *err) {
  tri_buf text = {.max = max_bytes};
  bool is_input = !path || !strcmp(path, "-");
  FILE *f = is_input ? stdin : fopen(path, "re");
  char part[4096];
  tri_status st = TRI_OK;
  if (!f) return tri_fail(err, TRI_NOT_FOUND, "file", "cannot open %.200s: %s", path, strerror(errno));
  for (size_t n; st == TRI_OK && (n = fread(part, 1, sizeof part, f)) > 0;) st = tri_buf_append(&text, part, n);
  if (st == TRI_TOO_LARGE)
    tri_fail(err, st, "file", "%.200s has more than %zu bytes", is_input ? "the input" : path, max_bytes);
  if (st == TRI_OK && ferror(f))
    st = tri_fail(err, TRI_IO, "file", "cannot read %.200s", is_input ? "the input" : path);
  if (st == TRI_OK) st = tri_json_parse(text.data ? text.data : "", text.len, out, err);
  if (!is_input) fclose(f);
  tri_buf_free(&text);
  return st;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Returns where the value that begins at s[i] ends: before the comma or the bracket that follows. */
static size_t value_end(const char *s, size_t n, size_t i) {
  for (size_t depth = 0, end; i < n; i = end) {
    bool opens = s[i] == '{' || s[i] == '[', closes = s[i] == '}' || s[i] == ']';
    end = s[i] == '"' ? tri_json_string_end(s, n, i) : i + 1;
    if (!depth && (closes || s[i] == ',')) return i;
    depth += opens;
    depth -= closes;
  }
  return n;
}

const char *tri_json_find_member(const char *s, size_t n, const char *key, size_t *value_len) {
  size_t len = strlen(key), i = 0;
  while (i < n && is_blank(s[i])) i++;
  if (i == n || s[i] != '{') return NULL;
  for (i++; i < n; i++) {
    while (i < n && (is_blank(s[i]) || s[i] == ',')) i++;
    if (i == n || s[i] != '"') return NULL;
    size_t from = tri_json_string_end(s, n, i);
    bool here = from - i == len + 2 && !memcmp(s + i + 1, key, len);
    while (from < n && (is_blank(s[from]) || s[from] == ':')) from++;
    i = value_end(s, n, from);
    *value_len = i - from;
    if (here) return s + from;
    if (i < n && s[i] == '}') return NULL;
  }
  return NULL;
}

void tri_json_free(tri_json_doc *doc) {
  if (doc) json_decref((json_t *)doc);
}

const tri_json *tri_json_root(const tri_json_doc *doc) { return (const tri_json *)doc; }

void tri_json_drop(tri_json_doc *doc, const char *key) { json_object_del((json_t *)doc, key); }

/* Takes away, of members that both objects have, the one that does not stay, and those of the outer one that are not
 * kept. */
static void drop_others(json_t *outer, json_t *inner, const char *kept, const char *first) {
  const char *key;
  void *next;
  json_t *value;
  json_object_foreach_safe(outer, next, key, value) {
    const json_t *own = json_object_get(inner, key);
    bool goes_first = tri_has_word(first, key) && !json_is_null(value);
    if (own && !json_is_null(own) && !goes_first) continue; /* replaced */
    if (goes_first || tri_has_word(kept, key))
      json_object_del(inner, key);
    else
      json_object_del(outer, key);
  }
}

tri_status tri_json_narrow(tri_json_doc *doc, const char *key, const char *kept, const char *first) {
  json_t *outer = (json_t *)doc, *inner = json_incref(json_object_get(outer, key));
  drop_others(outer, inner, kept, first);
  tri_status st = json_object_update(outer, inner) ? TRI_NO_MEMORY : TRI_OK;
  json_decref(inner);
  return st;
}

/* Returns the spelling of a number that jansson has as a string; NULL: it is no such number. */
static const char *spelling(const json_t *j, size_t *len) {
  if (!json_is_string(j)) return NULL;
  const char *s = json_string_value(j);
  *len = json_string_length(j);
  if (*len < 2 || s[0] != TRI_JSON_MARK || s[1] == TRI_JSON_MARK) return NULL;
  --*len;
  return s + 1;
}

const char *tri_json_spelling(const tri_json *j, size_t *len) {
  size_t n;
  const char *s = j ? spelling(raw(j), &n) : NULL;
  if (s) *len = n;
  return s;
}

tri_json_kind tri_json_kind_of(const tri_json *j) {
  size_t n;
  if (!j) return TRI_JSON_NULL;
  const char *number = spelling(raw(j), &n);
  if (number) return strspn(number, "-0123456789") == n ? TRI_JSON_INT : TRI_JSON_REAL;
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
  size_t n;
  const char *s = j ? spelling(raw(j), &n) : NULL;
  if (s) {
    double x = strtod(s, NULL);
    if (isfinite(x)) *out = x;
    return isfinite(x);
  }
  if (!j || !json_is_number(raw(j))) return false;
  *out = json_number_value(raw(j));
  return true;
}

static tri_status no_number(const tri_json *v, const char *key, const char *wanted, tri_error *err) {
  size_t n;
  const char *s = tri_json_spelling(v, &n);
  if (!s) return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be %s", key, wanted);
  return tri_fail(err, TRI_OUT_OF_RANGE, key,
                  "%s is %.*s, and must be %s: integers have 64 bits, others end at 1.8e308", key, n < 40 ? (int)n : 40,
                  s, wanted);
}

tri_status tri_json_read_int(const tri_json *v, const char *key, int64_t *out, tri_error *err) {
  return tri_json_as_int(v, out) ? TRI_OK : no_number(v, key, "an integer", err);
}

tri_status tri_json_read_num(const tri_json *v, const char *key, double *out, tri_error *err) {
  return tri_json_as_num(v, out) ? TRI_OK : no_number(v, key, "a number", err);
}

bool tri_json_as_bool(const tri_json *j, bool *out) {
  if (!j || !json_is_boolean(raw(j))) return false;
  *out = json_is_true(raw(j));
  return true;
}

const char *tri_json_as_str(const tri_json *j, size_t *len) {
  size_t n;
  if (!j || !json_is_string(raw(j)) || spelling(raw(j), &n)) return NULL;
  n = json_string_length(raw(j));
  const char *s = json_string_value(raw(j));
  if (n && s[0] == TRI_JSON_MARK) { /* the one before its own */
    s++;
    n--;
  }
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
  json_object_foreach(raw(object), key, value) { TRI_CHECK(fn(ctx, key, (const tri_json *)value)); }
  return TRI_OK;
}

/* ---- as other libraries read it ---- */

tri_status tri_json_key(const char *key, tri_buf *out) {
  out->len = 0;
  for (const char *one; (one = strchr(key, 1)); key = one + 2) {
    TRI_CHECK(tri_buf_append(out, key, (size_t)(one - key)));
    TRI_CHECK(tri_buf_append(out, one[1] == '0' ? "\0" : "\1", 1));
  }
  return tri_buf_append(out, key, strlen(key));
}

typedef struct real_reader {
  const char *s;
  size_t n, at;
  double (*read)(const char *s, size_t n);
} real_reader;

/* Moves on to the next number: no other word of JSON outside strings has a digit or a minus in it. */
static void next_number(real_reader *r) {
  while (r->at < r->n && r->s[r->at] != '-' && !(r->s[r->at] >= '0' && r->s[r->at] <= '9'))
    r->at = r->s[r->at] == '"' ? tri_json_string_end(r->s, r->n, r->at) : r->at + 1;
}

/* The text's numbers and the document's come in the same order, as jansson keeps that of an object's members. */
static void reread(json_t *j, real_reader *r) {
  const char *key;
  json_t *child;
  size_t i, n;
  if (json_is_object(j)) {
    json_object_foreach(j, key, child) { reread(child, r); }
  } else if (json_is_array(j)) {
    json_array_foreach(j, i, child) { reread(child, r); }
  } else if (json_is_number(j) || spelling(j, &n)) {
    next_number(r);
    size_t start = r->at;
    r->at = tri_json_number_end(r->s, r->n, start);
    if (json_is_real(j)) json_real_set(j, r->read(r->s + start, r->at - start));
  }
}

tri_status tri_json_parse_with(const char *text, size_t len, double (*read_real)(const char *s, size_t n),
                               tri_json_doc **out, tri_error *err) {
  TRI_CHECK(parse(text, len, &(tri_json_rewriting){.nul_keys = true}, false, out, err));
  reread((json_t *)*out, &(real_reader){.s = text, .n = len, .read = read_real});
  return TRI_OK;
}
