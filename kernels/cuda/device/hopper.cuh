/* SPDX-License-Identifier: Apache-2.0 */
/* Hopper (sm_90a) adds these: barriers in shared memory that count bytes, copies of tiles by the tensor memory
 * accelerator (TMA), and MMAs of four warps that read shared memory (wgmma). Each function is one instruction or
 * few; names and rules are those of the PTX ISA, sections 9.7.13 (mbarrier), 9.7.9.27 (tensor copies) and 9.7.15.
 *
 * Code for other architectures compiles, too, but does nothing: launch such kernels only where is_hopper is set
 * (cuda.h). */
#ifndef TRI_KERNELS_CUDA_DEVICE_HOPPER_CUH
#define TRI_KERNELS_CUDA_DEVICE_HOPPER_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/device/tensor_map.h"

/* HAS_HOPPER: a kernel that begins with a return without it costs other architectures' code no time to compile. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_HOPPER true
#define HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HAS_HOPPER false
#define HOPPER_ASM(...) ((void)0)
#endif

enum { WARPGROUP = 128 }; /* threads */

__device__ static inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---- barriers ---- */

/* A barrier in shared memory: its phase ends when as many arrivals have come as it counts and all expected bytes. The
 * first phase has parity 0; a wait for parity 1 on a new barrier returns at once. */
typedef uint64_t barrier;

