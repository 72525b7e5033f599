# SPDX-License-Identifier: Apache-2.0
# The units of systemd with the programs' folder in them, which is known when they are installed: the system's in
# lib/systemd/system, the users' in share/systemd/user, where systemd looks below /usr, /usr/local and ~/.local alike.
set(trireme_units ${CMAKE_CURRENT_LIST_DIR}/../cluster-configs/systemd)

# Writes both below FOLDER, to run the programs of PREFIX.
function(trireme_write_units FOLDER PREFIX)
  string(REPLACE "%" "%%" program "${PREFIX}/bin/trireme")
  if(program MATCHES "[ \t]")
    set(program "\"${program}\"")
  endif()
  foreach(pair "trireme@|lib/systemd/system" "trireme-user@|share/systemd/user")
    string(REGEX REPLACE "[|].*" "" name "${pair}")
    string(REGEX REPLACE ".*[|]" "" place "${pair}")
    file(READ "${trireme_units}/${name}.service" text)
    string(REGEX REPLACE "ExecStart=[^ ]*" "ExecStart=${program}" text "${text}")
    file(WRITE "${FOLDER}/${place}/trireme@.service" "${text}")
  endforeach()
endfunction()
