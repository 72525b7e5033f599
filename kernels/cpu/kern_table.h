/* SPDX-License-Identifier: Apache-2.0 */
/* The last thing an isa_*.c includes, after its vec_*.h: the inner kernels, and its entry of the table. TRI_ISA is the
 * entry's suffix. */
#include "kernels/cpu/kern_attn.h"
#include "kernels/cpu/kern_dot.h"
#include "kernels/cpu/kern_int8.h"
#include "kernels/cpu/kern_panel.h"
#include "kernels/cpu/kern_sample.h"

#define TRI_ISA_PASTE(a, b) a##b
#define TRI_ISA_TABLE(suffix) TRI_ISA_PASTE(tri_cpu_, suffix)
#define TRI_ISA_STRING(s) #s
#define TRI_ISA_NAME(s) TRI_ISA_STRING(s)

const tri_cpu_isa TRI_ISA_TABLE(TRI_ISA) = {
    .name = TRI_ISA_NAME(TRI_ISA),
    .dot = isa_dot,
    .int8_dot = isa_int8_dot,
    .quantize = isa_quantize,
    .panel_cols = PANEL_COLS,
    .pack = isa_pack,
    .panel = isa_panel,
#ifdef V_HAS_TILES
    .split = isa_split,
    .pack_tiles = isa_pack_tiles,
    .tiles = isa_tiles,
#endif
    .epilogue = isa_epilogue,
    .expand = isa_expand,
    .narrow = isa_narrow,
    .norm = isa_norm,
    .square_sum = isa_square_sum,
    .softcap = isa_softcap,
    .glu = isa_glu,
    .rotate = isa_rotate,
    .scores = isa_scores,
    .softmax_row = isa_softmax_row,
    .weigh = isa_weigh,
    .blend = isa_blend,
    .maximum = isa_maximum,
    .sum_exp = isa_sum_exp,
    .collect = isa_collect,
};
