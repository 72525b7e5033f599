/* SPDX-License-Identifier: Apache-2.0 */
/* Making backends, and the slots that all backends of host memory share.
 *
 * A call on the host has done its work when it returns: streams and events have nothing to order, so their slots do
 * nothing but hand on a failure of an op, which device backends learn of at a later call. */
#include "kernels/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/finite.h"
#include "kernels/gemm_tactics.h"
#include "kernels/random.h"
#include "kernels/roofline.h"

/* Memory of the CPU backends: the host's own pages. A KV cache is as large as a fourth of the memory and may be used in
 * small part, a little of each layer: huge pages would take 2 MiB for each layer's first block. */
static tri_status host_alloc(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out) {
  tri_status st = tag == TRI_MEM_KV ? tri_small_pages_alloc(bytes, out) : tri_pages_alloc(bytes, out);
  if (st == TRI_OK) be->allocated[tag] += bytes;
  return st;
}

static void host_free(tri_backend *be, tri_mem_tag tag, void *p, size_t bytes) {
  if (!p) return;
  be->allocated[tag] -= bytes;
  tri_pages_free(p, bytes ? bytes : 1);
}

static void host_copy(tri_backend *be, void *to, const void *from, size_t bytes) {
  (void)be;
  if (bytes) memcpy(to, from, bytes);
}

static void host_copy_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                           size_t width, size_t rows) {
  (void)be;
  for (size_t i = 0; i < rows; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
}

/* ---- ops that a backend lacks ---- */

enum { REF_ADDS_IN_PLACE_FROM = 17 }; /* as on devices: a reference goes both ways */

__attribute__((cold)) static tri_status refuse_op(tri_backend *be, const char *op) {
  snprintf(be->failure, sizeof be->failure, "backend %s has no op %s", be->name, op);
  return TRI_UNSUPPORTED;
}

#define X(op)                                                                                                          \
  static tri_status no_##op##_plan(tri_backend *be, const tri_##op##_args *args, tri_op_plan *plan) {                  \
    (void)args, (void)plan;                                                                                            \
    return refuse_op(be, #op);                                                                                         \
  }                                                                                                                    \
  static void no_##op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *args) {                \
    (void)args, (void)plan;                                                                                            \
    be->failed = refuse_op(be, #op);                                                                                   \
  }
TRI_OP_LIST(X)
#undef X

/* A launch cannot return an error, so an op that is lacking leaves it in be->failed as a device's failure would be. */
void tri_backend_fill_unsupported(tri_backend *be) {
#define X(op)                                                                                                          \
  be->ops.op##_plan = no_##op##_plan;                                                                                  \
  be->ops.op##_launch = no_##op##_launch;
  TRI_OP_LIST(X)
#undef X
}

/* ---- streams: on the host everything has run where it was called ---- */

static tri_status host_sync(tri_backend *be) {
  tri_status st = be->failed;
  be->failed = TRI_OK;
  return st;
}

static void host_host_call(tri_backend *be, tri_host_call *call) {
  call->backend = be;
  tri_status st = call->run(call);
  if (st == TRI_OK || be->failed != TRI_OK) return;
  snprintf(be->failure, sizeof be->failure, TRI_HOST_CALL_FAILED, tri_status_text(st));
  be->failed = st;
}

static void host_event_record(tri_backend *be, int event, tri_stream stream) {
  (void)be;
  (void)event;
  (void)stream;
}

static void host_stream_wait(tri_backend *be, tri_stream stream, int event) {
  (void)be;
  (void)stream;
  (void)event;
}

static tri_status host_event_done(tri_backend *be, int event) {
  (void)event;
  return be->failed;
}

/* ---- what a host's backend has no other way for ---- */

static tri_status host_comm_create(tri_backend *be, struct tri_comm *host, tri_comm_use use, struct tri_comm **out,
                                   tri_error *err) {
  (void)be;
  (void)host;
  (void)use;
  (void)err;
  *out = NULL;
  return TRI_OK;
}

static tri_status host_comm_add_rows(tri_backend *be, struct tri_comm *host, const struct tri_rows_config *rows,
                                     struct tri_comm **c, tri_error *err) {
  (void)be;
  (void)host;
  (void)rows;
  (void)c;
  return tri_fail(err, TRI_UNSUPPORTED, "exchange", "rows in the host's memory");
}

static void host_graph_drop(tri_backend *be) { (void)be; }

static int64_t host_available(tri_backend *be) {
  (void)be;
  return tri_host_memory_available();
}

static bool host_takes_form(const tri_backend *be, tri_dtype dtype, tri_groups groups) {
  (void)be;
  (void)groups;
  return dtype <= TRI_BF16 || dtype == TRI_F8_E4M3 || dtype == TRI_I8;
}

/* ---- uploads: copies by the pool, finished when upload_rows returns ---- */

static tri_status host_pages(tri_backend *be, size_t bytes, void **out) {
  (void)be;
  return tri_pages_alloc(bytes, out);
}

static void host_pages_free(tri_backend *be, void *p, size_t bytes) {
  (void)be;
  tri_pages_free(p, bytes);
}

static tri_status host_pages_pin(tri_backend *be, void *p, size_t bytes) {
  (void)be;
  (void)p;
  (void)bytes;
  return TRI_OK;
}

/* Ranks with the host's memory share it by other means. */
static tri_status host_peer_show(tri_backend *be, void *p, tri_peer_handle *out) {
  (void)be;
  (void)p;
  (void)out;
  return TRI_UNSUPPORTED;
}

static tri_status host_peer_open(tri_backend *be, const tri_peer_handle *handle, void **out) {
  (void)be;
  (void)handle;
  (void)out;
  return TRI_UNSUPPORTED;
}

static void host_release(tri_backend *be, void *p) {
  (void)be;
  (void)p;
}

struct rows {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, width, rows;
};

/* A part of the bytes, in the order of rows. */
static void copy_share(void *ctx, int index, int count) {
  const struct rows *r = ctx;
  size_t all = r->width * r->rows, share = all / (size_t)count, at = share * (size_t)index;
  size_t end = index == count - 1 ? all : at + share;
  while (at < end) {
    size_t row = at / r->width, col = at % r->width, n = r->width - col < end - at ? r->width - col : end - at;
    memcpy(r->to + row * r->to_pitch + col, r->from + row * r->from_pitch + col, n);
    at += n;
  }
}

static void host_upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t rows) {
  enum { WORTH_THREADS = 256 << 10 };
  struct rows r = {to, from, to_pitch, from_pitch, width, rows};
  if (!width || !rows) return;
  if (rows > WORTH_THREADS / width)
    tri_pool_run(be->pool, copy_share, &r);
  else
    copy_share(&r, 0, 1);
}

