/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the CUDA backend: its state, and the launchers that the .cu files give to the C files. A header of both
 * languages. */
#ifndef TRI_KERNELS_CUDA_CUDA_H
#define TRI_KERNELS_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <library_types.h>

#include "kernels/backend.h"
#include "kernels/cuda/attention/split_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned memory and the device's for a step's data side by side: a batch's arrays, or the sampler's parameters, after
 * which the device has more. On the device the stream keeps steps apart; in pinned memory two take turns, as the copy
 * of one may not have begun when the next one's is made ready. */
typedef struct tri_cuda_staging {
  char *host[2], *device;
  cudaEvent_t sent[2];
  size_t host_bytes, device_bytes;
  int turn;
} tri_cuda_staging;

/* A recorded step, kept as long as what its ops point to stays where it is. */
typedef struct tri_cuda_graph {
  uint64_t key;
  uint64_t used;        /* number of the last use */
  cudaGraphExec_t exec; /* NULL: empty */
} tri_cuda_graph;
enum { TRI_CUDA_CUTS = 4 }; /* attentions of a model that are cut in different ways */
enum { TRI_CUDA_GRAPHS = 256, TRI_CUDA_KEYS = 256 };

struct tri_tactic;                      /* kernels/gemm_tactics.h */
struct tri_cuda_gemms;                  /* linear/cublaslt.c */
enum { TRI_CUDA_BLAS_ROOM = 32 << 20 }; /* bytes, as the library's documentation has it for sm_90 */

/* A lane is where ops go: it has a stream, and memory that ops of another lane do not touch. The backend's workspace is
 * that of the lane that ops go to now. */
typedef struct tri_cuda_lane {
  cudaStream_t stream;
  void *blas_room, *workspace;
  size_t workspace_bytes;
  unsigned *slabs; /* [TRI_CUDA_SLABS + TRI_CUDA_QUEUES + TRI_CUDA_TOLD] counters on the device, zero between two
                      kernels: of experts' outputs, where the blocks of their GEMMs take tiles from, and of
                      experts' hidden rows */
} tri_cuda_lane;
enum { TRI_CUDA_MAIN, TRI_CUDA_SIDE, TRI_CUDA_LANES };
enum { TRI_CUDA_SLABS = 256, TRI_CUDA_QUEUES = 2, TRI_CUDA_TOLD = 768 };

typedef struct tri_cuda_impl {
  int device;
  int num_sms;    /* multiprocessors of the device */
  bool is_hopper; /* kernels of hopper.cuh run on it */
  cudaStream_t streams[TRI_STREAM_COUNT];
  cudaEvent_t events[TRI_EVENTS];
  tri_cuda_lane lanes[TRI_CUDA_LANES];
  int lane;                          /* that ops go to */
  cudaEvent_t side_forks, side_ends; /* side_stream.c */
  void *blas;
  struct tri_cuda_gemms *gemms;
  const struct tri_tactic *forced; /* instead of every other tactic: while linear/tune_gemm.c measures */
  uint64_t refused;                /* launches whose tactic's algorithm does not work */
  unsigned *counters; /* [TRI_CUDA_MEETINGS] on the device, zero between two kernels; after them the lanes' slabs */
  int error; /* cudaError_t: the first one that a launch or a copy met; told by whatever next waits. Changed atomically
              */
  int told;  /* the failure has its words */
  int host_failed; /* tri_status of the first call of the host that failed; changed atomically */
  char isa[32];
  tri_cuda_staging staging[TRI_BOUND_BATCHES + 1]; /* of batches, by number, and of the sampler */
  tri_attention_split cuts[TRI_BOUND_BATCHES][TRI_CUDA_CUTS];
  tri_cuda_graph graphs[TRI_CUDA_GRAPHS];
  tri_cuda_graph *recording;
  int most_graphs; /* that are kept at a time */
  uint64_t graph_uses;
  uint64_t keys[TRI_CUDA_KEYS], next_key; /* of the steps that came last and had no graph yet */
} tri_cuda_impl;

