/* SPDX-License-Identifier: Apache-2.0 */
/* Measures with which tactic GEMMs are fastest (kernels/gemm_tactics.h). A tactic is timed as a step would meet it:
 * a recorded run of launches whose weights lie in no cache, since a step reads all of a model's weights between two
 * uses of the same. */
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/cuda.h"
#include "base/wait.h"

enum { MOST_LAUNCHES = 128, FEWEST_LAUNCHES = 4, OWN_ROWS = 16 }; /* beyond these our kernel is for odd shapes alone */
enum { MOST_RUNS = 7, FEWEST_RUNS = 2, PLACE_ALIGNMENT = 256 };
enum { LONG_NS = 10000000 }; /* a run that is long enough for few repetitions to agree */
enum {
  WORSE = 13,
  WORTH = 97
}; /* tenths of the best time that end a tactic's runs; percent that a tactic must come to */
enum { TACTICS = 3 + TRI_CUDA_PROPOSALS };

/* The launches of a run, and where it begins and ends. */
typedef struct run {
  tri_backend *be;
  cudaEvent_t begin, end;
  size_t cold; /* bytes of weights after which none of them is in a cache */
  int num;
  tri_linear_args launches[MOST_LAUNCHES];
} run;

static size_t weight_bytes(const tri_linear_args *a) {
  return (size_t)a->w.n * (size_t)a->w.k * tri_dtype_size(a->w.dtype);
}

static bool same_shape(const tri_linear_args *a, const tri_linear_args *b) {
  tri_gemm_shape x = tri_gemm_shape_of(a), y = tri_gemm_shape_of(b);
  return !memcmp(&x, &y, sizeof x);
}

/* ---- the launches ---- */

/* One more, with the weights of `from`, or those that lie so many bytes after its first ones. */
static void add_launch(run *r, const tri_linear_args *like, const tri_linear_args *from, size_t offset) {
  tri_linear_args *a = &r->launches[r->num++];
  *a = *like;
  a->w.data = (const char *)from->w.data + offset;
}

/* The GEMM's own layers first. Of small ones these do not fill the cache: then parts of the other weights, which lie
 * between two of its uses in a step, too. */
