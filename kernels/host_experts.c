/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's experts as downloads, a call of the host and an upload in the device's stream, all at addresses that never
 * change: a recorded step can play them again. One set of pinned memory serves all layers, as the stream has one
 * layer's pieces end before the next layer's begin. */
#include "kernels/host_experts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernels/quantize.h"

enum { ALIGN = 64 };

/* One layer's work with one number of rows. Steps that are recorded keep pointing to it, and all steps of as many rows
 * want the same of it: it is written once and never changes. */
struct work {
  tri_host_call call; /* the first member */
  tri_host_experts *owner;
  int layer, rows;
  tri_dtype x_type;
};

struct tri_host_experts {
  tri_backend *backend, *host;
  tri_moe_experts_args *layers; /* [num_layers], with activations in the pinned memory */
  int num_layers, first_layer;
  _Atomic uint32_t *under_way;
  uint32_t idle;
  int most_rows;
  struct work *works; /* [num_layers, most_rows + 1] pages that are not touched until then */
  size_t works_bytes;
  /* pinned: x, out, weights of the choices, the map's first and choice. One layer's at a time, as the stream has it */
  char *pinned, *x, *out;
  size_t pinned_bytes;
  float *wide_x, *wide_out; /* [most_rows, H] the same in float32 where they have 16 bits, else NULL */
  size_t wide_bytes;        /* of each */
};

/* ---- on the host ---- */

/* Returns whether the map is one: memory that the device has spoilt must not be followed anywhere. */
static bool is_map(const tri_moe_experts_args *a) {
  const tri_expert_map *m = &a->map;
  int32_t choices = a->x.rows * a->top_k;
  if (m->first[0] || m->first[a->num_experts] > choices) return false;
  for (int e = 0; e < a->num_experts; e++) {
    int32_t before = -1;
    if (m->first[e] > m->first[e + 1] || m->first[e + 1] > choices) return false;
    for (int32_t i = m->first[e]; i < m->first[e + 1]; i++) {
      if (m->choice[i] <= before || m->choice[i] >= choices) return false;
      before = m->choice[i];
    }
  }
  return true;
}

static tri_status compute(tri_host_experts *h, const tri_moe_experts_args *a) {
  tri_op_plan plan = {0};
  TRI_CHECK(h->host->ops.moe_experts_plan(h->host, a, &plan));
  if (plan.workspace > h->host->workspace_bytes) return TRI_INTERNAL; /* create has reserved the most of any */
  h->host->ops.moe_experts_launch(h->host, &plan, a);
  return h->host->ops.stream_sync(h->host);
}

/* The host's ops take and give float32. */
static tri_status run(tri_host_call *call) {
  const struct work *k = (const struct work *)call;
  tri_host_experts *h = k->owner;
  tri_moe_experts_args a = h->layers[k->layer];
  size_t elements = (size_t)k->rows * (size_t)a.x.cols;
  tri_dtype out_type = a.out.dtype;
  a.x.rows = a.out.rows = k->rows;
  if (!is_map(&a)) return TRI_CORRUPT;
  if (h->under_way) atomic_store_explicit(h->under_way, (uint32_t)(h->first_layer + k->layer), memory_order_relaxed);
  if (k->x_type != TRI_F32) {
    tri_widen(h->wide_x, h->x, k->x_type, 0, elements);
    a.x.data = h->wide_x;
  }
  if (out_type != TRI_F32) {
    if (a.accumulate) tri_widen(h->wide_out, h->out, out_type, 0, elements);
    a.out.data = h->wide_out;
  }
  a.x.dtype = a.out.dtype = TRI_F32;
  tri_status st = compute(h, &a);
  if (out_type != TRI_F32)
    for (size_t i = 0; i < elements; i++) tri_store_f32(h->out, out_type, i, h->wide_out[i]);
  if (h->under_way) atomic_store_explicit(h->under_way, h->idle, memory_order_relaxed);
  return st;
}

/* ---- in the stream ---- */

/* Returns whether a launch is as this layer's were announced. */
static bool fits(const tri_host_experts *h, const tri_moe_experts_args *own, const tri_moe_experts_args *a) {
  return a->x.rows <= h->most_rows && a->up.data == own->up.data && a->down.data == own->down.data &&
         a->top_k == own->top_k && a->num_experts == own->num_experts && a->accumulate == own->accumulate &&
         a->out.dtype == own->out.dtype && (a->x.dtype == own->x.dtype || a->x.dtype == TRI_F32) &&
         a->x.ld == own->x.ld && a->out.ld == own->out.ld;
}

