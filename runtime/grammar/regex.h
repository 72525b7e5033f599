/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of ECMA-262 (2024, 22.2) with the flag u: characters are code points. An answer matches all of
 * the expression, so that ^ at its beginning and $ at its end say nothing new.
 *
 * There is no lookaround, no back reference, no \b and no \B; ^ and $ stand at the beginning and at the end of an
 * alternative. \p knows the general categories, Any, ASCII and Assigned. Beyond the flag u a character of ASCII that is
 * no letter and no digit may have a backslash before it, and `{`, `}`, `]`, and a `-` that is no range may stand for
 * themselves. Laziness says nothing, as what matches is the same.
 *
 * Repetitions of one class are counted, up to TRI_NET_MAX_COUNT; of anything else they are copies, at most 1,000. */
#ifndef TRI_RUNTIME_GRAMMAR_REGEX_H
#define TRI_RUNTIME_GRAMMAR_REGEX_H

#include "runtime/grammar/network.h"

enum { TRI_REGEX_MAX_BYTES = 64 << 10, TRI_REGEX_MAX_WORK = 6000000 };

/* Errors: TRI_INVALID_ARGUMENT (no expression, or nothing fits it), TRI_UNSUPPORTED, TRI_TOO_LARGE, TRI_NO_MEMORY; the
 * message says at which character, the first being 1. *out: tri_net_destroy. */
tri_status tri_regex_compile(const char *text, size_t len, tri_net **out, tri_error *err);

#endif
