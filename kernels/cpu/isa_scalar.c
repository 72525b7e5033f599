/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/cpu.h"

#define TRI_ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/kern_table.h"
