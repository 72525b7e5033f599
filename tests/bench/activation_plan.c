/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/activation_plan.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/wait.h"

struct chunk {
  void *data;
  size_t bytes;
  uint64_t last_plan; /* number of the last plan that has tensors in it; 0: none has */
  int num_tensors;    /* of the plan under way, or the last one */
};

/* A tensor in the list of a node of the tree below. */
struct entry {
  int32_t tensor, next; /* next: an entry, -1 at the end */
};

/* The placed tensors that live at an operator: a segment tree over the operators. A tensor is in the lists of the few
 * nodes that together make its life, and exactly one of them is above each of its operators. Next to the tree
 * are the tensors that begin at each operator, so that what meets a life is found without looking at the rest. */
struct index {
  int leaves;            /* a power of two, at least the operators */
  int32_t *nodes;        /* [2 leaves] first entry, or -1; node 1 is the root, leaf i is node leaves + i */
  int32_t *begins;       /* [leaves] first tensor that begins here, or -1 */
  int32_t *begins_next;  /* [tensors] the next one that begins at the same operator, or -1 */
  struct entry *entries; /* [tensors * entries_of(leaves)] */
  int num_entries;
};

struct tri_activation_plan {
  tri_activation_config cfg;
  tri_activation_stats stats;
  struct chunk *chunks; /* in the order of their allocation */
  int num_chunks;
  size_t cap_chunks;
  int num_tensors;             /* placed: order[0] .. order[num_tensors - 1] */
  int cap_tensors, cap_leaves; /* what the arrays below have room for */
  tri_tensor_place *places;    /* [cap_tensors] */
  size_t *bytes;               /* [cap_tensors] rounded up to the alignment */
  int32_t *order;              /* [cap_tensors] from the largest tensor to the smallest */
  int32_t *neighbours;         /* [cap_tensors] placed tensors that live at the same time as the one at hand */
  int32_t *scratch;            /* [cap_tensors] of the sort */
  struct index index;
};

/* ---- chunks ---- */

static tri_status backend_alloc(void *ctx, size_t bytes, void **out) {
  tri_backend *be = ctx;
  return be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, bytes, out);
}

static void backend_free(void *ctx, void *p, size_t bytes) {
  tri_backend *be = ctx;
  be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, p, bytes);
}

tri_activation_memory tri_activation_memory_of(tri_backend *be) {
  return (tri_activation_memory){be, backend_alloc, backend_free};
}

static bool round_up(size_t n, size_t alignment, size_t *out) {
  if (!tri_size_add(n, alignment - 1, &n)) return false;
  *out = n & ~(alignment - 1);
  return true;
}

/* max(DEFAULT_CHUNK_SIZE, bytes * K_SCALE) */
static bool chunk_bytes_for(const tri_activation_config *c, size_t bytes, size_t *out) {
  size_t percent = (size_t)c->slack_percent, slack;
  if (!tri_size_mul(bytes / 100, percent, &slack) || !tri_size_add(slack, bytes % 100 * percent / 100, &slack) ||
      !tri_size_add(bytes, slack, &bytes))
    return false;
  return round_up(bytes > c->chunk_bytes ? bytes : c->chunk_bytes, c->alignment, out);
}

static void remove_chunk(tri_activation_plan *p, int at) {
  struct chunk *c = &p->chunks[at];
  p->cfg.memory.free(p->cfg.memory.ctx, c->data, c->bytes);
  p->stats.frees++;
  p->stats.free_bytes += c->bytes;
  p->stats.held -= c->bytes;
  p->num_chunks--;
  memmove(c, c + 1, (size_t)(p->num_chunks - at) * sizeof *c);
  for (int i = 0; i < p->num_tensors; i++) {
    tri_tensor_place *t = &p->places[p->order[i]];
    if (t->chunk > at) t->chunk--;
  }
}

