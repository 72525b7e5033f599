/* SPDX-License-Identifier: Apache-2.0 */
/* A classifier's labels: their names, and how its logits are meant, both from config.json. */
#ifndef TRI_RUNTIME_MODEL_LABELS_H
#define TRI_RUNTIME_MODEL_LABELS_H

#include <stddef.h>

#include "base/status.h"

enum { TRI_LABEL_BYTES = 256 }; /* of one name */

/* The values of problem_type. SINGLE: one label of several is right; MULTI: each for itself; REGRESSION: numbers. */
typedef enum tri_problem { TRI_PROBLEM_SINGLE, TRI_PROBLEM_MULTI, TRI_PROBLEM_REGRESSION } tri_problem;

typedef struct tri_labels {
  size_t count;
  char **names; /* [count] */
  tri_problem problem;
} tri_labels;

/* count: of the model's labels; those without a name in id2label are called LABEL_i. The texts are the caller's, to
 * free with tri_labels_free, which also takes an empty object. Errors name config.json and the key. */
tri_status tri_labels_load(const char *dir, size_t count, tri_labels *out, tri_error *err);
void tri_labels_free(tri_labels *l);

#endif
