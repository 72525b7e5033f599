/* What a request leaves open, the model's generation_config says. */
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

void defaults_apply(const tri_model_config *m, tri_sampling *s) {
  if (!s->has_temperature && !isnan(m->generation.temperature)) s->temperature = m->generation.temperature;
  if (!s->has_top_p && !isnan(m->generation.top_p)) s->top_p = m->generation.top_p;
  if (!s->has_top_k && m->generation.top_k > 0) s->top_k = m->generation.top_k;
  if (!s->has_repetition_penalty && !isnan(m->generation.repetition_penalty))
    s->repetition_penalty = m->generation.repetition_penalty;
  search_as_model(m, s);
  if (s->num_beams < 2) return;
  double most = TRI_WIRE_MAX_LENGTH_PENALTY;
  if (!s->has_length_penalty) s->length_penalty = fmin(fmax(m->generation.length_penalty, -most), most);
  if (!s->has_early_stopping) s->early_stopping = m->generation.early_stopping;
}
