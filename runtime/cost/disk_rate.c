/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/disk_rate.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/engine/offload_folders.h"
#include "runtime/engine/offload_plan.h"
#include "runtime/cost/machine_file.h"

/* Finds the rate of the disks that some files lie on, as they were measured together. */
static bool find_kept(const int *fds, int num_fds, double *bytes_per_s, int *num_disks) {
  char path[PATH_MAX], name[TRI_DISK_NAME];
  tri_machine_file_path(path);
  *num_disks = tri_disk_name(fds, num_fds, name);
  return path[0] && name[0] && tri_machine_file_find_disk(path, name, bytes_per_s);
}

/* Finds it from the rates that each disk has shown by itself. The folders have equal shares, and the last one that ends
 * decides. */
static bool add_up(const tri_offload_folders *f, const int *fds, tri_disk_rate *out) {
  double least = 0, most = 0;
  int slowest = 0, num_disks;
  for (int i = 0; i < f->count; i++) {
    double rate;
    int sharing = 0;
    if (!find_kept(&fds[i], 1, &rate, &num_disks)) return false;
    for (int k = 0; k < f->count; k++) {
      int both[] = {fds[i], fds[k]};
      char name[TRI_DISK_NAME];
      sharing += tri_disk_name(both, 2, name) == 1;
    }
    double share = rate / sharing;
    if (!i || share < least) {
      slowest = i;
      least = share;
    }
    if (share > most) most = share;
  }
  out->bytes_per_s = least * f->count;
  if (least < most) snprintf(out->slowest, sizeof out->slowest, "%s", f->list[slowest]);
  return true;
}

/* A rate that all disks have shown together goes before one that is added up: they may share a controller. */
static bool find_folders(const char *list, tri_disk_rate *out, bool *there) {
  tri_offload_folders f;
  int fds[TRI_STRIPES_MAX_FILES], count = 0;
  bool known = false;
  if (!list || tri_offload_folders_make(list, &f, NULL) != TRI_OK) return false;
  for (; count < f.count; count++) {
    fds[count] = open(f.list[count], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds[count] < 0) break;
  }
  *there = count == f.count;
  if (*there) {
    bool together = find_kept(fds, count, &out->bytes_per_s, &out->num_disks);
    known = together || add_up(&f, fds, out);
  }
  for (int i = 0; i < count; i++) close(fds[i]);
  tri_offload_folders_free(&f);
  return known;
}

/* Folders that are there but have no rate yet give none: that of the checkpoint's disk would be another disk's. */
bool tri_disk_rate_kept(const tri_checkpoint *ckpt, const char *folders, tri_disk_rate *out) {
  bool there = false;
  *out = (tri_disk_rate){.num_disks = 1};
  if (find_folders(folders, out, &there)) return true;
  if (there || !ckpt) return false;
  int fd = tri_checkpoint_fd(ckpt, 0);
  return find_kept(&fd, 1, &out->bytes_per_s, &out->num_disks);
}

/* The largest file lasts longest: one that ends early would measure how reads begin. Its first 256 MiB, or 0.3 s, are
 * enough. */
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
