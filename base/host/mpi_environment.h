/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a launcher that is started by hand. */
#ifndef TRI_BASE_HOST_MPI_ENVIRONMENT_H
#define TRI_BASE_HOST_MPI_ENVIRONMENT_H

/* Takes what belongs to an MPI rank or a step out of this process's environment: Open MPI refuses to start inside one
 * whose variables it inherits. Its settings (OMPI_MCA_*, OMPI_ALLOW_*) stay; as root those that allow it are set. */
void tri_leave_mpi_job(void);

#endif
