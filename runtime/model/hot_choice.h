/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts of a rank are on its device, in addition to a host that has all of them: those with the most rows, as
 * far as there are slots for them.
 *
 * Rows are counted over windows of steps. Those of a window, and half of what counted before, are an expert's load:
 * what was asked for long ago fades. An expert changes places with the least wanted of its layer's where its load is
 * larger by more than chance would have it, so that experts of about the same load stay where they are. The exchange
 * that brings the most rows to the device comes first, of all layers. Pure arithmetic: equal counts give equal choices.
 */
#ifndef TRI_RUNTIME_MODEL_HOT_CHOICE_H
#define TRI_RUNTIME_MODEL_HOT_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

/* Experts count from the first that the rank has; layers are those of the rank, and some may have no slots. */
typedef struct tri_hot_choice {
  int num_layers, num_experts, num_slots;
  const bool *layers;     /* [num_layers] whether a layer has slots */
  const int32_t *slot_of; /* [num_layers, num_experts] of each expert; -1: none */
  const float *load;      /* [num_layers, num_experts] */
} tri_hot_choice;

typedef struct tri_hot_exchange {
  int32_t layer, slot;
  int32_t in; /* the expert that comes; the one that is there goes */
} tri_hot_exchange;

/* Turns loads into those after a window with so many rows. */
void tri_hot_fade(float *load, const float *rows, int count);
/* False: no exchange is worth it. */
bool tri_hot_choose(const tri_hot_choice *c, tri_hot_exchange *out);
/* Returns the share of the loads that the slots' experts have, 0 without loads. */
double tri_hot_share(const tri_hot_choice *c);

#endif