static tri_status add_chunk(tri_activation_plan *p, size_t tensor_bytes, tri_error *err) {
  const tri_activation_memory *m = &p->cfg.memory;
  struct chunk c = {0};
  if (!chunk_bytes_for(&p->cfg, tensor_bytes, &c.bytes))
    return tri_fail(err, TRI_OVERFLOW, "bytes", "a chunk for a tensor of %zu bytes overflows", tensor_bytes);
  /* Larger tensors are placed already: what is still empty was too small for each of them, and is for this one. */
  for (int i = p->num_chunks; !p->cfg.keep_small && i-- > 0;)
    if (!p->chunks[i].num_tensors) remove_chunk(p, i);
  tri_status st = tri_array_reserve(&p->chunks, (size_t)p->num_chunks, &p->cap_chunks, 1, sizeof *p->chunks);
  if (st == TRI_OK) st = m->alloc(m->ctx, c.bytes, &c.data);
  if (st != TRI_OK)
    return tri_fail(err, st, "activations", "no memory for a chunk of %zu bytes beside %zu", c.bytes, p->stats.held);
  p->chunks[p->num_chunks++] = c;
  p->stats.allocs++;
  p->stats.alloc_bytes += c.bytes;
  p->stats.held += c.bytes;
  if (p->stats.held > p->stats.high_water) p->stats.high_water = p->stats.held;
  return TRI_OK;
}

size_t tri_activation_plan_release(tri_activation_plan *p, int unused) {
  size_t held = p->stats.held;
  if (unused <= 0) p->num_tensors = 0;
  for (int i = p->num_chunks; i-- > 0;) {
    const struct chunk *c = &p->chunks[i];
    if (unused <= 0 || !c->last_plan || p->stats.plans - c->last_plan >= (uint64_t)unused) remove_chunk(p, i);
  }
  return held - p->stats.held;
}

/* ---- memory of the plan itself ---- */

tri_activation_config tri_activation_config_default(tri_activation_memory memory) {
  return (tri_activation_config){
      .memory = memory, .chunk_bytes = (size_t)2 << 20, .slack_percent = 20, .alignment = 64};
}

tri_status tri_activation_plan_create(const tri_activation_config *config, tri_activation_plan **out, tri_error *err) {
  size_t a = config->alignment;
  if (!a || a & (a - 1)) return tri_fail(err, TRI_INVALID_ARGUMENT, "alignment", "%zu is no power of two", a);
  if (!config->memory.alloc || !config->memory.free)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "memory", "functions to allocate and to free are missing");
  if (config->slack_percent < 0 || config->slack_percent > 1000)
    return tri_fail(err, TRI_OUT_OF_RANGE, "slack_percent", "slack_percent is %d, the range is 0 to 1000",
                    config->slack_percent);
  tri_activation_plan *p = tri_calloc(1, sizeof *p);
  if (!p) return tri_fail(err, TRI_NO_MEMORY, "activations", "no memory");
  p->cfg = *config;
  *out = p;
  return TRI_OK;
}

static void free_arrays(tri_activation_plan *p) {
  tri_free(p->places);
  tri_free(p->bytes);
  tri_free(p->order);
  tri_free(p->neighbours);
  tri_free(p->scratch);
  tri_free(p->index.nodes);
  tri_free(p->index.begins);
  tri_free(p->index.begins_next);
  tri_free(p->index.entries);
  p->places = NULL;
  p->bytes = NULL;
  p->order = p->neighbours = p->scratch = NULL;
  p->index = (struct index){0};
  p->cap_tensors = p->cap_leaves = 0;
}

void tri_activation_plan_destroy(tri_activation_plan *p) {
  if (!p) return;
  tri_activation_plan_release(p, 0);
  free_arrays(p);
  tri_free(p->chunks);
  tri_free(p);
}

static int power_of_two(int at_least) {
  int n = 1;
  while (n < at_least) n *= 2;
  return n;
}

/* Nodes that make a life at most: two of each size but the largest. */
static size_t entries_of(int leaves) {
  size_t n = 1;
  for (; leaves > 1; leaves /= 2) n += 2;
  return n;
}

static tri_status reserve_arrays(tri_activation_plan *p, int tensors, int ops) {
  int n = power_of_two(tensors), leaves = power_of_two(ops);
  if (n <= p->cap_tensors && leaves <= p->cap_leaves) return TRI_OK;
  if (n < p->cap_tensors) n = p->cap_tensors;
  if (leaves < p->cap_leaves) leaves = p->cap_leaves;
  free_arrays(p);
  size_t count = (size_t)n;
  p->places = tri_malloc(count, sizeof *p->places);
  p->bytes = tri_malloc(count, sizeof *p->bytes);
  p->order = tri_malloc(count, sizeof *p->order);
  p->neighbours = tri_malloc(count, sizeof *p->neighbours);
  p->scratch = tri_malloc(count, sizeof *p->scratch);
  p->index.nodes = tri_malloc(2 * (size_t)leaves, sizeof *p->index.nodes);
  p->index.begins = tri_malloc((size_t)leaves, sizeof *p->index.begins);
  p->index.begins_next = tri_malloc(count, sizeof *p->index.begins_next);
  p->index.entries = tri_malloc(count * entries_of(leaves), sizeof *p->index.entries);
  if (!p->places || !p->bytes || !p->order || !p->neighbours || !p->scratch || !p->index.nodes || !p->index.begins ||
      !p->index.begins_next || !p->index.entries) {
    free_arrays(p);
    return TRI_NO_MEMORY;
  }
  p->cap_tensors = n;
  p->cap_leaves = leaves;
  return TRI_OK;
}

