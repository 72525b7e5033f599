#include "worker/plan/disk_rate.h"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/engine/offload_plan.h"
#include "worker/plan/machine_file.h"

static bool find_kept(int fd, double *bytes_per_s) {
  char path[PATH_MAX], name[TRI_DISK_NAME];
  tri_machine_file_path(path);
  tri_disk_name(fd, name);
  return path[0] && name[0] && tri_machine_file_find_disk(path, name, bytes_per_s);
}

bool tri_disk_rate_kept(const tri_checkpoint *ckpt, const char *folder, double *bytes_per_s) {
  int own = folder ? open(folder, O_RDONLY | O_DIRECTORY) : -1;
  int fd = own >= 0 || !ckpt ? own : tri_checkpoint_fd(ckpt, 0);
  bool known = fd >= 0 && find_kept(fd, bytes_per_s);
  if (own >= 0) close(own);
  return known;
}

tri_status tri_disk_rate_measure(const tri_checkpoint *ckpt, tri_disk_figures *out, tri_error *err) {
  enum { MOST = 256 << 20 };
  static const double SECONDS = 0.3;
  tri_reader_config reads = tri_offload_reads();
  tri_stream_extent x = {0};
  int file = 0;
  for (int i = 0; i < tri_checkpoint_num_files(ckpt); i++) {
    off_t end = lseek(tri_checkpoint_fd(ckpt, i), 0, SEEK_END);
    if (end < 0 || (size_t)end <= x.bytes) continue;
    file = i;
    x.bytes = (size_t)end;
  }
  tri_stream_file of = {tri_checkpoint_fd(ckpt, file), tri_checkpoint_path(ckpt, file)};
  if (x.bytes > MOST) x.bytes = MOST;
  return tri_disk_read(&reads, &of, 1, &x, 1, SECONDS, out, err);
}
