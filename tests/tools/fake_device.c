/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the CUDA module: a backend "cuda" that computes with the reference's kernels on the host and says
 * that it has a device of its own. FAKE_DEVICE: its name ("none": it has none); without it every process of a host has
 * one by its number. FAKE_PCI: its address. FAKE_LACKS_ATTENTION: it has no such op. FAKE_LACKS_KERNELS: those with
 * this number or a higher one say that they lack kernels. FAKE_EVENTS: steps seem to go on behind their launch.
 * FAKE_MEMORY: bytes of memory of its own, as far as anybody asks, which the others of the host reach unless FAKE_APART
 * is there. FAKE_FAILS: the device with this number has failed while there is a file of this name with ".NUMBER" behind
 * it. It "measures" that each product's own kernel takes half of the time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/fill.h"

static tri_status tune(tri_backend *be, const tri_tune_gemm *products, int count, int64_t until, tri_tactics *out,
                       tri_tune_result *result) {
  (void)until;
  *result = (tri_tune_result){0};
  for (int i = 0; i < count; i++) {
    tri_tactic c = {.shape = tri_gemm_shape_of(&products[i].args), .kind = TRI_TACTIC_OWN, .ns = 1000};
    c.default_ns = 2 * c.ns;
    if (!c.shape.m || tri_tactics_get(out, &c.shape)) continue;
    bool known = tri_tactics_get(be->tactics, &c.shape) != NULL;
    result->shapes++, result->known += known, result->measured += !known, result->saved += known ? 0 : 0.5;
    if (!known && tri_tactics_put(out, &c) != TRI_OK) return TRI_NO_MEMORY;
  }
  return TRI_OK;
}

enum { LOOKS = 5 };
static int looks[TRI_EVENTS]; /* that an event has still to miss */

static void event_record(tri_backend *be, int event, tri_stream stream) {
  (void)be;
  (void)stream;
  looks[event] = LOOKS;
}
static tri_status event_query(tri_backend *be, int event) {
  (void)be;
  return looks[event]-- > 0 ? TRI_AGAIN : TRI_OK;
}

static char fails[256]; /* the file of this process's device; empty: it never fails */
static bool has_failed(void) { return fails[0] && !access(fails, F_OK); }
static tri_status failing_query(tri_backend *be, int event) {
  if (!has_failed()) return be->async ? event_query(be, event) : TRI_OK;
  snprintf(be->failure, sizeof be->failure, "%.100s: an uncorrectable ECC error", be->about);
  return TRI_DEVICE_LOST;
}

static int64_t mem_available(tri_backend *be) {
  (void)be;
  return atoll(getenv("FAKE_MEMORY"));
}

/* The blocks that it has given out as its own memory: each a file that other processes can open. */
enum { MOST_BLOCKS = 1024 };
static struct block {
  char *begin;
  size_t bytes;
  int fd;
} blocks[MOST_BLOCKS];

