/* SPDX-License-Identifier: Apache-2.0 */
/* The work of grouped GEMMs (moe/grouped.cuh): the types of factors, a block's shared memory, and the tiles that the
 * rows of a map and the outputs of its experts are cut into. */
#ifndef TRI_KERNELS_CUDA_MOE_TILES_CUH
#define TRI_KERNELS_CUDA_MOE_TILES_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/moe/moe.h"
#include "kernels/quantize.h"

/* Sums of tokens' choices that a second GEMM's blocks add up (moe/combine.cuh). */
struct token_sums {
  const int32_t *row;  /* [tokens, top_k] of the map, or -1 */
  const float *weight; /* [tokens, top_k] */
  tri_mat out;         /* [tokens, outputs] */
  bool accumulate;
  unsigned *done; /* of each slab of outputs: tiles, 0 before and after the kernel; NULL: the blocks add nothing */
};

/* A GEMM for all rows of a map. outputs: of an expert, units where gates and ups come in pairs. */
struct grouped {
  const int32_t *first;  /* [num_experts + 1] */
  const int32_t *choice; /* [rows]; NULL: rows of x lie in the order of the map */
  int num_experts, top_k;
  const void *x; /* where rows are gathered: [tokens, k], rows ld elements apart */
  int ld, k, outputs;
  const float *w_scale; /* of 8 bits: one for each row of weights, as of biases, or of e4m3 a table of blocks: */
  int block_rows, skip_row, across; /* rows of a block, those of the first block before the weights, columns */
  int skip;                         /* elements of k of the first block before the weights */
  const float *x_scale;             /* of rows of 8 bits: [groups of k, ld_scale], else NULL */
  int term_rows;                    /* from a row's first term to its second */
  int ld_scale;
  const float *bias; /* [num_experts * (outputs or, in pairs, 2 * outputs)] or NULL */
  /* A unit is min(s, swish_limit) (u + up_offset) with s = g / (1 + exp(-gate_scale g)), g = min(gate, gate_limit) and
   * u = clamp(up, -up_limit, up_limit); g + gate_cube g^3 in the exponent. */
  float gate_limit, swish_limit, up_limit, gate_scale, gate_cube, up_offset;
  int splits;    /* parts of k; more than one: out has float32 sums of each, [splits, most_rows, outputs] */
  int most_rows; /* rows of the map at most: tokens * top_k */
  void *out;     /* else [rows, outputs] of 16 bits, rows ld_out elements apart */
  int ld_out;
  unsigned *queue; /* where blocks take their next tile from: 0 before and after */
  token_sums sums;
};

enum {
  LINE = 128,    /* bytes of a row in shared memory */
  CONSUMERS = 2, /* warpgroups */
  FETCHING = 8,  /* the named barrier of the warpgroup that fetches */
  THREADS = (1 + CONSUMERS) * WARPGROUP,
  FEW_COLUMNS = 8,  /* of tiles whose MMAs are those of warps, with weights of integers */
  PASS = 64,        /* rows that are stored at a time */
  MOST_SPLIT = 32,  /* rows of the largest tiles whose k is cut into parts, and whose blocks add choices up */
  MOST_PARTS = 256, /* of all choices, where blocks add them up */
  MOST_EXPERTS = TRI_CUDA_MOE_EXPERTS,
  ALIGN = 1024,
  ROOM = 227 * 1024 - ALIGN
};

template <typename W> constexpr bool HAS_BLOCKS = false;
template <> constexpr bool HAS_BLOCKS<e4m3> = true;

/* The types of weights, rows, and results of 16 bits. Eight bits are multiplied with eight, of which each
 * TRI_INT8_GROUP of k have a scale, or become floats of the rows' type. terms: elements of 8 bits that an element of a
 * row is the sum of (linear/rounded_rows.cuh); with two, results have the precision of rows of 16 bits. */
