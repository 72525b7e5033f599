# SPDX-License-Identifier: Apache-2.0
# libtrireme, the C client library, and the command that is built on it.
include(CMakePackageConfigHelpers)
file(GLOB client_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/*.c)
add_library(libtrireme SHARED ${client_sources})
set_target_properties(libtrireme PROPERTIES OUTPUT_NAME trireme EXPORT_NAME trireme VERSION ${PROJECT_VERSION} SOVERSION 0 PUBLIC_HEADER client/trireme.h)
target_link_libraries(libtrireme PRIVATE tri_wire)
# Nothing of the libraries inside is seen outside.
target_link_options(libtrireme PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
target_include_directories(libtrireme INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/client> $<INSTALL_INTERFACE:include>)
add_dependencies(programs libtrireme)

install(TARGETS libtrireme EXPORT triremeTargets LIBRARY COMPONENT libtrireme0 NAMELINK_COMPONENT libtrireme-dev PUBLIC_HEADER COMPONENT libtrireme-dev)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme COMPONENT libtrireme-dev)
file(RELATIVE_PATH TRIREME_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(client/trireme.pc.in trireme.pc @ONLY)
configure_package_config_file(client/triremeConfig.cmake.in triremeConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libtrireme-dev)
install(FILES ${CMAKE_BINARY_DIR}/triremeConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme COMPONENT libtrireme-dev)

# The command reads JSON and YAML and has a screen of its own (trireme top).
if(NOT TARGET tri_base_text OR NOT NCURSES_FOUND)
  message(STATUS "no jansson, yaml-0.1 or ncurses: libtrireme without the command")
  return()
endif()
# What the programs below it share: the connection and its options, requests of options and of lines.
tri_library(tri_cli DIRS client/cli LINK libtrireme tri_wire tri_base_text)
# Requests and answers in the forms of OpenAI's API, of the gateway and of `submit --file`; those of chats need tokenizers.
if(TARGET tri_jinja)
  # Prompts of chats, and answers taken apart; a library, so that tests can link it.
  tri_library(tri_chat DIRS client/chat LINK tri_jinja tri_tokenizer)
  tri_library(tri_openai DIRS client/openai LINK libtrireme tri_chat tri_grammar)
else()
  tri_library(tri_openai FILES client/openai/error.c client/openai/logprobs.c LINK libtrireme tri_base_text)
endif()

file(GLOB cmd_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/cmd/*.c)
if(TARGET tri_jinja)
  list(REMOVE_ITEM cmd_sources ${CMAKE_SOURCE_DIR}/client/cmd/submit_no_chat.c)
else()
  list(REMOVE_ITEM cmd_sources ${CMAKE_SOURCE_DIR}/client/cmd/submit_chat.c)
endif()
add_executable(trireme ${cmd_sources})
target_link_libraries(trireme PRIVATE tri_cli tri_openai)
add_dependencies(programs trireme)
install(TARGETS trireme)

# Its tools that ask a running coordinator: commands of trireme, which starts them, and no programs to call by name.
function(command_tool name dir)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${dir}/*.c)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE tri_cli ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/libexec/trireme
    INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR}")
  add_dependencies(trireme ${name})
  install(TARGETS ${name} DESTINATION libexec/trireme)
endfunction()
command_tool(trireme-bench-serve tools/serve_bench)
command_tool(trireme-top tools/top PkgConfig::NCURSES)
if(TARGET tri_tokenizer) # for texts that are longer than a prompt
  command_tool(trireme-eval tools/eval tri_tokenizer)
endif()

# The HTTP gateway; main.c is kept out of the library so that tests can link it.
if(EVENT_FOUND AND TARGET tri_jinja)
  file(GLOB gateway_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/gateway/*.c)
  list(REMOVE_ITEM gateway_sources ${CMAKE_SOURCE_DIR}/client/gateway/main.c)
  tri_library(tri_gateway FILES ${gateway_sources} LINK tri_openai PkgConfig::EVENT)
  add_executable(trireme-gateway client/gateway/main.c)
  target_link_libraries(trireme-gateway PRIVATE tri_gateway)
  add_dependencies(programs trireme-gateway)
  install(TARGETS trireme-gateway)
endif()
