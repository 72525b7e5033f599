/* SPDX-License-Identifier: Apache-2.0 */
/* `--file --resume` of submit, embed and classify: an output that was begun.
 *
 * Each whole line of it that is an answer is copied to PATH.resume and its key noted: the line's number, or for
 * OpenAI's form the custom_id as JSON. Errors and a last line that is cut off are left out; a line that is no answer of
 * this program ends it, since the file may be another one. Where anything was left out the copy replaces the output, so
 * that an interrupt at any time leaves a file that can be resumed. Answers are counted by key, and each input takes
 * one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "client/cmd/submit_file.h"
#include "base/hash.h"
#include "base/mem.h"

/* Answers to a line: several where lines have the same custom_id. */
struct entry {
  char *key; /* "7" of a line, "\"a\"" of a custom_id; NULL: none */
  uint64_t answers;
};

struct submit_done {
  struct entry *entries; /* open hash table, a power of two large and at most half full */
  size_t mask, count;
};

static struct entry *find(const submit_done *d, const char *key) {
  size_t i = (size_t)tri_mix64(tri_hash_bytes(TRI_HASH_SEED, key, strlen(key))) & d->mask;
  while (d->entries[i].key && strcmp(d->entries[i].key, key) != 0) i = (i + 1) & d->mask;
  return &d->entries[i];
}

static tri_status grow(submit_done *d) {
  submit_done larger = {.mask = d->mask * 2 + 1, .count = d->count};
  larger.entries = tri_calloc(larger.mask + 1, sizeof *larger.entries);
  if (!larger.entries) return TRI_NO_MEMORY;
  for (size_t i = 0; i <= d->mask; i++)
    if (d->entries[i].key) *find(&larger, d->entries[i].key) = d->entries[i];
  tri_free(d->entries);
  *d = larger;
  return TRI_OK;
}

static tri_status add(submit_done *d, const char *key) {
  if (2 * d->count > d->mask) TRI_CHECK(grow(d));
  struct entry *e = find(d, key);
  if (!e->key) {
    e->key = tri_strdup(key);
    if (!e->key) return TRI_NO_MEMORY;
    d->count++;
  }
  e->answers++;
  return TRI_OK;
}

/* Writes the key of an output line; empty: it is an error, which is asked again. False: no output has such a line. */
static bool key_of(const tri_json *root, tri_buf *key) {
  static const char *const answers[] = {"choices", "embedding", "scores", "tokens"};
  const tri_json *id = tri_json_get(root, "line"), *answer = NULL;
  int64_t status = 0;
  for (size_t i = 0; i < sizeof answers / sizeof *answers && !answer; i++) answer = tri_json_get(root, answers[i]);
  if (!id) {
    id = tri_json_get(root, "custom_id");
    answer = tri_json_get(root, "response");
    if (!tri_json_get_int(answer, "status_code", &status) || status != 200) answer = NULL;
  }
  key->len = 0;
  if (!id || (!answer && !tri_json_get(root, "error") && !tri_json_get(root, "response"))) return false;
  if (answer) tri_json_add_value(key, id, false);
  return true;
}

typedef struct output {
  const char *path;
  FILE *from, *to;
  char *line;
  size_t cap;
  bool dropped;
} output;

/* Takes one line in. *over: it is the last one, and cut off. */
static tri_status take(submit_done *d, output *o, size_t len, tri_buf *key, bool *over, tri_error *err) {
  tri_json_doc *doc = NULL;
  tri_status st = TRI_OK;
  *over = false;
  bool whole = len && o->line[len - 1] == '\n' && tri_json_parse(o->line, len, &doc, NULL) == TRI_OK;
  key->len = 0;
  bool known = whole && key_of(tri_json_root(doc), key);
  tri_json_free(doc);
  if (whole ? !known : getc(o->from) != EOF)
    return tri_fail(err, TRI_CORRUPT, "output", "%s holds what is no answer: --resume leaves it alone", o->path);
  *over = !whole;
  o->dropped |= !key->len;
  if (!key->len) return TRI_OK;
  st = key->failed ? TRI_NO_MEMORY : add(d, key->data);
  if (st == TRI_OK && fwrite(o->line, 1, len, o->to) != len)
    st = tri_fail(err, TRI_IO, "output", "cannot write next to %s: %s", o->path, strerror(errno));
  return st;
}

