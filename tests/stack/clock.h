/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that a test moves. It stands in place of the C library's for one thread, from clock_take to clock_give, and
 * for all that this thread calls: the product, libevent's timers, and timers of descriptors. Other threads, such as
 * ZeroMQ's, have the system's, and so has the time of day. */
#ifndef TRI_TESTS_STACK_CLOCK_H
#define TRI_TESTS_STACK_CLOCK_H

#include <stdint.h>

/* Takes the clock for the calling thread: it stands still, at the system's time. */
void clock_take(void);
void clock_give(void);
void clock_advance(int64_t ns);

#endif
