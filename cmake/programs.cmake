# SPDX-License-Identifier: Apache-2.0
# What people run. The coordinator and the workers are built from their folders; main.c is kept out of the libraries so that tests can link them.
file(GLOB coordinator_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/*.c)
foreach(folder net replicas queue jobs stats journal)
  file(GLOB folder_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/${folder}/*.c)
  list(APPEND coordinator_sources ${folder_sources})
endforeach()
list(REMOVE_ITEM coordinator_sources ${CMAKE_SOURCE_DIR}/coordinator/main.c)
tri_library(tri_coordinator FILES ${coordinator_sources} LINK tri_model tri_tokenizer tri_grammar tri_wire tri_comm_mpi)
add_executable(trireme-coordinator coordinator/main.c)
target_link_libraries(trireme-coordinator PRIVATE tri_coordinator)

# Predictions of steps and figures of machines; of these the worker keeps some, and the plan reads them.
tri_library(tri_cost DIRS runtime/cost LINK tri_runtime)
tri_library(tri_worker DIRS worker/schedule worker/cost worker/placement worker/process LINK tri_cost tri_runtime tri_grammar tri_tokenizer tri_wire)
add_executable(trireme-worker worker/main.c)
target_link_libraries(trireme-worker PRIVATE tri_worker tri_comm_mpi)

file(GLOB up_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/up/*.c)
add_executable(trireme-up ${up_sources} coordinator/net/allowed_keys.c client/gateway/keys.c)
target_link_libraries(trireme-up PRIVATE tri_model tri_wire)

# Layouts by what they are predicted to take; a library, so that tests can link it.
tri_library(tri_plan FILES tools/plan/candidates.c tools/plan/recommend.c LINK tri_cost tri_runtime)
file(GLOB plan_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/plan/*.c)
list(REMOVE_ITEM plan_sources ${CMAKE_SOURCE_DIR}/tools/plan/candidates.c ${CMAKE_SOURCE_DIR}/tools/plan/recommend.c)
add_executable(trireme-plan ${plan_sources})
target_link_libraries(trireme-plan PRIVATE tri_plan tri_model tri_tokenizer)
add_executable(trireme-pack tools/pack/main.c)
target_link_libraries(trireme-pack PRIVATE tri_runtime)

# Checks of hosts; a library but for main.c, so that tests can link it.
tri_library(tri_doctor FILES tools/doctor/checks.c tools/doctor/findings.c tools/doctor/host.c tools/doctor/judge.c tools/doctor/remote.c tools/doctor/run.c
  LINK tri_cost tri_comm_mpi)
add_executable(trireme-doctor tools/doctor/main.c)
target_link_libraries(trireme-doctor PRIVATE tri_doctor)

add_executable(trireme-template tools/template/main.c)
target_link_libraries(trireme-template PRIVATE tri_chat)
add_executable(trireme-grammar tools/grammar/main.c)
target_link_libraries(trireme-grammar PRIVATE tri_grammar)
add_executable(trireme-chat client/talk/main.c)
target_link_libraries(trireme-chat PRIVATE tri_chat tri_cli)

# One rank without a coordinator.
tri_library(tri_bench_rank FILES tools/bench/rank.c LINK tri_worker)
add_executable(trireme-bench-latency tools/bench/latency.c tools/bench/steps.c)
add_executable(trireme-bench-stream tools/bench/stream.c tools/bench/steps.c tools/bench/verify.c)
foreach(bench latency stream)
  target_link_libraries(trireme-bench-${bench} PRIVATE tri_bench_rank)
endforeach()
target_link_libraries(trireme-bench-stream PRIVATE tri_comm_mpi)

add_executable(trireme-bench-load tools/bench/load.c)
target_link_libraries(trireme-bench-load PRIVATE tri_runtime)

set(server_programs trireme-coordinator trireme-worker trireme-up trireme-plan trireme-pack trireme-doctor trireme-template trireme-grammar trireme-chat
  trireme-bench-latency trireme-bench-load trireme-bench-stream)
add_dependencies(programs ${server_programs})
install(TARGETS ${server_programs})

# What was measured of products on devices; programs look for it in ../share/trireme, in the build's folder as in an installed tree.
configure_file(kernels/cuda/linear/gemm_tactics.txt share/trireme/cuda-gemm-tactics.txt COPYONLY)
install(FILES kernels/cuda/linear/gemm_tactics.txt DESTINATION share/trireme RENAME cuda-gemm-tactics.txt)

# What the README's commands name: example configurations, the bundled model, the documents.
install(DIRECTORY cluster-configs DESTINATION share/trireme USE_SOURCE_PERMISSIONS)
install(DIRECTORY tests/models/abacus DESTINATION share/trireme/models PATTERN expected.safetensors EXCLUDE)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN man EXCLUDE PATTERN Doxyfile EXCLUDE PATTERN doxygen.sed EXCLUDE)
install(FILES README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Units of systemd.
install(CODE "include(\"${CMAKE_SOURCE_DIR}/cmake/units.cmake\")
  trireme_write_units(\"${CMAKE_BINARY_DIR}/units\" \"\${CMAKE_INSTALL_PREFIX}\")
  file(INSTALL \"${CMAKE_BINARY_DIR}/units/lib\" \"${CMAKE_BINARY_DIR}/units/share\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}\")")
