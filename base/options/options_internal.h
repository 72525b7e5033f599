/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the option parser only. */
#ifndef TRI_BASE_OPTIONS_OPTIONS_INTERNAL_H
#define TRI_BASE_OPTIONS_OPTIONS_INTERNAL_H

#include "base/mem.h"
#include "base/options/options.h"

/* The source of a value, weakest first. */
typedef enum tri_opt_source {
  TRI_FROM_NOWHERE,
  TRI_FROM_FALLBACK,
  TRI_FROM_FILE,
  TRI_FROM_ENV,
  TRI_FROM_ARGS
} tri_opt_source;

struct tri_options {
  const tri_options_spec *spec;
  void *dest;
  tri_arena *arena; /* strings */
  struct tri_opt_state {
    tri_opt_source source;
    const char *text;   /* the last one that was given; NULL: none */
    const char **items; /* of a list */
    size_t cap;
  } * state;
  const char **args;
  int num_args;
  const char **notes;
  int num_notes;
  const char *config;
  bool help, help_all, version;
};

/* One spelling of a limit for errors and help: whole powers of 1024 of a size get their letter. Returns buf. */
const char *tri_option_limit(const tri_option *o, double x, char buf[32]);
const tri_option *tri_options_find(const tri_option *t, size_t count, const char *name, size_t len);
/* Compares a name of a table with one that was given, in which '_' stands for '-'. */
bool tri_option_same_name(const char *table, const char *given, size_t len);
/* Takes argv[*i], whose name has len bytes and is not of the table. *t: the option that it stands for; NULL: nothing is
 * left to do, and its arguments are passed. */
tri_status tri_options_take_word(tri_options *o, size_t len, int argc, char *const *argv, int *i, const tri_option **t,
                                 tri_error *err);
/* Does nothing when a stronger source has set the option. */
tri_status tri_options_assign(tri_options *o, const tri_option *t, const char *text, tri_opt_source source,
                              tri_error *err);

#endif
