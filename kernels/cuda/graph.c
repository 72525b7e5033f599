/* Recorded steps. The first step of a key is launched op by op, which loads its kernels and warms the libraries; the
 * second is recorded; later ones cost one launch instead of hundreds. */
#include "kernels/cuda/cuda.h"

void tri_cuda_graphs_drop(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  for (int i = 0; i < TRI_CUDA_GRAPHS; i++) {
    if (impl->graphs[i].exec) tri_cuda_note(be, cudaGraphExecDestroy(impl->graphs[i].exec));
    impl->graphs[i] = (tri_cuda_graph){0};
  }
}

/* The graph of a key, or the place of the one that has been unused for longest. */
static tri_cuda_graph *find(tri_cuda_impl *impl, uint64_t key) {
  tri_cuda_graph *oldest = impl->graphs;
  for (int i = 0; i < TRI_CUDA_GRAPHS; i++) {
    tri_cuda_graph *g = &impl->graphs[i];
    if (g->used && g->key == key) return g;
    if (g->used < oldest->used) oldest = g;
  }
  return oldest;
}

tri_graph_mode tri_cuda_graph_begin(tri_backend *be, uint64_t key) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_graph *g = find(impl, key);
  bool seen = g->used && g->key == key;
  if (!seen && g->exec) tri_cuda_note(be, cudaGraphExecDestroy(g->exec));
  if (!seen) *g = (tri_cuda_graph){.key = key};
  g->used = ++impl->graph_uses;
  if (!seen) return TRI_GRAPH_LAUNCH;
  if (g->exec) {
    tri_cuda_note(be, cudaGraphLaunch(g->exec, impl->stream));
    return TRI_GRAPH_REPLAY;
  }
  cudaError_t e = cudaStreamBeginCapture(impl->stream, cudaStreamCaptureModeThreadLocal);
  tri_cuda_note(be, e);
  if (e != cudaSuccess) return TRI_GRAPH_LAUNCH;
  impl->recording = g;
  return TRI_GRAPH_RECORD;
}

tri_status tri_cuda_graph_end(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_graph *g = impl->recording;
  cudaGraph_t graph = NULL;
  impl->recording = NULL;
  cudaError_t e = cudaStreamEndCapture(impl->stream, &graph);
  if (e == cudaSuccess) e = cudaGraphInstantiate(&g->exec, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  if (e == cudaSuccess) e = cudaGraphLaunch(g->exec, impl->stream);
  tri_cuda_note(be, e);
  return e == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}
