/* SPDX-License-Identifier: Apache-2.0 */
/* A valid message of each kind, and what tests of messages share. */
#ifndef TRI_TESTS_UNIT_WIRE_SAMPLES_H
#define TRI_TESTS_UNIT_WIRE_SAMPLES_H

#include <check.h>
#include <string.h>

#include "comm/wire/replica.h"

static inline tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

#define ck_str(wire, expected)                                                                                         \
  do {                                                                                                                 \
    ck_assert_uint_eq((wire).len, strlen(expected));                                                                   \
    ck_assert(!memcmp((wire).s, expected, (wire).len));                                                                \
  } while (0)

typedef enum which { CLIENT, SERVER, GROUP } which;
typedef struct sample {
  which kind;
  const char *name;
  tri_buf buf;
} sample;
enum { MAX_SAMPLES = 64 };

extern const uint32_t ids4[4];
extern const float floats2[2];
extern const tri_replica_token group_tokens[6]; /* a plain one, one with everything, one without probability */

tri_arena *arena(void);
tri_status unpack(which kind, const void *data, size_t len, tri_arena *a, tri_error *err);
/* Every field other than its default. */
void fill_submit(tri_submit *s);
void fill_status(tri_cluster_status *s);
tri_choice_tokens choice_tokens(const tri_token_logprobs *l);
/* Returns how many there are. */
int make_samples(sample out[MAX_SAMPLES]);
void free_samples(sample *s, int n);
void add_case(Suite *s, const char *name, const TTest *const *tests, size_t n);
#define ADD_CASE(name, ...)                                                                                            \
  do {                                                                                                                 \
    const TTest *const list[] = {__VA_ARGS__};                                                                         \
    add_case(s, name, list, sizeof list / sizeof *list);                                                               \
  } while (0)

#endif
