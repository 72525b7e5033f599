/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars as llama.cpp writes them (GBNF): `name ::= alternatives`, in which come "texts", [classes], `.`, names of
 * rules, (groups) and repetitions ? * + {m} {m,} {m,n}, and # comments to the end of a line. A rule ends with its line,
 * but in a group and after a `|`. The answer is the rule `root`.
 *
 * A rule that has itself as the first part of an alternative becomes a repetition. Other left recursion is refused,
 * with the rules that lead from one to another. */
#ifndef TRI_RUNTIME_GRAMMAR_GBNF_H
#define TRI_RUNTIME_GRAMMAR_GBNF_H

#include "runtime/grammar/network.h"

enum { TRI_GBNF_MAX_BYTES = 256 << 10, TRI_GBNF_MAX_RULES = 10000, TRI_GBNF_MAX_WORK = 6000000 };

/* Errors: TRI_INVALID_ARGUMENT (no grammar, an unknown rule, no root, or nothing fits it), TRI_UNSUPPORTED (left
 * recursion, tokens by name), TRI_TOO_LARGE, TRI_NO_MEMORY; the message says in which line. *out: tri_net_destroy. */
tri_status tri_gbnf_compile(const char *text, size_t len, tri_net **out, tri_error *err);

#endif
