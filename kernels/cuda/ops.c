/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: shapes are checked as the reference checks them, launches go to the .cu files. Every plan begins
 * with the reference's, which checks the arguments against each other; so both refuse the same calls. What a plan
 * chooses goes to the launch in `variant` and `split`, and depends on shapes, types and the batch's lists alone, never
 * on what data pointers point to. */
#include <string.h>

#include "kernels/cuda/fill.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kv_heads.h"
#include "kernels/ref/ref.h"

#define X(op, bytes)                                                                                                   \
  static tri_status op##_plan(tri_backend *be, const tri_##op##_args *a, tri_op_plan *plan) {                          \
    tri_status st = tri_ref_##op##_plan(be, a, plan);                                                                  \
    plan->workspace = st == TRI_OK ? bytes(a) : 0;                                                                     \
    return st;                                                                                                         \
  }                                                                                                                    \
  static void op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                        \
    (void)plan;                                                                                                        \
    tri_cuda_##op(tri_cuda_stream(be), a, be->workspace);                                                              \
    tri_cuda_note(be, cudaGetLastError());                                                                             \
  }
TRI_CUDA_OP_LIST(X)
#undef X

static tri_status linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_linear_plan(be, a, plan);
  plan->workspace = st == TRI_OK ? tri_cuda_linear_workspace(be, a) : 0;
  return st;
}
static void linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a) {
  (void)plan;
  tri_cuda_linear(be, a);
  tri_cuda_note(be, cudaGetLastError());
}

/* One kernel where that streams the weights, or saves the GEMM its way to memory; else the GEMM and what follows
 * it. */
enum { GATED_LINEAR_FEW = 1, GATED_LINEAR_PROMPT = 2, GATED_LINEAR_8BIT = 3, GATED_LINEAR_8BIT_PROMPT = 4 };
int tri_cuda_choose_gated_linear(const tri_backend *be, const tri_gated_linear_args *a) {
  bool on_mmas = a->up.x.rows > 1 && tri_cuda_of(be)->is_hopper && tri_cuda_8bit_gated_fits(a); /* of two rows, too */
  if (tri_cuda_gated_fits(a) && !on_mmas) return GATED_LINEAR_FEW;
  if (tri_cuda_of(be)->is_hopper && tri_cuda_int8_gated_prompt_fits(a)) return GATED_LINEAR_8BIT_PROMPT;
  if (tri_cuda_prefers_library_8bit(&a->up)) return 0;
  if (tri_cuda_of(be)->is_hopper && tri_cuda_8bit_gated_fits(a)) return GATED_LINEAR_8BIT;
  return tri_cuda_of(be)->is_hopper && tri_cuda_gated_prompt_fits(a) ? GATED_LINEAR_PROMPT : 0;
}
static tri_status gated_linear_plan(tri_backend *be, const tri_gated_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_gated_linear_plan(be, a, plan);
  if (st != TRI_OK) return st;
  plan->variant = tri_cuda_choose_gated_linear(be, a);
  if (plan->variant) plan->workspace = 0;
  if (plan->variant == GATED_LINEAR_8BIT) plan->workspace = tri_cuda_8bit_gated_workspace(a);
  if (plan->variant == GATED_LINEAR_8BIT_PROMPT) plan->workspace = tri_cuda_int8_slab_bytes(&a->up);
  return st;
}
static void gated_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_gated_linear_args *a) {
  if (!plan->variant) {
    tri_ref_gated_linear_launch(be, plan, a);
    return;
  }
  if (plan->variant == GATED_LINEAR_8BIT_PROMPT)
    tri_cuda_int8_gated_prompt(be, a);
  else if (plan->variant == GATED_LINEAR_8BIT)
    tri_cuda_note(be, tri_cuda_8bit_gated(tri_cuda_stream(be), a, be->workspace, tri_cuda_queue_of(be),
                                          tri_cuda_of(be)->num_sms));
  else if (plan->variant == GATED_LINEAR_PROMPT)
    tri_cuda_note(be, tri_cuda_gated_prompt(tri_cuda_stream(be), a, tri_cuda_of(be)->num_sms));
  else
    tri_cuda_gated(tri_cuda_stream(be), a);
  tri_cuda_note(be, cudaGetLastError());
}

