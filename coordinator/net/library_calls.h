/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own accept, accept4 and recv. */
#ifndef TRI_COORDINATOR_NET_LIBRARY_CALLS_H
#define TRI_COORDINATOR_NET_LIBRARY_CALLS_H

/* Does nothing: whoever calls it is linked with those functions. */
void tri_library_calls_link(void);

#endif
