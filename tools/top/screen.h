/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of `trireme top`: what it shows, and how. The only user of ncurses, with top.c. */
#ifndef TRI_TOOLS_TOP_SCREEN_H
#define TRI_TOOLS_TOP_SCREEN_H

#include "client/trireme.h"
#include "tools/top/figures.h"

typedef struct top_view {
  const trireme_status *status;
  const char *endpoint;
  const char *metrics; /* as Prometheus reads them; empty where there are none */
  const top_history *history;
  bool internals; /* steps, layers, collectives */
} top_view;

/* Takes over the terminal until the close. Draw rewrites all of it, in the size that it has then. False: it is no
 * terminal that ncurses knows. */
bool top_screen_open(void);
void top_screen_close(void);
void top_screen_draw(const top_view *v);

#endif
