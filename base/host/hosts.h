/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts, as mpirun's --host takes them, and which of a cluster's ranks is on which of them. */
#ifndef TRI_BASE_HOST_HOSTS_H
#define TRI_BASE_HOST_HOSTS_H

#include <stdbool.h>

#include "base/status.h"

enum { TRI_HOSTS_MAX = 1024, TRI_HOST_NAME = 256, TRI_HOSTS_TEXT = 16384, TRI_PLACES_TEXT = 4096 };

typedef struct tri_host {
  char name[TRI_HOST_NAME];
  long long slots; /* ranks that it has places for */
  long long used;  /* ranks that tri_hosts_place has put there */
} tri_host;

typedef struct tri_hosts {
  tri_host *list;
  int count;
} tri_hosts;

/* A rank's host, and its number among all ranks there, whatever their replica. */
typedef struct tri_place {
  int host, index;
} tri_place;

/* "a:4,b:4"; without a number, 1. A host may come twice. TRI_USAGE on anything else. The list is the caller's, for
 * tri_hosts_free, also after an error. */
tri_status tri_hosts_parse(const char *text, tri_hosts *out, tri_error *err);
/* The hosts of a Slurm job by its environment's words: "n[1-2,7],login", "4(x2),3". */
tri_status tri_hosts_parse_slurm(const char *nodes, const char *tasks, tri_hosts *out, tri_error *err);
void tri_hosts_free(tri_hosts *h);

/* Places for each of replicas * ranks ranks, a replica after the other: a replica goes to the first host that has room
 * for all of it, else to what is free from the front on. With `more`, hosts take as many times their slots as it needs;
 * else too few are TRI_NO_CAPACITY. */
tri_status tri_hosts_place(tri_hosts *h, int replicas, int ranks, bool more, tri_place *out);

/* One replica's part, from its places. As a list for a launcher ("a:4,b:4"), or a name for each rank ("a,a,b"); and
 * what its workers need to know: "RANKS@FIRST/COUNT,...", so many ranks of the replica on a host, after FIRST ranks of
 * other replicas, of COUNT in all. False: too long. */
bool tri_hosts_list(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_HOSTS_TEXT]);
bool tri_hosts_names(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_HOSTS_TEXT]);
bool tri_hosts_shares(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_PLACES_TEXT]);

/* Reads the last of those. False: the text has no share of `local_size` ranks for this rank. */
bool tri_hosts_read_share(const char *text, int rank, int local_size, int *first, int *count);

#endif
