/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja/exec.h"
#include "text/jinja/filters.h"

static const jfunction *find_filter(const char *name) {
  const jfunction *f = j_value_filter(name);
  return f ? f : j_list_filter(name);
}

const jtables j_tables = {.filter = find_filter, .test = j_test};