static inline tri_cuda_impl *tri_cuda_of(const tri_backend *be) { return (tri_cuda_impl *)be->impl; }
/* Returns the lane of the ops that are launched now, and its stream, on which they run in that order. */
static inline const tri_cuda_lane *tri_cuda_lane_of(const tri_backend *be) {
  return &tri_cuda_of(be)->lanes[tri_cuda_of(be)->lane];
}
static inline cudaStream_t tri_cuda_stream(const tri_backend *be) { return tri_cuda_lane_of(be)->stream; }
/* Keeps the first error, of whatever thread. */
static inline void tri_cuda_note(const tri_backend *be, cudaError_t e) {
  int none = cudaSuccess, *error = &tri_cuda_of(be)->error;
  if (e != cudaSuccess) __atomic_compare_exchange_n(error, &none, (int)e, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static inline tri_cuda_staging *tri_cuda_drawing(const tri_backend *be) {
  return &tri_cuda_of(be)->staging[TRI_BOUND_BATCHES];
}

/* staging.c: other memory for staging, of so many bytes; nothing may use what there was. With a size of 0 that memory
 * stays. */
tri_status tri_cuda_staging_grow(tri_backend *be, tri_cuda_staging *s, size_t host_bytes, size_t device_bytes);
/* The pinned memory whose turn it is, once the copy out of it has ended; then the copy of its first bytes. */
char *tri_cuda_staging_turn(tri_backend *be, tri_cuda_staging *s);
void tri_cuda_staging_send(tri_backend *be, tri_cuda_staging *s, size_t bytes);
/* batch.c */
tri_status tri_cuda_bind_batch(tri_backend *be, int number, const tri_batch *host, const tri_attention_args *attentions,
                               int num_attentions, tri_batch *out);
/* nvml.c */
typedef struct tri_cuda_facts {
  char driver[80];
  unsigned pcie_generation, pcie_width, links; /* links: NVLinks that are up */
} tri_cuda_facts;
/* Facts that are not known, all of them without NVML, are empty or 0. */
tri_cuda_facts tri_cuda_ask_driver(const char *pci);

/* hopper.cu: whether the code that this device gets has Hopper's instructions. */
bool tri_cuda_is_hopper(void);

/* side_stream.c: a second lane, and the events of its beginning and end. */
cudaError_t tri_cuda_side_open(tri_cuda_impl *impl);
void tri_cuda_side_close(tri_cuda_impl *impl);
void tri_cuda_side_begin(tri_backend *be);
void tri_cuda_side_end(tri_backend *be);
void tri_cuda_side_join(tri_backend *be);

/* peer_memory.c */
tri_status tri_cuda_peer_show(tri_backend *be, void *p, tri_peer_handle *out);
tri_status tri_cuda_peer_open(tri_backend *be, const tri_peer_handle *handle, void **out);
void tri_cuda_peer_close(tri_backend *be, void *p);
void tri_cuda_peer_copy(tri_backend *be, void *to, const void *from, size_t bytes);

/* graph.c */
tri_graph_mode tri_cuda_graph_begin(tri_backend *be, uint64_t key);
tri_status tri_cuda_graph_end(tri_backend *be);
void tri_cuda_graphs_drop(tri_backend *be);
void tri_cuda_graph_refuse(tri_backend *be);
/* comm/device/p2p.h has it, too: the kernels' headers are below that one. */
struct tri_comm;
tri_status tri_comm_device_create(tri_backend *be, struct tri_comm *host, tri_comm_use use, struct tri_comm **out,
                                  tri_error *err);
tri_status tri_comm_device_add_rows(tri_backend *be, struct tri_comm *host, const struct tri_rows_config *rows,
                                    struct tri_comm **c, tri_error *err);

/* roofline.c, roofline.cu; bytes is a multiple of 32 KiB. */
enum { TRI_CUDA_READ_VARIANTS = 6 };
tri_status tri_cuda_roofline_create(tri_backend *be, size_t stream_bytes, tri_dtype type, struct tri_roofline **out);
void tri_cuda_roofline_fill(cudaStream_t stream, void *p, tri_dtype type, size_t n);
void tri_cuda_roofline_read(cudaStream_t stream, const void *p, size_t bytes, int variant, int num_sms, uint32_t *sink);

/* Attention: ops.c chooses attention/decode_mma.cu for sequences of one token and attention/prefill_wgmma.cu or
 * attention/prefill_mma.cu for others, where they fit; attention/latent_mma.cu for latent caches, and
 * attention/latent_wgmma.cu for their prompts; attention/wide_mma.cu for wide heads; attention/decode.cu for other
 * shapes up to a size, float32 caches among them; attention.cu for the rest. The parts of a cut context meet in the
 * workspace, at the backend's counters: `partial` has tri_cuda_split_workspace of the cut's num_places. */
enum { TRI_CUDA_MEETINGS = 1 << 14 };
enum {
  TRI_CUDA_DECODE_HEADS = 4,      /* query heads of a block in attention/decode.cu */
  TRI_CUDA_DECODE_KEYS = 16,      /* where it cuts contexts, */
  TRI_CUDA_DECODE_SPLITS = 256,   /* into so many parts at most */
  TRI_CUDA_DECODE_BLOCKS = 4,     /* that a multiprocessor needs, and has room for in every device */
  TRI_CUDA_DECODE_MMA_HEADS = 16, /* the same of attention/decode_mma.cu */
  TRI_CUDA_DECODE_MMA_KEYS = 64,
  TRI_CUDA_DECODE_MMA_SPLITS = 128,
  TRI_CUDA_DECODE_MMA_BLOCKS = 3, /* of heads above 64 elements, whose tiles are twice as large: so many where there */
  TRI_CUDA_DECODE_MMA_ENOUGH = 2, /* is room; so many reach its rate (H200: 0.91 of a plain read, against 0.77 of 3) */
  TRI_CUDA_PREFILL_ROWS = 64,     /* tokens of a tile */
  TRI_CUDA_WIDE_SPLITS = 64,      /* parts of a context at most in attention/wide_mma.cu */
  TRI_CUDA_LATENT_ROWS = 64       /* pairs of a token and a head in a tile of attention/latent_wgmma.cu */
};
bool tri_cuda_decode_fits(const tri_attention_args *a);
/* Partial results: a row for each head of a part. The ledger counts on there being no more parts than this. */
enum { TRI_CUDA_SPLIT_ROWS = 2048 };
size_t tri_cuda_split_workspace(const tri_attention_args *a, int parts);
void tri_cuda_decode(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut, float *partial,
                     unsigned *counters);
bool tri_cuda_decode_mma_fits(const tri_attention_args *a);
int tri_cuda_decode_mma_blocks(int head_dim); /* that a multiprocessor of this device has room for, at least 1 */
int tri_cuda_decode_mma_joined(void); /* splits of a context at most that the blocks of a cluster join; 1: none */
cudaError_t tri_cuda_decode_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut,
                                float *partial, unsigned *counters);
bool tri_cuda_16bit_tiles_fit(const tri_attention_args *a); /* the shapes and types of both, on a device with room */
bool tri_cuda_prefill_mma_fits(const tri_attention_args *a);
cudaError_t tri_cuda_prefill_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut);
/* attention/wide_mma.cu: heads of a multiple of 16 elements up to 512; single tokens' of more than 128, in blocks of
 * TRI_CUDA_DECODE_MMA_HEADS query heads that read tri_cuda_decode_wide_keys at a time; prompts' of more than 256, in
 * tiles of tri_cuda_prefill_wide_tokens. */
