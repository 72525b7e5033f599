/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of filters. */
#ifndef TRI_TEXT_JINJA_FILTERS_H
#define TRI_TEXT_JINJA_FILTERS_H

#include <stdio.h>

#include "text/jinja/exec.h"

const jfunction *j_list_filter(const char *name); /* NULL: there is none */

#endif
