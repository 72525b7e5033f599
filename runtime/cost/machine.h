/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a prediction is for: what was measured of it, or else of machines of its kind. */
#ifndef TRI_RUNTIME_COST_MACHINE_H
#define TRI_RUNTIME_COST_MACHINE_H

#include "kernels/backend.h"
#include "runtime/cost/host_rates.h"

/* The best that hardware could do, as kernels/roofline.h measures it: a read-only sum, the library's largest product.
 */
typedef struct tri_ceilings {
  double read_bytes_per_s, flops_per_s;
} tri_ceilings;

/* A kind of device that need not be here: docs/design/layouts.md has where each figure is from. */
typedef struct tri_device_kind {
  const char *name, *title, *driver_name;    /* "h100"; "NVIDIA H100 (80 GB)"; "H100" is a part of its driver's name */
  int64_t memory;                            /* bytes that processes may have of it */
  tri_ceilings best;                         /* with 16-bit weights */
  double link_bytes_per_s, host_bytes_per_s; /* of its links to others of its host; of copies of pinned memory to it */
  bool computes_fp8;                         /* as a backend's prefers_fp8 */
  bool measured;                             /* all but the memory on such a device; else a share of its data sheet's */
} tri_device_kind;

/* NULL-terminated; the first is assumed where none is named. */
extern const char *const tri_device_kinds[];
/* Returns the kind of a name that stands there; the first for NULL. */
const tri_device_kind *tri_device_kind_of(const char *name);
/* Returns the kind of a device by a backend's tactics_key; the first where it is none of them. */
const tri_device_kind *tri_device_kind_find(const char *tactics_key);

/* The rates that our kernels reach of the ceilings, and the links of such machines: of a host or, with a kind, of
 * devices. */
tri_machine tri_machine_make(tri_ceilings best, const tri_device_kind *kind, int ranks_per_host);

/* The figures that were measured of a host. */
typedef struct tri_host_figures {
  tri_ceilings best;
  tri_host_rates ops;
} tri_host_figures;

/* Measures what a backend of host memory reaches with its own threads, reading as many bytes as a step of `share` does
 * and multiplying with its matrices. */
tri_status tri_machine_measure_backend(tri_backend *be, const tri_cost_share *share, tri_host_figures *out);
/* Measures this host in about a second, on so many threads (0: one for each core); each of so many ranks has an equal
 * part of it. */
tri_status tri_machine_measure(const tri_cost_share *share, int ranks, int threads, tri_host_figures *out,
                               tri_error *err);
/* Has ops take what they took, instead of parts of the ceilings. */
void tri_machine_take_ops(tri_machine *m, const tri_host_rates *ops);

#endif
