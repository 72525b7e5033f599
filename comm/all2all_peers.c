/* SPDX-License-Identifier: Apache-2.0 */
/* COORDINATED on device memory: the column's communicator sends a row to the ranks that have its experts. */
#include "comm/all2all_impl.h"

tri_status tri_all2all_push_rows(tri_all2all *e, const void *x, const int32_t *experts, const float *weights,
                                 const tri_moe_route_args *route, const tri_all2all_rows *all) {
  const tri_rows_dispatch a = {.rows = e->rows,
                               .stride = e->stride,
                               .x = x,
                               .experts = experts,
                               .weights = weights,
                               .route = route,
                               .rounded = e->rounds,
                               .all = *all};
  e->all_experts = all->experts;
  return tri_comm_dispatch(e->cfg.column, &a);
}

tri_status tri_all2all_add_up(tri_all2all *e, const float *y, float *out, bool accumulate) {
  const tri_rows_combine a = {.rows = e->rows, .all_experts = e->all_experts, .stride = e->stride, .y = y, .out = out};
  return accumulate ? TRI_UNSUPPORTED : tri_comm_combine(e->cfg.column, &a);
}