template <typename W, typename X, typename O, int terms = 1> struct factors {
  typedef W weight;
  typedef X input;
  typedef O output;
  enum {
    EIGHT_BITS = sizeof(W) == 1,
    BLOCKED = HAS_BLOCKS<W>, /* a scale for each row of weights and group of k; else of integers for each row */
    SCALES = EIGHT_BITS && !BLOCKED,
    WIDENS = sizeof(W) < sizeof(X),
    GROUPED = sizeof(X) == 1, /* rows have scales */
    TERMS = terms,
    STEP = LINE / (int)sizeof(X),     /* elements of k at a time */
    CHEAP = sizeof(W) == 1 ? 32 : 64, /* columns whose GEMMs are done sooner than weights come */
    STEPS_OF_GROUP = (int)TRI_INT8_GROUP / STEP,
    FEW_BY_WARPS = EIGHT_BITS && TERMS == 1 && !(BLOCKED && GROUPED), /* tiles of FEW_COLUMNS: by MMAs of warps */
    HAS_FEW = FEW_BY_WARPS || TERMS > 1,
    HAS_SMALL = TERMS == 1 /* tiles of half of the columns: second terms lie after the tile's first ones */
  };
  static_assert(!GROUPED || (int)STEP == (int)TRI_INT8_GROUP, "a step has one scale of each row");
};

/* Says which form weights have, of `cols` 0 or TRI_INT8_GROUP. */
static inline void set_form(grouped &g, const tri_weight &w) {
  g.w_scale = w.scale;
  g.block_rows = w.groups.rows > 1 ? w.groups.rows : 1;
  g.skip_row = w.groups.rows > 1 ? w.groups.skip_row : 0;
  g.across = tri_groups_across(w.groups, w.k);
  g.skip = w.groups.cols ? w.groups.skip_col : 0;
}

/* Returns true where set_glu knows the activation. */
static inline bool is_glu(tri_act act) {
  return act == TRI_ACT_SILU || act == TRI_ACT_QUICK_GELU || act == TRI_ACT_GELU_TANH || tri_act_has_limit(act);
}

/* Says how a unit's gate and up meet: 0.5 x (1 + tanh(y)) is x / (1 + exp(-2 y)). */
static inline void set_glu(grouped &g, tri_act act, float limit) {
  bool oai = act == TRI_ACT_SWIGLU_OAI, is_tanh = act == TRI_ACT_GELU_TANH;
  g.gate_limit = oai ? limit : INFINITY;
  g.swish_limit = act == TRI_ACT_SWIGLU_CLAMPED ? limit : INFINITY;
  g.up_limit = tri_act_has_limit(act) ? limit : INFINITY;
  g.gate_scale = oai || act == TRI_ACT_QUICK_GELU ? 1.702f : 1;
  g.gate_cube = is_tanh ? 0.044715f : 0;
  if (is_tanh) g.gate_scale = 2 * 0.79788456f;
  g.up_offset = oai ? 1 : 0;
}

/* A part of a choice's GEMM: its row of all parts' rows, or -1, and the choice's weight. */
struct alignas(8) part_of_choice {
  int row;
  float weight;
};

/* A block's room to add choices up: their parts, by token, choice and split, and whether a slab's last tile is done. */
struct parts_room {
  part_of_choice part[MOST_PARTS];
  int last;
};
struct no_room {};
template <bool ADDS> struct room_to_add { typedef no_room type; };
template <> struct room_to_add<true> { typedef parts_room type; };

/* A tile: outputs from `output` on, of rows first_row .. first_row + rows - 1, over `steps` steps of k from `step` on.
 * Without steps: there is none left. */
struct tile {
  int expert, first_row, rows, output, step, steps, split;
  int k;       /* of its first step; those before 0 and from k on count as zeros */
  bool second; /* of a pair of GEMMs (moe/pair.cuh) */
};

/* A step's scales of COLS rows, where rows have any: as the copy engine begins at whole 16 bytes, that of row r is at
 * first_row % 4 + r. */
