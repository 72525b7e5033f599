/* SPDX-License-Identifier: Apache-2.0 */
/* A range of a text's bytes. */
#ifndef TRI_BASE_SPAN_H
#define TRI_BASE_SPAN_H

#include <stddef.h>

typedef struct tri_span {
  size_t from, to;
} tri_span;

#endif