static void collect(run *r, const tri_tune_gemm *gemms, int count, const tri_linear_args *a) {
  size_t need = weight_bytes(a), step = (need + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT, total = 0;
  r->num = 0;
  for (int i = 0; i < count && r->num < MOST_LAUNCHES && (total < r->cold || r->num < FEWEST_LAUNCHES); i++)
    if (same_shape(&gemms[i].args, a)) {
      add_launch(r, a, &gemms[i].args, 0);
      total += need;
    }
  for (int i = 0; i < count; i++) {
    const tri_linear_args *other = &gemms[i].args;
    if (other->w.dtype != a->w.dtype || same_shape(other, a)) continue;
    for (size_t at = 0; at + need <= weight_bytes(other) && total < r->cold && r->num < MOST_LAUNCHES; at += step) {
      add_launch(r, a, other, at);
      total += need;
    }
  }
  for (int own = r->num, i = 0; r->num < FEWEST_LAUNCHES; i++) add_launch(r, a, &r->launches[i % own], 0);
}

static void launch_all(run *r) {
  for (int i = 0; i < r->num; i++) tri_cuda_linear(r->be, &r->launches[i]);
  tri_cuda_note(r->be, cudaGetLastError());
}

/* ---- timing ---- */

/* A tactic that does not work leaves an error, which is none of the backend's as long as the device answers. */
static tri_status recover(run *r, cudaError_t before) {
  tri_cuda_impl *impl = tri_cuda_of(r->be);
  cudaGetLastError();
  cudaError_t e = cudaStreamSynchronize(tri_cuda_stream(r->be));
  impl->error = before;
  tri_cuda_note(r->be, e);
  return r->be->ops.stream_sync(r->be);
}

static cudaError_t record(run *r, cudaGraphExec_t *exec) {
  tri_cuda_impl *impl = tri_cuda_of(r->be);
  cudaGraph_t graph = NULL;
  cudaError_t e = cudaStreamBeginCapture(tri_cuda_stream(r->be), cudaStreamCaptureModeThreadLocal);
  if (e != cudaSuccess) return e;
  launch_all(r);
  e = cudaStreamEndCapture(tri_cuda_stream(r->be), &graph);
  if (e == cudaSuccess) e = impl->error;
  if (e == cudaSuccess) e = cudaGraphInstantiate(exec, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  return e;
}

/* Nanoseconds of one launch in the fastest of some runs; no more of them than it takes to see that best_ns (0: nothing
 * was measured yet) is faster. */
static cudaError_t time_runs(run *r, cudaGraphExec_t exec, double best_ns, double *ns) {
  cudaStream_t stream = tri_cuda_stream(r->be);
  cudaError_t e = cudaGraphLaunch(exec, stream);
  double fastest = 0;
  for (int i = 0; i < MOST_RUNS && e == cudaSuccess; i++) {
    float ms = 0;
    e = cudaEventRecord(r->begin, stream);
    if (e == cudaSuccess) e = cudaGraphLaunch(exec, stream);
    if (e == cudaSuccess) e = cudaEventRecord(r->end, stream);
    if (e == cudaSuccess) e = cudaEventSynchronize(r->end);
    if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, r->begin, r->end);
    double run_ns = (double)ms * 1e6;
    if (e == cudaSuccess && (!i || run_ns < fastest)) fastest = run_ns;
    bool clear = best_ns > 0 && fastest / r->num * 10 > best_ns * WORSE;
    if (i + 1 >= FEWEST_RUNS && (clear || fastest > LONG_NS)) break;
  }
  *ns = fastest / r->num;
  return e;
}

/* *ns is 0 where the tactic does not work. TRI_DEVICE_LOST ends everything. */
static tri_status time_tactic(run *r, const tri_tactic *tactic, double best_ns, double *ns) {
  tri_cuda_impl *impl = tri_cuda_of(r->be);
  cudaGraphExec_t exec = NULL;
  cudaError_t before = impl->error, e;
  uint64_t refused = impl->refused;
  *ns = 0;
  impl->forced = tactic;
  launch_all(r); /* loads kernels and warms the library, which must not happen while launches are recorded */
  e = cudaStreamSynchronize(tri_cuda_stream(r->be));
  if (e == cudaSuccess) e = impl->error;
  if (e == cudaSuccess && refused == impl->refused) e = record(r, &exec);
  if (e == cudaSuccess && exec) e = time_runs(r, exec, best_ns, ns);
  impl->forced = NULL;
  if (exec) cudaGraphExecDestroy(exec);
  if (e == cudaSuccess) return TRI_OK;
  *ns = 0;
  return recover(r, before);
}

/* ---- one shape ---- */

/* The default tactic first. */
static int list_tactics(tri_backend *be, const tri_linear_args *a, tri_tactic tactics[TACTICS]) {
  bool by_default = tri_cuda_library_by_default(be, a), plain = !a->bias && a->act == TRI_ACT_NONE;
  bool narrows = a->w.dtype != a->x.dtype;
  int n = 0;
  tactics[n++] = (tri_tactic){.kind = TRI_TACTIC_DEFAULT};
  if (by_default && a->x.rows <= OWN_ROWS) tactics[n++] = (tri_tactic){.kind = TRI_TACTIC_OWN};
  if (!by_default || !plain) tactics[n++] = (tri_tactic){.kind = TRI_TACTIC_GEMM};
  return n + tri_cuda_matmul_propose(be, a, narrows ? be->workspace : a->x.data, narrows ? a->w.k : a->x.ld,
                                     TRI_CUDA_PROPOSALS, tactics + n);
}

/* Fastest of all, and measured once more against the default tactic: the device's clock may have changed meanwhile. */
static tri_status race(run *r, const tri_tactic *tactics, int num, int64_t until, tri_tactic *winner) {
  double first = 0, best = 0, ns;
  int fastest = 0;
  for (int i = 0; i < num; i++) {
    if (tri_now_ns() > until) return TRI_TIMEOUT;
    TRI_CHECK(time_tactic(r, &tactics[i], best, &ns));
    if (!i) first = ns;
    if (ns > 0 && (best <= 0 || ns < best)) {
      best = ns;
      fastest = i;
    }
  }
  if (fastest && first > 0) {
    TRI_CHECK(time_tactic(r, &tactics[0], 0, &ns));
    if (ns > 0 && ns < first) first = ns;
    TRI_CHECK(time_tactic(r, &tactics[fastest], 0, &ns));
    if (ns > best) best = ns;
  }
  if (first <= 0) return TRI_UNSUPPORTED; /* then there is nothing to compare with */
  bool worth = fastest && best * 100 <= first * WORTH;
  *winner = tactics[worth ? fastest : 0];
  winner->default_ns = first < INT32_MAX ? (int32_t)first + 1 : INT32_MAX;
  winner->ns = winner->default_ns;
  if (worth) winner->ns = best < INT32_MAX ? (int32_t)best + 1 : INT32_MAX;
  return TRI_OK;
}

static size_t narrow_bytes(const tri_linear_args *a) {
  return a->w.dtype == a->x.dtype ? 0 : (size_t)a->x.rows * (size_t)a->w.k * 2;
}

static tri_status tune_shape(run *r, const tri_tune_gemm *gemms, int count, const tri_linear_args *a, int64_t until,
                             tri_tactics *out, tri_tune_result *result) {
  tri_backend *be = r->be;
  tri_tactic tactics[TACTICS], winner;
  tri_gemm_shape shape = tri_gemm_shape_of(a);
  tri_status st;
  /* Rows of 16 bits with weights of float32 become float32 first, and are small: a router. */
  bool widens = a->w.dtype == TRI_F32 && a->x.dtype != TRI_F32;
  if (widens || !tri_cuda_library_can(a)) return TRI_OK;
  result->shapes++;
  if (tri_tactics_get(be->tactics, &shape)) {
    result->known++;
    return TRI_OK;
  }
  TRI_CHECK(be->ops.reserve(be, narrow_bytes(a), 0));
  int num = list_tactics(be, a, tactics);
  collect(r, gemms, count, a);
  st = race(r, tactics, num, until, &winner);
  if (st != TRI_OK) return st == TRI_DEVICE_LOST ? st : TRI_OK;
  winner.shape = shape;
  result->measured++;
  result->saved += 1 - (double)winner.ns / winner.default_ns;
  return tri_tactics_put(out, &winner);
}

/* ---- all of them ---- */

static tri_status open_run(tri_backend *be, run **out) {
  int cache = 0;
  run *r = tri_calloc(1, sizeof *r);
  if (!r) return TRI_NO_MEMORY;
  r->be = be;
  cudaError_t e = cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, tri_cuda_of(be)->device);
  if (e == cudaSuccess) e = cudaEventCreate(&r->begin);
  if (e == cudaSuccess) e = cudaEventCreate(&r->end);
  tri_cuda_note(be, e);
  r->cold = 2 * (size_t)cache;
  *out = r;
  return e == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}

