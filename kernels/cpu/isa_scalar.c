/* SPDX-License-Identifier: Apache-2.0 */
/* The inner kernels for any processor: the one text of the kern_*.h on the primitives of vec_scalar.h. */
#include <string.h>

#include "kernels/cpu/cpu.h"

#define TRI_ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/kern_table.h"