bool tri_cuda_decode_wide_fits(const tri_attention_args *a);
int tri_cuda_decode_wide_keys(const tri_attention_args *a);
cudaError_t tri_cuda_decode_wide(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut,
                                 float *partial, unsigned *counters);
bool tri_cuda_prefill_wide_fits(const tri_attention_args *a);
int tri_cuda_prefill_wide_tokens(const tri_attention_args *a);
cudaError_t tri_cuda_prefill_wide(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut);
/* attention/prefill_wgmma.cu, for Hopper: KV blocks of 16 to 256 tokens, a power of two; heads of a multiple of 32
 * elements. A tile has as many tokens, and a block reads as many keys at a time, as tri_cuda_prefill_wgmma_shape says.
 * The parts of cut tiles meet at `partial`, which has tri_cuda_prefill_wgmma_workspace of the cut's num_tile_places,
 * and at `counters`. */
enum { TRI_CUDA_PROMPT_PARTS = 264 }; /* of cut tiles, times the blocks that each takes, at most; see the ledger */
bool tri_cuda_prefill_wgmma_fits(const tri_attention_args *a);
void tri_cuda_prefill_wgmma_shape(const tri_attention_args *a, tri_attention_shape *out);
size_t tri_cuda_prefill_wgmma_workspace(const tri_attention_args *a, int places);
cudaError_t tri_cuda_prefill_wgmma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut,
                                   int num_sms, float *partial, unsigned *counters);
