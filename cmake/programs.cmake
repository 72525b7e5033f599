# SPDX-License-Identifier: Apache-2.0
# What people run. The coordinator and the workers are built from their folders; main.c is kept out of the libraries so that tests can link them.
file(GLOB coordinator_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/*.c)
foreach(folder net replicas queue jobs stats journal)
  file(GLOB folder_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/${folder}/*.c)
  list(APPEND coordinator_sources ${folder_sources})
endforeach()
list(REMOVE_ITEM coordinator_sources ${CMAKE_SOURCE_DIR}/coordinator/main.c)
tri_library(tri_coordinator FILES ${coordinator_sources} LINK tri_model tri_tokenizer tri_wire tri_comm_mpi)
add_executable(trireme-coordinator coordinator/main.c)
target_link_libraries(trireme-coordinator PRIVATE tri_coordinator)

tri_library(tri_machine_file FILES worker/plan/disk_read.c worker/plan/machine_file.c LINK tri_base tri_offload)
file(GLOB worker_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/worker/*.c)
list(REMOVE_ITEM worker_sources ${CMAKE_SOURCE_DIR}/worker/main.c)
tri_library(tri_worker FILES ${worker_sources} LINK tri_plan tri_machine_file tri_runtime tri_wire)
add_executable(trireme-worker worker/main.c)
target_link_libraries(trireme-worker PRIVATE tri_worker tri_comm_mpi)

file(GLOB up_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/up/*.c)
add_executable(trireme-up ${up_sources})
target_link_libraries(trireme-up PRIVATE tri_model tri_wire)

# Predictions, and layouts by them; a library, so that tests can link it.
tri_library(tri_plan FILES worker/plan/candidates.c worker/plan/cost.c worker/plan/cost_share.c worker/plan/disk_rate.c worker/plan/host_rates.c worker/plan/machine.c worker/plan/recommend.c worker/plan/streaming.c
  LINK tri_machine_file tri_runtime)
add_executable(trireme-plan worker/plan/main.c worker/plan/backend.c worker/plan/devices.c worker/plan/host_experts.c worker/plan/print.c worker/plan/print_layouts.c worker/plan/print_streaming.c worker/plan/stream_plan.c worker/plan/texts.c)
target_link_libraries(trireme-plan PRIVATE tri_plan tri_model tri_tokenizer)
add_executable(trireme-pack worker/pack/main.c)
target_link_libraries(trireme-pack PRIVATE tri_runtime)

# Checks of hosts; a library but for main.c, so that tests can link it.
tri_library(tri_doctor FILES worker/doctor/checks.c worker/doctor/findings.c worker/doctor/host.c worker/doctor/judge.c worker/doctor/remote.c worker/doctor/run.c
  LINK tri_plan tri_comm_mpi)
add_executable(trireme-doctor worker/doctor/main.c)
target_link_libraries(trireme-doctor PRIVATE tri_doctor)

add_executable(trireme-template client/chat/main.c)
target_link_libraries(trireme-template PRIVATE tri_chat)
add_executable(trireme-chat client/chat/talk.c client/cmd/connect.c client/cmd/request.c)
target_link_libraries(trireme-chat PRIVATE tri_chat libtrireme tri_wire)

# One rank without a coordinator.
tri_library(tri_bench_rank FILES worker/bench/rank.c LINK tri_worker)
add_executable(trireme-bench-batching worker/bench/batching.c)
add_executable(trireme-bench-latency worker/bench/latency.c worker/bench/steps.c)
add_executable(trireme-bench-stream worker/bench/stream.c worker/bench/steps.c worker/bench/verify.c)
foreach(bench batching latency stream)
  target_link_libraries(trireme-bench-${bench} PRIVATE tri_bench_rank)
endforeach()
target_link_libraries(trireme-bench-stream PRIVATE tri_comm_mpi)

# The allocators that activations are compared with; a library, so that tests can link them.
tri_library(tri_bench FILES worker/bench/caching_allocator.c worker/bench/greedy_arena.c LINK tri_runtime)
add_executable(trireme-bench-memory worker/bench/memory.c)
target_link_libraries(trireme-bench-memory PRIVATE tri_bench)
add_executable(trireme-bench-load worker/bench/load.c)
target_link_libraries(trireme-bench-load PRIVATE tri_runtime)

set(server_programs trireme-coordinator trireme-worker trireme-up trireme-plan trireme-pack trireme-doctor trireme-template trireme-chat
  trireme-bench-latency trireme-bench-batching trireme-bench-memory trireme-bench-load trireme-bench-stream)
add_dependencies(programs ${server_programs})
install(TARGETS ${server_programs})

# What was measured of products on devices; programs look for it in ../share/trireme, in the build's folder as in an installed tree.
configure_file(kernels/cuda/gemm_tactics.txt share/trireme/cuda-gemm-tactics.txt COPYONLY)
install(FILES kernels/cuda/gemm_tactics.txt DESTINATION share/trireme RENAME cuda-gemm-tactics.txt)

# What the README's commands name: example configurations, the bundled model, the documents.
install(DIRECTORY cluster-configs DESTINATION share/trireme USE_SOURCE_PERMISSIONS)
install(DIRECTORY tests/models/abacus DESTINATION share/trireme/models PATTERN expected.safetensors EXCLUDE)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN man EXCLUDE PATTERN Doxyfile EXCLUDE PATTERN doxygen.sed EXCLUDE)
install(FILES README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Units of systemd.
install(CODE "include(\"${CMAKE_SOURCE_DIR}/cmake/units.cmake\")
  trireme_write_units(\"${CMAKE_BINARY_DIR}/units\" \"\${CMAKE_INSTALL_PREFIX}\")
  file(INSTALL \"${CMAKE_BINARY_DIR}/units/lib\" \"${CMAKE_BINARY_DIR}/units/share\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}\")")
