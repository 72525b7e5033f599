# The CUDA toolkit is optional. The CUDA backend is a module of its own that workers load at run time, so that nothing else depends on it, and one build
# serves machines with and without a driver.
set(TRIREME_HAVE_CUDA OFF)
set(TRIREME_CUDA_ARCHITECTURES "80-real;89-real;90a-real;80-virtual" CACHE STRING "what the CUDA module has code for")
if(NOT TRIREME_CUDA STREQUAL "OFF" AND NOT CMAKE_BUILD_TYPE MATCHES "^(Asan|Tsan)$")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(TRIREME_HAVE_CUDA ON)
    message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found")
    if(NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    enable_language(CUDA)
  elseif(TRIREME_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TRIREME_CUDA=ON, but no CUDA toolkit was found: set CUDAToolkit_ROOT, or use AUTO or OFF")
  else()
    message(STATUS "no CUDA toolkit: CPU backends only")
  endif()
endif()

# Adds the module; after the programs, whose functions it uses.
function(trireme_cuda_module)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  add_library(trireme-cuda MODULE ${sources})
  set_target_properties(trireme-cuda PROPERTIES CUDA_ARCHITECTURES "${TRIREME_CUDA_ARCHITECTURES}" CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin C_VISIBILITY_PRESET hidden)
  target_link_libraries(trireme-cuda PRIVATE CUDA::cudart_static CUDA::cublas)
  add_dependencies(programs trireme-cuda)
endfunction()
