/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/prompt_bound.h"

/* Tokens from which an H200 computes a layer's products as long as it reads the layer, and a CPU likewise. */
enum { DEVICE_LEAST = 256, HOST_LEAST = 64, MULTIPLES = 2 };

void tri_prompt_bound_init(tri_prompt_bound *b, double factor, bool device) {
  *b = (tri_prompt_bound){.factor = factor, .least = device ? DEVICE_LEAST : HOST_LEAST};
  b->multiple = b->least / MULTIPLES;
  b->mixed = TRI_BOUND_INTERVAL;
}

/* Returns whether a step of decodes alone is due. Counted in steps, since one may be composed before the times of the
 * last one are known, or have fewer decodes than it was to have. */
static bool wants_decodes(const tri_prompt_bound *b, const tri_step_outlook *o) {
  bool known = tri_step_times_has_decodes(&b->times, o->decodes);
  return b->mixed >= (known ? TRI_BOUND_INTERVAL : TRI_BOUND_UNKNOWN);
}

/* Products work in tiles of rows, the decodes' among them: a tile that is begun costs as much as a full one. */
static int round_to_tiles(const tri_prompt_bound *b, int tokens, int decodes) {
  int tiles = (tokens + decodes + b->multiple / 2) / b->multiple;
  int rounded = tiles * b->multiple - decodes;
  return rounded > b->least ? rounded : b->least;
}

int tri_prompt_bound_next(const tri_prompt_bound *b, const tri_step_outlook *o) {
  enum { MOST = 1 << 24 };
  if (!(b->factor > 0) || !o->decodes || !o->prompts) return TRI_NO_PROMPT_BOUND;
  if (wants_decodes(b, o)) return 0;
  int later = o->sequences > o->decodes ? o->sequences : o->decodes;
  double target = b->factor * tri_step_times_of_decodes(&b->times, later);
  double left = target - tri_step_times_of_decodes(&b->times, o->decodes);
  int tokens = tri_step_times_prompt_tokens(&b->times, left, MOST);
  return tokens == MOST ? TRI_NO_PROMPT_BOUND : round_to_tiles(b, tokens, o->decodes);
}

void tri_prompt_bound_begin(tri_prompt_bound *b, tri_step_load load, int64_t now_ns) {
  uint64_t at = b->begun++ % TRI_BOUND_STEPS;
  b->steps[at].load = load;
  b->steps[at].begun_ns = now_ns;
  if (!load.prompt_tokens)
    b->mixed = 0;
  else
    b->mixed += load.decodes > 0;
}

void tri_prompt_bound_end(tri_prompt_bound *b, int64_t now_ns) {
  if (b->begun == b->ended) return;
  uint64_t at = b->ended++ % TRI_BOUND_STEPS;
  tri_step_load load = b->steps[at].load;
  int64_t since = b->steps[at].begun_ns > b->last_end_ns ? b->steps[at].begun_ns : b->last_end_ns;
  tri_step_times_add(&b->times, load.decodes, load.prompt_tokens, (double)(now_ns - since) * 1e-9);
  b->last_end_ns = now_ns;
}
