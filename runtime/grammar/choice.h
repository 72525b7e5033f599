/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are one of some texts. */
#ifndef TRI_RUNTIME_GRAMMAR_CHOICE_H
#define TRI_RUNTIME_GRAMMAR_CHOICE_H

#include "runtime/grammar/network.h"

enum { TRI_CHOICE_MAX = 10000 };

typedef struct tri_choice_text {
  const char *s; /* any bytes */
  size_t len;
} tri_choice_text;

/* Texts may be equal, and empty. Errors: TRI_INVALID_ARGUMENT (there are none), TRI_TOO_LARGE (more than
 * TRI_CHOICE_MAX, or more bytes than a network has states), TRI_NO_MEMORY. *out: tri_net_destroy. */
tri_status tri_choice_compile(const tri_choice_text *texts, size_t num, tri_net **out, tri_error *err);

#endif