/* ops.c: says how the attention of a batch is cut; false where it is not. */
bool tri_cuda_attention_shape(const tri_backend *be, const tri_attention_args *a, const tri_batch *b,
                              tri_attention_shape *out);
/* attention/latent_mma.cu: a cache of F16 or BF16 with one KV head, rows of at most 576 elements and values of at most
 * 512, both multiples of 8; neither a window nor anything that changes scores but their scale. Any number of heads,
 * decodes and prompts mixed. */
bool tri_cuda_latent_mma_fits(const tri_attention_args *a);
int tri_cuda_latent_mma_splits(const tri_attention_args *a, int rows, int num_sms);
/* singles: of which only the batch's single tokens are taken, after the kernel of the others; NULL: all are. */
cudaError_t tri_cuda_latent_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *singles,
                                float *partial, int splits);
/* attention/latent_wgmma.cu, for Hopper: the same for sequences of more than one token, in KV blocks of 16 tokens or
 * more, a power of two. A tile has as many tokens as tri_cuda_latent_wgmma_tokens says. */
bool tri_cuda_latent_wgmma_fits(const tri_attention_args *a);
int tri_cuda_latent_wgmma_tokens(const tri_attention_args *a);
cudaError_t tri_cuda_latent_wgmma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *cut,
                                  int num_sms);

/* A row's parameters for the sampler's kernel. The row's words begin at `words`: ids with a bias, banned ids, biases.
 */
typedef struct tri_cuda_sample_row {
  int num_logprobs, num_bias, num_banned;
  uint32_t target;  /* of tri_sample_args */
  uint32_t *counts; /* of a row with penalties: [vocabulary]; NULL: it has none */
  size_t words;
  size_t mask; /* among the masks' words; of rows that have one */
  bool masked;
  uint64_t uniform;                          /* the random number, times 2^53 */
  TRI_SAMPLING_NUMBERS(TRI_SAMPLE_MEMBER_, ) /* those of tri_sample_params */
} tri_cuda_sample_row;

/* A piece of a history that is to be counted: n ids at `words`, the first num_prompt of them of the prompt. */
typedef struct tri_cuda_history {
  uint32_t *counts; /* [vocabulary] */
  size_t words;
  int n, num_prompt;
  int begins; /* the counts are cleared before */
} tri_cuda_history;

/* saved is scratch of as many elements as there are words. From width on: of the ops over a cut vocabulary alone; what
 * sample_part writes and sample_merge reads. */
typedef struct tri_cuda_sample_args {
  tri_mat logits;
  const tri_cuda_sample_row *samples; /* NULL: every row's answer is its largest logit */
  const uint32_t *words;
  const uint32_t *masks; /* bit 0 of a row's is the first id of logits */
  float *saved;
  tri_sample_result *results;
  uint32_t *sampled; /* or NULL */
  int width, num_parts;
  uint32_t first_id;
  tri_sample_candidate *part;
  const tri_sample_candidate *parts;
} tri_cuda_sample_args;
enum { TRI_CUDA_VOCAB_BITS = 21 }; /* ids that the sampler can tell apart */

/* sample.c, sample.cu; argmax.cu: the largest logit of each row, which is its token, or its only candidate where `part`
 * is set. */
void tri_cuda_count(cudaStream_t stream, const tri_cuda_history *pieces, int num_pieces, const uint32_t *words,
                    int vocab);
