/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/hot_choice.h"

#include <math.h>

/* Loads are counts: the difference of two that are alike has about the root of their sum. Of many experts the most
 * unlike two are compared, so that twice the root is exceeded in most windows. */
static const double CHANCE = 3, MARGIN = 1.1;

void tri_hot_fade(float *load, const float *rows, int count) {
  for (int i = 0; i < count; i++) load[i] = load[i] / 2 + rows[i];
}

/* Two conditions: MARGIN keeps experts of nearly equal loads where they are when counts are large, CHANCE when they
 * are small. */
static bool is_worth_it(double in, double out) { return in > out * MARGIN && in - out > CHANCE * sqrt(in + out); }

/* A layer's extremes. */
struct ends {
  int slot; /* of the least wanted expert, or one that has none */
  double least;
  int in; /* the most wanted expert without a slot; -1: all have one */
  double most;
};

static int empty_slot(const int32_t *slot_of, int num_experts, int num_slots) {
  for (int slot = 0; slot < num_slots; slot++) {
    int e = 0;
    while (e < num_experts && slot_of[e] != slot) e++;
    if (e == num_experts) return slot;
  }
  return 0;
}

static struct ends find_ends(const tri_hot_choice *c, int layer) {
  const int32_t *slot_of = c->slot_of + (int64_t)layer * c->num_experts;
  const float *load = c->load + (int64_t)layer * c->num_experts;
  struct ends x = {.in = -1, .least = INFINITY};
  int taken = 0;
  for (int e = 0; e < c->num_experts; e++) {
    double of = (double)load[e];
    taken += slot_of[e] >= 0;
    if (slot_of[e] >= 0 && of < x.least) {
      x.least = of;
      x.slot = slot_of[e];
    }
    if (slot_of[e] >= 0 || (x.in >= 0 && of <= x.most)) continue;
    x.most = of;
    x.in = e;
  }
  if (taken == c->num_slots) return x;
  x.slot = empty_slot(slot_of, c->num_experts, c->num_slots);
  x.least = 0;
  return x;
}

bool tri_hot_choose(const tri_hot_choice *c, tri_hot_exchange *out) {
  double most = 0;
  for (int l = 0; l < c->num_layers && c->num_slots; l++) {
    if (!c->layers[l]) continue;
    struct ends x = find_ends(c, l);
    if (x.in < 0 || !is_worth_it(x.most, x.least) || x.most - x.least <= most) continue;
    most = x.most - x.least;
    *out = (tri_hot_exchange){.layer = l, .slot = x.slot, .in = x.in};
  }
  return most > 0;
}

double tri_hot_share(const tri_hot_choice *c) {
  double all = 0, here = 0;
  for (int l = 0; l < c->num_layers; l++)
    for (int e = 0; c->layers[l] && e < c->num_experts; e++) {
      int64_t at = (int64_t)l * c->num_experts + e;
      all += (double)c->load[at];
      if (c->slot_of[at] >= 0) here += (double)c->load[at];
    }
  return all > 0 ? here / all : 0;
}
