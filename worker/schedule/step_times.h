/* SPDX-License-Identifier: Apache-2.0 */
/* The times of steps, learned from those that were served: the seconds of a step of decodes alone by their number, and
 * those that tokens of prompts add to it by theirs.
 *
 * Both are curves through measured points, one for each power of two: a device reads its weights in the same time for
 * few rows as for one, has experts read in addition with the first tokens, and is bound by its products from some
 * hundred tokens on, so that no straight line fits. A point is the lower quartile of the last five steps of its size: a
 * step that was disturbed counts for nothing, and a lasting change counts from its fourth step on.
 *
 * No clocks here, and nothing allocates. */
#ifndef TRI_WORKER_SCHEDULE_STEP_TIMES_H
#define TRI_WORKER_SCHEDULE_STEP_TIMES_H

#include <stdbool.h>

enum { TRI_STEP_CURVE_POINTS = 18, TRI_STEP_CURVE_KEPT = 5 };

/* A step, or what is known of many: tokens or sequences, and seconds. */
typedef struct tri_step_point {
  double size, seconds;
} tri_step_point;

/* For each power of two the last steps of its sizes, up to twice as large. All zeros: nothing is known. */
typedef struct tri_step_curve {
  tri_step_point kept[TRI_STEP_CURVE_POINTS][TRI_STEP_CURVE_KEPT];
  unsigned num[TRI_STEP_CURVE_POINTS]; /* steps so far */
} tri_step_curve;

/* All zeros: nothing is known. */
typedef struct tri_step_times {
  tri_step_curve decodes; /* steps of decodes alone: seconds by sequences */
  tri_step_curve prompts; /* seconds that tokens of prompts add */
} tri_step_times;

/* Takes in a step of so many decodes and tokens of prompts. Ignored where both or the seconds are not above 0. */
void tri_step_times_add(tri_step_times *t, int decodes, int prompt_tokens, double seconds);

/* Returns whether steps of so many decodes alone, or of more, were measured. */
bool tri_step_times_has_decodes(const tri_step_times *t, int decodes);
/* Returns the seconds of a step of so many decodes alone: of more than were measured as those rise, up to four times as
 * many. 0: no such step was measured. */
double tri_step_times_of_decodes(const tri_step_times *t, int decodes);
/* Returns how many tokens of prompts add so many seconds to a step, at most `most`; -1: no such step was measured. */
int tri_step_times_prompt_tokens(const tri_step_times *t, double seconds, int most);

#endif
