/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps. The first step of a key is launched op by op, which loads its kernels and warms the libraries; the
 * second, if it comes soon enough, is recorded; later ones cost one launch instead of hundreds. Graphs are kept by the
 * caller's key, which must name everything that the launches depend on: a replay runs with the arguments and addresses
 * of the recording. So whatever frees or moves memory that ops use calls tri_cuda_graphs_drop first. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/timeline.h"

void tri_cuda_graphs_drop(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  for (int i = 0; i < TRI_CUDA_GRAPHS; i++) {
    if (impl->graphs[i].exec) tri_cuda_note(be, cudaGraphExecDestroy(impl->graphs[i].exec));
    impl->graphs[i] = (tri_cuda_graph){0};
  }
}

/* The graph of a key; NULL: none. */
static tri_cuda_graph *find(tri_cuda_impl *impl, uint64_t key) {
  for (int i = 0; i < TRI_CUDA_GRAPHS; i++)
    if (impl->graphs[i].exec && impl->graphs[i].key == key) return &impl->graphs[i];
  return NULL;
}

/* An empty place, or that of the graph that has been unused for longest. One that still runs is freed when it has ended
 * (cudaGraphExecDestroy sees to that). */
static tri_cuda_graph *make_place(tri_backend *be, uint64_t key) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_graph *oldest = impl->graphs;
  for (int i = 0; i < impl->most_graphs; i++)
    if (impl->graphs[i].used < oldest->used) oldest = &impl->graphs[i];
  if (oldest->exec) tri_cuda_note(be, cudaGraphExecDestroy(oldest->exec));
  *oldest = (tri_cuda_graph){.key = key};
  return oldest;
}

/* Returns true where the key has been seen not long ago; it has now. Shapes that never repeat thus take no graph's
 * place. */
static bool was_seen(tri_cuda_impl *impl, uint64_t key) {
  for (int i = 0; i < TRI_CUDA_KEYS; i++)
    if (impl->keys[i] == key) return true;
  impl->keys[impl->next_key++ % TRI_CUDA_KEYS] = key;
  return false;
}

/* Capture is of this thread's calls alone (ThreadLocal): others may make calls meanwhile that a global one would
 * refuse. */
tri_graph_mode tri_cuda_graph_begin(tri_backend *be, uint64_t key) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_graph *g = find(impl, key);
  if (!g && (!impl->most_graphs || !was_seen(impl, key))) return TRI_GRAPH_LAUNCH;
  if (!g) g = make_place(be, key);
  g->used = ++impl->graph_uses;
  if (g->exec) {
    tri_cuda_note(be, cudaGraphLaunch(g->exec, tri_cuda_stream(be)));
    tri_cuda_timeline_replayed();
    return TRI_GRAPH_REPLAY;
  }
  cudaError_t e = cudaStreamBeginCapture(tri_cuda_stream(be), cudaStreamCaptureModeThreadLocal);
  tri_cuda_note(be, e);
  if (e != cudaSuccess) return TRI_GRAPH_LAUNCH;
  impl->recording = g;
  return TRI_GRAPH_RECORD;
}

/* The device gets it now, not with its first launch, which has no way to say that there is no memory for it. */
static cudaError_t instantiate(tri_cuda_graph *g, cudaGraph_t graph, cudaStream_t stream) {
  cudaGraphExec_t exec = NULL;
  cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
  if (e == cudaSuccess) e = cudaGraphUpload(exec, stream);
  if (e != cudaSuccess && exec) cudaGraphExecDestroy(exec);
  g->exec = e == cudaSuccess ? exec : NULL;
  return e;
}

tri_status tri_cuda_graph_end(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_graph *g = impl->recording;
  cudaGraph_t graph = NULL;
  impl->recording = NULL;
  cudaError_t e = cudaStreamEndCapture(tri_cuda_stream(be), &graph);
  if (e == cudaSuccess) tri_cuda_timeline_recorded(graph);
  if (e == cudaSuccess) e = instantiate(g, graph, tri_cuda_stream(be));
  if (graph) cudaGraphDestroy(graph);
  if (e == cudaSuccess) return TRI_OK;
  cudaGetLastError();
  if (e == cudaErrorMemoryAllocation) return TRI_AGAIN; /* steps can do without */
  tri_cuda_note(be, e);
  return TRI_DEVICE_LOST;
}

/* Half of what there was has room, and something else may want some, too. The ranks of a group have the same places
 * taken, and so come to the same number. */
void tri_cuda_graph_refuse(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  int places = 0;
  for (int i = 0; i < TRI_CUDA_GRAPHS; i++) places += impl->graphs[i].used > 0;
  tri_cuda_graphs_drop(be);
  impl->most_graphs = places / 2;
}
