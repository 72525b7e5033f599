/* SPDX-License-Identifier: Apache-2.0 */
/* For the memory sanitizer, which knows nothing of what libraries write that were built without it. Else nothing. */
#ifndef TRI_BASE_FOREIGN_H
#define TRI_BASE_FOREIGN_H

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define TRI_HAS_MSAN
#endif
#endif

#ifdef TRI_HAS_MSAN
#include <sanitizer/msan_interface.h>
/* A library has written this, or will before anybody reads it. */
#define TRI_FOREIGN_WROTE(p, n) __msan_unpoison((p), (n))
/* Around a call of a library that reads memory of its own. */
#define TRI_FOREIGN_BEGIN() __msan_scoped_disable_interceptor_checks()
#define TRI_FOREIGN_END() __msan_scoped_enable_interceptor_checks()
#else
#define TRI_FOREIGN_WROTE(p, n) ((void)(p), (void)(n))
#define TRI_FOREIGN_BEGIN() ((void)0)
#define TRI_FOREIGN_END() ((void)0)
#endif

#endif
