/* SPDX-License-Identifier: Apache-2.0 */
/* A bound on the tokens of prompts in a step with decodes, all of which wait for it.
 *
 * A step with both takes at most `factor` times as long as one of decodes alone, by what steps have taken so far
 * (step_times.h). The decodes of that one are those that there will be when the prompts are in: a burst of prompts is
 * then over soon, in steps as long as they will be at its end, and few of its decodes run in them, where each costs
 * more than in a step of decodes, which waits for its weights anyway. By the decodes that there are at its beginning
 * the burst would take several times as many steps.
 *
 * There is no bound while nothing decodes, and never one below the tokens from which products are bound by arithmetic:
 * with fewer a prompt would take longer in all, and none ever stands still. Now and then a step has no prompts although
 * some wait, so that the time of decodes alone stays known: of more sequences than were measured, or of longer ones.
 *
 * No clocks here: the caller passes the time. Nothing allocates. */
#ifndef TRI_WORKER_SCHEDULE_PROMPT_BOUND_H
#define TRI_WORKER_SCHEDULE_PROMPT_BOUND_H

#include <limits.h>
#include <stdint.h>

#include "worker/schedule/step_times.h"

enum {
  TRI_NO_PROMPT_BOUND = INT_MAX,
  TRI_BOUND_STEPS = 4,     /* that may be under way */
  TRI_BOUND_INTERVAL = 64, /* steps with prompts and decodes between two of decodes alone, */
  TRI_BOUND_UNKNOWN = 8,   /* where steps of so many decodes alone were never measured */
};

/* The next step, before it is composed; of several data-parallel ranks the most that one of them has. */
typedef struct tri_step_outlook {
  int decodes;
  int sequences; /* that will decode when the prompts are in */
  bool prompts;  /* some run or wait */
} tri_step_outlook;

/* A step that was composed, likewise. */
typedef struct tri_step_load {
  int decodes, prompt_tokens;
} tri_step_load;

typedef struct tri_prompt_bound {
  double factor; /* 0: there is never a bound */
  int least, multiple;
  tri_step_times times;
  struct {
    tri_step_load load;
    int64_t begun_ns;
  } steps[TRI_BOUND_STEPS]; /* those under way: a ring */
  uint64_t begun, ended;
  int64_t last_end_ns;
  int mixed; /* steps since the last one of decodes alone */
} tri_prompt_bound;

/* device: products are bound by arithmetic from more tokens on than on a host. */
void tri_prompt_bound_init(tri_prompt_bound *b, double factor, bool device);

/* Returns the tokens of prompts that the next step may have; 0: it is to be one of decodes alone, if it has any;
 * TRI_NO_PROMPT_BOUND. */
int tri_prompt_bound_next(const tri_prompt_bound *b, const tri_step_outlook *o);

/* A step begins; at most TRI_BOUND_STEPS are under way. */
void tri_prompt_bound_begin(tri_prompt_bound *b, tri_step_load load, int64_t now_ns);
/* The results of the oldest step under way are there. It ran from its beginning, or from the end of the step before it,
 * whichever came later. */
void tri_prompt_bound_end(tri_prompt_bound *b, int64_t now_ns);

#endif
