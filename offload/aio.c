/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a queue. Containers often forbid io_uring_setup, which shows as an error at creation only: AUTO tries
 * it and falls to threads. */
#include "offload/aio.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

tri_status tri_aio_create(tri_aio_kind kind, int depth, tri_aio **out, tri_error *err) {
  int code = -ENOSYS;
  if (depth < 1 || depth > TRI_AIO_MAX_DEPTH)
    return tri_fail(err, TRI_OUT_OF_RANGE, "depth", "%d reads at once, the limit is %d", depth, TRI_AIO_MAX_DEPTH);
  if (kind != TRI_AIO_THREADS) code = tri_aio_uring_create(depth, out);
  if (code < 0 && kind == TRI_AIO_URING)
    return tri_fail(err, code == -ENOMEM ? TRI_NO_MEMORY : TRI_UNSUPPORTED, "io", "io_uring cannot be used here: %s",
                    strerror(-code));
  if (!code) return TRI_OK;
  if (kind == TRI_AIO_AUTO)
    tri_log(TRI_LOG_INFO, "io", "io_uring is not available (%s): files are read by threads", strerror(-code));
  code = tri_aio_threads_create(depth, out);
  return code ? tri_fail(err, TRI_NO_MEMORY, "io", "cannot start threads to read with: %s", strerror(-code)) : TRI_OK;
}
