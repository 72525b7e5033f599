/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/xxh3.h"

/* Two passes: in the second, parts come into places of the ring that other parts have had before. */
enum { PASSES = 2 };

struct verify {
  tri_engine *e;
  tri_offload_source source;
  char *plain; /* of the longest extent */
  uint64_t bytes;
};

static const char *ring_part(const struct verify *v, int number) {
  return v->e->weights->ring + v->e->tiers->places[number].at;
}

/* Reads through the page cache, in another way than the stream does. */
static tri_status read_plainly(struct verify *v, const tri_stream_extent *x, tri_error *err) {
  const tri_stream_file *f = &v->source.files[x->file];
  for (size_t done = 0; done < x->bytes;) {
    ssize_t n = pread(f->fd, v->plain + done, x->bytes - done, (off_t)(x->offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return tri_fail(err, TRI_IO, f->path, "cannot read %s: %s", f->path, n ? strerror(errno) : "it ends too soon");
    done += (size_t)n;
  }
  return TRI_OK;
}

static tri_status check_extents(struct verify *v, int number, tri_error *err) {
  const tri_stream_part *p = &v->source.parts[number];
  for (int i = 0; i < p->num_extents; i++) {
    const tri_stream_extent *x = &p->extents[i];
    TRI_CHECK(read_plainly(v, x, err));
    v->bytes += x->bytes;
    if (tri_xxh3(ring_part(v, number) + x->at, x->bytes) == tri_xxh3(v->plain, x->bytes)) continue;
    const char *path = v->source.files[x->file].path;
    return tri_fail(err, TRI_CORRUPT, path, "part %d: %zu bytes came other than they are at %llu of %s", number,
                    x->bytes, (unsigned long long)x->offset, path);
  }
  return TRI_OK;
}

static tri_status check_pack(const struct verify *v, int number, tri_error *err) {
  const tri_stream_part *p = &v->source.parts[number];
  for (int i = 0; i < p->num_extents; i++) {
    const tri_stream_extent *x = &p->extents[i];
    const char *path = v->source.files[x->file].path;
    if (tri_xxh3(ring_part(v, number) + x->at, x->bytes) != x->checksum)
      return tri_fail(err, TRI_CORRUPT, path, "%s: the %zu bytes at %llu are not those that were written", path,
                      x->bytes, (unsigned long long)x->offset);
  }
  return TRI_OK;
}

/* A walk as a step makes it, so that the engine's next one continues after it. */
static tri_status walk(struct verify *v, tri_error *err) {
  tri_weight_stream *s = tri_offload_stream(v->e->offload);
  for (int i = 0; i < v->e->tiers->num_streamed; i++) {
    tri_status st = tri_weight_stream_acquire(s, i);
    if (st != TRI_OK) return tri_fail(err, st, "io", "%s", tri_weight_stream_failure(s));
    TRI_CHECK(check_extents(v, i, err));
    if (v->source.pack) TRI_CHECK(check_pack(v, i, err));
    tri_weight_stream_release(s, i);
  }
  return TRI_OK;
}

static size_t longest(const struct verify *v) {
  size_t most = 1;
  for (int i = 0; i < v->e->tiers->num_streamed; i++)
    for (int k = 0; k < v->source.parts[i].num_extents; k++)
      if (v->source.parts[i].extents[k].bytes > most) most = v->source.parts[i].extents[k].bytes;
  return most;
}

tri_status tri_bench_verify(tri_engine *e, bool json, tri_error *err) {
  struct verify v = {.e = e, .source = tri_offload_source_of(e->offload)};
  int parts = e->tiers->num_streamed;
  const char *from = v.source.pack ? "pack" : "checkpoint";
  if (!e->backend->host_memory)
    return tri_fail(err, TRI_UNSUPPORTED, "verify",
                    "a GPU's ring buffer cannot be checked: --backend cpu reads the same");
  v.plain = tri_malloc(longest(&v), 1);
  if (!v.plain) return tri_fail(err, TRI_NO_MEMORY, "verify", "no memory for %zu bytes of a file", longest(&v));
  tri_status st = TRI_OK;
  for (int i = 0; st == TRI_OK && i < PASSES; i++) st = walk(&v, err);
  tri_free(v.plain);
  if (st != TRI_OK) return st;
  if (json)
    printf("{\"verified\":true,\"parts\":%d,\"passes\":%d,\"bytes\":%llu,\"source\":\"%s\"}\n", parts, PASSES,
           (unsigned long long)v.bytes, from);
  else
    printf("verified: %d parts, %d times, %.1f MB from the %s\n", parts, PASSES, (double)v.bytes * 1e-6, from);
  return TRI_OK;
}
