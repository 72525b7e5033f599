#include <string.h>

#include "kernels/cpu/cpu.h"

#define TRI_ISA scalar
#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/kern_attn.h"
#include "kernels/cpu/kern_dot.h"
#include "kernels/cpu/kern_int8.h"
#include "kernels/cpu/kern_panel.h"
#include "kernels/cpu/kern_sample.h"

#include "kernels/cpu/kern_table.h"
