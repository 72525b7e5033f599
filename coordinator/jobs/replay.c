/* SPDX-License-Identifier: Apache-2.0 */
/* Replays: a job whose group is lost goes back into the queue, and another group, or the next epoch of the same one,
 * goes on with it behind the tokens that have come. Its seed is fixed and a draw is keyed by seed, choice and number of
 * the token, so that the client gets what an undisturbed group would have drawn.
 *
 * A job may be what kills its group. One under which groups have died runs alone, so that it takes no other with it and
 * is not blamed for another, and is given up when that group dies, too. */
#include "coordinator/state.h"
#include "base/log.h"

enum { DEATHS_TO_ALONE = 2, MOST_DEATHS = 3 };

bool replay_runs_alone(const job *j) { return j->deaths >= DEATHS_TO_ALONE; }
bool replay_is_given_up(const job *j) { return j->deaths >= MOST_DEATHS; }

/* ---- who may have been in a step ---- */

static bool is_of(const job *j, uint32_t index) { return j->state == JOB_ASSIGNED && j->group == index; }

/* Says whether k, which stands before j in the list of all or not, has come to their group before j. */
static bool came_before(const job *k, const job *j, bool older) {
  return k->assigned_ns < j->assigned_ns || (k->assigned_ns == j->assigned_ns && older);
}

/* Returns whether so many others of the group had to begin before j: those that have, and those that came before it,
 * unless it is by priority and they matter less. */
static bool is_behind(const tri_core *c, const job *j, uint64_t slots) {
  uint64_t ahead = 0;
  bool older = true;
  for (const job *k = TAILQ_FIRST(&c->active); k && ahead < slots; k = TAILQ_NEXT(k, links)) {
    if (k == j) older = false;
    if (k == j || !is_of(k, j->group)) continue;
    ahead += k->begun_here || (came_before(k, j, older) && k->sampling.priority <= j->sampling.priority);
  }
  return ahead >= slots;
}

/* Jobs begin in their order as slots become free. Twice as many as there are slots: those that have had them may have
 * ended without that having been heard. */
void replay_find_at_risk(tri_core *c, uint32_t index) {
  const group *g = &c->groups[index];
  uint64_t slots = 2 * g->max_num_seqs * (g->dp > 1 ? g->dp : 1);
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    if (is_of(j, index)) j->at_risk = j->begun_here || !is_behind(c, j, slots);
}

/* ---- groups ---- */

/* One group at a time is kept, so that the others serve the rest. */
group *replay_pick_alone(tri_core *c, const job *j, uint32_t *index) {
  group *least = group_pick(c, index);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (g->alone && g->alone != j->id) return NULL;
    if (!g->alone || !group_takes_jobs(c, g)) continue;
    least = g;
    *index = i;
  }
  if (!least) return NULL;
  replay_release(c, j);
  least->alone = j->id;
  return least->jobs || least->clogged ? NULL : least;
}

void replay_release(tri_core *c, const job *j) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (c->groups[i].alone == j->id) c->groups[i].alone = 0;
}

/* A supervisor begins no start during a drain: one comes then only if it was begun before. Where nobody tells of
 * starts, any group may be on its way. */
static bool may_come(const tri_core *c, const group *g) {
  if (g->state == GROUP_LOST || g->state == GROUP_ABSENT)
    return c->cfg.starts_are_told ? g->coming : g->state == GROUP_ABSENT;
  return true;
}

bool replay_has_hope(const tri_core *c) {
  if (!c->draining && !c->cfg.lost_for_good) return true;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (may_come(c, &c->groups[i])) return true;
  return false;
}

/* ---- what has come ---- */

void replay_log(const tri_core *c, const job *j) {
  char id[TRI_REQUEST_ID_TEXT];
  uint64_t drawn = 0;
  if (tri_log_threshold() < TRI_LOG_DEBUG) return;
  tri_request_id_format(&j->request_id, id);
  for (int64_t i = 0; i < j->sampling.n; i++) drawn += j->choices[i].num;
  tri_log(TRI_LOG_DEBUG, "jobs", "%s runs again, in group %u (epoch %llu)%s, behind %llu tokens; died under it: %u", id,
          j->group, (unsigned long long)c->groups[j->group].epoch, replay_runs_alone(j) ? " alone" : "",
          (unsigned long long)drawn, j->deaths);
}

/* Returns how many ids an assign has room for beside the job itself. */
static size_t room_for_drawn(const job *j) {
  size_t others = admission_message_bytes(j);
  return others < TRI_WIRE_MAX_MESSAGE ? (TRI_WIRE_MAX_MESSAGE - others) / sizeof(uint32_t) : 0;
}

/* A search begins anew. So does a choice whose tokens a message has no room for: replay_repeats leaves out what comes
 * twice. */
tri_status replay_fill(tri_core *c, const job *j, uint32_t *counts, tri_group_assign *a) {
  bool any = false;
  size_t room = room_for_drawn(j);
  if (!j->runs || j->embed || j->sampling.num_beams > 1) return TRI_OK;
  c->drawn.len = 0;
  for (int64_t i = 0; i < j->sampling.n; i++) {
    const job_choice *ch = &j->choices[i];
    size_t num = ch->ended || ch->num > room ? 0 : ch->num;
    any |= ch->ended || num;
    counts[i] = ch->ended ? TRI_DRAWN_ENDED : (uint32_t)num;
    room -= num;
    if (num) TRI_CHECK(tri_buf_append(&c->drawn, ch->ids, num * sizeof *ch->ids));
  }
  if (j->sampling.prompt_logprobs >= 0) a->num_scored = j->scored.num;
  if (!any) return TRI_OK;
  a->drawn = (const uint32_t *)(const void *)c->drawn.data;
  a->num_drawn = c->drawn.len / sizeof *a->drawn;
  a->drawn_counts = counts;
  a->num_drawn_counts = (size_t)j->sampling.n;
  return TRI_OK;
}

static bool has_tokens(const job *j) {
  bool any = j->scored.num > 1; /* the first token of a prompt has no log probability of its own */
  for (int64_t i = 0; i < j->sampling.n; i++) any |= j->choices[i].num > 0;
  return any;
}

tri_status replay_check_weights(const job *j, const group *g, tri_error *err) {
  bool others = j->weights_hash && g->weights_hash && j->weights_hash != g->weights_hash;
  if (!others || !has_tokens(j)) return TRI_OK;
  return tri_fail(err, TRI_PEER_LOST, "",
                  "the group that ran this job was lost, and the model has other weights since: nothing goes on behind "
                  "the tokens that were drawn");
}

bool replay_repeats(const job *j, const job_choice *ch, const tri_group_token *t) {
  return j->runs > 1 && t->offset < ch->num && ch->ids[t->offset] == t->token;
}