/* One kernel, or those of its two parts. */
enum { GATED_MLP_PARTS, GATED_MLP_ONE };
bool tri_cuda_chooses_gated_mlp(const tri_backend *be, const tri_gated_mlp_args *a) {
  const tri_cuda_impl *impl = tri_cuda_of(be);
  return impl->is_hopper && tri_cuda_gated_mlp_fits(a) && tri_cuda_gated_mlp_pays(a, impl->num_sms);
}
static tri_status gated_mlp_plan(tri_backend *be, const tri_gated_mlp_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_gated_mlp_plan(be, a, plan));
  if (!tri_cuda_chooses_gated_mlp(be, a)) return TRI_OK;
  plan->variant = GATED_MLP_ONE;
  plan->workspace = tri_cuda_gated_mlp_workspace(a, tri_cuda_of(be)->num_sms);
  return TRI_OK;
}
static void gated_mlp_launch(tri_backend *be, const tri_op_plan *plan, const tri_gated_mlp_args *a) {
  int num_sms = tri_cuda_of(be)->num_sms;
  if (plan->variant == GATED_MLP_PARTS) {
    tri_ref_gated_mlp_launch(be, plan, a);
    return;
  }
  tri_cuda_note(be, tri_cuda_gated_mlp(tri_cuda_stream(be), a, be->workspace, tri_cuda_lane_of(be)->slabs, num_sms));
}

/* The kernels of an attention's plan; none of these: the one for any shape. */
enum {
  ATTENTION_DECODE = 1,
  ATTENTION_DECODE_MMA = 2,
  ATTENTION_PREFILL_MMA = 4,
  ATTENTION_LATENT_MMA = 8,
  ATTENTION_PREFILL_WGMMA = 16,
  ATTENTION_LATENT_WGMMA = 32,
  ATTENTION_DECODE_WIDE = 64,
  ATTENTION_PREFILL_WIDE = 128
};

static int choose_prefill(const tri_backend *be, const tri_attention_args *a) {
  if (tri_cuda_prefill_wide_fits(a)) return ATTENTION_PREFILL_WIDE;
  if (!tri_cuda_prefill_mma_fits(a)) return 0;
  if (tri_cuda_of(be)->is_hopper && tri_cuda_prefill_wgmma_fits(a)) return ATTENTION_PREFILL_WGMMA;
  return ATTENTION_PREFILL_MMA;
}

/* Tiles of tokens have whole contexts: they pay where there are many. The other kernel, which cuts contexts, has less
 * than half of their rate, and takes 16 heads of one token for as long as one. */
static int choose_latent(const tri_backend *be, const tri_attention_args *a, const tri_batch *b) {
  int64_t rows = (int64_t)(b->num_tokens - b->num_single) * ((a->num_heads + 15) / 16 * 16);
  bool pays = 2 * rows >= (int64_t)TRI_CUDA_LATENT_ROWS * tri_cuda_of(be)->num_sms;
  if (!pays || !tri_cuda_of(be)->is_hopper || !tri_cuda_latent_wgmma_fits(a)) return ATTENTION_LATENT_MMA;
  return ATTENTION_LATENT_WGMMA | (b->num_single ? ATTENTION_LATENT_MMA : 0);
}

/* Decodes and prompts of one batch run as two kernels, which overlap. Tensor cores are for 16 bits; the reasons for
 * each choice are at the top of its file. */
static int choose_attention(const tri_backend *be, const tri_attention_args *a, const tri_batch *b) {
  int prefill = b->max_query > 1 ? choose_prefill(be, a) : 0;
  if (tri_cuda_latent_mma_fits(a)) return b->max_query > 1 ? choose_latent(be, a, b) : ATTENTION_LATENT_MMA;
  if (prefill && !b->num_single) return prefill;
  if ((prefill || b->max_query <= 1) && tri_cuda_decode_mma_fits(a)) return ATTENTION_DECODE_MMA | prefill;
  if (tri_cuda_decode_wide_fits(a)) return ATTENTION_DECODE_WIDE | prefill;
  return tri_cuda_decode_fits(a) ? ATTENTION_DECODE | prefill : 0;
}