static tri_status mem_alloc(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out) {
  struct block b = {.bytes = bytes ? bytes : 1, .fd = memfd_create("imitation", MFD_CLOEXEC)};
  int i = 0;
  while (i < MOST_BLOCKS && blocks[i].begin) i++;
  if (i == MOST_BLOCKS || b.fd < 0 || ftruncate(b.fd, (off_t)b.bytes)) return TRI_NO_MEMORY;
  b.begin = mmap(NULL, b.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
  if (b.begin == MAP_FAILED) return TRI_NO_MEMORY;
  *out = b.begin;
  blocks[i] = b;
  be->allocated[tag] += bytes;
  return TRI_OK;
}

static struct block *find_block(const void *p) {
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (blocks[i].begin && blocks[i].begin == p) return &blocks[i];
  return NULL;
}

static void mem_free(tri_backend *be, tri_mem_tag tag, void *p, size_t bytes) {
  struct block *b = p ? find_block(p) : NULL;
  if (!p) return;
  be->allocated[tag] -= bytes;
  munmap(b->begin, b->bytes);
  close(b->fd);
  *b = (struct block){0};
}

struct handle {
  int process, fd;
  size_t bytes;
};

static tri_status peer_show(tri_backend *be, void *p, tri_peer_handle *out) {
  const struct block *b = find_block(p);
  (void)be;
  if (!b || getenv("FAKE_APART")) return TRI_UNSUPPORTED;
  memcpy(out->words, &(struct handle){getpid(), b->fd, b->bytes}, sizeof(struct handle));
  return TRI_OK;
}

static struct block opened[16];

static tri_status peer_open(tri_backend *be, const tri_peer_handle *handle, void **out) {
  char path[64];
  struct handle h;
  int i = 0;
  (void)be;
  memcpy(&h, handle->words, sizeof h);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", h.process, h.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void *p = fd < 0 ? MAP_FAILED : mmap(NULL, h.bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  while (opened[i].begin) i++;
  if (p == MAP_FAILED) return TRI_UNSUPPORTED;
  opened[i] = (struct block){.begin = p, .bytes = h.bytes};
  *out = p;
  return TRI_OK;
}

static void peer_close(tri_backend *be, void *p) {
  (void)be;
  for (int i = 0; i < 16; i++) {
    if (opened[i].begin != p) continue;
    munmap(p, opened[i].bytes);
    opened[i] = (struct block){0};
  }
}

static bool is_own(const void *p) {
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (blocks[i].begin && (const char *)p >= blocks[i].begin && (const char *)p < blocks[i].begin + blocks[i].bytes)
      return true;
  return false;
}

/* Whoever streams weights calls it from a thread of its own. Like a device, it refuses the host's memory. */
static void upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  (void)be;
  if (!is_own(to)) {
    fprintf(stderr, "imitation: an upload to memory that is not the device's\n");
    abort();
  }
  for (size_t i = 0; i < rows; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
}

__attribute__((visibility("default"))) tri_status tri_backend_fill_cuda(tri_backend *be, int device, tri_error *err) {
  const char *name = getenv("FAKE_DEVICE"), *pci = getenv("FAKE_PCI");
  if (be->deterministic) return tri_fail(err, TRI_UNSUPPORTED, "deterministic", "not this one");
  tri_backend_fill_unsupported(be);
  tri_status (*no_attention)(tri_backend *, const tri_attention_args *, tri_op_plan *) = be->ops.attention_plan;
  tri_backend_fill_ref(be);
  if (getenv("FAKE_LACKS_ATTENTION")) be->ops.attention_plan = no_attention;
  if (name)
    snprintf(be->device, sizeof be->device, "%s", strcmp(name, "none") ? name : "");
  else
    snprintf(be->device, sizeof be->device, "GPU-%d", device);
  if (pci) snprintf(be->pci, sizeof be->pci, "%s", pci);
  snprintf(be->tactics_key, sizeof be->tactics_key, "Imitation, sm_00");
  if (tri_tactics_create(&be->tactics) != TRI_OK) return tri_fail(err, TRI_NO_MEMORY, "backend", "no memory");
  be->ops.tune = tune;
  be->tunes = true;
  be->async = getenv("FAKE_EVENTS") != NULL;
  if (be->async) {
    be->ops.event_record = event_record;
    be->ops.event_query = event_query;
  }
  if (getenv("FAKE_MEMORY")) {
    be->host_memory = false;
    be->ops.mem_available = mem_available;
    be->ops.upload_rows = upload_rows;
    be->ops.mem_alloc = mem_alloc;
    be->ops.mem_free = mem_free;
    be->ops.peer_show = peer_show;
    be->ops.peer_open = peer_open;
    be->ops.peer_close = peer_close;
  }
  be->num_devices = 2;
  snprintf(be->about, sizeof be->about, "device %d: imitation", device);
  if (getenv("FAKE_GENERAL")) be->general = (unsigned)atoi(getenv("FAKE_GENERAL"));
  if (getenv("FAKE_LACKS_KERNELS") && device >= atoi(getenv("FAKE_LACKS_KERNELS"))) be->lacks = "some kernels are off";
  if (getenv("FAKE_FAILS")) {
    snprintf(fails, sizeof fails, "%s.%d", getenv("FAKE_FAILS"), device);
    be->ops.event_query = failing_query;
  }
  if (has_failed()) return tri_fail(err, TRI_DEVICE_LOST, "backend", "device %d cannot be opened", device);
  return TRI_OK;
}
