/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/mpi_environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

void tri_leave_mpi_job(void) {
  static const char *const prefixes[] = {"OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_APP",  "OMPI_FILE",
                                         "OMPI_FIRST",      "OMPI_NUM",      "OMPI_ARGV", "OMPI_COMMAND",
                                         "PMIX_",           "PMI_",          "ORTE_",     "OPAL_"};
  for (char **e = environ; *e;) {
    char name[256];
    bool drop = false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
      drop |= !strncmp(name, prefixes[i], strlen(prefixes[i]));
    if (drop)
      unsetenv(name);
    else
      e++;
  }
  if (!geteuid()) { /* a user who runs `trireme up` as root has decided that already */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
}