static tri_status read_all(submit_done *d, output *o, tri_error *err) {
  tri_buf key = {0};
  tri_status st = TRI_OK;
  bool over = false;
  for (ssize_t n; st == TRI_OK && !over && (n = getline(&o->line, &o->cap, o->from)) > 0;)
    st = take(d, o, (size_t)n, &key, &over, err);
  if (st == TRI_OK && ferror(o->from)) st = tri_fail(err, TRI_IO, "output", "cannot read %s", o->path);
  tri_buf_free(&key);
  free(o->line); /* getline's */
  return st;
}

/* The answers are written next to the output, and take its place where it has something else as well. */
static tri_status read_output(submit_done *d, const char *path, tri_error *err) {
  output o = {.path = path, .from = fopen(path, "re")};
  size_t len = strlen(path) + sizeof ".resume";
  char *beside = tri_malloc(len, 1);
  tri_status st = beside ? TRI_OK : TRI_NO_MEMORY;
  if (!o.from && errno != ENOENT) st = tri_fail(err, TRI_IO, "output", "cannot open %s: %s", path, strerror(errno));
  if (st != TRI_OK || !o.from) goto cleanup;
  snprintf(beside, len, "%s.resume", path);
  o.to = fopen(beside, "we");
  if (!o.to) TRI_TRY(tri_fail(err, TRI_IO, "output", "cannot write %s: %s", beside, strerror(errno)));
  st = read_all(d, &o, err);
  if (fclose(o.to) && st == TRI_OK)
    st = tri_fail(err, TRI_IO, "output", "cannot write %s: %s", beside, strerror(errno));
  if (st == TRI_OK && o.dropped && rename(beside, path))
    st = tri_fail(err, TRI_IO, "output", "cannot replace %s: %s", path, strerror(errno));
  remove(beside); /* where it has not taken the place */
cleanup:
  if (o.from) fclose(o.from);
  tri_free(beside);
  return st;
}

int submit_done_read(const char *program, const char *path, submit_done **out) {
  enum { FIRST = 1024 };
  tri_error err = {0};
  submit_done *d = tri_calloc(1, sizeof *d);
  tri_status st = TRI_NO_MEMORY;
  if (d) {
    d->mask = FIRST - 1;
    d->entries = tri_calloc(FIRST, sizeof *d->entries);
    if (d->entries) st = read_output(d, path, &err);
  }
  if (st == TRI_OK) {
    *out = d;
    return TRI_EXIT_OK;
  }
  submit_done_free(d);
  return cli_failed(program, "%s", err.message[0] ? err.message : tri_status_text(st));
}

void submit_done_free(submit_done *d) {
  if (!d) return;
  for (size_t i = 0; d->entries && i <= d->mask; i++) tri_free(d->entries[i].key);
  tri_free(d->entries);
  tri_free(d);
}

static bool take_key(submit_done *d, const char *key) {
  struct entry *e = d ? find(d, key) : NULL;
  if (!e || !e->answers) return false;
  e->answers--;
  return true;
}

bool submit_done_take_line(submit_done *d, uint64_t line) {
  char key[24];
  snprintf(key, sizeof key, "%llu", (unsigned long long)line);
  return take_key(d, key);
}

bool submit_done_take(submit_done *d, const submit_slot *s) {
  return s->form == SUBMIT_PLAIN ? submit_done_take_line(d, s->line) : take_key(d, s->custom_id.data);
}
