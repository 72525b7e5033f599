/* SPDX-License-Identifier: Apache-2.0 */
/* Reads as streams of weights read, with nothing done about the bytes: what a disk gives at best. */
#ifndef TRI_RUNTIME_COST_DISK_READ_H
#define TRI_RUNTIME_COST_DISK_READ_H

#include <sys/types.h>

#include "offload/stream.h"
#include "offload/stripes.h"

typedef struct tri_disk_figures {
  uint64_t bytes;
  double seconds;
  bool direct; /* past the page cache */
} tri_disk_figures;

/* Reads extents of files one after the other, through a reader of that kind, until they end or so many seconds have
 * passed. */
tri_status tri_disk_read(const tri_reader_config *reads, const tri_stream_file *files, int num_files,
                         const tri_stream_extent *extents, int num_extents, double most_seconds, tri_disk_figures *out,
                         tri_error *err);

/* Holds the name of as many disks as a pack can lie on, with the longest numbers and the longest name of a host. */
enum { TRI_DISK_NAME = sizeof "disk of " + 64 + TRI_STRIPES_MAX_FILES * (sizeof " 4294967295:4294967295" - 1) };
/* "disk 254:1 of HOST", of the file systems that open files or folders (at most TRI_STRIPES_MAX_FILES) lie on, of each
 * once: "disk 254:1 254:17 of HOST"; empty: not known. Returns how many there are. */
int tri_disk_name(const int *fds, int num_fds, char out[TRI_DISK_NAME]);
/* The same of file systems by their numbers, each once. */
void tri_disk_name_of(const dev_t *devices, int count, char out[TRI_DISK_NAME]);

#endif
