/* SPDX-License-Identifier: Apache-2.0 */
/* In place of nccl.c where the module was built without NCCL's header. */
#include "comm/device/nccl.h"

tri_status tri_comm_nccl_create(tri_backend *be, tri_comm *host, tri_comm **out, tri_error *err) {
  (void)be;
  (void)host;
  (void)out;
  return tri_fail(err, TRI_UNSUPPORTED, "nccl", "several GPUs need NCCL, which this build lacks");
}
