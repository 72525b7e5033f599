/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of rows in device_comm. */
#ifndef TRI_TESTS_COMM_DEVICE_ROWS_H
#define TRI_TESTS_COMM_DEVICE_ROWS_H

#include "tests/comm/device_comm.h"

/* Makes d->comm for such rows, or ends the test; and gives it up. */
typedef void (*dc_rows_connect)(dc_rank *d, const tri_rows_config *rows);
typedef void (*dc_rows_disconnect)(dc_rank *d);

void dc_test_rows(dc_rank *d, dc_rows_connect connect, dc_rows_disconnect disconnect);  /* device_rows.c */
void dc_bench_rows(dc_rank *d, dc_rows_connect connect, dc_rows_disconnect disconnect); /* device_rows_bench.c */

#endif
