/* SPDX-License-Identifier: Apache-2.0 */
/* Experts: shapes are checked as the reference checks them, and a kernel is chosen for each launch. */
#include "kernels/cuda/moe/moe.h"
#include "kernels/ref/ref.h"

enum { COUNTER = 0 }; /* of the backend's, which are 0 between two kernels */

tri_status tri_cuda_moe_route_plan(tri_backend *be, const tri_moe_route_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_moe_route_plan(be, a, plan);
  *plan = (tri_op_plan){0};
  if (st != TRI_OK) return st;
  if (!tri_cuda_moe_route_fits(a)) return TRI_UNSUPPORTED;
  plan->workspace = tri_cuda_moe_route_workspace(a);
  return TRI_OK;
}

void tri_cuda_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a) {
  (void)plan;
  const tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_moe_route(tri_cuda_stream(be), a, be->workspace, impl->counters + COUNTER, impl->is_hopper);
  tri_cuda_note(be, cudaGetLastError());
}

tri_status tri_cuda_moe_map_plan(tri_backend *be, const tri_moe_map_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_moe_map_plan(be, a, plan));
  plan->workspace = tri_cuda_moe_map_workspace(a);
  return tri_cuda_moe_map_fits(a) ? TRI_OK : TRI_UNSUPPORTED;
}

void tri_cuda_moe_map_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_map_args *a) {
  (void)plan;
  tri_cuda_moe_map(tri_cuda_stream(be), a, be->workspace);
  tri_cuda_note(be, cudaGetLastError());
}

/* The kernels of a plan. */
enum { EXPERTS_PLAIN, EXPERTS_FEW, EXPERTS_GROUPED, EXPERTS_8BIT };

/* Returns the kernel of a launch. A copy engine brings weights faster than registers take them, for one token, too.
 * Without Hopper, GEMMs of few rows on tensor cores take weights of 16 bits and of int8; float32, rows of integers, and
 * rows that are not whole pieces, go the plain way. */
static int choose(const tri_cuda_impl *impl, const tri_moe_experts_args *a) {
  if (impl->is_hopper && tri_cuda_moe_8bit_fits(a)) return EXPERTS_8BIT;
  if (impl->is_hopper && tri_cuda_moe_grouped_fits(a)) return EXPERTS_GROUPED;
  return tri_cuda_moe_few_fits(a) ? EXPERTS_FEW : EXPERTS_PLAIN;
}

static size_t workspace_of(const tri_moe_experts_args *a, int variant, int num_sms) {
  if (variant == EXPERTS_8BIT) return tri_cuda_moe_8bit_workspace(a);
  if (variant == EXPERTS_GROUPED) return tri_cuda_moe_grouped_workspace(a, num_sms);
  return variant == EXPERTS_FEW ? tri_cuda_moe_few_workspace(a) : tri_cuda_moe_plain_workspace(a);
}

tri_status tri_cuda_moe_experts_plan(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_moe_experts_plan(be, a, plan);
  *plan = (tri_op_plan){0};
  if (st != TRI_OK) return st;
  if (a->num_experts > TRI_CUDA_MOE_EXPERTS) return TRI_UNSUPPORTED;
  /* Kernels number their work: at worst each choice's expert is read anew in tiles of eight rows. */
  int64_t widest = a->down.k > a->x.cols ? a->down.k : a->x.cols;
  if (widest && (int64_t)a->x.rows * a->top_k >= INT32_MAX / (widest / 8 + 1)) return TRI_OUT_OF_RANGE;
  plan->variant = choose(tri_cuda_of(be), a);
  plan->workspace = workspace_of(a, plan->variant, tri_cuda_of(be)->num_sms);
  bool general = plan->variant == EXPERTS_FEW || plan->variant == EXPERTS_PLAIN;
  if (general && a->x.rows && a->up.dtype != TRI_F32) be->general |= TRI_GENERAL_EXPERTS;
  return TRI_OK;
}

void tri_cuda_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a) {
  int num_sms = tri_cuda_of(be)->num_sms;
  unsigned *slabs = tri_cuda_lane_of(be)->slabs;
  if (plan->variant == EXPERTS_8BIT)
    tri_cuda_note(be, tri_cuda_moe_8bit(tri_cuda_stream(be), a, be->workspace, slabs, num_sms));
  else if (plan->variant == EXPERTS_GROUPED)
    tri_cuda_note(be, tri_cuda_moe_grouped(tri_cuda_stream(be), a, be->workspace, slabs, num_sms));
  else if (plan->variant == EXPERTS_FEW)
    tri_cuda_moe_few(tri_cuda_stream(be), a, be->workspace, num_sms);
  else
    tri_cuda_moe_plain(tri_cuda_stream(be), a, be->workspace, num_sms);
  tri_cuda_note(be, cudaGetLastError());
}