/* ---- what lives at the same time ---- */

static void index_clear(struct index *x, int ops) {
  x->leaves = power_of_two(ops);
  x->num_entries = 0;
  memset(x->nodes, 0xff, 2 * (size_t)x->leaves * sizeof *x->nodes);
  memset(x->begins, 0xff, (size_t)x->leaves * sizeof *x->begins);
}

static void index_enter(struct index *x, int node, int tensor) {
  x->entries[x->num_entries] = (struct entry){tensor, x->nodes[node]};
  x->nodes[node] = x->num_entries++;
}

static void index_add(struct index *x, const tri_tensor_life *t, int tensor) {
  for (int l = x->leaves + t->first_op, r = x->leaves + t->last_op + 1; l < r; l /= 2, r /= 2) {
    if (l & 1) index_enter(x, l++, tensor);
    if (r & 1) index_enter(x, --r, tensor);
  }
  x->begins_next[tensor] = x->begins[t->first_op];
  x->begins[t->first_op] = tensor;
}

/* Those that live when t begins, and those that begin during its life. */
static int index_find(const struct index *x, const tri_tensor_life *t, int32_t *out) {
  int n = 0;
  for (int node = x->leaves + t->first_op; node; node /= 2)
    for (int e = x->nodes[node]; e >= 0; e = x->entries[e].next) out[n++] = x->entries[e].tensor;
  for (int op = t->first_op + 1; op <= t->last_op; op++)
    for (int i = x->begins[op]; i >= 0; i = x->begins_next[i]) out[n++] = i;
  return n;
}

/* ---- placing ---- */

static bool is_larger(const tri_activation_plan *p, int a, int b) { return p->bytes[a] > p->bytes[b]; }

static bool lies_before(const tri_activation_plan *p, int a, int b) {
  const tri_tensor_place *x = &p->places[a], *y = &p->places[b];
  return x->chunk != y->chunk ? x->chunk < y->chunk : x->offset < y->offset;
}

/* A stable merge sort: the C library's may allocate, and ties are to keep the order of the operators. */
static void sort_tensors(const tri_activation_plan *p, int32_t *ids, int n,
                         bool (*before)(const tri_activation_plan *p, int a, int b)) {
  int32_t *from = ids, *to = p->scratch;
  for (int width = 1; width < n; width *= 2) {
    for (int lo = 0; lo < n; lo += 2 * width) {
      int mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n;
      for (int k = lo, a = lo, b = mid; k < hi; k++)
        to[k] = b == hi || (a < mid && !before(p, from[b], from[a])) ? from[a++] : from[b++];
    }
    int32_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != ids) memcpy(ids, from, (size_t)n * sizeof *ids);
}

/* Algorithm 1's FindGap: others are the n tensors of this chunk that live at the same time, by offset. */
static bool find_gap(const tri_activation_plan *p, const struct chunk *c, const int32_t *others, int n, size_t bytes,
                     size_t *out) {
  size_t end = 0, smallest = SIZE_MAX;
  bool found = false;
  for (int i = 0; i < n; i++) {
    size_t offset = p->places[others[i]].offset, gap = offset > end ? offset - end : 0;
    if (gap >= bytes && gap < smallest) {
      smallest = gap;
      *out = end;
      found = true;
    }
    if (offset + p->bytes[others[i]] > end) end = offset + p->bytes[others[i]];
  }
  if (!found && c->bytes - end >= bytes) {
    *out = end;
    found = true;
  }
  return found;
}

