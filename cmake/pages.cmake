# SPDX-License-Identifier: Apache-2.0
# The reference of libtrireme, man pages, and shell completions of the programs that are built.
find_program(DOXYGEN doxygen)
if(DOXYGEN)
  add_custom_target(docs WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "Making ${CMAKE_BINARY_DIR}/reference/html/index.html" VERBATIM
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/reference
    COMMAND sh -c "{ cat docs/Doxyfile; echo \"PROJECT_NUMBER = $1\"; echo \"OUTPUT_DIRECTORY = \\\"$0\\\"\"; } | ${DOXYGEN} -"
      ${CMAKE_BINARY_DIR}/reference ${PROJECT_VERSION})
endif()

if(NOT TARGET trireme)
  return()
endif()
get_target_property(TRIREME_PROGRAMS programs MANUALLY_ADDED_DEPENDENCIES)
list(FILTER TRIREME_PROGRAMS INCLUDE REGEX "^trireme-")

# trireme.1 is written by hand; every command and program has a page of its own that is made of its --help.
find_program(SCDOC scdoc)
find_program(HELP2MAN help2man)
add_custom_target(man ALL)
add_dependencies(programs man) # what demo.sh builds can be installed
if(SCDOC)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/trireme.1 DEPENDS docs/man/trireme.1.scd
    COMMAND sh -c "\"$0\" <\"$1\" >\"$2\"" ${SCDOC} ${CMAKE_SOURCE_DIR}/docs/man/trireme.1.scd ${CMAKE_BINARY_DIR}/trireme.1 VERBATIM)
  add_custom_target(man_trireme DEPENDS ${CMAKE_BINARY_DIR}/trireme.1)
  add_dependencies(man man_trireme)
  install(FILES ${CMAKE_BINARY_DIR}/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
# A program with a sanitizer tells more than its help.
if(HELP2MAN AND NOT CMAKE_BUILD_TYPE MATCHES "^(Asan|Tsan|Msan)$")
  set(TRIREME_PAGES ${CMAKE_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${TRIREME_PAGES}.made DEPENDS docs/man/pages.sh docs/man/common.h2m trireme ${TRIREME_PROGRAMS}
    COMMAND ${CMAKE_SOURCE_DIR}/docs/man/pages.sh ${HELP2MAN} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${PROJECT_VERSION} ${TRIREME_PAGES} ${TRIREME_PROGRAMS}
    COMMAND ${CMAKE_COMMAND} -E touch ${TRIREME_PAGES}.made
    COMMENT "Making man pages of --help" VERBATIM)
  add_custom_target(man_programs DEPENDS ${TRIREME_PAGES}.made)
  add_dependencies(man man_programs)
  install(DIRECTORY ${TRIREME_PAGES}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# bash and fish look for a file of the program's name.
set(completions ${CMAKE_BINARY_DIR}/completions)
file(REMOVE_RECURSE ${completions})
file(MAKE_DIRECTORY ${completions}/bash ${completions}/fish)
foreach(program ${TRIREME_PROGRAMS})
  file(CREATE_LINK trireme ${completions}/bash/${program} SYMBOLIC)
  file(CREATE_LINK trireme.fish ${completions}/fish/${program}.fish SYMBOLIC)
endforeach()
install(FILES client/completion/trireme.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME trireme)
install(DIRECTORY ${completions}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES client/completion/_trireme DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES client/completion/trireme.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY ${completions}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
