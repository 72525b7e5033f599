/* SPDX-License-Identifier: Apache-2.0 */
/* What a harness shares with the mutation driver. */
#ifndef TRI_TESTS_FUZZ_MUTATE_H
#define TRI_TESTS_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* The harness: any bytes are fine, a finding is a crash or abort(). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A harness whose seeds are easier to make than to store defines this: writes seed number i (0, 1, ...) into buf and
 * returns its length, or 0 when there are no more. libFuzzer does not call it. */
size_t tri_fuzz_seed(unsigned i, uint8_t *buf, size_t cap) __attribute__((weak));

#endif
