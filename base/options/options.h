/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options and configuration files, by one table per program.
 *
 *   typedef struct demo { int64_t tp; uint64_t space; bool eager; const char *model; tri_dtype dtype; } demo;
 *   static const tri_option table[] = {
 *       {TRI_OPT(demo, tp), .name = "tensor-parallel-size", .alias = "tp", .min = 1, .max = 64, .fallback = "1",
 *        .group = "Layout", .help = "ranks that share each layer"},
 *       {TRI_OPT(demo, dtype), .name = "dtype", .choices = dtype_names, .fallback = "auto", .help = "..."}, ...
 *   };
 *   static const tri_options_spec spec = {.program = "demo", .usage = "[OPTION]... FILE", TRI_OPTIONS(table)};
 *   demo d = {0};
 *   int exit_code = tri_options_main(&spec, &d, argc, argv, &opts);   // handles --help, --version and mistakes
 *   if (exit_code >= 0) return exit_code;
 *
 * Spelling: --name VALUE, --name=VALUE, -alias VALUE, --alias VALUE; '-' and '_' mean the same inside a name. A bool is
 * --x or --no-x (also
 * --x=true). An integer of 64 unsigned bits may end in K, M, G or T or in KiB ... (powers of 1024),
 * or in KB, MB, GB or TB (powers of 1000), unless it is one with no_letters; so may a number with letters. "--" ends
 * the options. The last of several values wins, except for lists, which collect them.
 *
 * Where a value comes from, the strongest first: command line, environment variable, configuration file, fallback.
 * --help, --help-all, --version and, for a spec with config_file, --config FILE are understood without being in the
 * table. */
#ifndef TRI_BASE_OPTIONS_OPTIONS_H
#define TRI_BASE_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

/* Exit codes of every program; docs/man/trireme.1.scd tells users the same.
 * FAILED: something went wrong that may be right another time: a file or a peer is lost, it took too long.
 * USAGE: the options are wrong whatever the model and the machine (TRI_USAGE, and what the parser refuses).
 * REFUSED: this model, layout or request cannot be had here, and trying again would change nothing: what is asked for
 * is not supported, malformed, not permitted, or does not fit into the memory.
 * NOT_SERVING: `trireme status` alone, of a coordinator that answers and takes no requests, yet or any more.
 * DEVICE: a device has failed, or cannot be opened although it is there: who starts workers may look for another. */
enum {
  TRI_EXIT_OK = 0,
  TRI_EXIT_FAILED = 1,
  TRI_EXIT_USAGE = 2,
  TRI_EXIT_REFUSED = 3,
  TRI_EXIT_NOT_SERVING = 4,
  TRI_EXIT_DEVICE = 5
};
/* Returns the exit code of a program that ends with st. */
int tri_exit_code(tri_status st);

/* Values of an option that may be repeated. The strings belong to the tri_options. */
typedef struct tri_opt_list {
  const char **items;
  size_t count;
} tri_opt_list;

typedef enum tri_opt_type {
  TRI_OPT_BOOL,   /* bool */
  TRI_OPT_INT,    /* int */
  TRI_OPT_UINT,   /* unsigned, uint32_t, or an enum (which needs choices) */
  TRI_OPT_INT64,  /* int64_t */
  TRI_OPT_SIZE,   /* uint64_t, size_t; suffixes: K, KiB, KB, ... */
  TRI_OPT_NUM,    /* double; never NaN; "inf" only where max is infinite */
  TRI_OPT_STRING, /* const char *; belongs to the tri_options */
  TRI_OPT_LIST,   /* tri_opt_list */
} tri_opt_type;

/* The type and place of member m of struct S, for the start of a table entry. Members of an enum type count as
 * TRI_OPT_UINT. */
#define TRI_OPT(S, m)                                                                                                  \
  .offset = offsetof(S, m), .type = _Generic(((S *)0)->m,                                                              \
      bool: TRI_OPT_BOOL,                                                                                              \
      int: TRI_OPT_INT,                                                                                                \
      unsigned int: TRI_OPT_UINT,                                                                                      \
      long: TRI_OPT_INT64,                                                                                             \
      unsigned long: TRI_OPT_SIZE,                                                                                     \
      double: TRI_OPT_NUM,                                                                                             \
      const char *: TRI_OPT_STRING,                                                                                    \
      tri_opt_list: TRI_OPT_LIST)

typedef struct tri_option {
  size_t offset;
  tri_opt_type type;
  const char *name;           /* with '-', without leading dashes */
  const char *alias;          /* "tp" for -tp and --tp; may be NULL */
  double min, max;            /* of a number, inclusive; both 0: whatever the type holds */
  bool no_letters;            /* a TRI_OPT_SIZE that is a number and no size: suffixes mean nothing */
  bool letters;               /* a TRI_OPT_NUM of bytes: it has the suffixes of a TRI_OPT_SIZE, too */
  bool several;               /* a TRI_OPT_LIST that takes all arguments up to the next option */
  bool not_zero;              /* a number that lies between min and max, and is not 0 */
  bool or_zero;               /* 0 is allowed, too, though it is below min */
  const char *const *choices; /* NULL-terminated; TRI_OPT_INT and TRI_OPT_UINT get the index, TRI_OPT_STRING the text */
  const char *also;           /* "half=float16 ...": names that other programs have for choices; may be NULL */
  bool counts;                /* a number that may end in k, m or g (powers of 1000) or K, M or G (of 1024) */
  const char *fallback;       /* the default as one would type it; NULL: the destination stays as it is */
  const char *env;            /* environment variable; may be NULL */
  const char *help;           /* one sentence */
  const char *metavar;        /* "N", "FILE"; NULL: by type */
  const char *group;          /* heading in --help; entries of a group stand together; NULL: "Options" */
  unsigned programs;          /* bits of a table that several programs share, which of them show the option */
  bool hidden;                /* understood, but not shown by --help: of no use to this program */
} tri_option;

