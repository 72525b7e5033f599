/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is out once: the Nth allocation from now on fails. */
#ifndef TRI_TESTS_UNIT_FAIL_NTH_H
#define TRI_TESTS_UNIT_FAIL_NTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The outcome of an input: a status, and a number of what was read that another reading has, too. */
typedef struct outcome {
  tri_status status;
  uint64_t digest; /* where status is TRI_OK */
} outcome;
typedef outcome fail_nth_run(const char *data, size_t len);

void fail_nth_arm(uint64_t n); /* 0: none fails */
/* Counts malloc, too: jansson's, which the project's own code has none of. */
void fail_nth_count_malloc(bool on);
bool fail_nth_fails(void); /* for a library's memory: counts one, and says whether it fails */
/* Returns whether one has failed since the last call of fail_nth_arm. */
bool fail_nth_has_failed(void);
/* Runs with each allocation failing in turn. A run ends with TRI_NO_MEMORY, or as if there had been memory, and the
 * next one without a failure is as the first one was. Returns how many there were. */
uint64_t fail_nth_each(fail_nth_run *run, const char *name, const char *data, size_t len);

#endif
