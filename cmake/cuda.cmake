# SPDX-License-Identifier: Apache-2.0
# The CUDA toolkit is optional. The CUDA backend is a module of its own that workers load at run time, so that nothing else depends on it, and one build
# serves machines with and without a driver.
set(TRIREME_HAVE_CUDA OFF)
# Code for each kind of processor that the toolkit knows, and what later ones translate. 10.3 and 12.1 run the code of 10.0 and 12.0, but not that of
# sm_100a and sm_120a, whose own instructions nothing here uses.
set(architectures 80-real 89-real 90a-real)
if(NOT TRIREME_CUDA STREQUAL "OFF" AND NOT CMAKE_BUILD_TYPE MATCHES "^(Asan|Tsan)$")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(TRIREME_HAVE_CUDA ON)
    message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found")
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    enable_language(CUDA)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND architectures 100-real 120-real)
    endif()
  elseif(TRIREME_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_CUDA=ON, but no CUDA toolkit was found: set CUDAToolkit_ROOT, or use AUTO or OFF")
  else()
    message(STATUS "no CUDA toolkit: CPU backends only")
  endif()
endif()

set(TRIREME_CUDA_ARCHITECTURES "${architectures};80-virtual;90-virtual" CACHE STRING "what the CUDA module has code for")

option(TRIREME_CUDA_QUICK "compile the CUDA module in less time, to see that it compiles, its general kernels also for sm_120; most kernels are slow, and some lack float16" OFF)

option(TRIREME_CUDA_TIMELINE "kernels stamp when they begin, for tests/bench/timeline.sh; they are slower for it" OFF)

# Leaves out optimization but for what has products of Hopper (wgmma): of those the assembler says whether they would wait for each other, which is
# true of all that is not optimized. All other kernels are what runs on Blackwell, and are compiled for sm_120, too, which has the least shared memory, or
# nothing would tell when they no longer can be. Hopper's files have only empty kernels there, and take nearly a third of the time: ./test.sh --long
# compiles them, and all for sm_100.
function(trireme_compile_quickly)
  if(NOT TRIREME_CUDA_QUICK OR CUDAToolkit_VERSION VERSION_LESS 13)
    return()
  endif()
  list(FILTER ARGN INCLUDE REGEX "[.]cu$")
  list(FILTER ARGN EXCLUDE REGEX "(wgmma|moe/grouped|grouped_8bit|gemm_gated|gated_mlp|gemm_skinny|gemm_8bit|gemm_8bit_many)[.]cu$")
  set(options -Ofc=max)
  if(NOT "120-real" IN_LIST TRIREME_CUDA_ARCHITECTURES)
    list(APPEND options --generate-code=arch=compute_120,code=sm_120)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# Adds the module; after the programs, whose functions it uses.
function(trireme_cuda_module)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  file(GLOB comm_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/comm/device/*.c)
  list(FILTER comm_sources EXCLUDE REGEX "nccl\\.c$")
  list(APPEND sources ${comm_sources})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(NCCL_INCLUDE_DIR)
    list(APPEND sources ${CMAKE_SOURCE_DIR}/comm/device/nccl.c)
  else()
    message(STATUS "no nccl.h: CUDA devices one at a time only")
    list(APPEND sources ${CMAKE_SOURCE_DIR}/comm/device/no_nccl.c)
  endif()
  trireme_compile_quickly(${sources})
  add_library(trireme-cuda MODULE ${sources})
  if(NCCL_INCLUDE_DIR)
    target_include_directories(trireme-cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  endif()
  set_target_properties(trireme-cuda PROPERTIES CUDA_ARCHITECTURES "${TRIREME_CUDA_ARCHITECTURES}" CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin C_VISIBILITY_PRESET hidden)
  target_link_libraries(trireme-cuda PRIVATE CUDA::cudart_static CUDA::cublas CUDA::cublasLt)
  if(TRIREME_CUDA_QUICK)
    target_compile_definitions(trireme-cuda PRIVATE TRI_CUDA_QUICK)
  endif()
  if(TRIREME_CUDA_TIMELINE)
    target_compile_definitions(trireme-cuda PRIVATE TRI_CUDA_TIMELINE)
  endif()
  add_dependencies(programs trireme-cuda)
  install(TARGETS trireme-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT trireme-cuda)
endfunction()
