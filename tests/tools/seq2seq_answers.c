/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoder-decoder's reference stored, as requests, and against answers.
 *
 *   seq2seq_answers ask DIR COUNT               so many lines for trireme submit --file: every source with greedy
 *                                               decoding and with each beam search, in turn
 *   seq2seq_answers check DIR COUNT ANSWERS     what came of them
 *
 * Exit status: 0 right, 1 wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/safetensors.h"

/* As tests/data/checkpoints/README.md has them. The end token is suppressed in greedy answers. */
static const struct {
  const char *name, *fields;
} kinds[] = {
    {"greedy", "\"temperature\":0,\"min_tokens\":16"},
    {"beam", "\"num_beams\":4,\"length_penalty\":1,\"early_stopping\":false"},
    {"beam_long", "\"num_beams\":4,\"length_penalty\":2,\"early_stopping\":true"},
    {"beam_never", "\"num_beams\":4,\"length_penalty\":0.6,\"early_stopping\":\"never\""},
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds, NUM_SOURCES = 4 };

/* NULL when there is none. */
static int64_t *read_ids(const tri_checkpoint *file, const char *what, int i, int *n) {
  char name[64];
  snprintf(name, sizeof name, "%s.%d", what, i);
  const tri_st_tensor *t = tri_checkpoint_find(file, name);
  if (!t || t->dtype != TRI_I64) return NULL;
  int64_t *ids = tri_malloc((size_t)t->bytes, 1);
  int fd = tri_checkpoint_fd(file, t->file);
  *n = (int)t->shape[0];
  if (ids && pread(fd, ids, (size_t)t->bytes, (off_t)t->offset) == (ssize_t)t->bytes) return ids;
  tri_free(ids);
  return NULL;
}

static int source_of(int line) { return line % NUM_SOURCES; }
static int kind_of(int line) { return line / NUM_SOURCES % NUM_KINDS; }
static int choices_of(int line) { return 1 + line / (NUM_SOURCES * NUM_KINDS) % 4; }

static int ask(const tri_checkpoint *file, int count) {
  for (int line = 0; line < count; line++) {
    int n;
    int64_t *ids = read_ids(file, "source", source_of(line), &n);
    if (!ids) return fprintf(stderr, "source.%d is missing\n", source_of(line)), 1;
    printf("{\"max_tokens\":16,\"n\":%d,%s", choices_of(line), kinds[kind_of(line)].fields);
    for (int i = 0; i < n; i++) printf("%s%lld", i ? "," : ",\"token_ids\":[", (long long)ids[i]);
    printf("]}\n");
    tri_free(ids);
  }
  return 0;
}

/* The stored answer has the start token in front, the served one has not. */
static bool is_answer(const tri_json *choice, const int64_t *want, int n) {
  const tri_json *ids = tri_json_get(choice, "token_ids");
  if (tri_json_size(ids) != (size_t)n - 1) return false;
  for (int i = 1; i < n; i++) {
    int64_t id;
    if (!tri_json_as_int(tri_json_at(ids, (size_t)i - 1), &id) || id != want[i]) return false;
  }
  return true;
}

/* The first choice is the reference's; greedy ones are all the same. */
static bool check_line(const tri_checkpoint *file, const tri_json *root, int count, bool *seen) {
  int64_t line, tokens;
  int n, source_len;
  if (!tri_json_as_int(tri_json_get(root, "line"), &line) || line < 1 || line > count) return false;
  int k = (int)line - 1;
  const tri_json *choices = tri_json_get(root, "choices");
  int64_t *want = read_ids(file, kinds[kind_of(k)].name, source_of(k), &n);
  int64_t *source = read_ids(file, "source", source_of(k), &source_len);
  bool ok = want && source && !seen[k] && tri_json_size(choices) == (size_t)choices_of(k);
  ok = ok && tri_json_as_int(tri_json_get(root, "prompt_tokens"), &tokens) && tokens == source_len;
  for (int i = 0; ok && i < (kind_of(k) ? 1 : choices_of(k)); i++)
    ok = is_answer(tri_json_at(choices, (size_t)i), want, n);
  seen[k] = true;
  tri_free(want), tri_free(source);
  return ok;
}

static int check(const tri_checkpoint *file, int count, const char *path) {
  bool *seen = tri_calloc((size_t)count + 1, sizeof *seen);
  FILE *f = fopen(path, "re");
  char *text = NULL;
  size_t cap = 0;
  int right = 0, lines = 0;
  for (ssize_t n; f && seen && (n = getline(&text, &cap, f)) > 0; lines++) {
    tri_json_doc *doc = NULL;
    bool ok = tri_json_parse(text, (size_t)n, &doc, NULL) == TRI_OK;
    ok = ok && check_line(file, tri_json_root(doc), count, seen);
    if (!ok) fprintf(stderr, "wrong: %.300s\n", text);
    right += ok;
    tri_json_free(doc);
  }
  free(text);
  if (f) fclose(f);
  tri_free(seen);
  printf("%d of %d answers are the reference's\n", right, count);
  return right == count && lines == count ? 0 : 1;
}

int main(int argc, char **argv) {
  char path[4200];
  tri_error err = {0};
  tri_checkpoint *file;
  bool asks = argc == 4 && !strcmp(argv[1], "ask"), checks = argc == 5 && !strcmp(argv[1], "check");
  int count = asks || checks ? atoi(argv[3]) : 0;
  if (count < 1) return fprintf(stderr, "seq2seq_answers ask DIR COUNT | check DIR COUNT ANSWERS\n"), 2;
  snprintf(path, sizeof path, "%s/expected.safetensors", argv[2]);
  if (tri_checkpoint_open_file(path, &file, &err) != TRI_OK) return fprintf(stderr, "%s\n", err.message), 1;
  int code = asks ? ask(file, count) : check(file, count, argv[4]);
  tri_checkpoint_close(file);
  return code;
}
