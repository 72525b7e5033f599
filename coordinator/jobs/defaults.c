/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults: the model's generation_config fills in what a request leaves open. */
#include <math.h>

#include "coordinator/state.h"

/* A model that is made to be searched is searched where the request asks for nothing that a search cannot do, a
 * temperature included. */
static void search_as_model(const tri_model_config *m, tri_sampling *s) {
  if (s->has_num_beams || s->has_temperature || m->generation.num_beams < 2 ||
      m->generation.num_beams > TRI_WIRE_MAX_BEAMS)
    return;
  s->num_beams = m->generation.num_beams;
  if (tri_sampling_check_beams(s, NULL) != TRI_OK) s->num_beams = 1;
}

#define APPLY(context, type, name, option, least, most, def, absent, sampler, help) APPLY_##absent(type, name)
#define APPLY_FIXED(type, name)
#define APPLY_OPEN(type, name)
#define APPLY_MODEL(type, name)                                                                                        \
  if (!s->has_##name && SAYS_##type(m->generation.name)) s->name = m->generation.name;
#define SAYS_F64(x) (!isnan(x))
#define SAYS_I64(x) ((x) >= 0)

void defaults_apply(const tri_model_config *m, tri_sampling *s) {
  TRI_SAMPLING_NUMBERS(APPLY, )
  search_as_model(m, s);
  if (s->num_beams < 2) return;
  double most = TRI_WIRE_MAX_LENGTH_PENALTY;
  if (!s->has_length_penalty) s->length_penalty = fmin(fmax(m->generation.length_penalty, -most), most);
  if (!s->has_early_stopping) s->early_stopping = m->generation.early_stopping;
}
