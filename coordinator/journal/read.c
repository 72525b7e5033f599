/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a journal's segments at a start.
 *
 * Where does a journal end? Segments are allocated as zeros, and a record is whole where its sum, under the journal's
 * secret salt, is right. At the first place without a whole record the journal ends if a failure of the machine can
 * have torn it there, which is so for records that were not durable. Every record names the last one that was durable
 * when it was written: if a whole record further on says that the missing one was, the disk has lost what it had
 * promised, and the start is refused. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/log.h"

/* A segment's file in memory. */
struct mapped {
  const char *bytes;
  uint64_t len, salt;
  const char *folder, *name;
};

struct reading {
  tri_journal *j;
  tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err);
  void *ctx;
};

/* Returns whether there is a whole record; *h is its head. */
static bool record_at(const struct mapped *m, uint64_t at, journal_record_head *h) {
  if (m->len < JOURNAL_RECORD_BYTES || at > m->len - JOURNAL_RECORD_BYTES) return false;
  memcpy(h, m->bytes + at, sizeof *h);
  uint64_t room = m->len - at - JOURNAL_RECORD_BYTES;
  if (!h->number || h->len > TRI_JOURNAL_MOST_BYTES || h->len > room) return false;
  return journal_sum(m->salt, h, m->bytes + at + JOURNAL_RECORD_BYTES) == h->sum;
}

/* Looks after the first place where there is no whole record for one that says that there was a durable one. */
static bool was_durable(const struct mapped *m, uint64_t at, uint64_t number) {
  journal_record_head h;
  for (at += 8; at + JOURNAL_RECORD_BYTES <= m->len; at += 8) {
    memcpy(&h, m->bytes + at, sizeof h);
    bool says_so = h.durable >= number && h.number > h.durable && h.number - number < m->len;
    if (says_so && record_at(m, at, &h)) return true;
  }
  return false;
}

/* The head is durable before the first record, and what is after it was zero before. */
static bool has_records(const struct mapped *m) {
  for (uint64_t at = JOURNAL_HEAD_BYTES; at < m->len; at++)
    if (m->bytes[at]) return true;
  return false;
}

static tri_status damaged(const struct mapped *m, uint64_t at, const char *what, tri_error *err) {
  return tri_fail(err, TRI_CORRUPT, "journal",
                  "the journal's file %s/%s is damaged at byte %" PRIu64
                  ": %s. Jobs that it names cannot be trusted: move "
                  "the folder away to begin with an empty one",
                  m->folder, m->name, at, what);
}

/* Says what is lost with an end that is torn: nothing that was durable. */
static void tell_cut(const struct mapped *m, uint64_t at, bool begun, uint64_t number) {
  uint64_t end = m->len;
  while (end > at && !m->bytes[end - 1]) end--;
  if (!begun)
    tri_log(TRI_LOG_WARN, "journal", "%s has no header: it was empty", m->name);
  else if (end > at)
    tri_log(TRI_LOG_WARN, "journal",
            "%s ends in the middle of a record: %" PRIu64 " bytes from record %" PRIu64 " on are cut", m->name,
            end - at, number);
}

static tri_status read_segment(struct reading *r, struct mapped *m, uint64_t first, bool last, tri_error *err) {
  tri_journal *j = r->j;
  journal_head head = {0};
  journal_record_head h;
  uint64_t at = JOURNAL_HEAD_BYTES;
  if (m->len >= sizeof head) memcpy(&head, m->bytes, sizeof head);
  journal_head whole = journal_head_of(head.salt, first);
  bool begun = !memcmp(&head, &whole, sizeof head);
  bool other_version = !((head.mark ^ JOURNAL_MARK) << 8) && head.mark != JOURNAL_MARK;
  if (other_version)
    return tri_fail(err, TRI_CORRUPT, "journal",
                    "%s/%s is of another version: finish its jobs with the version that wrote it, or move the folder "
                    "away",
                    m->folder, m->name);
  if (!begun && (!last || has_records(m))) return damaged(m, 0, "it has another beginning", err);
  if (first != j->next) return damaged(m, 0, "records are missing before it", err);
  if (begun) j->salt = m->salt = head.salt;
  for (; begun && record_at(m, at, &h); at += JOURNAL_RECORD_BYTES + journal_padded(h.len)) {
    if (h.number != j->next) return damaged(m, at, "its records are not numbered on", err);
    tri_journal_record record = {h.type, h.number, m->bytes + at + JOURNAL_RECORD_BYTES, h.len};
    j->next++;
    TRI_CHECK(r->take(r->ctx, &record, err));
  }
  if (begun && was_durable(m, at, j->next)) return damaged(m, at, "the record is not complete any more", err);
  if (last) {
    tell_cut(m, at, begun, j->next);
    j->room = m->len > at ? m->len : at; /* it may have been made, and not allocated */
    j->at = at;
  }
  return TRI_OK;
}

static tri_status open_segment(struct reading *r, uint64_t first, bool last, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  struct stat about;
  journal_name(first, name);
  tri_status st = TRI_OK;
  struct mapped m = {.folder = r->j->folder, .name = name};
  int fd = openat(r->j->folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
  if (fd < 0 || fstat(fd, &about))
    TRI_TRY(tri_fail(err, TRI_IO, "journal", "%s/%s cannot be read: %s", r->j->folder, name, strerror(errno)));
  if (!S_ISREG(about.st_mode))
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "journal", "%s/%s is no plain file", r->j->folder, name));
  m.len = (uint64_t)about.st_size;
  void *map = m.len ? mmap(NULL, m.len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  if (map == MAP_FAILED)
    TRI_TRY(tri_fail(err, TRI_IO, "journal", "%s/%s cannot be mapped: %s", r->j->folder, name, strerror(errno)));
  m.bytes = map;
  st = read_segment(r, &m, first, last, err);
  if (map) munmap(map, m.len);
cleanup:
  if (fd >= 0) close(fd);
  return st;
}

static int by_number(const void *a, const void *b) {
  const journal_segment *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

static tri_status note_segment(tri_journal *j, int folder_fd, const char *name, tri_error *err) {
  uint64_t first;
  (void)folder_fd;
  journal_is_segment(name, &first);
  tri_status st = journal_add_segment(j, first);
  return st == TRI_OK ? st : tri_fail(err, st, "journal", "no memory");
}

static tri_status list_segments(tri_journal *j, tri_error *err) {
  TRI_CHECK(journal_each_segment(j, j->folder_fd, note_segment, err));
  if (j->num_segments) qsort(j->segments, j->num_segments, sizeof *j->segments, by_number);
  return TRI_OK;
}

tri_status journal_read_all(tri_journal *j, tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err),
                            void *ctx, tri_error *err) {
  struct reading r = {j, take, ctx};
  TRI_CHECK(list_segments(j, err));
  j->next = j->num_segments ? j->segments[0].first : 1;
  for (size_t i = 0; i < j->num_segments; i++)
    TRI_CHECK(open_segment(&r, j->segments[i].first, i + 1 == j->num_segments, err));
  return TRI_OK;
}