static void close_run(run *r) {
  if (!r) return;
  if (r->begin) cudaEventDestroy(r->begin);
  if (r->end) cudaEventDestroy(r->end);
  tri_free(r);
}

/* True where one kernel has it together with the MLP's other GEMM. */
static bool is_of_one_kernel(const tri_backend *be, const tri_tune_gemm *p) {
  tri_gated_mlp_args a = {.gated = {.up = p->gated ? p->args : p->other, .glu = p->glu},
                          .down = p->gated ? p->other : p->args};
  return p->in_mlp && tri_cuda_chooses_gated_mlp(be, &a);
}

/* True where linear sees it, and has a choice. Gated GEMMs of few rows, and of many, go through kernels that have no
 * other tactic. Skinny GEMMs begin while the previous kernels run, and let the next one begin: what that gains in a
 * step, a run of one GEMM does not show (8B shape, 8 rows: it calls 6144 x 4096 slower by 2 us, of which a step
 * takes 4.6 us less). */
static bool is_linear(const tri_backend *be, const tri_tune_gemm *p) {
  tri_gated_linear_args gated = {.up = p->args, .glu = p->glu};
  if (is_of_one_kernel(be, p) || tri_cuda_skinny_by_default(be, &p->args)) return false;
  return !p->gated || !tri_cuda_choose_gated_linear(be, &gated);
}

static bool came_before(const tri_tune_gemm *gemms, int i) {
  for (int k = 0; k < i; k++)
    if (gemms[k].gated == gemms[i].gated && gemms[k].in_mlp == gemms[i].in_mlp &&
        same_shape(&gemms[k].args, &gemms[i].args))
      return true;
  return false;
}

tri_status tri_cuda_tune(tri_backend *be, const tri_tune_gemm *gemms, int count, int64_t until, tri_tactics *out,
                         tri_tune_result *result) {
  run *r = NULL;
  tri_status st;
  *result = (tri_tune_result){0};
  tri_cuda_graphs_drop(be);
  TRI_TRY(be->ops.stream_sync(be));
  TRI_TRY(open_run(be, &r));
  for (int i = 0; i < count; i++)
    if (is_linear(be, &gemms[i]) && !came_before(gemms, i))
      TRI_TRY(tune_shape(r, gemms, count, &gemms[i].args, until, out, result));
cleanup:
  close_run(r);
  return st;
}
