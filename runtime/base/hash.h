/* FNV-1a over bytes: for keys of a few words, not against an adversary. */
#ifndef TRI_RUNTIME_BASE_HASH_H
#define TRI_RUNTIME_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TRI_HASH_SEED 0xcbf29ce484222325u

static inline uint64_t tri_hash_bytes(uint64_t h, const void *p, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
  return h;
}

#endif
