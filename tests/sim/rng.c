/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that follow from the seed. */
#include "base/hash.h"
#include "tests/sim/sim.h"

uint64_t rng_mix(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

uint64_t rng_next(sim *s) { return tri_mix64(s->rng += TRI_SPLITMIX_STEP); }

int64_t rng_range(sim *s, int64_t lo, int64_t hi) { return lo + (int64_t)(rng_next(s) % (uint64_t)(hi - lo + 1)); }

bool rng_chance(sim *s, int percent) { return rng_range(s, 1, 100) <= percent; }
