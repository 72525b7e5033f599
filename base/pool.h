/* SPDX-License-Identifier: Apache-2.0 */
/* One pool of worker threads per process, pinned to cores. The thread that calls tri_pool_run takes part as index 0. */
#ifndef TRI_BASE_POOL_H
#define TRI_BASE_POOL_H

#include "base/status.h"

typedef struct tri_pool tri_pool;

/* num_threads >= 1 counts the caller; 1 makes no thread. cores[i] is the core of thread i, or -1; cores may be NULL.
 * Between two runs the threads spin for about spin_us microseconds before they sleep (0: sleep at once, for hosts with
 * more processes than cores). */
tri_status tri_pool_create(int num_threads, const int *cores, int spin_us, tri_pool **out);
void tri_pool_destroy(tri_pool *p);   /* NULL is fine */
int tri_pool_size(const tri_pool *p); /* NULL counts as 1 */

/* Runs fn(ctx, i, n) for i = 0..n-1, n = tri_pool_size, and returns when all have returned. Only one thread may call
 * it. */
void tri_pool_run(tri_pool *p, void (*fn)(void *ctx, int index, int count), void *ctx);

/* Inside a run: every thread waits until all have come here. */
void tri_pool_barrier(tri_pool *p);

#endif
