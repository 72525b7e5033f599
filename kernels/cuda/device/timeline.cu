/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device/timeline.cuh"

#ifdef TRI_CUDA_TIMELINE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 4096, NAMES = 256, STEPS = 16 };

/* A build for measuring has one backend in a process. */
static struct {
  const char *stamps[NAMES]; /* kernels that stamp */
  const char *node[NODES];   /* of the step that was recorded last */
  int num_stamps, num_nodes;
} seen;

void *tri_cuda_timeline_ring(void) {
  static void *ring;
  if (!ring && cudaMalloc(&ring, sizeof(timeline_ring)) == cudaSuccess) cudaMemset(ring, 0, sizeof(timeline_ring));
  return ring;
}

template <typename F> static F *driver(const char *name) {
  void *found = NULL;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion(name, &found, 12080, cudaEnableDefault, &result) != cudaSuccess) return NULL;
  return (F *)found;
}

static bool has_stamps(const char *name) {
  for (int i = 0; i < seen.num_stamps; i++)
    if (!strcmp(seen.stamps[i], name)) return true;
  return false;
}

void tri_cuda_timeline_launched(const void *kernel) {
  const char *name = NULL;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || has_stamps(name) || seen.num_stamps == NAMES) return;
  seen.stamps[seen.num_stamps++] = strdup(name);
}

static const char *name_of(cudaGraphNode_t node) {
  static auto *const params = driver<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *)>("cuGraphKernelNodeGetParams");
  static auto *const of_function = driver<CUresult(const char **, CUfunction)>("cuFuncGetName");
  static auto *const of_kernel = driver<CUresult(const char **, CUkernel)>("cuKernelGetName");
  CUDA_KERNEL_NODE_PARAMS p;
  const char *name = NULL;
  if (!params || params(node, &p) != CUDA_SUCCESS) return "unknown";
  if (p.func && of_function) of_function(&name, p.func);
  if (!name && p.kern && of_kernel) of_kernel(&name, p.kern);
  return name ? name : "unknown";
}

void tri_cuda_timeline_recorded(cudaGraph_t graph) {
  static cudaGraphNode_t nodes[NODES];
  size_t n = NODES;
  cudaGraphNodeType type;
  seen.num_nodes = 0;
  if (cudaGraphGetNodes(graph, nodes, &n) != cudaSuccess) return;
  for (size_t i = 0; i < n; i++)
    if (cudaGraphNodeGetType(nodes[i], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel)
      seen.node[seen.num_nodes++] = strdup(name_of(nodes[i]));
}

void tri_cuda_timeline_write(void) {
  static timeline_ring r;
  const char *path = getenv("TRIREME_TIMELINE");
  FILE *f = path ? fopen(path, "w") : NULL;
  if (!f || cudaMemcpy(&r, tri_cuda_timeline_ring(), sizeof r, cudaMemcpyDefault) != cudaSuccess) return;
  unsigned long long each = 0, steps = STEPS, most = r.count;
  if (most > TRI_CUDA_STAMPS) most = TRI_CUDA_STAMPS;
  for (int i = 0; i < seen.num_nodes; i++) each += has_stamps(seen.node[i]);
  if (each && most / each < steps) steps = most / each;
  unsigned long long at = r.count - steps * each;
  for (unsigned long long s = 0; s < steps; s++)
    for (int i = 0; i < seen.num_nodes; i++) {
      bool stamped = has_stamps(seen.node[i]);
      auto *t = &r.stamp[at % TRI_CUDA_STAMPS];
      fprintf(f, "%llu\t%s\t%llu\t%llu\n", s, seen.node[i], stamped ? t->begun : 0, stamped ? t->waited : 0);
      at += stamped;
    }
  fclose(f);
}
#endif
