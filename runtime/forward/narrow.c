/* SPDX-License-Identifier: Apache-2.0 */
/* The last layer's rows. A prompt is computed for the keys and values that it leaves in the cache, and for the logits
 * behind its last token. Of the last layer that is attention's first product for all tokens, and the rest for a row of
 * each sequence. */
#include "runtime/forward/forward_state.h"

bool tri_layer_narrows(const tri_walk *w, const tri_layer *y) {
  const tri_forward_config *cfg = &w->f->cfg;
  bool is_last = y->local + 1 == cfg->shard.layers.count && tri_shard_narrows(cfg->model, &cfg->shard);
  bool has_others = w->mode == TRI_WALK_RECORD ? !w->all_logits : w->b->num_logits < w->b->num_tokens;
  return is_last && has_others && !tri_is_chunked(w->f) && w->mode != TRI_WALK_LIST;
}

/* Returns a matrix as one of 32-bit words, which is what rows are copied in. */
static tri_mat as_words(tri_mat m) {
  int of_word = (int)(sizeof(float) / tri_dtype_size(m.dtype));
  return (tri_mat){m.data, m.rows, m.cols / of_word, m.ld / of_word, TRI_F32};
}

static void gather(tri_walk *w, tri_mat x, tri_mat out) {
  if (out.rows)
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = as_words(x), .rows = w->b->logit_rows, .out = as_words(out)});
}

tri_mat tri_walk_narrow(tri_walk *w, const tri_layer *y) {
  tri_forward *f = w->f;
  tri_mat attended = tri_rows(f->buf.attn, w->b->num_tokens);
  if (!tri_layer_narrows(w, y)) return attended;
  int n = w->b->num_logits;
  tri_mat narrow = tri_rows(f->buf.narrow_attn, n), rows = tri_rows(f->buf.rows, n);
  gather(w, attended, narrow);
  gather(w, w->x, rows);
  f->narrow = *w->b;
  f->narrow.num_tokens = n;
  f->narrow.kv_slot = NULL; /* none of them is padding */
  w->b = &f->narrow;
  w->x = rows;
  w->is_narrow = true;
  return narrow;
}