static tri_status host_bind_batch(tri_backend *be, int number, const tri_batch *host,
                                  const tri_attention_args *attentions, int num_attentions, tri_batch *out) {
  (void)be;
  (void)number;
  (void)attentions;
  (void)num_attentions;
  *out = *host;
  return TRI_OK;
}

static tri_status host_reserve_samples(tri_backend *be, int rows, int edits, int vocab) {
  (void)be;
  (void)rows;
  (void)edits;
  (void)vocab;
  return TRI_OK;
}

static void host_side(tri_backend *be) { (void)be; }

/* Ops of the side stream have ended before others begin. */
static tri_status host_reserve(tri_backend *be, size_t workspace, size_t of_side) {
  if (of_side > workspace) workspace = of_side;
  if (workspace <= be->workspace_bytes) return TRI_OK;
  void *p;
  TRI_CHECK(host_alloc(be, TRI_MEM_STAGING, workspace, &p));
  host_free(be, TRI_MEM_STAGING, be->workspace, be->workspace_bytes);
  be->workspace = p;
  be->workspace_bytes = workspace;
  return TRI_OK;
}

static void host_destroy(tri_backend *be) {
  host_free(be, TRI_MEM_STAGING, be->workspace, be->workspace_bytes);
  tri_free(be->impl);
}