__attribute__((cold)) static void refuse(tri_backend *be) {
  if (be->failed != TRI_OK) return;
  snprintf(be->failure, sizeof be->failure, TRI_HOST_CALL_FAILED, "other experts than were announced");
  be->failed = TRI_INVALID_ARGUMENT;
}

/* Works are pages that the system has zeroed: one without an owner has not been written yet. */
static struct work *work_of(tri_host_experts *h, int layer, const tri_moe_experts_args *a) {
  struct work *k = &h->works[(size_t)layer * ((size_t)h->most_rows + 1) + (size_t)a->x.rows];
  if (!k->owner)
    *k = (struct work){.call = {.run = run}, .owner = h, .layer = layer, .rows = a->x.rows, .x_type = a->x.dtype};
  return k;
}

void tri_host_experts_launch(tri_host_experts *h, int layer, const tri_moe_experts_args *a) {
  tri_backend *be = h->backend;
  const tri_moe_experts_args *own = &h->layers[layer];
  size_t rows = (size_t)a->x.rows, choices = rows * (size_t)a->top_k, elements = rows * (size_t)a->x.cols;
  size_t out_bytes = elements * tri_dtype_size(own->out.dtype);
  if (!fits(h, own, a)) {
    refuse(be);
    return;
  }
  if (!rows) return;
  be->ops.download(be, h->x, a->x.data, elements * tri_dtype_size(a->x.dtype));
  be->ops.download(be, (void *)own->weights, a->weights, choices * sizeof *a->weights);
  be->ops.download(be, own->map.first, a->map.first, ((size_t)a->num_experts + 1) * sizeof *a->map.first);
  be->ops.download(be, own->map.choice, a->map.choice, choices * sizeof *a->map.choice);
  if (own->accumulate) be->ops.download(be, h->out, a->out.data, out_bytes);
  be->ops.host_call(be, &work_of(h, layer, a)->call);
  be->ops.upload(be, a->out.data, h->out, out_bytes);
}

/* ---- making it ---- */

/* The most that any layer asks for. */
struct sizes {
  size_t rows, x, out, weights, first, choice; /* bytes but for the rows */
  size_t wide;                                 /* of rows in float32; 0: none has another type */
};

static void most(size_t *a, size_t b) { *a = *a > b ? *a : b; }

/* Room of both types that x comes in: launches say which. */
static bool add_sizes(const tri_moe_experts_args *a, struct sizes *s) {
  size_t rows = (size_t)a->x.rows, choices, wide;
  if (!tri_size_mul(rows, (size_t)a->x.cols * sizeof(float), &wide) ||
      !tri_size_mul(rows, (size_t)a->top_k, &choices) || choices > INT32_MAX)
    return false;
  most(&s->rows, rows);
  most(&s->x, wide);
  most(&s->out, wide);
  most(&s->weights, choices * sizeof(float));
  most(&s->choice, choices * sizeof(int32_t));
  most(&s->first, ((size_t)a->num_experts + 1) * sizeof(int32_t));
  if (a->x.dtype != TRI_F32 || a->out.dtype != TRI_F32) most(&s->wide, wide);
  return true;
}

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool are_alike(const tri_moe_experts_args *a, const tri_moe_experts_args *b) {
  return a->up.dtype == b->up.dtype && a->up.n == b->up.n && a->down.dtype == b->down.dtype && a->down.k == b->down.k &&
         a->x.rows == b->x.rows && a->x.cols == b->x.cols && a->top_k == b->top_k;
}

/* Room for what the host's op asks for with any number of rows: more of them can ask for less. */
static tri_status reserve(tri_host_experts *h, const tri_moe_experts_args *layer) {
  tri_moe_experts_args a = *layer;
  size_t workspace = h->host->workspace_bytes;
  a.x.dtype = a.out.dtype = TRI_F32;
  for (int rows = 0; rows <= layer->x.rows; rows++) {
    tri_op_plan plan = {0};
    a.x.rows = a.out.rows = rows;
    TRI_CHECK(h->host->ops.moe_experts_plan(h->host, &a, &plan));
    most(&workspace, plan.workspace);
  }
  return workspace > h->host->workspace_bytes ? h->host->ops.reserve(h->host, workspace, 0) : TRI_OK;
}

