# SPDX-License-Identifier: Apache-2.0
# Every library that Trireme uses, by its pkg-config name; libtrireme is content with ZeroMQ and msgpack. scripts/install-deps.sh installs them from the distribution.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
# Asked anew each time: its flags hold an -isystem on Debian, which CMake (3.25) makes an include folder, but leaves a flag when it takes
# them from the cache. The second configure would then compile everything again.
unset(__pkg_config_checked_ZMQ CACHE)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq>=4.3)
# Upstream's version 6 is called msgpack-c, the distributions' version 4 msgpack.
pkg_search_module(MSGPACK REQUIRED IMPORTED_TARGET msgpack-c msgpack)
# The command's and the gateway's, without which TRIREME_CLIENT_ONLY builds libtrireme alone.
if(NOT TRIREME_CLIENT_ONLY)
  set(required REQUIRED)
endif()
pkg_check_modules(JANSSON ${required} IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(YAML ${required} IMPORTED_TARGET yaml-0.1)
pkg_check_modules(NCURSES ${required} IMPORTED_TARGET ncurses)
pkg_check_modules(EVENT ${required} IMPORTED_TARGET libevent_core>=2.1)
pkg_check_modules(HWLOC ${required} IMPORTED_TARGET hwloc>=2.5)
pkg_check_modules(PCRE2 ${required} IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC ${required} IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH ${required} IMPORTED_TARGET libxxhash)
if(TRIREME_CLIENT_ONLY)
  return()
endif()

find_package(MPI REQUIRED COMPONENTS C)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing>=2.0)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
pkg_check_modules(CHECK IMPORTED_TARGET check>=0.15)
