/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a process (ulimit) that would end it without a word. */
#ifndef TRI_BASE_HOST_PROCESS_LIMITS_H
#define TRI_BASE_HOST_PROCESS_LIMITS_H

#include "base/status.h"

/* Called first in a program. A file that may not grow becomes an error of its write. Where stacks may have too little,
 * theirs of libraries' threads included, it runs the program again with more; TRI_NO_CAPACITY: it may not have more. */
tri_status tri_process_limits(tri_error *err);

#endif