static tri_status take_memory(tri_host_experts *h, const struct sizes *s) {
  size_t pinned = 2 * aligned(s->x) + aligned(s->weights) + aligned(s->first) + aligned(s->choice);
  size_t works = (size_t)h->num_layers * (s->rows + 1) * sizeof *h->works;
  TRI_CHECK(h->backend->ops.host_alloc(h->backend, pinned, (void **)&h->pinned));
  h->pinned_bytes = pinned;
  TRI_CHECK(tri_pages_alloc(works, (void **)&h->works));
  h->works_bytes = works;
  if (!s->wide) return TRI_OK;
  h->wide_bytes = s->wide;
  TRI_CHECK(tri_pages_alloc(s->wide, (void **)&h->wide_x));
  return tri_pages_alloc(s->wide, (void **)&h->wide_out);
}

/* Points a layer's activations to the pinned memory. */
static void place(tri_host_experts *h, const struct sizes *s, tri_moe_experts_args *a) {
  char *at = h->pinned;
  h->x = at;
  h->out = at += aligned(s->x);
  a->x.data = (float *)h->x;
  a->out.data = (float *)h->out;
  a->weights = (float *)(at += aligned(s->out));
  a->map.first = (int32_t *)(at += aligned(s->weights));
  a->map.choice = (int32_t *)(at += aligned(s->first));
  a->map.row = NULL; /* the host's op goes by the others */
}

static tri_status check(const tri_host_experts_config *config, tri_error *err) {
  for (int i = 0; i < config->num_layers; i++) {
    const tri_moe_experts_args *a = &config->layers[i];
    if (a->up.data && (a->x.ld != a->x.cols || a->out.ld != a->out.cols))
      return tri_fail(err, TRI_UNSUPPORTED, "cpu_moe", "rows with gaps between them do not go to experts on the host");
  }
  return TRI_OK;
}

static tri_status fill(tri_host_experts *h, const tri_host_experts_config *config, tri_error *err) {
  struct sizes s = {0};
  TRI_CHECK(check(config, err));
  for (int i = 0; i < config->num_layers; i++)
    if (config->layers[i].up.data && !add_sizes(&config->layers[i], &s)) return TRI_OVERFLOW;
  if (!(h->layers = tri_calloc((size_t)config->num_layers, sizeof *h->layers))) return TRI_NO_MEMORY;
  memcpy(h->layers, config->layers, (size_t)config->num_layers * sizeof *h->layers);
  h->most_rows = (int)s.rows;
  TRI_CHECK(take_memory(h, &s));
  const tri_moe_experts_args *last = NULL;
  for (int i = 0; i < config->num_layers; i++) {
    tri_moe_experts_args *a = &h->layers[i];
    if (!a->up.data) continue;
    if (!last || !are_alike(a, last)) TRI_CHECK(reserve(h, a));
    place(h, &s, a);
    last = a;
  }
  return TRI_OK;
}

tri_status tri_host_experts_create(const tri_host_experts_config *config, tri_host_experts **out, tri_error *err) {
  tri_host_experts *h = tri_calloc(1, sizeof *h);
  if (!h) return tri_fail(err, TRI_NO_MEMORY, "cpu_moe", "no memory for experts on the host");
  h->backend = config->backend;
  h->host = config->host;
  h->num_layers = config->num_layers;
  h->first_layer = config->first_layer;
  h->under_way = config->under_way;
  h->idle = config->idle;
  tri_status st = fill(h, config, err);
  if (st == TRI_OK) {
    *out = h;
    return TRI_OK;
  }
  tri_host_experts_destroy(h);
  return err && err->status ? st : tri_fail(err, st, "cpu_moe", "no experts on the host: %s", tri_status_text(st));
}

void tri_host_experts_destroy(tri_host_experts *h) {
  if (!h) return;
  if (h->pinned) h->backend->ops.host_free(h->backend, h->pinned, h->pinned_bytes);
  tri_pages_free(h->works, h->works_bytes);
  tri_pages_free(h->wide_x, h->wide_bytes);
  tri_pages_free(h->wide_out, h->wide_bytes);
  tri_free(h->layers);
  tri_free(h);
}
