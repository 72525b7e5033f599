/* SPDX-License-Identifier: Apache-2.0 */
/* make_experts DIR OUT EXPERTS [HOT]: writes OUT/model.safetensors, a Llama model's weights with experts instead of
 * each MLP, for model_type mixtral. Every expert is the MLP, and the router's weights are random: tokens go everywhere,
 * and the answers are those of the model that they were made from. Those of the first HOT experts are larger: most
 * tokens go there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/random.h"
#include "base/mem.h"
#include "runtime/model/safetensors.h"

enum { MOST = 4096 };

/* A tensor of the new file: another's bytes, or a router's. */
struct piece {
  char name[200];
  const tri_st_tensor *from; /* NULL: random */
  int64_t rows, cols;        /* then, */
  int64_t hot;               /* with larger numbers in so many rows */
};

struct pieces {
  struct piece list[MOST];
  int count;
};

static void die(const char *what) {
  fprintf(stderr, "make_experts: %s\n", what);
  exit(1);
}

static struct piece *add(struct pieces *p, const tri_st_tensor *from) {
  if (p->count == MOST) die("too many tensors");
  p->list[p->count] = (struct piece){.from = from};
  return &p->list[p->count++];
}

/* "model.layers.3.mlp.gate_proj.weight" becomes "model.layers.3.block_sparse_moe.experts.E.w1.weight". */
static void add_mlp(struct pieces *p, const tri_st_tensor *t, int experts, int hot) {
  static const char *const names[][2] = {{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}};
  const char *at = strstr(t->name, ".mlp.");
  int front = (int)(at - t->name);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!strstr(at, names[i][0])) continue;
    for (int e = 0; e < experts; e++) {
      struct piece *to = add(p, t);
      snprintf(to->name, sizeof to->name, "%.*s.block_sparse_moe.experts.%d.%s.weight", front, t->name, e, names[i][1]);
    }
    if (i) continue;
    struct piece *router = add(p, NULL);
    snprintf(router->name, sizeof router->name, "%.*s.block_sparse_moe.gate.weight", front, t->name);
    router->rows = experts;
    router->hot = hot;
    router->cols = t->shape[1];
  }
}

static size_t bytes_of(const struct piece *p) {
  return p->from ? (size_t)p->from->bytes : (size_t)(p->rows * p->cols) * tri_dtype_size(TRI_BF16);
}

static void write_header(const struct pieces *p, FILE *to) {
  size_t at = 0, room = (size_t)p->count * 400 + 16, used = 0;
  char *json = tri_malloc(room, 1);
  if (!json) die("no memory");
  for (int i = 0; i < p->count; i++) {
    const struct piece *t = &p->list[i];
    long long rows = t->from ? t->from->shape[0] : t->rows;
    used += (size_t)snprintf(json + used, room - used, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%lld", i ? ',' : '{',
                             t->name, rows);
    if (!t->from) used += (size_t)snprintf(json + used, room - used, ",%lld", (long long)t->cols);
    for (int k = 1; t->from && k < t->from->rank; k++)
      used += (size_t)snprintf(json + used, room - used, ",%lld", (long long)t->from->shape[k]);
    used += (size_t)snprintf(json + used, room - used, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes_of(t));
    at += bytes_of(t);
  }
  json[used++] = '}';
  uint64_t length = used;
  fwrite(&length, sizeof length, 1, to);
  fwrite(json, 1, used, to);
  tri_free(json);
}

static void write_data(const tri_checkpoint *c, const struct piece *p, FILE *to) {
  size_t n = bytes_of(p);
  char *bytes = tri_malloc(n, 1);
  if (!bytes) die("no memory");
  if (p->from && pread(tri_checkpoint_fd(c, p->from->file), bytes, n, (off_t)p->from->offset) != (ssize_t)n)
    die("cannot read the weights");
  for (int64_t i = 0; !p->from && i < p->rows * p->cols; i++) {
    float x = (float)(tri_random_mix((uint64_t)i) % 2001) / 1000 - 1;
    tri_store_f32(bytes, TRI_BF16, (size_t)i, i / p->cols < p->hot ? 2 * x : x);
  }
  fwrite(bytes, 1, n, to);
  tri_free(bytes);
}

int main(int argc, char **argv) {
  static struct pieces pieces;
  tri_checkpoint *c;
  tri_error err = {0};
  char path[4200];
  if (argc < 4 || argc > 5) die("usage: make_experts DIR OUT EXPERTS [HOT]");
  if (tri_checkpoint_open(argv[1], &c, &err) != TRI_OK) die(err.message);
  for (size_t i = 0; i < tri_checkpoint_num_tensors(c); i++) {
    const tri_st_tensor *t = tri_checkpoint_tensor(c, i);
    if (t->dtype != TRI_BF16) die("weights are not bfloat16");
    if (strstr(t->name, ".mlp."))
      add_mlp(&pieces, t, atoi(argv[3]), argc > 4 ? atoi(argv[4]) : 0);
    else
      snprintf(add(&pieces, t)->name, sizeof pieces.list->name, "%s", t->name);
  }
  snprintf(path, sizeof path, "%s/model.safetensors", argv[2]);
  FILE *to = fopen(path, "wb");
  if (!to) die("cannot write the weights");
  write_header(&pieces, to);
  for (int i = 0; i < pieces.count; i++) write_data(c, &pieces.list[i], to);
  if (fclose(to)) die("cannot write the weights");
  tri_checkpoint_close(c);
  return 0;
}
