# What people run. The coordinator and the workers are built from their folders; main.c is kept out of the libraries so that tests can link them.
file(GLOB coordinator_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/*.c)
list(REMOVE_ITEM coordinator_sources ${CMAKE_SOURCE_DIR}/coordinator/main.c)
tri_library(tri_coordinator FILES ${coordinator_sources} LINK tri_model tri_wire tri_comm_mpi)
add_executable(trireme-coordinator coordinator/main.c)
target_link_libraries(trireme-coordinator PRIVATE tri_coordinator)

file(GLOB worker_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/worker/*.c)
list(REMOVE_ITEM worker_sources ${CMAKE_SOURCE_DIR}/worker/main.c)
tri_library(tri_worker FILES ${worker_sources} LINK tri_runtime tri_wire)
add_executable(trireme-worker worker/main.c)
target_link_libraries(trireme-worker PRIVATE tri_worker tri_comm_mpi)

file(GLOB up_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/up/*.c)
add_executable(trireme-up ${up_sources})
target_link_libraries(trireme-up PRIVATE tri_model tri_wire)

add_executable(trireme-plan worker/plan/main.c)
target_link_libraries(trireme-plan PRIVATE tri_runtime)

add_executable(trireme-bench-latency worker/bench/latency.c)
target_link_libraries(trireme-bench-latency PRIVATE tri_runtime)