/* The n neighbours of tensor t, those that live when it does, are in p->neighbours. */
static tri_status place_tensor(tri_activation_plan *p, int t, int n, tri_error *err) {
  int first = 0;
  tri_tensor_place place = {0};
  bool found = false;
  sort_tensors(p, p->neighbours, n, lies_before);
  for (int c = 0; !found && c < p->num_chunks; c++) {
    int next = first;
    while (next < n && p->places[p->neighbours[next]].chunk == c) next++;
    found = find_gap(p, &p->chunks[c], p->neighbours + first, next - first, p->bytes[t], &place.offset);
    place.chunk = c;
    first = next;
  }
  if (!found) {
    tri_status st = add_chunk(p, p->bytes[t], err);
    if (st != TRI_OK) return st;
    place = (tri_tensor_place){.chunk = p->num_chunks - 1};
  }
  p->places[t] = place;
  p->chunks[place.chunk].num_tensors++;
  p->num_tensors++;
  return TRI_OK;
}

/* Raises *ops to the number of operators. */
static tri_status check_lives(const tri_tensor_life *lives, int n, int *ops, tri_error *err) {
  if (n < 0 || n > TRI_MAX_LIVES)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tensors", "%d tensors, the limit is %d", n, TRI_MAX_LIVES);
  for (int i = 0; i < n; i++) {
    const tri_tensor_life *t = &lives[i];
    if (!t->bytes || t->first_op < 0 || t->last_op < t->first_op)
      return tri_fail(err, TRI_INVALID_ARGUMENT, "tensors", "tensor %d has %zu bytes from operator %d to %d", i,
                      t->bytes, t->first_op, t->last_op);
    if (t->last_op >= TRI_MAX_LIFE_OPS)
      return tri_fail(err, TRI_OUT_OF_RANGE, "tensors", "tensor %d lives until operator %d, the limit is %d", i,
                      t->last_op, TRI_MAX_LIFE_OPS - 1);
    if (t->last_op >= *ops) *ops = t->last_op + 1;
  }
  return TRI_OK;
}

static tri_status prepare(tri_activation_plan *p, const tri_tensor_life *lives, int n, tri_error *err) {
  int ops = 1;
  tri_status st = check_lives(lives, n, &ops, err);
  if (st != TRI_OK) return st;
  if (reserve_arrays(p, n, ops) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "tensors", "no memory to plan %d tensors of %d operators", n, ops);
  for (int i = 0; i < n; i++) {
    if (!round_up(lives[i].bytes, p->cfg.alignment, &p->bytes[i]))
      return tri_fail(err, TRI_OVERFLOW, "tensors", "tensor %d of %zu bytes cannot be aligned", i, lives[i].bytes);
    p->order[i] = i;
  }
  sort_tensors(p, p->order, n, is_larger);
  index_clear(&p->index, ops);
  return TRI_OK;
}

static void begin(tri_activation_plan *p) {
  p->num_tensors = 0;
  for (int i = 0; i < p->num_chunks; i++) p->chunks[i].num_tensors = 0;
}

static tri_status finish(tri_activation_plan *p, tri_status st, int64_t start) {
  if (st == TRI_OK)
    p->stats.plans++;
  else
    p->num_tensors = 0;
  for (int i = 0; st == TRI_OK && i < p->num_chunks; i++)
    if (p->chunks[i].num_tensors) p->chunks[i].last_plan = p->stats.plans;
  p->stats.last_plan_ns = tri_now_ns() - start;
  p->stats.total_plan_ns += p->stats.last_plan_ns;
  return st;
}

tri_status tri_activation_plan_make(tri_activation_plan *p, const tri_tensor_life *tensors, int n, tri_error *err) {
  int64_t start = tri_now_ns();
  begin(p);
  tri_status st = prepare(p, tensors, n, err);
  for (int i = 0; st == TRI_OK && i < n; i++) {
    int t = p->order[i];
    st = place_tensor(p, t, index_find(&p->index, &tensors[t], p->neighbours), err);
    if (st == TRI_OK) index_add(&p->index, &tensors[t], t);
  }
  return finish(p, st, start);
}

/* ---- what it says ---- */

tri_tensor_place tri_activation_plan_place(const tri_activation_plan *p, int i) { return p->places[i]; }

void *tri_activation_plan_data(const tri_activation_plan *p, int i) {
  return (char *)p->chunks[p->places[i].chunk].data + p->places[i].offset;
}

int tri_activation_plan_num_tensors(const tri_activation_plan *p) { return p->num_tensors; }
int tri_activation_plan_num_chunks(const tri_activation_plan *p) { return p->num_chunks; }
size_t tri_activation_plan_chunk_bytes(const tri_activation_plan *p, int chunk) { return p->chunks[chunk].bytes; }
tri_activation_stats tri_activation_plan_stats(const tri_activation_plan *p) { return p->stats; }
