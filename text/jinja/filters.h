/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of filters. */
#ifndef TRI_TEXT_JINJA_FILTERS_H
#define TRI_TEXT_JINJA_FILTERS_H

#include "text/jinja/exec.h"

/* Those of single values, and of lists. NULL: there is none of that name. */
const jfunction *j_value_filter(const char *name);
const jfunction *j_list_filter(const char *name);

#endif
