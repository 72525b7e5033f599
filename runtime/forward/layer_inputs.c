/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of layers (Gemma-3n's per-layer embeddings): what a token adds to the stream after each layer, times a gate
 * that the layer makes of the stream.
 *
 * The first stage makes the inputs of all layers, from a table of its own and from the embedding. They follow the
 * stream's rows in memory and go with these from stage to stage. A row begins with room for one part: a layer's gate
 * goes to where the input of the layer before was, so that gate and input stand side by side, as an activation wants
 * them. */
#include <math.h>

#include "runtime/forward/forward_state.h"

static int width_of(const tri_walk *w) { return (int)w->f->cfg.model->embed.layer_width; }

/* Returns what follows the rows of a stream in memory, so many columns of each. */
static tri_mat after(tri_mat x, int cols) {
  return (tri_mat){x.data + (size_t)x.rows * (size_t)x.cols, x.rows, cols, cols, TRI_F32};
}

/* Returns the inputs of all layers with the room before them, of the walk's rows. */
static tri_mat inputs(const tri_walk *w) {
  tri_mat all = after(w->whole_b ? w->whole_x : w->x, (int)tri_layer_inputs_width(w->f->cfg.model));
  return tri_rows(tri_rows_from(all, w->first_row), w->x.rows);
}

/* Returns the room for a layer's gate and its input. */
static tri_mat gate_and_input(const tri_walk *w, const tri_layer *y) {
  int width = width_of(w);
  return w->is_narrow ? after(w->x, 2 * width) : tri_columns(inputs(w), y->number * width, 2 * width);
}

/* Rows of the table, which are cut over the tensor ranks as those of the embedding are. */
static void look_up(tri_walk *w, tri_mat out) {
  const tri_model_config *c = w->f->cfg.model;
  tri_emit_embed(w, (tri_embed_args){.ids = w->b->token_ids,
                                     .sampled = w->f->cfg.sampled,
                                     .positions = w->b->positions,
                                     .table = tri_walk_global(w)[TRI_W_LAYER_EMBED],
                                     .first_id = (uint32_t)w->f->cfg.shard.vocab.first,
                                     .scale = (float)sqrt((double)c->embed.layer_width / 2),
                                     .out = out});
  tri_emit_sum(w, out);
}

/* The embedding over sqrt(hidden), projected, and each layer's part normed: a norm takes a factor away but for its
 * epsilon's sake. */
static void project(tri_walk *w, tri_mat out) {
  const tri_model_config *c = w->f->cfg.model;
  const tri_weight *g = tri_walk_global(w);
  int width = width_of(w);
  tri_mat parts = {out.data, out.rows * (out.cols / width), width, width, TRI_F32};
  tri_norm_args norm = tri_norm_of(w, parts, tri_no_mat, &g[TRI_W_LAYER_PROJECT_NORM], &tri_no_weight, parts);
  norm.eps *= (float)c->hidden_size;
  tri_emit_linear(w, tri_linear_of(w, w->x, &g[TRI_W_LAYER_PROJECT], &tri_no_weight, out));
  tri_emit_norm(w, norm);
}

/* An input is (row + projection) / sqrt(2). */
void tri_walk_layer_inputs(tri_walk *w) {
  const tri_forward *f = w->f;
  size_t element = sizeof(float);
  tri_mat sum = tri_rows(f->buf.layer_embed, w->x.rows), projected = tri_rows(f->buf.layer_project, w->x.rows),
          to = inputs(w);
  look_up(w, sum);
  project(w, projected);
  tri_norm_args add = tri_norm_of(w, sum, projected, TRI_NO_WEIGHTS, tri_no_mat);
  add.delta_scale = (float)sqrt(0.5);
  tri_emit_norm(w, add);
  tri_emit_copy_rows(w, tri_columns(to, width_of(w), sum.cols).data, (size_t)to.ld * element, sum.data,
                     (size_t)sum.ld * element, (size_t)sum.cols * element, (size_t)sum.rows);
}

/* Every rank has the whole stream, and makes the whole result. */
void tri_walk_add_input(tri_walk *w, const tri_layer *y) {
  const tri_forward *f = w->f;
  int width = width_of(w);
  tri_mat both = gate_and_input(w, y), x = w->x, act = tri_rows(f->buf.input_act, x.rows),
          delta = tri_rows(f->buf.mlp_delta, x.rows);
  tri_emit_linear(w, tri_linear_of(w, x, &y->w[TRI_W_INPUT_GATE], &tri_no_weight, tri_columns(both, 0, width)));
  tri_emit_glu(w, (tri_glu_args){.gate_up = both, .act = f->cfg.model->mlp.act, .out = act});
  tri_emit_linear(w, tri_linear_of(w, act, &y->w[TRI_W_INPUT_PROJECT], &tri_no_weight, delta));
  w->pending = (tri_pending){.delta = delta, .sum_gain = &y->w[TRI_W_INPUT_NORM]};
}

void tri_walk_narrow_input(tri_walk *w, const tri_layer *y, tri_mat x) {
  int width = width_of(w);
  tri_mat from = tri_columns(after(x, (int)tri_layer_inputs_width(w->f->cfg.model)), y->number * width, 2 * width);
  tri_gather_rows_args gather = {.x = from, .rows = w->b->logit_rows, .out = gate_and_input(w, y)};
  if (gather.out.rows) tri_emit_gather_rows(w, gather);
}
