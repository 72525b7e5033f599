/* SPDX-License-Identifier: Apache-2.0 */
/* Launch and addresses: how workers learn where their coordinator is and which keys to use. */
#ifndef TRI_COMM_WIRE_BOOT_H
#define TRI_COMM_WIRE_BOOT_H

#include "comm/wire/zsock.h"
#include "runtime/base/status.h"

/* The coordinator's address and the keys for it: plain bytes, so that they can be broadcast or written to a file.
 * Secret: they let a process join as a worker. */
typedef struct tri_boot {
  char endpoint[256];
  char server_key[TRI_Z_KEY]; /* the worker socket's public key */
  tri_zkeypair worker;        /* that workers present */
} tri_boot;

/* Writes the file with mode 0600, replaced at once (written beside and renamed). */
tri_status tri_boot_save(const char *path, const tri_boot *b, tri_error *err);
/* Reads the file, and refuses one that others may read. Waits for the file until the deadline. */
tri_status tri_boot_load(const char *path, int64_t deadline_ns, tri_boot *out, tri_error *err);

/* The same as one line of text in the environment variable TRIREME_BOOT, for hosts without a common file system. */
#define TRI_BOOT_ENV "TRIREME_BOOT"
tri_status tri_boot_to_env(const tri_boot *b, tri_error *err);
/* TRI_NOT_FOUND without the variable, which is removed from the environment once read. */
tri_status tri_boot_from_env(tri_boot *out, tri_error *err);

/* Returns nonzero when a launcher (mpirun, srun with PMIx) started this process as one of several ranks. */
int tri_boot_under_mpi(void);

/* Writes an address of this host that other hosts can reach (the first of these networks, see tri_network_find), or
 * 127.0.0.1 when there is none. */
void tri_boot_host_address(const char *networks, char *out, size_t cap);

#endif
