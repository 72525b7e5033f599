/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own, below /tmp. */
#ifndef TRI_TESTS_UNIT_SCRATCH_FOLDER_H
#define TRI_TESTS_UNIT_SCRATCH_FOLDER_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { SCRATCH_BYTES = 64 };

static inline void scratch_make(char folder[SCRATCH_BYTES]) {
  snprintf(folder, SCRATCH_BYTES, "/tmp/trireme-unit.XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline void scratch_remove(const char *folder) {
  char command[2 * SCRATCH_BYTES];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

#endif
