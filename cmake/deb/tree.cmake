# SPDX-License-Identifier: Apache-2.0
# What Debian wants beside the files that are installed: CPack runs it when they lie in a folder for each package.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH's, where it is set
include(${CMAKE_CURRENT_LIST_DIR}/../units.cmake)
file(GLOB packages "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
foreach(package ${packages})
  get_filename_component(name ${package} NAME)
  set(doc ${package}${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc/${name})
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${doc})
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/../../CHANGELOG.md ${doc}/changelog)
  file(WRITE ${doc}/changelog.Debian "trireme (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Packages by upstream; the changelog beside this one has what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
  if(EXISTS ${package}${CPACK_PACKAGING_INSTALL_PREFIX}/lib/systemd) # they have the folder of the packaging in them
    trireme_write_units(${package}${CPACK_PACKAGING_INSTALL_PREFIX} ${CPACK_PACKAGING_INSTALL_PREFIX})
  endif()
  file(REMOVE ${doc}/CHANGELOG.md ${doc}/LICENSE)
  file(GLOB pages ${package}${CPACK_PACKAGING_INSTALL_PREFIX}/share/man/man*/*)
  execute_process(COMMAND gzip -9n ${pages} ${doc}/changelog ${doc}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
endforeach()
