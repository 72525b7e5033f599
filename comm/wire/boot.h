/* SPDX-License-Identifier: Apache-2.0 */
/* Launch and addresses: how workers learn where their coordinator is, and each rank its key. */
#ifndef TRI_COMM_WIRE_BOOT_H
#define TRI_COMM_WIRE_BOOT_H

#include "comm/wire/zsock.h"
#include "base/status.h"

enum { TRI_BOOT_MAX_RANKS = 1024, TRI_BOOT_MAX_REPLICAS = 64 }; /* ranks: of a replica */

/* The coordinator's address, and the key of each rank of these replicas: for the program that starts them. Secret: a
 * key lets a process join as its rank. */
typedef struct tri_boot {
  char endpoint[256];
  char server_key[TRI_Z_KEY];              /* the worker socket's public key */
  char from[256];                          /* its file or variable, for errors; empty: it was made here */
  uint32_t first_replica, replicas, ranks; /* ranks: of each replica */
  char (*secrets)[TRI_Z_KEY];              /* [replicas, ranks] */
} tri_boot;

/* The part of it that one rank needs, and all that a rank keeps. */
typedef struct tri_boot_rank {
  char endpoint[256];
  char server_key[TRI_Z_KEY];
  tri_zkeypair own;
} tri_boot_rank;

enum { TRI_BOOT_TAG = 7 }; /* of a rank's message with its public key in one MPI job */

/* Makes a key for each rank of the replicas from 0 on. */
tri_status tri_boot_make_keys(tri_boot *b, uint32_t replicas, uint32_t ranks, tri_error *err);
/* Overwrites the keys, too. Of zeros it is fine. */
void tri_boot_free(tri_boot *b);
bool tri_boot_equal(const tri_boot *a, const tri_boot *b);
/* Finds the public key of a rank that has one; a mistake is said with the rank and the file. */
tri_status tri_boot_public_key(const tri_boot *b, uint32_t replica, uint32_t rank, char out[TRI_Z_KEY], tri_error *err);
/* Takes out what a rank needs; refuses one that has no key. */
tri_status tri_boot_of_rank(const tri_boot *b, uint32_t replica, uint32_t rank, tri_boot_rank *out, tri_error *err);

/* Both forms of text are words with blanks between them: BOOT_VERSION, the server's key, first_replica, replicas,
 * ranks, the secret keys (ranks of a replica one after the other) and the endpoint, which goes to the end of its line.
 * Another version is refused. */
#define TRI_BOOT_VERSION "trireme-boot-2"
/* Writes the file with mode 0600, replaced at once (written under another name and renamed). */
tri_status tri_boot_save(const char *path, const tri_boot *b, tri_error *err);
/* Reads the file, and refuses one that others may read. Waits for the file until the deadline. */
tri_status tri_boot_load(const char *path, int64_t deadline_ns, tri_boot *out, tri_error *err);

/* The same with the keys of one replica alone, as one line in the environment variable TRIREME_BOOT, for hosts without
 * a common file system. */
#define TRI_BOOT_ENV "TRIREME_BOOT"
tri_status tri_boot_to_env(const tri_boot *b, uint32_t replica, tri_error *err);
/* TRI_NOT_FOUND without the variable, which is overwritten and removed once read. */
tri_status tri_boot_from_env(tri_boot *out, tri_error *err);
void tri_boot_clear_env(void);

/* Returns nonzero when a launcher (mpirun, srun with PMIx) started this process as one of several ranks. */
int tri_boot_under_mpi(void);

/* Writes an address of this host that other hosts can reach (the first of these networks, see tri_network_find), or
 * 127.0.0.1 when there is none. */
void tri_boot_host_address(const char *networks, char *out, size_t cap);

#endif
