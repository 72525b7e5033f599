/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device/timeline.cuh"

#ifdef TRI_CUDA_TIMELINE
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 4096, NAMES = 256, STEPS = 16, LAUNCHES = 1 << 16 };

/* A kernel that was launched, alone or as a node of a replay. */
typedef struct launched {
  const char *name;
  bool stamps, begins_step; /* begins_step: the first node of a replay */
} launched;

/* A build for measuring has one backend in a process. */
static struct {
  const char *stamps[NAMES]; /* kernels that stamp */
  const char *node[NODES];   /* of the step that was recorded last */
  int num_stamps, num_nodes;
  launched log[LAUNCHES]; /* the last ones, in their order, which is that of their stamps */
  unsigned long long num_launched;
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

/* The name as it is kept of a kernel that stamps; NULL: it does not. */
static const char *stamping(const char *name) {
  for (int i = 0; i < seen.num_stamps; i++)
    if (!strcmp(seen.stamps[i], name)) return seen.stamps[i];
  return NULL;
}

static void log_launch(const char *name, bool stamps, bool begins_step) {
  seen.log[seen.num_launched++ % LAUNCHES] = {name, stamps, begins_step};
}

/* Kernels that are recorded are launched with the replays of their step. */
void tri_cuda_timeline_launched(const void *kernel, cudaStream_t stream) {
  const char *name = NULL;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaFuncGetName(&name, kernel) != cudaSuccess || cudaStreamIsCapturing(stream, &capture) != cudaSuccess) return;
  if (!stamping(name) && seen.num_stamps < NAMES) seen.stamps[seen.num_stamps++] = strdup(name);
  if (capture == cudaStreamCaptureStatusNone) log_launch(stamping(name), true, false);
}

void tri_cuda_timeline_replayed(void) {
  for (int i = 0; i < seen.num_nodes; i++) log_launch(seen.node[i], stamping(seen.node[i]) != NULL, !i);
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

/* Returns where the last STEPS replays begin in the log. *stamps: stamps of the launches from there on. */
static unsigned long long find_steps(unsigned long long *stamps) {
  unsigned long long at = seen.num_launched, oldest = at > LAUNCHES ? at - LAUNCHES : 0, begin = at, steps = 0,
                     count = 0;
  *stamps = 0;
  while (at > oldest && steps < STEPS) {
    const launched *l = &seen.log[--at % LAUNCHES];
    count += l->stamps;
    if (count > TRI_CUDA_STAMPS) break;
    if (!l->begins_step) continue;
    steps++;
    begin = at;
    *stamps = count;
  }
  return begin;
}

void tri_cuda_timeline_write(void) {
  static timeline_ring r;
  const char *path = getenv("TRIREME_TIMELINE");
  FILE *f = path ? fopen(path, "w") : NULL;
  if (!f || cudaMemcpy(&r, tri_cuda_timeline_ring(), sizeof r, cudaMemcpyDefault) != cudaSuccess) return;
  unsigned long long stamps, step = 0, at = find_steps(&stamps), first = at, stamp = r.count - stamps;
  for (; at < seen.num_launched; at++) {
    const launched *l = &seen.log[at % LAUNCHES];
    auto *t = &r.stamp[stamp % TRI_CUDA_STAMPS];
    step += l->begins_step && at > first;
    fprintf(f, "%llu\t%s\t%llu\t%llu\n", step, l->name, l->stamps ? t->begun : 0, l->stamps ? t->waited : 0);
    stamp += l->stamps;
  }
  fclose(f);
}
#endif
