# What people run. The coordinator and the workers are built from their folders; main.c is kept out of the libraries so that tests can link them.
file(GLOB coordinator_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/coordinator/*.c)
list(REMOVE_ITEM coordinator_sources ${CMAKE_SOURCE_DIR}/coordinator/main.c)
tri_library(tri_coordinator FILES ${coordinator_sources} LINK tri_model tri_tokenizer tri_wire tri_comm_mpi)
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

# One rank without a coordinator.
tri_library(tri_bench_rank FILES worker/bench/rank.c LINK tri_worker)
foreach(bench latency batching)
  add_executable(trireme-bench-${bench} worker/bench/${bench}.c)
  target_link_libraries(trireme-bench-${bench} PRIVATE tri_bench_rank)
endforeach()

# The allocators that activations are compared with; a library, so that tests can link them.
tri_library(tri_bench FILES worker/bench/caching_allocator.c worker/bench/greedy_arena.c LINK tri_runtime)
add_executable(trireme-bench-memory worker/bench/memory.c)
target_link_libraries(trireme-bench-memory PRIVATE tri_bench)
add_executable(trireme-bench-load worker/bench/load.c)
target_link_libraries(trireme-bench-load PRIVATE tri_runtime)

# libtrireme, the C client library, and the command that is built on it.
file(GLOB client_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/*.c)
add_library(libtrireme SHARED ${client_sources})
set_target_properties(libtrireme PROPERTIES OUTPUT_NAME trireme VERSION ${PROJECT_VERSION} SOVERSION 0 PUBLIC_HEADER client/trireme.h)
target_link_libraries(libtrireme PRIVATE tri_wire)
# Nothing of the libraries inside is seen outside.
target_link_options(libtrireme PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
target_include_directories(libtrireme INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/client> $<INSTALL_INTERFACE:include>)

file(GLOB cmd_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/cmd/*.c)
add_executable(trireme ${cmd_sources})
target_link_libraries(trireme PRIVATE libtrireme tri_wire PkgConfig::NCURSES)

# What demo.sh builds: everything that people run, and no tests.
add_custom_target(programs DEPENDS trireme-coordinator trireme-worker trireme-up trireme-plan trireme-bench-latency trireme-bench-batching trireme-bench-memory trireme-bench-load trireme)

include(CMakePackageConfigHelpers)
set(TRIREME_SHARED ON)
set_target_properties(libtrireme PROPERTIES EXPORT_NAME trireme)
install(TARGETS trireme trireme-coordinator trireme-worker trireme-up trireme-plan trireme-bench-latency trireme-bench-batching trireme-bench-memory trireme-bench-load)
install(TARGETS libtrireme EXPORT triremeTargets)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
file(RELATIVE_PATH TRIREME_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(client/trireme.pc.in trireme.pc @ONLY)
configure_package_config_file(client/triremeConfig.cmake.in triremeConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/triremeConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)

# What was measured of products on devices; programs look for it in ../share/trireme, in the build's folder as in an installed tree.
configure_file(kernels/cuda/choices.txt share/trireme/cuda-choices.txt COPYONLY)
install(FILES kernels/cuda/choices.txt DESTINATION share/trireme RENAME cuda-choices.txt)

# What the README's commands name: example configurations, the bundled model, the documents.
install(DIRECTORY cluster-configs DESTINATION share/trireme)
install(DIRECTORY tests/models/abacus DESTINATION share/trireme/models PATTERN expected.safetensors EXCLUDE)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN man EXCLUDE)
install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Man page and shell completion.
find_program(SCDOC scdoc)
if(SCDOC)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/trireme.1 DEPENDS docs/man/trireme.1.scd
    COMMAND sh -c "'${SCDOC}' <'${CMAKE_SOURCE_DIR}/docs/man/trireme.1.scd' >'${CMAKE_BINARY_DIR}/trireme.1'" VERBATIM)
  add_custom_target(man ALL DEPENDS ${CMAKE_BINARY_DIR}/trireme.1)
  add_dependencies(programs man) # what demo.sh builds can be installed
  install(FILES ${CMAKE_BINARY_DIR}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES client/completion/trireme.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme)
install(FILES client/completion/_trireme DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
