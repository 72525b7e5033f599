/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/disk_read.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/mem.h"
#include "base/wait.h"

/* Waits for one read and forgets what it brought. */
static tri_status take(tri_reader *r, tri_disk_figures *out, const size_t *sizes, tri_error *err) {
  int slot;
  void *data;
  TRI_CHECK(tri_reader_next(r, &slot, &data, err));
  out->bytes += sizes[slot];
  tri_reader_release(r, slot);
  return TRI_OK;
}

/* Keeps as many reads under way as the reader has buffers, as while weights are streamed; a read at a time would
 * measure the disk's latency. The first piece is shorter where the extent begins within a block: all later ones then
 * begin with a block, and none is read twice. */
static tri_status read_extent(tri_reader *r, const tri_reader_config *reads, const tri_stream_extent *x, int64_t end,
                              size_t *sizes, tri_disk_figures *out, tri_error *err) {
  for (size_t at = 0; at < x->bytes && tri_now_ns() < end;) {
    int slot;
    size_t most = reads->piece_bytes - (x->offset + at) % TRI_READER_BLOCK, left = x->bytes - at;
    size_t n = left < most ? left : most;
    tri_status st = tri_reader_start(r, x->file, x->offset + at, n, &slot, err);
    if (st == TRI_OK) {
      sizes[slot] = n;
      at += n;
    }
    if (st == TRI_AGAIN) st = take(r, out, sizes, err);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

static tri_status read_all(tri_reader *r, const tri_reader_config *reads, const tri_stream_extent *extents,
                           int num_extents, double most_seconds, tri_disk_figures *out, tri_error *err) {
  size_t sizes[TRI_AIO_MAX_DEPTH];
  int64_t start = tri_now_ns(), end = most_seconds < 1e6 ? start + (int64_t)(most_seconds * 1e9) : INT64_MAX;
  tri_status st = TRI_OK;
  for (int i = 0; i < num_extents; i++) TRI_CHECK(read_extent(r, reads, &extents[i], end, sizes, out, err));
  while (st == TRI_OK) st = take(r, out, sizes, err);
  out->seconds = (double)(tri_now_ns() - start) * 1e-9;
  out->direct = tri_reader_is_direct(r);
  return st == TRI_AGAIN ? TRI_OK : st;
}

tri_status tri_disk_read(const tri_reader_config *reads, const tri_stream_file *files, int num_files,
                         const tri_stream_extent *extents, int num_extents, double most_seconds, tri_disk_figures *out,
                         tri_error *err) {
  tri_reader_config config = *reads;
  tri_reader *r = NULL;
  size_t bytes = tri_reader_memory_bytes(reads);
  int number;
  tri_status st;
  *out = (tri_disk_figures){0};
  if (tri_pages_alloc(bytes, &config.memory) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "io", "no memory for reads of a disk");
  memset(config.memory, 0, bytes); /* a stream's pages are there, too, when it reads */
  TRI_TRY(tri_reader_create(&config, &r, err));
  for (int i = 0; i < num_files; i++) TRI_TRY(tri_reader_add_file(r, files[i].fd, files[i].path, &number, err));
  TRI_TRY(read_all(r, reads, extents, num_extents, most_seconds, out, err));
cleanup:
  if (tri_reader_destroy(r)) tri_pages_free(config.memory, bytes);
  return st;
}

/* Adds a device to those that are known, in the order of their numbers. */
static int add_device(dev_t *devices, int count, dev_t device) {
  int at = count;
  for (int i = 0; i < count; i++)
    if (devices[i] == device) return count;
  for (; at > 0 && devices[at - 1] > device; at--) devices[at] = devices[at - 1];
  devices[at] = device;
  return count + 1;
}

/* Devices are in the order of their numbers, so that a set of disks has one name however its folders are given. A
 * device's number is of its host alone, hence the host's name. */
void tri_disk_name_of(const dev_t *devices, int count, char out[TRI_DISK_NAME]) {
  struct utsname host;
  out[0] = 0;
  if (count < 1 || count > TRI_STRIPES_MAX_FILES || uname(&host)) return;
  int n = snprintf(out, TRI_DISK_NAME, "disk");
  for (int i = 0; i < count; i++)
    n += snprintf(out + n, (size_t)(TRI_DISK_NAME - n), " %u:%u", major(devices[i]), minor(devices[i]));
  snprintf(out + n, (size_t)(TRI_DISK_NAME - n), " of %.64s", host.nodename);
}

int tri_disk_name(const int *fds, int num_fds, char out[TRI_DISK_NAME]) {
  dev_t devices[TRI_STRIPES_MAX_FILES];
  int count = 0;
  out[0] = 0;
  if (num_fds < 1 || num_fds > TRI_STRIPES_MAX_FILES) return 0;
  for (int i = 0; i < num_fds; i++) {
    struct stat s;
    if (fstat(fds[i], &s)) return 0;
    count = add_device(devices, count, s.st_dev);
  }
  tri_disk_name_of(devices, count, out);
  return count;
}