void tri_cuda_argmax(cudaStream_t stream, const tri_cuda_sample_args *a, int num_sms);
void tri_cuda_sample_rows(cudaStream_t stream, const tri_cuda_sample_args *a);
void tri_cuda_best_of_part(cudaStream_t stream, const tri_cuda_sample_args *a);
void tri_cuda_sample_merged(cudaStream_t stream, const tri_cuda_sample_args *a);
tri_status tri_cuda_reserve_samples(tri_backend *be, int rows, int edits, int vocab);
tri_status tri_cuda_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan);
void tri_cuda_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a);
tri_status tri_cuda_sample_part_plan(tri_backend *be, const tri_sample_part_args *a, tri_op_plan *plan);
void tri_cuda_sample_part_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_part_args *a);
tri_status tri_cuda_sample_merge_plan(tri_backend *be, const tri_sample_merge_args *a, tri_op_plan *plan);
void tri_cuda_sample_merge_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_merge_args *a);

/* random.cu, finite.cu */
void tri_cuda_fill_random(cudaStream_t stream, const struct tri_random_fill *fill);
void tri_cuda_count_not_finite(cudaStream_t stream, const void *x, tri_dtype type, size_t n, uint64_t *count);

/* The library's name for a type of floats. */
static inline cudaDataType_t tri_cuda_type_of(tri_dtype t) {
  if (t == TRI_BF16) return CUDA_R_16BF;
  return t == TRI_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* linear.c, the only file except roofline.c that knows cuBLAS, and its helpers in linear.cu. */
tri_status tri_cuda_blas_open(tri_cuda_impl *impl);
void tri_cuda_blas_close(tri_cuda_impl *impl);
void tri_cuda_blas_follow(tri_backend *be); /* to the lane that ops go to now */
/* True where the library has such a GEMM at all, and where it gets it without a tactic. */
bool tri_cuda_library_can(const tri_linear_args *a);
bool tri_cuda_library_by_default(const tri_backend *be, const tri_linear_args *a);
bool tri_cuda_skinny_by_default(const tri_backend *be, const tri_linear_args *a);
size_t tri_cuda_linear_workspace(const tri_backend *be, const tri_linear_args *a);
void tri_cuda_linear(tri_backend *be, const tri_linear_args *a);
unsigned *tri_cuda_queue_of(tri_backend *be);      /* the counter from which blocks take their next tile */
bool tri_cuda_is_narrow(const tri_linear_args *a); /* few columns of 16 bits, which our own kernel is faster at */
size_t tri_cuda_own_linear_workspace(const tri_linear_args *a);
void tri_cuda_own_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace);
void tri_cuda_narrow(cudaStream_t stream, const tri_mat *x, tri_dtype dtype, void *out);
void tri_cuda_widen(cudaStream_t stream, const tri_mat *x, float *out);
void tri_cuda_epilogue(cudaStream_t stream, const tri_linear_args *a);

/* linear/cublaslt.c, the only file that knows cuBLASLt. x: a.x in the weights' type. words: the algorithm of a tactic,
 * or NULL; asks: the library is asked for one where that does not work, and without it. False: there is no such
 * GEMM, and nothing was done. Otherwise bias and activation are done as well where it finishes, else out has the
 * sums alone. */
tri_status tri_cuda_matmul_open(tri_cuda_impl *impl);
void tri_cuda_matmul_close(tri_cuda_impl *impl);
size_t tri_cuda_matmul_version(void);
bool tri_cuda_matmul_finishes(const tri_linear_args *a);
bool tri_cuda_matmul(tri_backend *be, const tri_linear_args *a, const void *x, int ldx, const uint64_t *words,
                     bool asks);
/* The library's proposals for a GEMM, the best first by its own estimate: fills kind, words and note. Returns how
 * many there are, `most` at the most. */
enum { TRI_CUDA_PROPOSALS = 12 };
int tri_cuda_matmul_propose(tri_backend *be, const tri_linear_args *a, const void *x, int ldx, int most,
                            struct tri_tactic *out);

/* The same of rows that are rounded to the type of weights of 8 bits, sums alone. Fits: by shape and form; the library
 * may still not have it. Rows of groups are in fours. */
struct tri_cuda_rounded;
bool tri_cuda_matmul_8bit_fits(const tri_linear_args *a);
bool tri_cuda_matmul_8bit(tri_backend *be, const tri_linear_args *a, const struct tri_cuda_rounded *x);

/* linear/tune_gemm.c */
struct tri_tactics;
tri_status tri_cuda_tune(tri_backend *be, const tri_tune_gemm *gemms, int count, int64_t until, struct tri_tactics *out,
                         tri_tune_result *result);

