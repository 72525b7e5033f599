/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 (Aumasson, Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012): a hash of 64 bits under a
 * secret key. Without the key it is not possible to find inputs that collide more often than chance, so that tables of
 * what clients send keep their chains short. */
#ifndef TRI_BASE_SIPHASH_H
#define TRI_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct tri_sip_key {
  uint64_t k[2];
} tri_sip_key;

/* The state is four words, which a round mixes. Taking a word of the message in is two rounds, the end four more
 * (SipHash-2-4). */
static inline uint64_t tri_sip_rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline void tri_sip_round(uint64_t v[4]) {
  v[0] += v[1];
  v[2] += v[3];
  v[1] = tri_sip_rotate(v[1], 13) ^ v[0];
  v[3] = tri_sip_rotate(v[3], 16) ^ v[2];
  v[0] = tri_sip_rotate(v[0], 32);
  v[2] += v[1];
  v[0] += v[3];
  v[1] = tri_sip_rotate(v[1], 17) ^ v[2];
  v[3] = tri_sip_rotate(v[3], 21) ^ v[0];
  v[2] = tri_sip_rotate(v[2], 32);
}

static inline void tri_sip_take(uint64_t v[4], uint64_t word) {
  v[3] ^= word;
  tri_sip_round(v);
  tri_sip_round(v);
  v[0] ^= word;
}

/* The words are those of a little-endian host, as the wire's lists of numbers are. */
static inline uint64_t tri_siphash(tri_sip_key key, const void *data, size_t len) {
  const uint8_t *p = data;
  uint64_t v[4] = {key.k[0] ^ 0x736f6d6570736575u, key.k[1] ^ 0x646f72616e646f6du, key.k[0] ^ 0x6c7967656e657261u,
                   key.k[1] ^ 0x7465646279746573u};
  uint64_t word;
  size_t left = len;
  for (; left >= sizeof word; left -= sizeof word) {
    memcpy(&word, p, sizeof word);
    tri_sip_take(v, word);
    p += sizeof word;
  }
  word = 0;
  if (left) memcpy(&word, p, left);
  tri_sip_take(v, word | (uint64_t)(len & 0xff) << 56);
  v[2] ^= 0xff;
  for (int i = 0; i < 4; i++) tri_sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
