/* SPDX-License-Identifier: Apache-2.0 */
/* Reading packs: every offset is computed from the layout, as no number of the file is believed (pack_form.h). */
#include "offload/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/pack_form.h"
#include "base/mem.h"
#include "base/xxh3.h"

enum { ENTRIES = TRI_READER_BLOCK / sizeof(tri_weight_pack_entry) }; /* read at a time */

/* Rounds a file offset up; 0 where that is too much. Offsets end far below what an off_t holds. */
static uint64_t aligned(uint64_t offset) {
  return offset <= INT64_MAX / 2 ? (offset + TRI_WEIGHT_PACK_ALIGN - 1) / TRI_WEIGHT_PACK_ALIGN * TRI_WEIGHT_PACK_ALIGN
                                 : 0;
}

/* Returns the bytes of the file, and each part's place in it; 0 where there is no such file. Bounds of INT64_MAX / 4
 * and / 2 leave room for the additions and roundings of the next step, none of which has to be checked then. */
static uint64_t place(const tri_weight_pack_layout *layout, uint64_t *offsets) {
  if (layout->num_parts < 1 || layout->num_parts > TRI_WEIGHT_PACK_MAX_PARTS) return 0;
  uint64_t end = tri_weight_pack_entry_offset(layout->num_parts);
  for (int i = 0; i < layout->num_parts; i++) {
    uint64_t offset = aligned(end), bytes = layout->part_bytes[i];
    if (!offset || !bytes || bytes > INT64_MAX / 4) return 0;
    if (offsets) offsets[i] = offset;
    end = offset + tri_weight_pack_padded(bytes);
  }
  return end <= INT64_MAX / 2 ? end : 0;
}

uint64_t tri_weight_pack_file_bytes(const tri_weight_pack_layout *layout) { return place(layout, NULL); }

void tri_weight_pack_header_fill(tri_weight_pack_header *h, const tri_weight_pack_layout *layout) {
  *h = (tri_weight_pack_header){
      .magic = TRI_WEIGHT_PACK_MAGIC,
      .version = TRI_WEIGHT_PACK_VERSION,
      .num_parts = (uint32_t)layout->num_parts,
      .key = layout->key,
      .file_bytes = tri_weight_pack_file_bytes(layout),
      .sizes = tri_xxh3(layout->part_bytes, (size_t)layout->num_parts * sizeof *layout->part_bytes)};
  h->checksum = tri_xxh3(h, offsetof(tri_weight_pack_header, checksum));
}

tri_weight_pack_entry tri_weight_pack_entry_make(const tri_weight_pack_header *h, uint64_t offset, uint64_t bytes,
                                                 uint64_t checksum) {
  /* The header's checksum is under the seal: an entry of another pack, which had this file before, is not sound. */
  uint64_t sealed[] = {h->checksum, offset, bytes, checksum};
  return (tri_weight_pack_entry){offset, bytes, checksum, tri_xxh3(sealed, sizeof sealed)};
}

tri_status tri_weight_pack_layout_check(const char *path, const tri_weight_pack_layout *layout, tri_error *err) {
  if (tri_weight_pack_file_bytes(layout)) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, path, "%s: no pack can have %d parts of these sizes", path, layout->num_parts);
}

tri_status tri_weight_pack_wrap(int fd, const char *path, const tri_weight_pack_layout *layout, tri_weight_pack **out,
                                tri_error *err) {
  tri_status st = TRI_OK;
  tri_weight_pack *p = tri_calloc(1, sizeof *p);
  if (!p) {
    close(fd);
    return tri_fail(err, TRI_NO_MEMORY, path, "no memory for the pack %s", path);
  }
  p->fd = fd;
  p->num_parts = layout->num_parts;
  p->path = tri_strdup(path);
  p->offsets = tri_calloc((size_t)layout->num_parts, sizeof *p->offsets);
  p->checksums = tri_calloc((size_t)layout->num_parts, sizeof *p->checksums);
  if (!p->path || !p->offsets || !p->checksums)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, path, "no memory for the table of the pack %s", path));
  p->file_bytes = place(layout, p->offsets);
  *out = p;
  return TRI_OK;
cleanup:
  tri_weight_pack_close(p);
  return st;
}

static tri_status unsound(const tri_weight_pack *p, const char *why, tri_error *err) {
  return tri_fail(err, TRI_NOT_FOUND, p->path, "%s: %s", p->path, why);
}

/* Reads all of a range. TRI_NOT_FOUND: the file ends before. */
static tri_status read_at(const tri_weight_pack *p, void *to, size_t bytes, uint64_t offset, tri_error *err) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(p->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tri_fail(err, TRI_IO, p->path, "%s cannot be read: %s", p->path, strerror(errno));
    if (!n) return unsound(p, "the file is cut off", err);
    done += (size_t)n;
  }
  return TRI_OK;
}