static void shape_of_tiles(int kernels, const tri_attention_args *a, tri_attention_shape *out) {
  if (kernels & ATTENTION_PREFILL_MMA) out->rows = TRI_CUDA_PREFILL_ROWS;
  if (kernels & ATTENTION_LATENT_WGMMA) out->rows = tri_cuda_latent_wgmma_tokens(a);
  if (kernels & ATTENTION_PREFILL_WIDE) out->rows = tri_cuda_prefill_wide_tokens(a);
  if (kernels & ATTENTION_PREFILL_WGMMA) tri_cuda_prefill_wgmma_shape(a, out);
}

/* Contexts of single tokens. */
static void shape_of_parts(int kernels, const tri_attention_args *a, const tri_batch *b, tri_attention_shape *out) {
  int heads = TRI_CUDA_DECODE_HEADS, room = TRI_CUDA_DECODE_BLOCKS;
  out->keys = TRI_CUDA_DECODE_KEYS;
  out->most_splits = TRI_CUDA_DECODE_SPLITS;
  out->blocks = out->enough = TRI_CUDA_DECODE_BLOCKS;
  if (kernels & ATTENTION_DECODE_MMA) {
    heads = TRI_CUDA_DECODE_MMA_HEADS;
    room = tri_cuda_decode_mma_blocks(a->kv.head_dim);
    out->keys = TRI_CUDA_DECODE_MMA_KEYS;
    out->most_splits = TRI_CUDA_DECODE_MMA_SPLITS;
    /* While a prompt's kernel runs, a cluster would wait long for its room. */
    if (b->max_query <= 1) out->most_joined = tri_cuda_decode_mma_joined();
    if (a->kv.head_dim > 64) {
      out->blocks = TRI_CUDA_DECODE_MMA_BLOCKS;
      out->enough = TRI_CUDA_DECODE_MMA_ENOUGH;
    }
  } else if (kernels & ATTENTION_DECODE_WIDE) {
    heads = TRI_CUDA_DECODE_MMA_HEADS;
    room = 1;
    out->keys = tri_cuda_decode_wide_keys(a);
    out->most_splits = TRI_CUDA_WIDE_SPLITS;
  }
  out->units = a->kv.num_kv_heads * ((tri_most_heads(a) + heads - 1) / heads);
  if (out->blocks > room) out->blocks = room;
  if (out->enough > out->blocks) out->enough = out->blocks;
}

bool tri_cuda_attention_shape(const tri_backend *be, const tri_attention_args *a, const tri_batch *b,
                              tri_attention_shape *out) {
  int kernels = choose_attention(be, a, b);
  if (!kernels || kernels == ATTENTION_LATENT_MMA) return false;
  *out = (tri_attention_shape){.window = a->window, .chunked = a->chunked, .causal = a->causal};
  shape_of_parts(kernels, a, b, out);
  if (kernels & ATTENTION_LATENT_WGMMA) out->most_splits = 1; /* the kernel of single tokens cuts them itself */
  shape_of_tiles(kernels, a, out);
  return true;
}

/* The batch's lists of that shape, which were made when it was bound. NULL where the attention is not cut, or the batch
 * was bound without it. */
static const tri_attention_split *find_cut(const tri_backend *be, const tri_attention_args *a) {
  const tri_batch *b = a->batch;
  tri_attention_shape shape;
  for (int i = 0; tri_cuda_attention_shape(be, a, b, &shape) && i < b->num_cuts; i++)
    if (!memcmp(&b->cuts[i].shape, &shape, sizeof shape)) return &b->cuts[i];
  return NULL;
}

