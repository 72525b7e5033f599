/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

void tri_backend_fill_ref(tri_backend *be) {
#define X(op)                                                                                                          \
  be->ops.op##_plan = tri_ref_##op##_plan;                                                                             \
  be->ops.op##_launch = tri_ref_##op##_launch;
  TRI_OP_LIST(X)
#undef X
}
