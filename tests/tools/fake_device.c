/* In the place of the CUDA module: a backend "cuda" that computes with the reference's kernels on the host and says
 * that it has a device of its own. FAKE_DEVICE: its name ("none": it has none); without it every process of a host has
 * one by its number. FAKE_PCI: its address. FAKE_LACKS_ATTENTION: it has no such op. FAKE_EVENTS: steps seem to go on
 * behind their launch. FAKE_MEMORY: bytes of memory of its own, as far as anybody asks. It "measures" that each
 * product's own kernel takes half of the time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "kernels/cuda/fill.h"

static tri_status tune(tri_backend *be, const tri_tune_product *products, int count, int64_t until, tri_tactics *out,
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

static int64_t mem_available(tri_backend *be) {
  (void)be;
  return atoll(getenv("FAKE_MEMORY"));
}

/* The blocks that it has given out as its own memory. */
enum { MOST_BLOCKS = 1024 };
static struct block {
  const char *begin;
  size_t bytes;
} blocks[MOST_BLOCKS];
static int num_blocks;
static tri_status (*host_mem_alloc)(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out);

static tri_status mem_alloc(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out) {
  tri_status st = host_mem_alloc(be, tag, bytes, out);
  if (st == TRI_OK && num_blocks < MOST_BLOCKS) blocks[num_blocks++] = (struct block){*out, bytes};
  return st;
}

static bool is_own(const void *p) {
  for (int i = 0; i < num_blocks; i++)
    if ((const char *)p >= blocks[i].begin && (const char *)p < blocks[i].begin + blocks[i].bytes) return true;
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
    host_mem_alloc = be->ops.mem_alloc;
    be->ops.mem_alloc = mem_alloc;
  }
  be->num_devices = 2;
  snprintf(be->about, sizeof be->about, "device %d: imitation", device);
  return TRI_OK;
}
