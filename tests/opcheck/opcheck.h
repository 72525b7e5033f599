/* SPDX-License-Identifier: Apache-2.0 */
/* opcheck: compares the ops of a backend with the reference on random and awkward shapes.
 *
 * A case builds its arguments in host memory, runs them through the reference, and copies of them, in the other
 * backend's memory, through that backend. Outputs start as NaN, and so do the gaps between the rows of strided
 * matrices, so that what is not written, and what is read beside the rows, shows. */
#ifndef TRI_TESTS_OPCHECK_OPCHECK_H
#define TRI_TESTS_OPCHECK_OPCHECK_H

#include "kernels/backend.h"

typedef struct oc_options {
  const char *backend, *isa, *op;
  uint64_t seed;
  int cases, threads;
  bool bench, deterministic, quick;
} oc_options;

typedef struct oc {
  oc_options opt;
  uint64_t rng;
  tri_backend *ref, *be;
  /* of the current op */
  int cases, failures;
  double worst;
  char what[160];   /* the current case, for messages */
  char groups[160]; /* those of its weights that have such, one after the other */
  /* what the current case allocated */
  struct oc_piece {
    void *p;
    size_t bytes;
    bool device;
  } pieces[512];
  int num_pieces;
} oc;

uint64_t oc_random(oc *c);
int oc_range(oc *c, int lo, int hi); /* both included */
bool oc_chance(oc *c, int percent);
float oc_normal(oc *c);

void *oc_host(oc *c, size_t bytes); /* lives until oc_release */
void oc_release(oc *c);
/* A copy in the tested backend's memory; NULL for NULL. */
void *oc_device(oc *c, const void *host, size_t bytes);
void oc_download(oc *c, void *host, const void *device, size_t bytes);

/* A mask of ids, of which it has one at least. */
const uint32_t *oc_mask(oc *c, int vocab);
float *oc_normals(oc *c, size_t n, float sigma);
/* Random elements of a stored type, and of a weight with its scales, in a form that the tested backend takes. */
void *oc_elements(oc *c, tri_dtype t, size_t n, float sigma);
tri_weight oc_weight(oc *c, tri_dtype t, int n, int k);
tri_weight oc_weight_in(oc *c, tri_dtype t, int n, int k, tri_groups groups);
tri_weight oc_device_weight(oc *c, const tri_weight *w);
/* rows x cols, now and then with a gap of NaN behind each row; poisoned: all NaN. */
tri_mat oc_matrix(oc *c, int rows, int cols, bool poisoned);
tri_mat oc_device_matrix(oc *c, const tri_mat *m);
/* The same as elements of a 16-bit type, to which *m is rounded. */
tri_mat oc_device_narrow(oc *c, tri_mat *m, tri_dtype t);
/* A type for an op's narrow matrices: F32 now and then, and where the backend has no others. */
tri_dtype oc_narrow_type(oc *c);
/* What rounding an output costs: at least `limit`. */
double oc_narrow_limit(tri_dtype t, double limit);
double oc_either_way_limit(tri_dtype t, size_t n, double limit);
/* An activation is hardly steeper than 1 anywhere, but makes little of negative sums: what rounded inputs did to those
 * is to be compared with the sums, where few results leave nothing larger. a->out holds the results; at least 1. */
double oc_lost_by_activation(oc *c, const tri_linear_args *a);
tri_dtype oc_weight_type(oc *c, int i);
bool oc_takes_fp8(const oc *c);
/* Returns whether a weight is int8 with a scale for each row, as rounded rows meet. */
bool oc_is_int8_rows(const tri_weight *w);
tri_dtype oc_kv_type(int i);

/* Normalised mean square error of the device's copy of `got` against `want`; a NaN, or a gap that was written, fails.
 */
void oc_compare(oc *c, const tri_mat *want, const tri_mat *got_device, double limit);
void oc_compare_elements(oc *c, tri_dtype t, const void *want, const void *got_device, size_t n, double limit);
void oc_expect(oc *c, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void oc_status(oc *c, tri_status a, tri_status b);

/* A batch over a paged cache in host memory; see cases_attention.c. */
typedef struct oc_sequences {
  int count, tokens[64], context[64];
} oc_sequences;
typedef struct oc_attention {
  tri_attention_args args;
  tri_batch batch;
  size_t kv_bytes;
} oc_attention;
void oc_attention_build(oc *c, oc_attention *x, const oc_sequences *s, int hq, int hkv, int d, int block, tri_dtype t);
/* Makes it a latent cache: the first v_dim elements of a key are its value. */
void oc_attention_latent(oc *c, oc_attention *x, int v_dim);
/* The same in the device's memory. */
void oc_attention_device(oc *c, oc_attention *x, const oc_attention *host);
/* Runs it on both backends, with queries rounded to the keys' type, as kernels may do it, whatever that does to a
 * score. large: a score of some tens, as slopes make them of distances, costs the last bits of its exponential. */
void oc_attention_compare(oc *c, oc_attention *x, bool large);

/* Experts in host memory with random choices; see cases_moe.c. */
typedef struct oc_moe_shape {
  tri_dtype type;
  int tokens, h, f, experts, first, top_k;
  tri_act act;
  bool gated, bias, accumulate;
  bool counted; /* the experts have 0, 1, 8, 17, 65 rows and so on, the last one what is left; top_k 1, first 0 */
  bool whole;   /* rows of x and out are pieces of 16 bytes */
  bool wide;    /* weights of FP8 in blocks of 64 or 128 rows, which begin at a multiple of 64 */
} oc_moe_shape;
/* A map's arrays, filled with what is no row's number; and the map itself. */
tri_expert_map oc_moe_room(oc *c, int choices, int num_experts);
void oc_moe_map(const int32_t *experts, int choices, int first, int num_experts, tri_expert_map *m);
void oc_moe_build(oc *c, tri_moe_experts_args *a, const oc_moe_shape *s);

#define X(op) void oc_case_##op(oc *c, int i);
TRI_OP_LIST(X)
#undef X

/* Slots that are no ops; see cases_load.c. */
void oc_case_upload_rows(oc *c, int i);
void oc_case_fill_random(oc *c, int i);
void oc_case_count_not_finite(oc *c, int i);
/* attention over latent caches alone; see cases_latent.c. */
void oc_case_latent_attention(oc *c, int i);
void oc_case_latent_prompt(oc *c, int i);
void oc_case_decode_attention(oc *c, int i);
void oc_case_prompt_attention(oc *c, int i);
/* Of backends with choices; see cases_tune.c. */
void oc_case_tune(oc *c, int i);

/* deterministic.c: `others` are backends with other numbers of threads. */
void oc_deterministic_linear(oc *c, tri_backend **others, int num_others, int i);
void oc_deterministic_attention(oc *c, tri_backend **others, int num_others, int i);
void oc_deterministic_heads(oc *c, tri_backend **others, int num_others, int i);
void oc_deterministic_experts(oc *c, tri_backend **others, int num_others, int i);
void oc_deterministic_rows(oc *c, tri_backend **others, int num_others, int i);

int oc_bench(oc *c);
int oc_bench_device(oc *c); /* of a backend whose memory is not the host's */
void oc_bench_finite(oc *c, struct tri_roofline *floor);

/* Returns a limit for gated activations, which of SWIGLU_CLAMPED is reached by many elements. */
static inline float oc_glu_limit(tri_act act) { return act == TRI_ACT_SWIGLU_CLAMPED ? 0.5f : 7; }

#endif
