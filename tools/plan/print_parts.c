/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that several tables of a plan have. */
#include <stdio.h>

#include "tools/plan/plan.h"

static double mib(size_t n) { return (double)n / 0x1p20; }

static uint64_t stored_bytes(const tri_checkpoint *ckpt) {
  uint64_t sum = 0;
  for (size_t i = 0; i < tri_checkpoint_num_tensors(ckpt); i++) sum += tri_checkpoint_tensor(ckpt, i)->bytes;
  return sum;
}

void plan_print_stored(const struct plan *p) {
  const tri_stored *s = &p->c->stored;
  const char *type = tri_dtype_name(p->ledger.dtype == TRI_DTYPE_COUNT ? s->widened : p->ledger.dtype);
  char text[TRI_STORED_TEXT];
  if (s->method == TRI_STORED_PLAIN) return;
  printf("the checkpoint is %s", tri_stored_text(s, text));
  if (p->ckpt) printf(", %.1f MiB", mib((size_t)stored_bytes(p->ckpt)));
  if (p->ledger.quantization == TRI_QUANTIZE_NONE)
    printf("; its weights are widened to %s while they are read, and counted so\n", type);
  else if (p->ledger.quantization == TRI_QUANTIZE_FP8 && tri_stored_widens_blocks(s))
    printf("; GPUs multiply FP8 by rows or in blocks of 128 columns: others are widened to %s, and counted so\n", type);
  else if (p->ledger.quantization == TRI_QUANTIZE_FP8)
    printf("; %s\n", tri_stored_has_fp8(s) ? "what is FP8 in it stays so, and is counted so"
                                           : "its weights are rounded to FP8 while they are read, and counted so");
  else if (p->ledger.quantization == TRI_QUANTIZE_INT8 && tri_stored_has_int8_blocks(s) && !s->wide_blocks_only)
    printf("; what is Q8_0 in layers stays int8, and is counted so\n");
  else
    printf("; its weights are rounded to int8 while they are read, and counted so\n");
}

void plan_print_ceilings(const struct plan_machine *m) {
  printf("machine: a rank reads %.4g GB/s at best (%s), products %.4g TFLOP/s (%s)\n", m->best.read_bytes_per_s * 1e-9,
         m->read_source, m->best.flops_per_s * 1e-12, m->flops_source);
}

void plan_print_loads(const struct plan_load *loads, int count, double context) {
  printf("predicted, with %.0f keys for each sequence:", context);
  for (int i = 0; i < count; i++) {
    const struct plan_load *l = &loads[i];
    double rate = l->sequences / l->seconds;
    printf("%s %d %s %.3g s a step, %.*f tokens/s", i ? ";" : "", l->sequences,
           l->sequences == 1 ? "sequence" : "sequences", l->seconds, rate < 10 ? 2 : 0, rate);
  }
  printf("\n");
}

void plan_print_json_loads(const struct plan_load *loads, int count) {
  for (int i = 0; i < count; i++)
    printf("%s{\"sequences\":%d,\"seconds\":%.6g,\"tokens_per_s\":%.6g}", i ? "," : "", loads[i].sequences,
           loads[i].seconds, loads[i].sequences / loads[i].seconds);
}