template <int COLS, bool GROUPED> struct scale_line {};
template <int COLS> struct alignas(128) scale_line<COLS, true> {
  enum { BOX = COLS + 4 };
  float of_row[BOX];
};

/* Shared memory of a tile of 128 * BLOCKS weights' rows and COLS tokens' rows. */
template <typename F, int BLOCKS, int COLS> struct room {
  enum {
    ROWS = CONSUMERS * 64 * BLOCKS,
    WEIGHTS = ROWS * F::STEP * sizeof(typename F::weight), /* bytes of a stage */
    BOX = COLS < 64 ? COLS : 64,                           /* rows that are fetched at a time */
    INPUTS = F::TERMS * COLS * LINE,
    SCALES = F::GROUPED ? (COLS + 4) * 4 : 0, /* bytes that are copied */
    ADDS = COLS <= MOST_SPLIT,
    LISTS = (2 * (MOST_EXPERTS + 1)) * 4 + (ADDS ? (int)sizeof(parts_room) : 0),
    STAGING = (COLS < PASS ? COLS : PASS) * LINE,
    FIT = (ROOM - CONSUMERS * STAGING - LISTS - 512) /
          (WEIGHTS + INPUTS + (F::GROUPED ? (int)sizeof(scale_line<COLS, F::GROUPED>) : 0)),
    STAGES = FIT > 8 ? 8 : FIT,
  };
  char weights[STAGES][WEIGHTS];
  char inputs[STAGES][INPUTS];
  char staging[CONSUMERS][STAGING]; /* of results */
  scale_line<COLS, F::GROUPED> scales[STAGES];
  barrier full[STAGES], empty[STAGES];
  tile begun[STAGES];          /* which tile begins with a stage, */
  int taken;                   /* and which comes next, among those who fetch */
  int first[MOST_EXPERTS + 1]; /* an expert's first row, */
  int start[MOST_EXPERTS + 1]; /* and the groups of COLS rows before it */
  typename room_to_add<ADDS>::type parts;
};

/* Lists where each expert's groups of COLS rows begin, from where its rows do. By the first warp. */
template <int COLS> __device__ static void list_groups(int num_experts, const int *first, int *start) {
  int lane = threadIdx.x, sum = 0;
  for (int e0 = 0; e0 <= num_experts; e0 += WARP) {
    int e = e0 + lane, groups = e < num_experts ? (first[e + 1] - first[e] + COLS - 1) / COLS : 0, upto = groups;
#pragma unroll
    for (int o = 1; o < WARP; o *= 2) {
      int other = __shfl_up_sync(0xffffffffu, upto, o);
      if (lane >= o) upto += other;
    }
    if (e <= num_experts) start[e] = sum + upto - groups;
    sum += __shfl_sync(0xffffffffu, upto, WARP - 1);
  }
}

/* Neighbours among tiles have the same weights and other rows: weights come from memory once. */
template <int STEP, int COLS, int OUTPUTS>
__device__ static inline tile tile_at(const grouped &g, const int *first, const int *start, int number) {
  int slabs = (g.outputs + OUTPUTS - 1) / OUTPUTS * g.splits, low = 0, high = g.num_experts - 1;
  int steps = (g.k + g.skip + STEP - 1) / STEP;
  while (low < high) { /* the last expert whose tiles begin at or before it */
    int middle = (low + high + 1) / 2;
    if (start[middle] * slabs <= number)
      low = middle;
    else
      high = middle - 1;
  }
  int groups = start[low + 1] - start[low], inside = number - start[low] * slabs, slab = inside / groups;
  tile t;
  t.expert = low;
  t.first_row = first[low] + inside % groups * COLS;
  t.rows = min(COLS, first[low + 1] - t.first_row);
  t.split = slab % g.splits;
  t.output = slab / g.splits * OUTPUTS;
  t.step = steps * t.split / g.splits;
  t.steps = steps * (t.split + 1) / g.splits - t.step;
  t.k = t.step * STEP - g.skip;
  t.second = false;
  return t;
}

#endif