/* Arguments that belong to a word which is not an option of ours. */
typedef enum tri_word_values {
  TRI_WORD_ALONE,
  TRI_WORD_VALUE,   /* one */
  TRI_WORD_SWITCH,  /* perhaps one: on, off, auto, ... */
  TRI_WORD_NUMBERS, /* as many as are numbers */
} tri_word_values;

/* Names that other programs have for the same things, on the command line alone. Without option, why and instead it is
 * always so. */
typedef struct tri_option_word {
  const char *words;   /* names with blanks between them */
  const char *option;  /* the option that they are; NULL: none */
  const char *why;     /* what to say instead, where they are refused */
  const char *instead; /* what happens instead, for a warning (tri_options_note), where they change no answer */
  tri_word_values values;
} tri_option_word;

/* An option that most users of a program need, in one line. */
typedef struct tri_usual_option {
  const char *name; /* of the table */
  const char *help;
} tri_usual_option;

typedef struct tri_options_spec {
  const char *program; /* "trireme submit" */
  const char *usage;   /* what follows the program's name in the usage line */
  const char *summary; /* one sentence; may be NULL */
  const char *epilog;  /* after the options (examples); may be NULL */
  const char *version; /* printed by --version; NULL: no such option */
  bool config_file;    /* offer --config FILE */
  const tri_option *options;
  size_t count;
  /* A configuration file may serve several programs: names of these options are accepted in a file and skipped. May be
   * NULL. */
  const tri_option *elsewhere;
  size_t num_elsewhere;
  const tri_usual_option
      *usual; /* of a program with many options: --help has these, and --help-all the rest; or NULL */
  size_t num_usual;
  const tri_option_word *words; /* may be NULL */
  size_t num_words;
  const char *arg_option; /* the first positional argument is this option, which may be said either way; NULL: none */
  int min_args, max_args; /* positional arguments, but for that one; max -1: any number */
} tri_options_spec;
#define TRI_OPTIONS(table) .options = (table), .count = sizeof(table) / sizeof((table)[0])

typedef struct tri_options tri_options;

/* Parses argv[1..argc-1] into dest. On failure *err names the option, and dest is half filled. The spec and argv must
 * outlive *out; the strings in dest live until tri_options_free. After --help or --version nothing is checked. */
tri_status tri_options_parse(const tri_options_spec *spec, void *dest, int argc, char *const *argv, tri_options **out,
                             tri_error *err);
/* The same for a main(): prints help, version (stdout) or the mistake (stderr) and returns the exit code, or -1 to
 * continue with *out. It sees to the limits of the process, too, and opens the standard files where they are closed
 * (tri_file_open_standard). */
int tri_options_main(const tri_options_spec *spec, void *dest, int argc, char *const *argv, tri_options **out);
void tri_options_free(tri_options *o); /* NULL is fine */

/* True when the value of the named option is not its fallback's: it came from the command line, the environment or a
 * file. */
bool tri_options_given(const tri_options *o, const char *name);
bool tri_options_commanded(const tri_options *o, const char *name); /* it came from the command line */
/* Returns the text of a value that is not its fallback's, the last one of a list; NULL where there is none. For a
 * program that gives an option to another one as it was given. */
const char *tri_options_text(const tri_options *o, const char *name);
int tri_options_num_args(const tri_options *o);
const char *tri_options_arg(const tri_options *o, int i); /* positional; NULL beyond the last */
/* Returns a warning about a word of another program that was given and has no effect; NULL beyond the last. */
const char *tri_options_note(const tri_options *o, int i);
/* all: also what is not usual. */
void tri_options_print_help(const tri_options_spec *spec, bool all, FILE *out);

/* Reads a file of `name: value` lines (YAML: scalars, and sequences for lists) into options that the command line and
 * the environment have not set; --config does this by itself. Mistakes are reported as FILE:LINE:COLUMN. */
tri_status tri_options_load_file(tri_options *o, const char *path, tri_error *err);

/* Sets dest's member by option o from text with all checks, e.g. for values from a JSON line. STRING and LIST are
 * TRI_UNSUPPORTED here. */
tri_status tri_option_store(const tri_option *o, void *dest, const char *text, tri_error *err);

/* The index of the entry of names (count of them, stride bytes apart, each starting with a const char *) that resembles
 * name most, or -1 when nothing is near. For "did you mean". */
int tri_nearest_name(const char *name, const void *names, size_t count, size_t stride);

#endif
