/* SPDX-License-Identifier: Apache-2.0 */
/* A disk for makers of packs: it kills them, fails, has no room, and forgets what was written and not yet waited for.
 * The calls of product code come to it by the linker's --wrap. */
#ifndef TESTS_UNIT_PACK_DISK_H
#define TESTS_UNIT_PACK_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { KILLED = 9 /* the exit code */, MOST_LOST = 64, MOST_FDS = 256 };

typedef enum kill_kind { KILL_BEFORE, KILL_HALF_WAY, KILL_AFTER, KILL_POWER, KILL_KINDS } kill_kind;

struct disk {
  int calls, kill_at; /* the call that is the last one; 0: none */
  kill_kind kill;
  uint64_t seed;
  bool short_writes;
  int fallocate_errno, sync_errno, write_errno, write_fails_at; /* once; at: of the writes of parts */
  int fallocates_well;                                          /* before that fails */
  unsigned long room;                                           /* blocks, where it is not 0 */
  int part_writes, syncs, entries;                              /* so far */
  bool unsynced[MOST_FDS], broken;                              /* parts; an entry came before its part */
  atomic_bool hold, holding;
  atomic_int others;  /* times that a maker has seen another one write */
  atomic_int allowed; /* parts that a maker may fill so far */
  struct {
    int fd;
    off_t offset;
    size_t bytes;
    unsigned char *old;
  } lost[MOST_LOST]; /* writes that the disk may forget */
  int num_lost;
};

/* In memory that processes share. */
extern struct disk *disk;

/* Makes the disk of a test; takes it away again, with the files of the packs that were on it. */
void pack_disk_open(void);
void pack_disk_close(const char *first, const char *second);

#endif