static void fill_host(tri_backend *be) {
  be->ops.mem_alloc = host_alloc;
  be->ops.mem_free = host_free;
  be->ops.mem_available = host_available;
  be->ops.upload = host_copy;
  be->ops.download = host_copy;
  be->ops.copy_rows = host_copy_rows;
  be->ops.stream_sync = host_sync;
  be->ops.host_call = host_host_call;
  be->ops.event_record = host_event_record;
  be->ops.stream_wait = host_stream_wait;
  be->ops.event_query = host_event_done;
  be->ops.event_wait = host_event_done;
  be->ops.join_thread = host_side;
  be->ops.side_begin = host_side;
  be->ops.side_end = host_side;
  be->ops.side_join = host_side;
  be->ops.host_alloc = host_pages;
  be->ops.host_free = host_pages_free;
  be->ops.host_pin = host_pages_pin;
  be->ops.host_unpin = host_release;
  be->ops.upload_rows = host_upload_rows;
  be->ops.peer_show = host_peer_show;
  be->ops.peer_open = host_peer_open;
  be->ops.peer_close = host_release;
  be->ops.peer_copy = host_copy;
  be->ops.fill_random = tri_random_fill_host;
  be->ops.count_not_finite = tri_count_not_finite_host;
  be->ops.comm_create = host_comm_create;
  be->ops.comm_add_rows = host_comm_add_rows;
  be->ops.graph_drop = host_graph_drop;
  be->ops.bind_batch = host_bind_batch;
  be->ops.reserve = host_reserve;
  be->ops.reserve_samples = host_reserve_samples;
  be->ops.takes_form = host_takes_form;
  be->ops.roofline_create = tri_roofline_create_host;
  be->ops.destroy = host_destroy;
  be->host_memory = true;
}

/* Slots are filled in layers, each over the one before: a refusal for every op, the host's memory and streams, the
 * reference's ops, the backend's own. A CUDA device gets no op of the reference, which would follow a device's
 * pointers; an op that the module lacks is refused instead. */
static tri_status create(const tri_backend_config *config, const char *name, tri_backend **out, tri_error *err) {
  static const char *const known[] = {"cpu", "cuda", "ref"};
  size_t i = 0;
  while (i < sizeof known / sizeof *known && strcmp(name, known[i])) i++;
  if (i == sizeof known / sizeof *known)
    return tri_fail(err, TRI_UNSUPPORTED, "backend", "no backend %s; known: auto, cpu, cuda, ref", name);
  bool cpu = known[i] == known[0], cuda = known[i] == known[1];
  tri_backend *be = tri_calloc(1, sizeof *be);
  if (!be) return tri_fail(err, TRI_NO_MEMORY, "backend", "no memory for backend %s", name);
  be->name = known[i];
  be->isa = "scalar";
  be->deterministic = config->deterministic;
  be->no_peer_memory = config->no_peer_memory;
  be->memory_utilization = config->memory_utilization > 0 ? config->memory_utilization : 1;
  be->pool = config->pool;
  tri_backend_fill_unsupported(be);
  fill_host(be);
  tri_status st = TRI_OK;
  if (cuda)
    st = tri_backend_load_cuda(be, config->device, err);
  else
    tri_backend_fill_ref(be);
  if (!cuda && !cpu) be->adds_in_place_from = REF_ADDS_IN_PLACE_FROM;
  if (cpu) st = tri_backend_fill_cpu(be, config->isa, err);
  if (st != TRI_OK) {
    tri_backend_destroy(be);
    return st;
  }
  *out = be;
  return TRI_OK;
}

tri_status tri_backend_create(const tri_backend_config *config, tri_backend **out, tri_error *err) {
  const char *name = config->name ? config->name : "cpu";
  if (strcmp(name, "auto")) return create(config, name, out, err);
  /* cuda would refuse to be deterministic; it is not even asked, as opening a device takes its time. */
  if (!config->deterministic && create(config, "cuda", out, NULL) == TRI_OK) return TRI_OK;
  return create(config, "cpu", out, err);
}

void tri_backend_destroy(tri_backend *be) {
  if (!be) return;
  void *module = be->module;
  be->ops.destroy(be);
  tri_tactics_destroy(be->tactics);
  tri_free(be);
  if (module) dlclose(module); /* after the last call into it */
}

#define X(op)                                                                                                          \
  tri_status tri_run_##op(tri_backend *be, const tri_##op##_args *args) {                                              \
    tri_op_plan plan = {0};                                                                                            \
    tri_status st = be->ops.op##_plan(be, args, &plan);                                                                \
    if (st == TRI_OK && plan.workspace > be->workspace_bytes) st = be->ops.reserve(be, plan.workspace, 0);             \
    if (st == TRI_OK) be->ops.op##_launch(be, &plan, args);                                                            \
    return st;                                                                                                         \
  }
TRI_OP_LIST(X)
#undef X
