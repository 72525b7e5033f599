/* SPDX-License-Identifier: Apache-2.0 */
/* A step's batch on its way to the device: its arrays, and the lists by which attention is cut. */
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "base/hash.h"

/* LEAST: bytes that make room for every step of most deployments, since growing drops what is recorded. */
enum { ARRAY_ALIGN = 16, BATCH_ARRAYS = 9, LEAST = 4 << 20 };
static size_t aligned(size_t bytes) { return (bytes + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN; }

/* Grows by doubling. The step before may still read the old memory, and recorded steps have its addresses. */
static tri_status make_room(tri_backend *be, tri_cuda_staging *s, size_t bytes) {
  if (bytes <= s->host_bytes && bytes <= s->device_bytes) return TRI_OK;
  TRI_CHECK(be->ops.stream_sync(be));
  tri_cuda_graphs_drop(be);
  size_t room = 2 * bytes > LEAST ? 2 * bytes : LEAST;
  return tri_cuda_staging_grow(be, s, room, room);
}

/* ---- arrays ---- */

/* An array of a batch, by where its pointer is. */
typedef struct array {
  const void **at;
  size_t bytes;
} array;

/* Fills in the arrays whose lengths a recorded step knows; those that the batch lacks have no bytes. */
static void arrays_of(tri_batch *b, array out[BATCH_ARRAYS]) {
  size_t t = (size_t)b->num_tokens, s = (size_t)b->num_seqs;
  const array arrays[BATCH_ARRAYS] = {
      {(const void **)&b->kv_slot, t * sizeof *b->kv_slot},
      {(const void **)&b->token_ids, t * sizeof *b->token_ids},
      {(const void **)&b->positions, t * sizeof *b->positions},
      {(const void **)&b->types, t * sizeof *b->types},
      {(const void **)&b->rope_len, t * sizeof *b->rope_len},
      {(const void **)&b->seq_start, (s + 1) * sizeof *b->seq_start},
      {(const void **)&b->context_len, s * sizeof *b->context_len},
      {(const void **)&b->block_start, (s + 1) * sizeof *b->block_start},
      {(const void **)&b->logit_rows, (size_t)b->num_logits * sizeof *b->logit_rows},
  };
  memcpy(out, arrays, sizeof arrays);
  for (int i = 0; i < BATCH_ARRAYS; i++)
    if (!*out[i].at) out[i].bytes = 0;
}

/* Copies the arrays to `staging` and points the batch to where they will lie. Returns where they end. */
static size_t put_arrays(const array arrays[BATCH_ARRAYS], char *staging, const char *device) {
  size_t at = 0;
  for (int i = 0; i < BATCH_ARRAYS; i++) {
    if (arrays[i].bytes) memcpy(staging + at, *arrays[i].at, arrays[i].bytes);
    if (arrays[i].bytes) *arrays[i].at = device + at;
    at += aligned(arrays[i].bytes);
  }
  return at;
}

/* ---- lists ---- */

/* Lists the shapes in which the attentions of a batch are cut, each once. The attentions of a shape after the first
 * TRI_CUDA_CUTS ones have no lists, and their plans refuse the batch. */
static int shapes_of(const tri_backend *be, const tri_batch *b, const tri_attention_args *attentions, int count,
                     tri_attention_shape out[TRI_CUDA_CUTS]) {
  int num = 0;
  for (int i = 0; i < count && num < TRI_CUDA_CUTS; i++) {
    bool known = !tri_cuda_attention_shape(be, &attentions[i], b, &out[num]);
    for (int j = 0; j < num && !known; j++) known = !memcmp(&out[j], &out[num], sizeof *out);
    num += !known;
  }
  return num;
}

/* The most bytes that the lists of a shape take, parts before tiles. */
typedef struct list_bytes {
  size_t parts, tiles;
} list_bytes;

static list_bytes most_bytes(const tri_backend *be, const tri_attention_shape *s, const tri_batch *b) {
  int parts = tri_attention_most_parts(s, b, tri_cuda_of(be)->num_sms), tiles = tri_attention_most_tiles(s, b);
  return (list_bytes){(size_t)parts * sizeof(tri_attention_part), (size_t)tiles * sizeof(tri_attention_tile)};
}

/* Makes the lists of a shape at staging + at; they will lie as far into the device's memory. */
static void put_lists(const tri_backend *be, const tri_attention_shape *s, const tri_batch *b, list_bytes bytes,
                      char *staging, const char *device, tri_attention_split *out) {
  void *parts = staging, *tiles = staging + bytes.parts;
  tri_attention_split_batch(s, b, tri_cuda_of(be)->num_sms, parts, tiles, out);
  out->parts = (const void *)device;
  out->tiles = (const void *)(device + bytes.parts);
}

/* ---- both ---- */

/* One copy for all: a step's transfers cost by their number. The block table is the last, as it grows from step to step
 * while all addresses stay. Waits only where the host is two steps ahead. */
tri_status tri_cuda_bind_batch(tri_backend *be, int number, const tri_batch *host, const tri_attention_args *attentions,
                               int num_attentions, tri_batch *out) {
  tri_cuda_staging *s = &tri_cuda_of(be)->staging[number];
  tri_attention_split *cuts = tri_cuda_of(be)->cuts[number];
  tri_attention_shape shapes[TRI_CUDA_CUTS];
  array arrays[BATCH_ARRAYS];
  size_t table = (size_t)host->block_start[host->num_seqs] * sizeof *host->block_table, bytes = table;
  *out = *host;
  arrays_of(out, arrays);
  for (int i = 0; i < BATCH_ARRAYS; i++) bytes += aligned(arrays[i].bytes);
  int num_cuts = shapes_of(be, host, attentions, num_attentions, shapes);
  for (int i = 0; i < num_cuts; i++) {
    list_bytes l = most_bytes(be, &shapes[i], host);
    bytes += l.parts + l.tiles;
  }
  TRI_CHECK(make_room(be, s, bytes));
  char *staging = tri_cuda_staging_turn(be, s);
  size_t at = put_arrays(arrays, staging, s->device);
  out->cuts_key = 0;
  for (int i = 0; i < num_cuts; i++) {
    list_bytes l = most_bytes(be, &shapes[i], host);
    put_lists(be, &shapes[i], host, l, staging + at, s->device + at, &cuts[i]);
    out->cuts_key = tri_mix64(out->cuts_key + ((uint64_t)cuts[i].num_parts << 32 | (uint64_t)cuts[i].num_tiles));
    out->cuts_key = tri_mix64(out->cuts_key + (uint64_t)cuts[i].joined);
    at += l.parts + l.tiles;
  }
  memcpy(staging + at, host->block_table, table);
  out->block_table = (const int32_t *)(s->device + at);
  at += table;
  out->cuts = cuts;
  out->num_cuts = num_cuts;
  tri_cuda_staging_send(be, s, at);
  return TRI_OK;
}
