/* SPDX-License-Identifier: Apache-2.0 */
/* Stop strings: finding them in a text that grows, and holding back what may become one. */
#include <string.h>

#include "coordinator/state.h"

bool stop_strings_cut(const job *j, job_choice *ch, size_t fresh) {
  size_t old = ch->text_len - fresh, best = SIZE_MAX, best_end = SIZE_MAX;
  for (int i = 0; i < j->sampling.num_stop; i++) {
    const tri_wire_str *s = &j->sampling.stop[i];
    /* A string that was complete before is passed over: min_tokens let it through, and clients have it. */
    size_t from = old >= s->len ? old - s->len + 1 : 0;
    const char *at = s->len ? memmem(ch->text + from, ch->text_len - from, s->s, s->len) : NULL;
    if (!at) continue;
    size_t start = (size_t)(at - ch->text), end = start + s->len;
    if (end > best_end || (end == best_end && start > best)) continue;
    best = start;
    best_end = end;
    ch->stop_string = i;
  }
  if (best == SIZE_MAX) return false;
  ch->text_len = j->sampling.include_stop ? best_end : best;
  return true;
}

size_t stop_strings_held_back(const job *j, const job_choice *ch) {
  size_t most = 0;
  for (int i = 0; i < j->sampling.num_stop; i++) {
    const tri_wire_str *s = &j->sampling.stop[i];
    size_t n = s->len ? s->len - 1 : 0;
    if (n > ch->text_len) n = ch->text_len;
    for (; n > most; n--)
      if (!memcmp(ch->text + ch->text_len - n, s->s, n)) most = n;
  }
  return most;
}
