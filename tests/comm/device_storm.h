/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that make a rank's numbers late and look at sums, for device_comm. A header of C and CUDA. */
#ifndef TRI_TESTS_COMM_DEVICE_STORM_H
#define TRI_TESTS_COMM_DEVICE_STORM_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dc_storm {
  float *numbers;
  uint32_t *base;   /* on the device: number of the recording's first round */
  uint32_t *errors; /* on the device: sums that were wrong */
  int rank, size;
} dc_storm;

/* Makes n numbers for round *base + round, in one launch of 16 after a pause of up to some 20 us. */
void dc_storm_make(cudaStream_t stream, const dc_storm *s, uint32_t round, int n);
/* Counts the elements that are not what all ranks' numbers of that round add up to. */
void dc_storm_check(cudaStream_t stream, const dc_storm *s, uint32_t round, int n);
/* Ends a recording of so many rounds. */
void dc_storm_advance(cudaStream_t stream, const dc_storm *s, uint32_t rounds);

#ifdef __cplusplus
}
#endif

#endif