/* gemm_skinny.cu: 3 to 32 rows of 16 bits, on Hopper. */
bool tri_cuda_skinny_fits(const tri_linear_args *a);
bool tri_cuda_skinny_pays(const tri_linear_args *a, int num_sms); /* of those that fit: better than the library */
cudaError_t tri_cuda_skinny(cudaStream_t stream, const tri_linear_args *a);

/* linear.cu: one or two rows of 16 bits. */
bool tri_cuda_gated_fits(const tri_gated_linear_args *a);
void tri_cuda_gated(cudaStream_t stream, const tri_gated_linear_args *a);

/* ops.c: returns the kernel of a gated GEMM, or 0 where it goes through linear. */
int tri_cuda_choose_gated_linear(const tri_backend *be, const tri_gated_linear_args *a);

/* gemm_gated.cu: many rows of 16 bits, on Hopper. */
bool tri_cuda_gated_prompt_fits(const tri_gated_linear_args *a);
cudaError_t tri_cuda_gated_prompt(cudaStream_t stream, const tri_gated_linear_args *a, int num_sms);

/* gated_mlp.cu: both GEMMs of a gated MLP in one kernel, up to 64 rows of 16 bits, on Hopper; and whether that is
 * faster than two. slabs: the lane's counters. */
bool tri_cuda_gated_mlp_fits(const tri_gated_mlp_args *a);
bool tri_cuda_gated_mlp_pays(const tri_gated_mlp_args *a, int num_sms);
size_t tri_cuda_gated_mlp_workspace(const tri_gated_mlp_args *a, int num_sms);
cudaError_t tri_cuda_gated_mlp(cudaStream_t stream, const tri_gated_mlp_args *a, void *workspace, unsigned *slabs,
                               int num_sms);
/* ops.c: whether it runs so. */
bool tri_cuda_chooses_gated_mlp(const tri_backend *be, const tri_gated_mlp_args *a);

/* moe.c */
tri_status tri_cuda_moe_route_plan(tri_backend *be, const tri_moe_route_args *a, tri_op_plan *plan);
void tri_cuda_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a);
tri_status tri_cuda_moe_map_plan(tri_backend *be, const tri_moe_map_args *a, tri_op_plan *plan);
void tri_cuda_moe_map_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_map_args *a);
tri_status tri_cuda_moe_experts_plan(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan);
void tri_cuda_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a);

/* A matrix's rows in the 8-bit type of the weights that they meet, as kernels/quantize.h has them; a scale is NaN where
 * an element is not finite. */
typedef struct tri_cuda_rounded {
  const void *q;       /* [rows, cols] */
  const float *scales; /* [groups of cols, ld], all of a row's equal where it has one */
  int ld;              /* rows in fours */
} tri_cuda_rounded;
/* linear/rounded_rows.cu; w: of the weights' type and groups. */
tri_cuda_rounded tri_cuda_round(cudaStream_t stream, tri_mat x, const tri_weight *w, void *workspace);
size_t tri_cuda_rounded_bytes(int rows, int k); /* of the workspace, a multiple of 256 */
/* The same of rows that another kernel rounds, in such a workspace: their places. */
tri_cuda_rounded tri_cuda_rounded_at(int rows, int k, void *workspace);
/* The same of experts' rows, in the order of the map: a.x's rows are multiples of 16. */
tri_cuda_rounded tri_cuda_round_choices(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace);
/* The same with two elements for each of x, whose sum is as precise as 16 bits (rounded_rows.cuh): q [2, rows, cols],
 * with a scale for each group whatever the weights' form. */
tri_cuda_rounded tri_cuda_two_terms(cudaStream_t stream, tri_mat x, const tri_weight *w, void *workspace);
size_t tri_cuda_two_terms_bytes(int rows, int k);

/* linear/gemm_8bit_many.cu: many rows that are rounded, where tiles of 128 x 256 keep the device busy; results of x's
 * type, without activation. queue: 0 before and after. */
