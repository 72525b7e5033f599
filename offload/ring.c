/* SPDX-License-Identifier: Apache-2.0 */
/* Places are searched for in two steps: how few rounds the whole ring needs, then by bisection the smallest ring that
 * needs no more. A ring that is no larger than that has rounds of about equal length; what the given one has beyond it
 * is not used. */
#include "offload/ring.h"

#include "base/mem.h"

static size_t block_of(size_t bytes) {
  size_t over = bytes % TRI_RING_ALIGN;
  return over ? bytes - over + TRI_RING_ALIGN : bytes;
}

/* Gives places in rounds of at most so many bytes, and returns how many rounds that makes. */
static int fill_rounds(const size_t *bytes, int num_parts, size_t most, tri_ring_place *places) {
  size_t at = 0;
  int rounds = 1;
  for (int i = 0; i < num_parts; i++) {
    size_t size = block_of(bytes[i]);
    if (size > most - at) {
      at = 0;
      rounds++;
    }
    places[i].at = at;
    at += size;
  }
  return rounds;
}

/* Returns how far back the last part lies that the part overlaps with: itself, at the latest. */
static int find_back(const size_t *bytes, int num_parts, const tri_ring_place *places, int part) {
  size_t first = places[part].at, end = first + bytes[part];
  for (int back = 1; back < num_parts; back++) {
    int other = (part - back + num_parts) % num_parts;
    if (places[other].at < end && first < places[other].at + bytes[other]) return back;
  }
  return num_parts;
}

/* The fewest rounds, then the smallest ring that does with as many. */
bool tri_ring_plan(const size_t *bytes, int num_parts, size_t ring_bytes, tri_ring_place *places) {
  size_t low = 0, high = ring_bytes - ring_bytes % TRI_RING_ALIGN;
  for (int i = 0; i < num_parts; i++) {
    if (bytes[i] > high) return false;
    if (block_of(bytes[i]) > low) low = block_of(bytes[i]);
  }
  int rounds = fill_rounds(bytes, num_parts, high, places);
  while (low < high) {
    size_t middle = low + (high - low) / 2 / TRI_RING_ALIGN * TRI_RING_ALIGN;
    if (fill_rounds(bytes, num_parts, middle, places) > rounds)
      low = middle + TRI_RING_ALIGN;
    else
      high = middle;
  }
  fill_rounds(bytes, num_parts, high, places);
  for (int i = 0; i < num_parts; i++) places[i].back = find_back(bytes, num_parts, places, i);
  return true;
}

size_t tri_ring_bytes(const size_t *bytes, int num_parts, int parts) {
  size_t most = 0;
  for (int first = 0; first < num_parts; first++) {
    size_t sum = 0;
    for (int i = 0; i < parts && i < num_parts; i++) {
      size_t n = bytes[(first + i) % num_parts];
      if (n > SIZE_MAX - TRI_RING_ALIGN || !tri_size_add(sum, block_of(n), &sum)) return 0;
    }
    if (sum > most) most = sum;
  }
  return most;
}
