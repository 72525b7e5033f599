/* Reads as streams of weights read, with nothing done about the bytes: what a disk gives at best. */
#ifndef TRI_WORKER_PLAN_DISK_READ_H
#define TRI_WORKER_PLAN_DISK_READ_H

#include "offload/stream.h"

typedef struct tri_disk_figures {
  uint64_t bytes;
  double seconds;
  bool direct; /* past the page cache */
} tri_disk_figures;

/* Reads extents of files one behind the other, through a reader of that kind, until they end or so many seconds have
 * passed. */
tri_status tri_disk_read(const tri_reader_config *reads, const tri_stream_file *files, int num_files,
                         const tri_stream_extent *extents, int num_extents, double most_seconds, tri_disk_figures *out,
                         tri_error *err);

/* "disk 254:1 of HOST", of the file systems that open files or folders lie on, of each once: "disk 254:1 254:17 of
 * HOST"; empty: nobody knows. Returns how many there are. */
enum { TRI_DISK_NAME = 160 };
int tri_disk_name(const int *fds, int num_fds, char out[TRI_DISK_NAME]);

#endif
