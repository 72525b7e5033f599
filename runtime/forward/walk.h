/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over the ops of one step: the one description of the network.
 *
 * layer.c, its neighbours and network.c describe a step as functions that emit ops: tri_emit_linear(w, args), and so on
 * for every op of kernels/ops.h, and for what goes between ranks. What an emitted op comes to is the walk's mode:
 *
 *   PLAN    its kernel is chosen, and the workspace that it needs
 *   LAUNCH  it runs, with the kernel that a PLAN walk over the same batch chose
 *   RUN     both at once, for what lies outside of the planned step
 *   LIST    products are listed, as LAUNCH would launch them, for those who measure them, and kinds of attention
 *   RECORD  what it reads and writes is noted (TRI_READS_op, TRI_WRITES_op), from which the buffers' places follow
 *
 * A layer's weights and cache are reached through tri_walk_layer alone, the model's other weights through
 * tri_walk_global: RECORD walks have neither.
 *
 * Plans are found again by counting: a LAUNCH walk emits what the PLAN walk over the same batch has emitted, in the
 * same order. Layers of one class emit alike, so a PLAN walk visits the first of each class and passes over the others.
 *
 *
 * A failure is kept in `st`, and nothing is emitted after it, so that functions of the network need no status of their
 * own. Ops are emitted with addresses that hold for the whole step; a walk allocates nothing but a RECORD walk's
 * events. */
#ifndef TRI_RUNTIME_FORWARD_WALK_H
#define TRI_RUNTIME_FORWARD_WALK_H

#include "runtime/forward/forward.h"
#include "runtime/forward/step_arena.h"

typedef enum tri_walk_mode {
  TRI_WALK_PLAN,
  TRI_WALK_LAUNCH,
  TRI_WALK_RUN,
  TRI_WALK_LIST,
  TRI_WALK_RECORD
} tri_walk_mode;

/* Results of branches that the stream lacks. The norm that opens the next branch adds it. */
typedef struct tri_pending {
  tri_mat delta;                                         /* data NULL: none */
  tri_mat second;                                        /* of a second branch; data NULL: none */
  const tri_weight *delta_gain, *second_gain, *sum_gain; /* of norms of the two and of their sum; NULL: not normed */
  float scale;                                           /* what the sum with the stream is multiplied with; 0: 1 */
} tri_pending;

typedef struct tri_walk {
  tri_walk_mode mode;
  tri_forward *f;
  const tri_batch *b;
  tri_mat x;                /* residual stream, [T, hidden] */
  const tri_batch *whole_b; /* in a chunk of the step: b and x of all of it */
  tri_mat whole_x;
  int first_row;  /* of the chunk */
  bool is_narrow; /* b and x are of the rows whose logits are wanted (tri_walk_narrow) */
  tri_pending pending;
  bool copied;            /* buf.h is x in the type of products */
  tri_status st;          /* the first failure: nothing is emitted after it */
  int next;               /* number of the next op's plan */
  bool on_side, has_side; /* between side_begin and side_end; and side_join */
  size_t side_workspace;  /* PLAN: the most that an op of the side stream asked for */
  tri_tune_gemm *gemms;   /* LIST: NULL to count them */
  int num_gemms;
  tri_step_record *record; /* RECORD */
  int side_start;          /* RECORD: number of the side stream's first event */
  bool all_logits;         /* RECORD: of a step whose tokens all have logits */
} tri_walk;

/* A layer as a walk sees it. */
typedef struct tri_layer {
  int number; /* in the whole model */
  int local;  /* among the shard's */
  uint8_t flags;
  const tri_weight *w; /* [TRI_W_COUNT] */
  tri_kv_layer kv;
} tri_layer;

/* The two arguments `weight, bias` of a layer's or the model's weights. */
#define TRI_BIASED(weights, id) &(weights)[TRI_W_##id], &(weights)[TRI_W_##id##_BIAS]

tri_layer tri_walk_layer(const tri_walk *w, int l); /* l: of this shard's */
/* The matrices of a part of a layer (TRI_PART_ATTENTION, ..) are there from the first to the second. A walk that
 * launches waits here for those that are streamed. */
void tri_walk_acquire(tri_walk *w, const tri_layer *y, int half);
void tri_walk_release(tri_walk *w, const tri_layer *y, int half);
const tri_weight *tri_walk_global(const tri_walk *w); /* [TRI_W_COUNT] */

/* Returns whether a walk visits this layer, whose ops it then emits at once; false for all but the first of a class in
 * a PLAN walk. tri_walk_leave_layers comes after the last of them. */
bool tri_walk_enter_layer(tri_walk *w, const tri_layer *y);
void tri_walk_leave_layers(tri_walk *w);

#define X(op) void tri_emit_##op(tri_walk *w, tri_##op##_args a);
TRI_OP_LIST(X)
#undef X

/* gated_mlp. */
void tri_emit_mlp(tri_walk *w, tri_gated_mlp_args a);

/* The side stream: see side_begin in kernels/backend.h. Its ops are emitted first. */
void tri_emit_side_begin(tri_walk *w);
void tri_emit_side_end(tri_walk *w);
void tri_emit_side_join(tri_walk *w);

/* moe_experts of a layer whose experts lie in the host's memory. It needs no plan. */
void tri_emit_host_experts(tri_walk *w, const tri_layer *y, tri_moe_experts_args a);

/* Sum of m, of float32 or bfloat16, over the tensor group, in place. */
void tri_emit_sum(tri_walk *w, tri_mat m);
/* Transfers inside the tensor group; see comm/comm.h. */
void tri_emit_all_gather(tri_walk *w, const void *send, void *recv, size_t bytes);
void tri_emit_send(tri_walk *w, const void *buf, size_t bytes, int peer, int tag);
void tri_emit_recv(tri_walk *w, void *buf, size_t bytes, int peer, int tag);
/* Rows `from` on of this shard to the ranks that have their experts, and their results; how many of each data-parallel
 * rank the forward pass knows (exchanged). rounds: they may travel rounded. route: not NULL where they have not been
 * routed yet. See comm/all2all.h. */
void tri_emit_dispatch(tri_walk *w, tri_all2all_form form, bool rounds, tri_mat x, int from,
                       const tri_moe_route_args *route);
void tri_emit_combine(tri_walk *w, tri_mat out, int from, bool accumulate);
void tri_emit_copy_rows(tri_walk *w, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows);
/* Others read m when the step is launched: RECORD keeps it until its end. */
void tri_emit_result(tri_walk *w, tri_mat m);

/* Shows a LAUNCH walk's observer the stream before a layer. */
void tri_walk_show_hidden(const tri_walk *w, int layer, tri_mat x);

#endif
