/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/fake_coordinator.c as a process beside a test. */
#ifndef TRI_TESTS_UNIT_FAKE_KIT_H
#define TRI_TESTS_UNIT_FAKE_KIT_H

#include <sys/types.h>

/* Starts one that listens at a socket file of this endpoint (ipc://PATH) when the call returns. */
pid_t fake_start(const char *endpoint, const char *step_us);
void fake_stop(pid_t coordinator, int signal);

#endif