bool tri_cuda_8bit_many_fits(const tri_linear_args *a, int num_sms);
bool tri_cuda_8bit_many_gated_fits(const tri_gated_linear_args *a, int num_sms);
cudaError_t tri_cuda_8bit_many(cudaStream_t stream, const tri_linear_args *a, const tri_cuda_rounded *x,
                               unsigned *queue, int num_sms);
cudaError_t tri_cuda_8bit_many_gated(cudaStream_t stream, const tri_gated_linear_args *a, const tri_cuda_rounded *x,
                                     unsigned *queue, int num_sms);

/* gemm_8bit.cu: two rows and more with weights of 8 bits, on Hopper, gated or not. queue: 0 before and after. */
bool tri_cuda_8bit_fits(const tri_linear_args *a);
size_t tri_cuda_8bit_workspace(const tri_linear_args *a, int num_sms);
cudaError_t tri_cuda_8bit_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace, unsigned *queue,
                                 int num_sms);
bool tri_cuda_8bit_gated_fits(const tri_gated_linear_args *a);
size_t tri_cuda_8bit_gated_workspace(const tri_gated_linear_args *a);
cudaError_t tri_cuda_8bit_gated(cudaStream_t stream, const tri_gated_linear_args *a, void *workspace, unsigned *queue,
                                int num_sms);

/* linear.c: true for prompts with rows and weights of FP8 that go through the library. */
bool tri_cuda_prefers_library_8bit(const tri_linear_args *a);
/* linear.c: prompts with weights of int8, which are widened a slab of so many bytes at a time. */
size_t tri_cuda_int8_slab_bytes(const tri_linear_args *a);
bool tri_cuda_int8_gated_prompt_fits(const tri_gated_linear_args *a);
void tri_cuda_int8_gated_prompt(tri_backend *be, const tri_gated_linear_args *a);
/* linear.cu: rows first .. first + n - 1 of a weight of int8 as `type` of 16 bits; k in sixteens. */
void tri_cuda_widen_int8(cudaStream_t stream, const tri_weight *w, int first, int n, tri_dtype type, void *out);

/* Ops of one kernel or a few, after which the caller looks for errors: X(name, its workspace). The others have plans
 * of their own in ops.c. Both lists together are all ops: ops.c asserts it. */
#define TRI_CUDA_NO_WORKSPACE(a) ((void)(a), (size_t)0)
#define TRI_CUDA_OP_LIST(X)                                                                                            \
  X(embed, TRI_CUDA_NO_WORKSPACE)                                                                                      \
  X(norm, TRI_CUDA_NO_WORKSPACE)                                                                                       \
  X(branch_norm, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(square_sums, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(gate_rows, TRI_CUDA_NO_WORKSPACE)                                                                                  \
  X(softcap, TRI_CUDA_NO_WORKSPACE)                                                                                    \
  X(head_linear, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(rope_angles, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(qkv_rope_append, TRI_CUDA_NO_WORKSPACE)                                                                            \
  X(mla_append, TRI_CUDA_NO_WORKSPACE)                                                                                 \
  X(glu, TRI_CUDA_NO_WORKSPACE)                                                                                        \
  X(gather_rows, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(mean_rows, TRI_CUDA_NO_WORKSPACE)                                                                                  \
  X(copy_blocks, TRI_CUDA_NO_WORKSPACE)                                                                                \
  X(move_blocks, TRI_CUDA_NO_WORKSPACE)
#define TRI_CUDA_PLANNED_LIST(X)                                                                                       \
  X(linear, linear)                                                                                                    \
  X(gated_linear, gated_linear)                                                                                        \
  X(gated_mlp, gated_mlp)                                                                                              \
  X(attention, attention)                                                                                              \
  X(moe_route, tri_cuda_moe_route)                                                                                     \
  X(moe_map, tri_cuda_moe_map)                                                                                         \
  X(moe_experts, tri_cuda_moe_experts)                                                                                 \
  X(sample, tri_cuda_sample)                                                                                           \
  X(sample_part, tri_cuda_sample_part)                                                                                 \
  X(sample_merge, tri_cuda_sample_merge)
void tri_cuda_attention(cudaStream_t stream, const tri_attention_args *a);
#define X(op, bytes) void tri_cuda_##op(cudaStream_t stream, const tri_##op##_args *a, void *workspace);
TRI_CUDA_OP_LIST(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
