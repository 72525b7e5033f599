/* SPDX-License-Identifier: Apache-2.0 */
/* Mask, bias, bans and penalties of a row of logits, for the samplers of the host; the device's are in
 * kernels/cuda/sampling. */
#include "kernels/sampling.h"

#include <math.h>

double tri_sample_uniform(uint64_t seed, uint64_t counter) {
  uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
  uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
    for (int i = 0; i < 4; i++) c[i] = next[i];
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  uint64_t bits = ((uint64_t)c[1] << 32 | c[0]) >> 11;
  return (double)bits * 0x1p-53;
}

/* counts is touched at ids of the history alone: cleared, counted among the generated ones, and set to -1 once the id
 * has been penalised. No pass over the vocabulary, and none is needed afterwards. */
static void penalise(float *logits, int vocab, const tri_sample_params *p, const uint32_t *history, int num_prompt,
                     int num_history, int32_t *counts) {
  uint32_t limit = (uint32_t)vocab;
  for (int i = 0; i < num_history; i++)
    if (history[i] < limit) counts[history[i]] = 0;
  for (int i = num_prompt; i < num_history; i++)
    if (history[i] < limit) counts[history[i]]++;
  for (int i = 0; i < num_history; i++) {
    uint32_t id = history[i];
    if (id >= limit || counts[id] < 0) continue; /* negative: this id had its turn */
    float l = logits[id], n = (float)counts[id];
    l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
    if (counts[id]) {
      float frequency = p->frequency_penalty * n;
      l -= frequency;
      l -= p->presence_penalty;
    }
    logits[id] = l;
    counts[id] = -1;
  }
}

static void apply_mask(float *logits, uint32_t first, int n, const uint32_t *mask) {
  for (int i = 0; i < n;) {
    uint32_t id = first + (uint32_t)i, left = mask[id / 32] >> id % 32;
    int end = i + 32 - (int)(id % 32);
    if (end > n) end = n;
    for (; i < end; i++, left >>= 1)
      if (!(left & 1)) logits[i] = -INFINITY;
  }
}

void tri_sample_adjust_part(float *logits, uint32_t first, int n, const tri_sample_params *p) {
  if (p->mask) apply_mask(logits, first, n, p->mask);
  for (int i = 0; i < p->num_logit_bias; i++) {
    uint32_t at = p->logit_bias[i].id - first; /* of a lower id: far beyond */
    if (at < (uint32_t)n) logits[at] += p->logit_bias[i].bias;
  }
  for (int i = 0; i < p->num_banned; i++) {
    uint32_t at = p->banned[i] - first;
    if (at < (uint32_t)n) logits[at] = -INFINITY;
  }
}

void tri_sample_adjust(float *logits, int vocab, const tri_sample_params *p, const uint32_t *history, int num_prompt,
                       int num_history, int32_t *counts) {
  tri_sample_adjust_part(logits, 0, vocab, p);
  if (tri_sample_has_penalties(p)) penalise(logits, vocab, p, history, num_prompt, num_history, counts);
}
