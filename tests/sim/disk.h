/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is made up, for the journal: one folder with plain files, in memory.
 *
 * Every block has two contents: what a process reads, and what is on the platter. A process that is killed loses
 * nothing that it wrote; a machine that fails keeps, of each block that was not synced, the old or the new content, and
 * of the folder's changes that were not synced the first few. The calls that the journal makes are led here by the
 * linker (disk_calls.c), its thread runs when the simulation says so (sync_thread.c). */
#ifndef TRI_TESTS_SIM_DISK_H
#define TRI_TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_FOLDER "/the/journal"

enum {
  DISK_BLOCK = 512,
  DISK_FILES = 64,
  DISK_ENTRIES = 64,
  DISK_CHANGES = 256,
  DISK_FDS = 64,
  DISK_NAME = 32,
  DISK_FD = 1 << 20 /* its descriptors begin here: the system has none as large */
};

typedef struct disk_file {
  bool used;
  uint8_t *now, *kept, *leaving; /* what is read; what a failure leaves; what a sync that is under way brings there */
  bool *dirty, *on_its_way;      /* of each block: now is not kept; leaving has it */
  size_t cap, size, kept_size;
} disk_file;

typedef struct disk_entry {
  char name[DISK_NAME];
  int file;
} disk_entry;

typedef struct disk_folder {
  disk_entry entries[DISK_ENTRIES];
  int num;
} disk_folder;

/* A change of the folder: a name that comes (file >= 0), or goes. */
typedef struct disk_change {
  char name[DISK_NAME], from[DISK_NAME]; /* from: it had this name; empty: it is new, or goes */
  int file;
} disk_change;

typedef struct disk_fd {
  bool used;
  int file; /* -1: the folder */
} disk_fd;

typedef struct disk {
  uint64_t rng;
  disk_file files[DISK_FILES];
  disk_folder now, kept;
  disk_change changes[DISK_CHANGES]; /* of now, that are not in kept */
  int num_changes;
  disk_fd fds[DISK_FDS];
  int listed;             /* entries that readdir has given */
  uint8_t *map;           /* the file that is mapped; NULL: none is */
  bool is_full;           /* no file gets room for a segment, and not every one gets less */
  int broken;             /* percent of the calls that change something that fail */
  int dies_in;            /* calls until the process is killed in one; 0: it is not */
  bool dead;              /* it was: nothing that it does has any effect */
  int64_t wall_ms;        /* of the system's clock */
  uint64_t segment_bytes; /* of the journal: some records go into one, and not 16 MiB of them */
  uint64_t calls, faults;
} disk;

/* The disk that the calls are led to; NULL: the system's. */
void disk_mount(disk *d);
disk *disk_mounted(void);

/* disk.c */
bool disk_chance(disk *d, int percent);
int disk_open(disk *d, const char *name, int flags); /* a descriptor, or -1 and errno */
ssize_t disk_write(disk *d, int fd, const void *p, size_t n, off_t at);
int disk_sync(disk *d, int fd);       /* all of a file or of the folder */
int disk_begin_sync(disk *d, int fd); /* a file's: it ends with disk_end_sync */
int disk_end_sync(disk *d, int fd);
int disk_allocate(disk *d, int fd, size_t n);
int disk_rename(disk *d, const char *from, const char *to);
int disk_unlink(disk *d, const char *name);
disk_file *disk_file_of(disk *d, int fd); /* NULL: it is no file's */
disk_file *disk_file_named(disk *d, const char *name);
int disk_truncate(disk *d, int fd, size_t size);
bool disk_counts_call(disk *d); /* false: the process is dead, or dies now */
void disk_restart(disk *d);     /* another process has the disk */
void disk_lose_power(disk *d);  /* the machine fails */
void disk_free(disk *d);

/* sync_thread.c: the journal's thread, which runs up to where it waits whenever it is told to. */
typedef enum thread_state { THREAD_NONE, THREAD_WAITS, THREAD_READY, THREAD_SYNCS, THREAD_ENDED } thread_state;
thread_state sync_thread_state(void);
void sync_thread_run(void);
bool sync_thread_is_this(void);
void sync_thread_await_disk(void); /* of the thread: a sync takes until it runs next */

#endif
