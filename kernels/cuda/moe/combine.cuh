/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of each token's choices, by the blocks of experts' second GEMM. The kernel that does it for many tokens
 * (moe/sum.cu) is little else for few than its beginning and its end. So each block counts the tiles that it has
 * done, and who does the last one of a slab of outputs adds up that slab's: of a choice first the parts of its GEMM,
 * then the choices, both in their order, as that kernel does. The bits do not depend on who adds.
 *
 * What is done here is done once, at the end of a kernel, with instructions that are not in the cache: hence loops
 * where unrolled code would take fewer steps, and a first pass that does nothing, while the consumers have nothing to
 * do. */
#ifndef TRI_KERNELS_CUDA_MOE_COMBINE_CUH
#define TRI_KERNELS_CUDA_MOE_COMBINE_CUH

#include "kernels/cuda/moe/tiles.cuh"

enum { MEETING = 1 + CONSUMERS }; /* the named barrier of all consumers; warpgroups have those before it */

/* Lists the parts of all choices in shared memory, by the consumers. Choices may be read when the map may. */
__device__ static inline void list_parts(const grouped &g, parts_room &room) {
#pragma unroll 1
  for (int i = (int)threadIdx.x - WARPGROUP; i < g.most_rows * g.splits; i += CONSUMERS * WARPGROUP) {
    int row = __ldcg(g.sums.row + i / g.splits);
    room.part[i] = {row < 0 ? -1 : i % g.splits * g.most_rows + row, __ldcg(g.sums.weight + i / g.splits)};
  }
  named_sync(MEETING, CONSUMERS * WARPGROUP);
}

/* Counts a tile of a slab that has so many, and returns true where it was the last one: then this block sees all of
 * them. The barriers make the consumers' stores the first one's to publish, and what that acquires everybody's. */
__device__ static inline bool is_last_tile(const grouped &g, int slab, int tiles, parts_room &room) {
  named_sync(MEETING, CONSUMERS * WARPGROUP);
  if (threadIdx.x == WARPGROUP) {
    unsigned most = (unsigned)tiles - 1, before; /* the last one's wraps to zero */
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(g.sums.done + slab), "r"(most)
                 : "memory");
    room.last = before == most;
  }
  named_sync(MEETING, CONSUMERS * WARPGROUP);
  return room.last;
}

/* 16 bytes of a row of parts, which other blocks may have stored. */
template <typename P> struct slice {
  enum { WIDTH = 16 / (int)sizeof(P) };
  uint4 raw;
  __device__ void load(const char *from) { raw = __ldcg((const uint4 *)from); }
  __device__ float4 four(int j) const { return load4((const P *)&raw + j); }
};

__device__ static inline void take_four(float4 v, float *x) {
  x[0] = v.x;
  x[1] = v.y;
  x[2] = v.z;
  x[3] = v.w;
}

/* Adds a token's parts, n from `list` on, to sums. from: where the sums' outputs are in row 0. WHOLE: each choice has
 * one part. Without parts it goes the same way. */
template <typename P, bool WHOLE>
__device__ static inline void add_parts(const grouped &g, const part_of_choice *list, int n, const char *from,
                                        float (&sum)[slice<P>::WIDTH]) {
  enum { WIDTH = slice<P>::WIDTH, AT_ONCE = 8 };
  unsigned line = (unsigned)g.outputs * (unsigned)sizeof(P);
  float x[WIDTH] = {};
  int split = 0, i0 = 0;
#pragma unroll 1
  do {
    part_of_choice part[AT_ONCE];
    slice<P> stored[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      part[i] = i0 + i < n ? list[i0 + i] : part_of_choice{-1, 0};
      stored[i].raw = make_uint4(0, 0, 0, 0);
      if (part[i].row >= 0) stored[i].load(from + (size_t)(unsigned)part[i].row * line);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      bool begins = !split, ends = WHOLE || split + 1 == g.splits;
#pragma unroll
      for (int j = 0; j < WIDTH; j += 4) {
        float more[4];
        take_four(stored[i].four(j), more);
#pragma unroll
        for (int l = 0; l < 4; l++) {
          x[j + l] = WHOLE || begins ? more[l] : x[j + l] + more[l];
          if (ends && part[i].row >= 0) sum[j + l] += part[i].weight * x[j + l];
        }
      }
      split = ends ? 0 : split + 1;
    }
    i0 += AT_ONCE;
  } while (i0 < n);
}

/* Adds up all tokens' choices for a slab of OUTPUTS outputs. By the consumers. Of a slab beyond the last one nothing is
 * read and nothing is stored. */
template <typename P, bool WHOLE, int OUTPUTS>
__device__ static inline void add_slab(const grouped &g, const parts_room &room, int slab) {
  enum { WIDTH = slice<P>::WIDTH, SLICES = OUTPUTS / WIDTH };
  int n = WHOLE ? g.top_k : g.top_k * g.splits;
#pragma unroll 1
  for (int i = (int)threadIdx.x - WARPGROUP; i < g.sums.out.rows * SLICES; i += CONSUMERS * WARPGROUP) {
    int t = i / SLICES, at = slab * OUTPUTS + i % SLICES * WIDTH;
    bool there = at < g.outputs;
    float sum[WIDTH] = {};
    if (there && g.sums.accumulate)
#pragma unroll
      for (int j = 0; j < WIDTH; j += 4) take_four(load4_at(g.sums.out, t, at + j), sum + j);
    add_parts<P, WHOLE>(g, room.part + t * n, there ? n : 0, (const char *)((const P *)g.out + at), sum);
    if (!there) continue;
#pragma unroll
    for (int j = 0; j < WIDTH; j += 4)
      store4_at(g.sums.out, t, at + j, make_float4(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]));
  }
}

/* The same, whatever type results have: O, or float32 of parts. */
template <typename O, int OUTPUTS>
__device__ static inline void add_slab_of(const grouped &g, const parts_room &room, int slab) {
  if (g.splits == 1)
    add_slab<O, true, OUTPUTS>(g, room, slab);
  else
    add_slab<float, false, OUTPUTS>(g, room, slab);
}

#endif
