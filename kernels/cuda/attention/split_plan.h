/* SPDX-License-Identifier: Apache-2.0 */
/* How a device cuts the attention of a step into blocks.
 *
 * Sequences of one token read contexts of any length. A block for each would end with the longest, so long contexts are
 * cut into equal parts (Flash-Decoding, Dao et al. 2023), of about one length throughout the step, and as many as the
 * device runs at a time, or few times that (one schedule for the whole batch, as in FlashInfer, Ye et al. 2025, section
 * 3.3). The longest parts begin first, and those of a context are merged in their order. Prompts are cut into tiles of
 * tokens, and where few tiles see many keys, as the second turn of a chat does, their keys into parts, too. Where few
 * blocks would go through short contexts, each context is the work of a cluster of them, which cuts it itself: all
 * contexts into as many splits, some of them empty. Both lists are made on the host with the step's other arrays: no
 * block is launched for what is not there, but for the empty places that let recorded steps serve many lengths. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_SPLIT_PLAN_H
#define TRI_KERNELS_CUDA_ATTENTION_SPLIT_PLAN_H

#include "kernels/ops.h"

/* A part of a token's context, for the blocks of all KV heads. The longest come first. */
typedef struct tri_attention_part {
  int32_t row;           /* of the batch; -1: an empty place */
  int32_t blocks;        /* where the sequence's begin in the block table */
  int32_t first, end;    /* its keys are first .. end - 1 */
  int32_t position;      /* of the token */
  int32_t split, splits; /* part number `split` of `splits` */
  int32_t place; /* where its results are merged: a number among the parts of cut contexts; -1: of a whole one */
} tri_attention_part;

/* Tokens of one prompt. Those with the most keys come first, to a 64th of the most. */
typedef struct tri_attention_tile {
  int32_t row, rows;     /* rows row .. row + rows - 1 of the batch */
  int32_t blocks;        /* where the sequence's begin in the block table */
  int32_t position;      /* of the first one */
  int32_t first, end;    /* keys that any of them sees, of these the part's */
  int32_t context;       /* of the sequence */
  int32_t split, splits; /* part number `split` of `splits` */
  int32_t place;         /* where its results are merged: a number among the parts of cut tiles; -1: of a whole one */
  int32_t unused[2];
} tri_attention_tile;

/* The lists depend on this and the batch. Equal bytes mean equal lists: make it of zeros. */
typedef struct tri_attention_shape {
  int32_t window;      /* 0: none */
  int32_t chunked;     /* whether it is the length of chunks: see kernels/visible_keys.h */
  int32_t causal;      /* whether a token sees no later ones */
  int32_t units;       /* blocks that each part takes: KV heads times chunks of their query heads */
  int32_t keys;        /* that a block reads at a time: contexts are cut between tiles of them */
  int32_t blocks;      /* that a multiprocessor has room for, */
  int32_t enough;      /* and of these those with which it reads at its rate */
  int32_t most_splits; /* parts of one context */
  int32_t most_joined; /* blocks of a cluster; 0 or 1: none */
  int32_t rows;        /* of a prompt's tile; 0: prompts are cut token by token, as single tokens are */
  int32_t tile_units;  /* blocks that each tile takes */
  int32_t tile_keys;   /* that a block reads at a time: tiles are cut between as many; 0: they are whole */
  int32_t tile_box;    /* a power of two: what a block reads begins at a multiple of it */
  int32_t tile_places; /* parts of cut tiles at most */
  int32_t tile_cost;   /* of a part where all of a tile's are put together, in halves of what a block reads at a time */
} tri_attention_shape;

/* The lists of one shape for one batch. */
typedef struct tri_attention_split {
  tri_attention_shape shape;
  int num_parts, num_tiles; /* the empty places among the parts included */
  int num_places;           /* parts of cut contexts at most */
  int num_tile_places;      /* parts of cut tiles */
  int joined;               /* splits of each part that are a cluster's blocks, a power of two; 1: a block has a part */
  const tri_attention_part *parts;
  const tri_attention_tile *tiles;
} tri_attention_split;

/* Returns the most places that the lists of any batch of these sizes have. num_sms: multiprocessors of the device. */
int tri_attention_most_parts(const tri_attention_shape *s, const tri_batch *b, int num_sms);
int tri_attention_most_tiles(const tri_attention_shape *s, const tri_batch *b);

/* Cuts a batch whose arrays are on the host. parts and tiles have room for the most; out points to them. */
void tri_attention_split_batch(const tri_attention_shape *s, const tri_batch *b, int num_sms, tri_attention_part *parts,
                               tri_attention_tile *tiles, tri_attention_split *out);

#endif