/* Says what is wrong with a header; NULL where nothing is. */
static const char *header_fault(const tri_weight_pack_header *h, const tri_weight_pack_header *want) {
  if (memcmp(h->magic, want->magic, sizeof h->magic)) return "the file is no pack";
  if (h->version != want->version) return "the pack is of another version";
  if (h->checksum != tri_xxh3(h, offsetof(tri_weight_pack_header, checksum))) return "the pack's header is damaged";
  if (memcmp(&h->key, &want->key, sizeof h->key)) return "the pack is of another model or layout";
  return memcmp(h, want, sizeof *h) ? "the pack's parts are others" : NULL;
}

/* Entries are read a block at a time. The first one that is not sound ends the scan with TRI_OK: what is before it is
 * what an interrupted maker has left, which tri_weight_pack_open refuses and a maker continues. */
tri_status tri_weight_pack_scan(tri_weight_pack *p, const tri_weight_pack_layout *layout, int *sound, tri_error *err) {
  tri_weight_pack_header h, want;
  tri_weight_pack_entry entries[ENTRIES];
  struct stat s;
  if (fstat(p->fd, &s)) return tri_fail(err, TRI_IO, p->path, "%s cannot be looked at: %s", p->path, strerror(errno));
  TRI_CHECK(read_at(p, &h, sizeof h, 0, err));
  tri_weight_pack_header_fill(&want, layout);
  const char *fault = header_fault(&h, &want);
  if (fault) return unsound(p, fault, err);
  if ((uint64_t)s.st_size != p->file_bytes)
    return tri_fail(err, TRI_NOT_FOUND, p->path, "%s: %lld bytes where the pack has %llu", p->path,
                    (long long)s.st_size, (unsigned long long)p->file_bytes);
  for (int i = 0; i < p->num_parts; i++) {
    const tri_weight_pack_entry *e = &entries[i % ENTRIES];
    int count = p->num_parts - i < ENTRIES ? p->num_parts - i : ENTRIES;
    if (i % ENTRIES == 0)
      TRI_CHECK(read_at(p, entries, (size_t)count * sizeof *e, tri_weight_pack_entry_offset(i), err));
    tri_weight_pack_entry whole = tri_weight_pack_entry_make(&want, p->offsets[i], layout->part_bytes[i], e->checksum);
    if (memcmp(e, &whole, sizeof whole)) {
      *sound = i;
      return TRI_OK;
    }
    p->checksums[i] = e->checksum;
  }
  *sound = p->num_parts;
  return TRI_OK;
}

/* Opens a file and nothing else: what another has put in its place is not followed, nor waited for. */
static tri_status open_file(const char *path, int *out, tri_error *err) {
  struct stat s;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    return tri_fail(err, TRI_NOT_FOUND, path, "%s: there is no such file", path);
  if (fd < 0)
    return tri_fail(err, TRI_IO, path, "the pack %s cannot be opened: %s", path,
                    errno == ELOOP ? "it is a symbolic link" : strerror(errno));
  /* O_NONBLOCK has done its work; where a file system does not know it, reads over io_uring would return nothing. */
  if (fstat(fd, &s) || !S_ISREG(s.st_mode) || fcntl(fd, F_SETFL, 0)) {
    close(fd);
    return tri_fail(err, TRI_IO, path, "%s is not a file, so it cannot be a pack", path);
  }
  *out = fd;
  return TRI_OK;
}

tri_status tri_weight_pack_open(const char *path, const tri_weight_pack_layout *layout, tri_weight_pack **out,
                                tri_error *err) {
  tri_weight_pack *p = NULL;
  int fd = -1, sound = 0;
  TRI_CHECK(tri_weight_pack_layout_check(path, layout, err));
  TRI_CHECK(open_file(path, &fd, err));
  TRI_CHECK(tri_weight_pack_wrap(fd, path, layout, &p, err));
  tri_status st = tri_weight_pack_scan(p, layout, &sound, err);
  if (st == TRI_OK && sound < p->num_parts)
    st = tri_fail(err, TRI_NOT_FOUND, path, "%s: the entry of part %d of %d is not sound", path, sound, p->num_parts);
  if (st == TRI_OK)
    *out = p;
  else
    tri_weight_pack_close(p);
  return st;
}

void tri_weight_pack_close(tri_weight_pack *p) {
  if (!p) return;
  close(p->fd);
  tri_free(p->path);
  tri_free(p->offsets);
  tri_free(p->checksums);
  tri_free(p);
}
