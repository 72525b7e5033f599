/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at those parts of a model's folder that the coordinator reads. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/model/labels.h"
#include "text/tokenizer/tokenizer.h"
#include "tools/plan/plan.h"

/* A folder without one serves token ids. */
static tri_status check_tokenizer(const char *dir, tri_error *err) {
  char path[PATH_MAX + 64];
  tri_tokenizer *t = NULL;
  snprintf(path, sizeof path, "%s/tokenizer.json", dir);
  if (access(path, F_OK)) return TRI_OK;
  tri_status st = tri_tokenizer_load(path, &t, err);
  tri_tokenizer_destroy(t);
  return st;
}

tri_status plan_check_texts(const char *dir, const tri_model_config *c, tri_error *err) {
  tri_labels labels = {0};
  if (c->head.has_classifier) TRI_CHECK(tri_labels_load(dir, (size_t)c->head.num_labels, &labels, err));
  tri_labels_free(&labels);
  return check_tokenizer(dir, err);
}
