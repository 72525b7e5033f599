/* The table of ops: shapes are checked as the reference checks them, launches go to the .cu files. */
#include "kernels/cuda/fill.h"
#include "kernels/cuda/cuda.h"
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

/* One kernel where that streams the weights, else the product and what follows it. */
static tri_status gated_linear_plan(tri_backend *be, const tri_gated_linear_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_gated_linear_plan(be, a, plan);
  plan->variant = st == TRI_OK && tri_cuda_gated_fits(a);
  return st;
}
static void gated_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_gated_linear_args *a) {
  if (!plan->variant) {
    tri_ref_gated_linear_launch(be, plan, a);
    return;
  }
  tri_cuda_gated(tri_cuda_stream(be), a);
  tri_cuda_note(be, cudaGetLastError());
}

/* The kernels of an attention's plan; none of these: the one for any shape. */
enum { ATTENTION_DECODE = 1, ATTENTION_DECODE_MMA = 2, ATTENTION_PREFILL_MMA = 4, ATTENTION_LATENT_MMA = 8 };

static void plan_latent(const tri_attention_args *a, int num_sms, tri_op_plan *plan) {
  plan->variant = ATTENTION_LATENT_MMA;
  plan->split = tri_cuda_latent_mma_splits(a, num_sms);
  plan->workspace = tri_cuda_split_workspace(a, a->q.rows, plan->split);
}

static tri_status attention_plan(tri_backend *be, const tri_attention_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_attention_plan(be, a, plan);
  const tri_batch *b = a->batch;
  const int num_sms = tri_cuda_of(be)->num_sms;
  bool prompts = b->max_query > 1 && tri_cuda_prefill_mma_fits(a);
  *plan = (tri_op_plan){0};
  if (st == TRI_OK && tri_cuda_latent_mma_fits(a)) plan_latent(a, num_sms, plan);
  if (st != TRI_OK || !tri_cuda_decode_fits(a)) return st;
  if (prompts) plan->variant = ATTENTION_PREFILL_MMA;
  if (prompts && !b->num_single) return st;
  bool on_tensor_cores = (prompts || b->max_query <= 1) && tri_cuda_decode_mma_fits(a);
  plan->variant |= on_tensor_cores ? ATTENTION_DECODE_MMA : ATTENTION_DECODE;
  plan->split = on_tensor_cores ? tri_cuda_decode_mma_splits(a, num_sms) : tri_cuda_decode_splits(a, num_sms);
  plan->workspace = tri_cuda_split_workspace(a, on_tensor_cores ? b->num_seqs : a->q.rows, plan->split);
  return st;
}

static void attention_launch(tri_backend *be, const tri_op_plan *plan, const tri_attention_args *a) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  cudaStream_t own = tri_cuda_stream(be);
  bool mixed = plan->variant & ATTENTION_PREFILL_MMA;
  if (!a->q.rows || !a->batch->num_seqs) return;
  if (!plan->variant) tri_cuda_attention(own, a);
  if (plan->variant & ATTENTION_DECODE) tri_cuda_decode(own, a, be->workspace, impl->counters, plan->split, mixed);
  if (plan->variant & ATTENTION_DECODE_MMA)
    tri_cuda_note(be, tri_cuda_decode_mma(own, a, be->workspace, impl->counters, plan->split, mixed));
  if (mixed) tri_cuda_note(be, tri_cuda_prefill_mma(own, a));
  if (plan->variant & ATTENTION_LATENT_MMA) tri_cuda_note(be, tri_cuda_latent_mma(own, a, be->workspace, plan->split));
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
