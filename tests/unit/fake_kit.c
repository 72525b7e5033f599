/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_kit.h"

#include <check.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

pid_t fake_start(const char *endpoint, const char *step_us) {
  int out[2];
  pid_t coordinator = -1;
  char line[256], *argv[] = {TRI_FAKE_COORDINATOR,       "--endpoint", (char *)(uintptr_t)endpoint, "--step-us",
                             (char *)(uintptr_t)step_us, NULL};
  posix_spawn_file_actions_t actions;
  const char *path = endpoint + sizeof "ipc://" - 1;
  snprintf(line, sizeof line, "%s.lock", path);
  unlink(path); /* of one whose test was killed */
  unlink(line);
  ck_assert(!pipe(out));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_addclose(&actions, out[0]);
  ck_assert_int_eq(posix_spawn(&coordinator, argv[0], &actions, NULL, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  ck_assert_int_gt(read(out[0], line, sizeof line), 0); /* its endpoint: it listens */
  close(out[0]);
  return coordinator;
}

void fake_stop(pid_t coordinator, int signal) {
  kill(coordinator, signal);
  waitpid(coordinator, NULL, 0);
}
