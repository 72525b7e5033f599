# SPDX-License-Identifier: Apache-2.0
# Debian packages, by cpack -G DEB: the library, its header, and the programs with the bundled model; docs/packaging.md has the rest.
set(TRIREME_PACKAGE_CONTACT "The Trireme contributors <contributors@trireme.invalid>" CACHE STRING "who answers for the packages that are made here")
set(CPACK_PACKAGE_CONTACT "${TRIREME_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_VENDOR "The Trireme contributors")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL trireme libtrireme0 libtrireme-dev)
if(TARGET trireme-cuda)
  list(APPEND CPACK_COMPONENTS_ALL trireme-cuda)
endif()
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/deb/tree.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}) # of libtrireme0, which the programs name below
set(exactly "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# package(COMPONENT SECTION DEPENDS DESCRIPTION...): its fields; the first description is the short one.
function(package component section depends short)
  string(TOUPPER ${component} upper)
  list(JOIN ARGN "\n" long)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${short}\n${long}" PARENT_SCOPE)
endfunction()

# trireme up launches the ranks of a group with mpirun, on other hosts by ssh.
package(trireme net "libtrireme0 ${exactly}, openmpi-bin" "distributed inference of transformer models"
  "Serves language models that outgrow one machine or one GPU: a coordinator"
  "and groups of workers, with OpenAI's HTTP API before them. It brings a"
  "small model to try: trireme serve /usr/share/trireme/models/abacus")
set(CPACK_DEBIAN_TRIREME_PACKAGE_RECOMMENDS "openssh-client, curl")
package(libtrireme0 libs "" "client library of Trireme"
  "What programs need at run time that ask a Trireme cluster.")
set(CPACK_DEBIAN_LIBTRIREME0_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/cmake/deb/triggers)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
package(libtrireme-dev libdevel "libtrireme0 ${exactly}" "client library of Trireme, for development"
  "The header of libtrireme, and what pkg-config and CMake read.")
# NVIDIA's libraries come from other repositories than Debian's.
package(trireme-cuda net "trireme ${exactly}" "NVIDIA devices for Trireme"
  "The module that workers load where there are NVIDIA devices. It needs"
  "cuBLAS and NCCL.")
set(CPACK_DEBIAN_TRIREME-CUDA_PACKAGE_SHLIBDEPS OFF)
include(CPack)
