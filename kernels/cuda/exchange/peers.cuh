/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that work with those of other devices need this: words in memory that several devices see, and waiting for
 * them. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_PEERS_CUH
#define TRI_KERNELS_CUDA_EXCHANGE_PEERS_CUH

#include "kernels/cuda/device/device.cuh"

/* Misses between two looks at the clock and the error: tens of milliseconds. The error is in the host's memory, and
 * thousands of warps that read it keep a device for a millisecond, in which its peers wait: were that enough to make
 * them look, too, each would hold up the other from then on. */
static constexpr unsigned LOOK_EVERY = 1 << 15;

__device__ static inline uint4 look(const uint4 *p) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ static inline void put(uint4 *p, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

__device__ static inline uint32_t look(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

__device__ static inline void put(uint32_t *p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v));
}

/* Memory that a receiver has filled with this word holds nothing: senders send OTHER_NAN in its place, which is a NaN
 * like it, or two of 16 bits. */
static constexpr uint32_t EMPTY = 0xffffffffu;
static constexpr uint32_t OTHER_NAN = 0x7fffffffu;

/* A vector may come in pieces: every word must be there. */
__device__ static inline bool has_come(uint4 v) {
  return (v.x != EMPTY) & (v.y != EMPTY) & (v.z != EMPTY) & (v.w != EMPTY);
}
__device__ static inline uint32_t sendable(uint32_t word) { return word == EMPTY ? OTHER_NAN : word; }
__device__ static inline uint4 sendable(uint4 v) {
  return make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w));
}
__device__ static inline uint4 nothing(void) { return make_uint4(EMPTY, EMPTY, EMPTY, EMPTY); }
__device__ static inline void make_empty(uint4 *p) { put(p, nothing()); }

struct patience {
  unsigned misses;
  uint64_t since;
  unsigned pause_ns; /* between two looks; 0: none */
};

/* After a miss: whether to look again. A peer that does not come must not keep the device for ever: `error`, a
 * tri_status in host memory, ends every wait when it is set, and is set by one of limit_ns. */
__device__ static inline bool may_go_on(int *error, uint64_t limit_ns, patience *p) {
  if (p->pause_ns) __nanosleep(p->pause_ns);
  if (++p->misses % LOOK_EVERY) return true;
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  if (p->misses == LOOK_EVERY) p->since = now;
  volatile int *word = error;
  bool told = *word != TRI_OK;
  if (!told && now - p->since < limit_ns) return true;
  if (!told) *word = TRI_PEER_LOST;
  return false;
}

#endif
