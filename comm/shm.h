/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives among ranks of one host through memory that they share: one round, no messages.
 *
 * Every rank has two slots and a counter of rounds. In a round a rank writes its data into the slot of the round's
 * parity, publishes the round's number, waits until every rank has published it, and reads all slots. Two slots are
 * enough: who publishes round n has read round n - 1, and none begins n + 1 before all have published n. This is the
 * one-shot all-reduce of the custom kernels of GPU engines, on host memory; against MPI's it saves the matching, the
 * copies and, where ranks outnumber cores, all but one change of process per rank and round. */
#ifndef TRI_COMM_SHM_H
#define TRI_COMM_SHM_H

#include <stddef.h>

#include "comm/comm.h"

enum { TRI_SHM_MAX_RANKS = 16, TRI_SHM_SLOT_BYTES = 256 << 10, TRI_SHM_NAME_BYTES = 40 };

typedef struct tri_shm tri_shm;

/* Creates the memory of `size` ranks under a fresh name (rank 0), or opens it. Every byte is reserved, so that a full
 * /dev/shm is an error here (TRI_NO_MEMORY) and no signal later. TRI_IO: it could not be opened. */
tri_status tri_shm_create(char name[TRI_SHM_NAME_BYTES], int size, tri_shm **out);
tri_status tri_shm_open(const char *name, int rank, int size, tri_shm **out);
/* Takes the name away: nothing stays behind then, however the processes end. To be called when all have opened it. */
void tri_shm_unlink(const char *name);
void tri_shm_close(tri_shm *s); /* NULL allowed */

/* A wait calls progress(arg) now and then: a message that this process has sent may need it before the rank waited for
 * can come. */
void tri_shm_set_progress(tri_shm *s, void (*progress)(void *arg), void *arg);

/* The slots of tri_comm_ops; a sum is taken in rank order. Waits by c's policy and limit; an error is returned and
 * not yet noted in c. */
tri_status tri_shm_all_reduce(tri_shm *s, tri_comm *c, float *buf, size_t count);
tri_status tri_shm_all_gather(tri_shm *s, tri_comm *c, const void *send, void *recv, size_t bytes);
tri_status tri_shm_reduce_scatter(tri_shm *s, tri_comm *c, const float *send, float *recv, size_t count);
/* TRI_INVALID_ARGUMENT: a rank sends another size than is expected of it. */
tri_status tri_shm_all_to_all(tri_shm *s, tri_comm *c, const void *send, const size_t *send_bytes, void *recv,
                              const size_t *recv_bytes);
tri_status tri_shm_broadcast(tri_shm *s, tri_comm *c, void *buf, size_t bytes, int root);
tri_status tri_shm_barrier(tri_shm *s, tri_comm *c);

#endif
