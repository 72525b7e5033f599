/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoder's reference stored, as requests, and against answers.
 *
 *   encoder_answers ask DIR COUNT                   so many lines for trireme embed --file: DIR's prompts in turn
 *   encoder_answers check DIR WHAT ANSWERS.jsonl    the output of --json for such lines; WHAT: pooled, cls, mean (of
 * the stored states), embedding (of a sentence-transformers folder), logits (classify --activation none), or score (of
 * two tokens, as probabilities)
 *
 * Prints the worst normalised squared error. Exit status: 0 right, 1 wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/safetensors.h"

enum { MAX_PROMPTS = 64 };
static const double limit = 1e-9; /* float32 against float32 */

struct expected {
  tri_checkpoint *file;
  int num_prompts;
};

/* A tensor's bytes, NULL when there is none. */
static void *read_tensor(const struct expected *x, const char *what, int prompt, const tri_st_tensor **t) {
  char name[64];
  snprintf(name, sizeof name, "%s.%d", what, prompt);
  *t = tri_checkpoint_find(x->file, name);
  void *data = *t ? tri_malloc((size_t)(*t)->bytes, 1) : NULL;
  int fd = *t ? tri_checkpoint_fd(x->file, (*t)->file) : -1;
  if (data && pread(fd, data, (size_t)(*t)->bytes, (off_t)(*t)->offset) == (ssize_t)(*t)->bytes) return data;
  tri_free(data);
  return NULL;
}

static bool open_expected(const char *dir, struct expected *x) {
  char path[4200];
  tri_error err = {0};
  const tri_st_tensor *t;
  snprintf(path, sizeof path, "%s/expected.safetensors", dir);
  if (tri_checkpoint_open_file(path, &x->file, &err) != TRI_OK) {
    fprintf(stderr, "%s\n", err.message);
    return false;
  }
  for (void *p; x->num_prompts < MAX_PROMPTS && (p = read_tensor(x, "prompt", x->num_prompts, &t)); tri_free(p))
    x->num_prompts++;
  return x->num_prompts > 0;
}

static int ask(const struct expected *x, int count) {
  for (int i = 0; i < count; i++) {
    const tri_st_tensor *t;
    int64_t *ids = read_tensor(x, "prompt", i % x->num_prompts, &t);
    if (!ids || t->dtype != TRI_I64) return fprintf(stderr, "prompts must be I64\n"), 1;
    for (int64_t k = 0; k < t->shape[0]; k++) printf("%s%lld", k ? "," : "{\"token_ids\":[", (long long)ids[k]);
    printf("]}\n");
    tri_free(ids);
  }
  return 0;
}

/* The probabilities of both tokens, instead of the second's alone. */
static float *pair_of(float *score, size_t *n) {
  float *both = tri_malloc(2, sizeof *both);
  if (both) both[0] = 1 - *score, both[1] = *score;
  tri_free(score);
  *n = 2;
  return both;
}

/* What the answer to a prompt must be; *n numbers. */
static float *wanted(const struct expected *x, const char *what, int prompt, size_t *n) {
  const tri_st_tensor *t;
  bool pools = !strcmp(what, "cls") || !strcmp(what, "mean");
  float *v = read_tensor(x, pools ? "encoder" : what, prompt, &t);
  if (!v) return NULL;
  *n = (size_t)t->bytes / sizeof *v;
  if (!strcmp(what, "score")) return pair_of(v, n);
  if (!pools) return v;
  size_t rows = !strcmp(what, "mean") ? (size_t)t->shape[0] : 1, width = (size_t)t->shape[1];
  for (size_t j = 0; j < width; j++) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++) sum += (double)v[i * width + j];
    v[j] = (float)(sum / (double)rows);
  }
  *n = width;
  return v;
}

/* The scores of a row, sorted by whoever printed them, at their labels' places. */
static bool read_row(const tri_json *list, float *out, size_t width) {
  for (size_t i = 0; i < width; i++) {
    const tri_json *s = tri_json_at(list, i);
    const char *label = tri_json_get_str(s, "label");
    double score;
    if (!label || strncmp(label, "LABEL_", 6) || !tri_json_as_num(tri_json_get(s, "score"), &score)) return false;
    size_t at = strtoul(label + 6, NULL, 10);
    if (at >= width) return false;
    out[at] = (float)score;
  }
  return true;
}

/* The numbers of an answer, which must be n. */
static bool read_answer(const tri_json *root, float *out, size_t n) {
  const tri_json *embedding = tri_json_get(root, "embedding"), *scores = tri_json_get(root, "scores"),
                 *tokens = tri_json_get(root, "tokens");
  if (scores) return tri_json_size(scores) == n && read_row(scores, out, n);
  size_t rows = tri_json_size(tokens);
  for (size_t i = 0; i < rows; i++) {
    const tri_json *row = tri_json_get(tri_json_at(tokens, i), "scores");
    if (tri_json_size(row) * rows != n || !read_row(row, out + i * (n / rows), n / rows)) return false;
  }
  if (rows) return true;
  for (size_t i = 0; i < n; i++) {
    double v;
    if (!tri_json_as_num(tri_json_at(embedding, i), &v)) return false;
    out[i] = (float)v;
  }
  return tri_json_size(embedding) == n;
}

static double error_of(const float *got, const float *want, size_t n) {
  double e = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    double d = (double)got[i] - (double)want[i];
    e += d * d;
    size += (double)want[i] * (double)want[i];
  }
  return e / (size > 0 ? size : 1);
}

static double check_line(const struct expected *x, const char *what, int number, const char *line, size_t len) {
  tri_json_doc *doc = NULL;
  size_t n = 0;
  float *want = wanted(x, what, number % x->num_prompts, &n), *got = want ? tri_calloc(n, sizeof *got) : NULL;
  bool ok = got && tri_json_parse(line, len, &doc, NULL) == TRI_OK && read_answer(tri_json_root(doc), got, n);
  double e = ok ? error_of(got, want, n) : NAN;
  tri_free(want), tri_free(got);
  tri_json_free(doc);
  return e;
}

static int check(const struct expected *x, const char *what, const char *path) {
  FILE *f = fopen(path, "re");
  char *line = NULL;
  size_t cap = 0;
  double worst = 0;
  int lines = 0;
  for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0; lines++) {
    double e = check_line(x, what, lines, line, (size_t)n);
    if (!(e <= limit)) fprintf(stderr, "answer %d: error %.2e: %.200s\n", lines, e, line);
    worst = e <= worst ? worst : e;
  }
  free(line);
  if (f) fclose(f);
  printf("%d answers, worst nmse %.1e\n", lines, worst);
  return lines && worst <= limit ? 0 : 1;
}

int main(int argc, char **argv) {
  struct expected x = {0};
  bool asks = argc == 4 && !strcmp(argv[1], "ask"), checks = argc == 5 && !strcmp(argv[1], "check");
  if (!asks && !checks) return fprintf(stderr, "usage: %s ask DIR COUNT | check DIR WHAT ANSWERS\n", argv[0]), 2;
  int code = !open_expected(argv[2], &x) ? 1 : asks ? ask(&x, atoi(argv[3])) : check(&x, argv[3], argv[4]);
  tri_checkpoint_close(x.file);
  return code;
}
