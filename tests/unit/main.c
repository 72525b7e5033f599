/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the suite that this program was built for (TRI_SUITE, set by CMakeLists.txt). One test case alone:
 * CK_RUN_CASE=NAME. */
#include <check.h>
#include <stdlib.h>

#include "base/foreign.h"

Suite *TRI_SUITE(void);

int main(void) {
  TRI_FOREIGN_BEGIN(); /* check itself, of which every call is one */
  SRunner *runner = srunner_create(TRI_SUITE());
  /* A process cannot use ZeroMQ contexts, MPI or CUDA after a fork, and sanitizers report better without one. */
  if (!getenv("CK_FORK")) srunner_set_fork_status(runner, CK_NOFORK);
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
  srunner_free(runner);
  return failed || !run;
}
