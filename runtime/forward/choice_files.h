/* Files of choices (kernels/choices.h): a table that comes with the product, and what this user's machines
 * have measured, which comes first. */
#ifndef TRI_RUNTIME_FORWARD_CHOICE_FILES_H
#define TRI_RUNTIME_FORWARD_CHOICE_FILES_H

#include <limits.h>

#include "kernels/choices.h"

/* ../share/trireme/cuda-choices.txt, seen from the running program's folder; empty where that is not known. */
void tri_choice_file_shipped(char out[PATH_MAX]);
/* $XDG_CACHE_HOME/trireme/choices-KEY.txt, with the key in a form that suits a name; without that variable, in
 * ~/.cache. Empty: there is no such folder. */
void tri_choice_file_cache(const char *key, char out[PATH_MAX]);

/* Puts what the files have for the key, those of the second replacing those of the first. A file that is not there (or
 * an empty path) has none, and neither has one that is refused, which the log says. counts: how many each had. */
void tri_choice_files_load(tri_choices *c, const char *key, const char *shipped, const char *cache, int counts[2]);

/* Adds choices to those of a file, or begins one; what they replace is gone. */
tri_status tri_choice_file_add(const char *path, const char *key, const tri_choices *measured, tri_error *err);

#endif