static tri_status attention_plan(tri_backend *be, const tri_attention_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_attention_plan(be, a, plan);
  *plan = (tri_op_plan){0};
  if (st != TRI_OK) return st;
  plan->variant = choose_attention(be, a, a->batch);
  if (!plan->variant && a->q.rows && a->kv.dtype != TRI_F32) be->general |= TRI_GENERAL_ATTENTION;
  const tri_attention_split *cut = find_cut(be, a);
  bool is_cut = plan->variant && plan->variant != ATTENTION_LATENT_MMA && a->q.rows;
  if (is_cut && !cut) return TRI_INVALID_ARGUMENT; /* the batch was bound for other attentions */
  int parts = is_cut ? cut->num_places : 0;
  if (plan->variant & ATTENTION_LATENT_MMA) {
    int rows = is_cut ? cut->num_parts : a->q.rows;
    plan->split = tri_cuda_latent_mma_splits(a, rows, tri_cuda_of(be)->num_sms);
    parts = plan->split > 1 ? rows * plan->split : 0;
  }
  plan->workspace = parts ? tri_cuda_split_workspace(a, parts) : 0;
  if (is_cut && cut->num_tile_places) plan->workspace += tri_cuda_prefill_wgmma_workspace(a, cut->num_tile_places);
  return TRI_OK;
}

/* The parts of cut tiles meet after those of cut contexts, whose kernel may run at the same time. */
static void launch_prompts(tri_backend *be, const tri_attention_args *a, const tri_attention_split *cut) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  float *partial = (float *)((char *)be->workspace + tri_cuda_split_workspace(a, cut->num_places));
  unsigned *counters = impl->counters + TRI_CUDA_MEETINGS / 2;
  tri_cuda_note(be, tri_cuda_prefill_wgmma(tri_cuda_stream(be), a, cut, impl->num_sms, partial, counters));
}

static void attention_launch(tri_backend *be, const tri_op_plan *plan, const tri_attention_args *a) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  cudaStream_t own = tri_cuda_stream(be);
  const tri_attention_split *cut = find_cut(be, a);
  if (!a->q.rows || !a->batch->num_seqs) return;
  if (!plan->variant) tri_cuda_attention(own, a);
  if (plan->variant & ATTENTION_PREFILL_WGMMA) launch_prompts(be, a, cut);
  if (plan->variant & ATTENTION_PREFILL_MMA) tri_cuda_note(be, tri_cuda_prefill_mma(own, a, cut));
  if (plan->variant & ATTENTION_DECODE) tri_cuda_decode(own, a, cut, be->workspace, impl->counters);
  if (plan->variant & ATTENTION_DECODE_MMA)
    tri_cuda_note(be, tri_cuda_decode_mma(own, a, cut, be->workspace, impl->counters));
  if (plan->variant & ATTENTION_PREFILL_WIDE) tri_cuda_note(be, tri_cuda_prefill_wide(own, a, cut));
  if (plan->variant & ATTENTION_DECODE_WIDE)
    tri_cuda_note(be, tri_cuda_decode_wide(own, a, cut, be->workspace, impl->counters));
  if (plan->variant & ATTENTION_LATENT_WGMMA) tri_cuda_note(be, tri_cuda_latent_wgmma(own, a, cut, impl->num_sms));
  if (plan->variant & ATTENTION_LATENT_MMA)
    tri_cuda_note(be, tri_cuda_latent_mma(own, a, cut, be->workspace, plan->split));
  tri_cuda_note(be, cudaGetLastError());
}

#define X(op, unused) +1
_Static_assert(TRI_CUDA_OP_LIST(X) TRI_CUDA_PLANNED_LIST(X) == TRI_KERNEL_COUNT, "every op has a kernel on devices");
#undef X

void tri_cuda_fill_ops(tri_backend *be) {
#define X(op, bytes)                                                                                                   \
  be->ops.op##_plan = op##_plan;                                                                                       \
  be->ops.op##_launch = op##_launch;
  TRI_CUDA_OP_LIST(X)
#undef X
#define X(op, prefix)                                                                                                  \
  be->ops.op##_plan = prefix##_plan;                                                                                   \
  be->ops.op##_launch = prefix##_launch;
  TRI_CUDA_PLANNED_LIST(X)
#undef X
}