__device__ static inline void barrier_init(barrier *b, unsigned arrivals) {
  HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
/* Makes new barriers known to the copy engine; a __syncthreads() follows. */
__device__ static inline void barriers_are_made(void) {
  HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ static inline void barrier_arrive(barrier *b) {
  HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Arrives at the barrier that block `rank` of the cluster has at the same place. What this thread has stored is not
 * told with it: with .release.cluster it would wait for all of that. */
__device__ static inline void barrier_arrive_at_block(barrier *b, unsigned rank) {
  HOPPER_ASM("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
             "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(b)),
             "r"(rank)
             : "memory");
}
/* Arrives and adds to the bytes that the phase waits for. */
__device__ static inline void barrier_expect(barrier *b, unsigned bytes) {
  HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
/* Arrives once all cp.async copies that this thread has begun are there. The arrival is one of those counted. */
__device__ static inline void barrier_arrive_behind_copies(barrier *b) {
  HOPPER_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}
/* Waits for the end of the phase of that parity. */
__device__ static inline void barrier_wait(barrier *b, unsigned parity) {
  HOPPER_ASM("{\n"
             ".reg .pred done;\n"
             "again:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
             "@done bra out;\n"
             "bra again;\n"
             "out:\n"
             "}\n" ::"r"(shared_address(b)),
             "r"(parity)
             : "memory");
}

/* A place in a ring of stages, and the parity of its round. */
template <int STAGES> struct ring_place {
  int stage = 0;
  unsigned parity = 0;
  __device__ void next(void) {
    stage++;
    if (stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
};

/* Barriers of some of a block's warps, by number (1 to 15; 0 is __syncthreads) and the threads that meet there. */
__device__ static inline void named_sync(int number, int threads) {
  HOPPER_ASM("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* Returns in all of them whether it is true in any. */
__device__ static inline bool any_in_group(int number, int threads, bool is_true) {
  int any = 0;
  HOPPER_ASM("{\n.reg .pred mine, all;\nsetp.ne.s32 mine, %3, 0;\nbar.red.or.pred all, %1, %2, mine;\n"
             "selp.s32 %0, 1, 0, all;\n}"
             : "=r"(any)
             : "r"(number), "r"(threads), "r"((int)is_true)
             : "memory");
  return __shfl_sync(0xffffffffu, any, 0) != 0; /* which tells the assembler that a warp stays together */
}
__device__ static inline void named_arrive(int number, int threads) {
  HOPPER_ASM("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Moves registers between the warpgroups of a block; by all threads of a warpgroup. */
template <int COUNT> __device__ static inline void give_registers(void) {
  HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ static inline void take_registers(void) {
  HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- copies of tiles ---- */

/* How long the second-level cache keeps what a copy reads. */
enum : uint64_t {
  KEEP_SHORT = 0x12F0000000000000ull,
  KEEP_USUAL = 0x1000000000000000ull,
  KEEP_LONG = 0x14F0000000000000ull
};

__device__ static inline void prefetch_map(const tri_tensor_map *m) {
  HOPPER_ASM("prefetch.tensormap [%0];" ::"l"((uint64_t)m) : "memory");
}
/* Begins the copy of a box of m at these elements, the innermost dimension first, to `to`, aligned to 1024 bytes with
 * swizzling; the barrier counts its bytes, elements beyond the ends (zeros) included. By one thread. */
__device__ static inline void tile_load(void *to, const tri_tensor_map *m, barrier *b, uint64_t keep, int x, int y) {
  HOPPER_ASM("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
             "{%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
             "l"((uint64_t)m), "r"(shared_address(b)), "r"(x), "r"(y), "l"(keep)
             : "memory");
}
__device__ static inline void tile_load(void *to, const tri_tensor_map *m, barrier *b, uint64_t keep, int x, int y,
                                        int z) {
  HOPPER_ASM("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
             "{%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
             "l"((uint64_t)m), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "l"(keep)
             : "memory");
}
__device__ static inline void tile_load(void *to, const tri_tensor_map *m, barrier *b, uint64_t keep, int x, int y,
                                        int z, int u) {
  HOPPER_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
             "{%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
             "l"((uint64_t)m), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "r"(u), "l"(keep)
             : "memory");
}
__device__ static inline void tile_load(void *to, const tri_tensor_map *m, barrier *b, uint64_t keep, int x, int y,
                                        int z, int u, int v) {
  HOPPER_ASM("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
             "{%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(to)),
             "l"((uint64_t)m), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "l"(keep)
             : "memory");
}
/* The same for all blocks of the cluster that are in `blocks`, a bit each: the box comes to the same place of each, and
 * the barrier there counts it. */
__device__ static inline void tile_load_to_blocks(void *to, const tri_tensor_map *m, barrier *b, uint64_t keep,
                                                  unsigned blocks, int x, int y, int z, int u) {
  HOPPER_ASM("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::"
             "cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3, %8;" ::"r"(shared_address(to)),
             "l"((uint64_t)m), "r"(shared_address(b)), "h"((uint16_t)blocks), "r"(x), "r"(y), "r"(z), "r"(u), "l"(keep)
             : "memory");
}
/* Begins the copy of a box from shared memory to m; what lies beyond m's ends stays. By one thread, which commits what
 * it has begun, and waits until all that has been read before the memory is written again. */
__device__ static inline void tile_store(const tri_tensor_map *m, const void *from, int x, int y) {
  HOPPER_ASM("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"((uint64_t)m),
             "r"(shared_address(from)), "r"(x), "r"(y)
             : "memory");
}
__device__ static inline void tile_stores_commit(void) { HOPPER_ASM("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ static inline void tile_stores_wait(void) { HOPPER_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/* Makes stores to shared memory, cp.async's too, visible to the engines that copy tiles and multiply. By the threads
 * that stored, before the barrier that tells the others, or by those that wait, after it. Names shared memory
 * alone: it does not wait for what goes to memory. */
__device__ static inline void show_shared_to_engines(void) {
  HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Makes what other threads have stored in memory, and have told this one, visible to the engine that copies tiles for
 * it. */
__device__ static inline void show_memory_to_engines(void) { HOPPER_ASM("fence.proxy.async.global;" ::: "memory"); }

/* ---- MMAs ---- */

/* Describes a 128-byte-swizzled operand in shared memory to wgmma: groups of eight rows of 128 bytes. K-major (a row is
 * 64 elements of k, or 128 integers): `stride` is the distance of groups of eight rows, usually 1024; the next
 * MMA's of k are 32 bytes further on. MN-major (a row is 64 elements of m or n, a group eight of k): `stride` is
 * the distance of groups along k, and `leading` that of the next 64 of m or n. Addresses and distances in bytes; groups
 * aligned to 1024. */
__device__ static inline uint64_t operand(const void *at, unsigned leading, unsigned stride) {
  return (uint64_t)((shared_address(at) & 0x3ffffu) >> 4) | (uint64_t)(leading >> 4) << 16 |
         (uint64_t)(stride >> 4) << 32 | (uint64_t)1 << 62;
}

/* Orders this warpgroup's accesses to registers before its first MMA, and again where it has changed sums or
 * factors in registers. */
__device__ static inline void mma_begin(void) { HOPPER_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void mma_commit(void) { HOPPER_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most LEFT committed groups are under way. Only then may sums be read, and their inputs overwritten. */
template <int LEFT> __device__ static inline void mma_wait(void) {
  HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* Keeps the compiler from moving accesses to sums past a wait or a begin. */
template <int COUNT> __device__ static inline void mma_hold(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) HOPPER_ASM("" : "+f"(d[i])::"memory");
}
template <int COUNT> __device__ static inline void mma_hold(int (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) HOPPER_ASM("" : "+r"(d[i])::"memory");
}

/* d[64, N] = or += a[64, 16] b[16, N] by the 128 threads of a warpgroup, in the background. Warp w has the rows from 16
 * w to 16 w + 15; a lane has rows lane / 4 (d[4 j], d[4 j + 1]) and + 8 (d[4 j + 2], d[4 j + 3]) and columns 8 j + 2
 * (lane % 4) and the next. From registers, a is as in mma.cuh. MN: b is MN-major. */
template <typename T, int N, bool MN = false> struct wgmma;
struct e4m3; /* device.cuh */

#define WGMMA_LIST_4 "%0,%1,%2,%3"
#define WGMMA_LIST_8 WGMMA_LIST_4 ",%4,%5,%6,%7"
#define WGMMA_LIST_16 WGMMA_LIST_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_LIST_32 WGMMA_LIST_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_LIST_40 WGMMA_LIST_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WGMMA_LIST_48 WGMMA_LIST_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_LIST_64 WGMMA_LIST_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_LIST_96                                                                                                  \
  WGMMA_LIST_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%"   \
                "88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_LIST_128                                                                                                 \
  WGMMA_LIST_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%"   \
                "116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* C: the operands' constraint. */
#define WGMMA_SUM_4(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define WGMMA_SUM_8(C, i) WGMMA_SUM_4(C, i), WGMMA_SUM_4(C, i + 4)
#define WGMMA_SUM_16(C, i) WGMMA_SUM_8(C, i), WGMMA_SUM_8(C, i + 8)
#define WGMMA_SUM_32(C, i) WGMMA_SUM_16(C, i), WGMMA_SUM_16(C, i + 16)
#define WGMMA_SUM_40(C, i) WGMMA_SUM_32(C, i), WGMMA_SUM_8(C, i + 32)
#define WGMMA_SUM_48(C, i) WGMMA_SUM_32(C, i), WGMMA_SUM_16(C, i + 32)
#define WGMMA_SUM_64(C, i) WGMMA_SUM_32(C, i), WGMMA_SUM_32(C, i + 32)
#define WGMMA_SUM_96(C, i) WGMMA_SUM_64(C, i), WGMMA_SUM_32(C, i + 64)
#define WGMMA_SUM_128(C, i) WGMMA_SUM_64(C, i), WGMMA_SUM_64(C, i + 64)

/* COUNT sums; P0 .. P5: the numbers of the operands after them. */
#define WGMMA(T, NAME, N, MN, MAJOR, COUNT, P0, P1, P2, P3, P4, P5)                                                    \
  template <> struct wgmma<T, N, MN> {                                                                                 \
    __device__ static inline void run(float (&d)[COUNT], uint64_t a, uint64_t b, bool adds) {                          \
      HOPPER_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" WGMMA_LIST_##COUNT               \
                 "}, " P0 ", " P1 ", p, 1, 1, 0, " MAJOR ";\n}"                                                        \
                 : WGMMA_SUM_##COUNT("+f", 0)                                                                          \
                 : "l"(a), "l"(b), "r"((int)adds));                                                                    \
    }                                                                                                                  \
    __device__ static inline void run(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, bool adds) {              \
      HOPPER_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " P5 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" WGMMA_LIST_##COUNT               \
                 "}, {" P0 "," P1 "," P2 "," P3 "}, " P4 ", p, 1, 1, " MAJOR ";\n}"                                    \
                 : WGMMA_SUM_##COUNT("+f", 0)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds));                                \
    }                                                                                                                  \
  };
#define WGMMA_SIZES(T, NAME, MN, MAJOR)                                                                                \
  WGMMA(T, NAME, 8, MN, MAJOR, 4, "%4", "%5", "%6", "%7", "%8", "%9")                                                  \
  WGMMA(T, NAME, 16, MN, MAJOR, 8, "%8", "%9", "%10", "%11", "%12", "%13")                                             \
  WGMMA(T, NAME, 32, MN, MAJOR, 16, "%16", "%17", "%18", "%19", "%20", "%21")                                          \
  WGMMA(T, NAME, 64, MN, MAJOR, 32, "%32", "%33", "%34", "%35", "%36", "%37")                                          \
  WGMMA(T, NAME, 80, MN, MAJOR, 40, "%40", "%41", "%42", "%43", "%44", "%45")                                          \
  WGMMA(T, NAME, 96, MN, MAJOR, 48, "%48", "%49", "%50", "%51", "%52", "%53")                                          \
  WGMMA(T, NAME, 128, MN, MAJOR, 64, "%64", "%65", "%66", "%67", "%68", "%69")                                         \
  WGMMA(T, NAME, 192, MN, MAJOR, 96, "%96", "%97", "%98", "%99", "%100", "%101")                                       \
  WGMMA(T, NAME, 256, MN, MAJOR, 128, "%128", "%129", "%130", "%131", "%132", "%133")
WGMMA_SIZES(__nv_bfloat16, "bf16", false, "0")
WGMMA_SIZES(__nv_bfloat16, "bf16", true, "1")
WGMMA_SIZES(__half, "f16", false, "0")
WGMMA_SIZES(__half, "f16", true, "1")

/* d[64, N] = or += a[64, 32] b[32, N] of integers, both K-major in shared memory; d as above. */
#define WGMMA_INT8(N, COUNT, P0, P1, P2)                                                                               \
  template <> struct wgmma<int8_t, N, false> {                                                                         \
    __device__ static inline void run(int (&d)[COUNT], uint64_t a, uint64_t b, bool adds) {                            \
      HOPPER_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_LIST_##COUNT "}, " P0 ", " P1          \
                                                                                             ", p;\n}"                 \
                 : WGMMA_SUM_##COUNT("+r", 0)                                                                          \
                 : "l"(a), "l"(b), "r"((int)adds));                                                                    \
    }                                                                                                                  \
  };
WGMMA_INT8(16, 8, "%8", "%9", "%10")
WGMMA_INT8(32, 16, "%16", "%17", "%18")
WGMMA_INT8(64, 32, "%32", "%33", "%34")
WGMMA_INT8(128, 64, "%64", "%65", "%66")

/* The same of numbers of e4m3, whose sums keep some 14 bits: short ones are to be added up elsewhere. */
#define WGMMA_E4M3(N, COUNT, P0, P1, P2)                                                                               \
  template <> struct wgmma<e4m3, N, false> {                                                                           \
    __device__ static inline void run(float (&d)[COUNT], uint64_t a, uint64_t b, bool adds) {                          \
      HOPPER_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, " P2 ", 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" WGMMA_LIST_##COUNT "}, " P0 ", " P1      \
                                                                                                 ", p, 1, 1;\n}"       \
                 : WGMMA_SUM_##COUNT("+f", 0)                                                                          \
                 : "l"(a), "l"(b), "r"((int)adds));                                                                    \
    }                                                                                                                  \
  };
WGMMA_E4M3(16, 8, "%8", "%9", "%10")
WGMMA_E4M3(32, 16, "%16", "%17", "%18")
WGMMA_E4M3(64, 32, "%32", "%33", "%34")
WGMMA_E4M3(128, 64, "%64", "%65", "%66")

#endif
