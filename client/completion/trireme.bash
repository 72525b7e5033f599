# SPDX-License-Identifier: Apache-2.0
# bash completion of the trireme command, and of the programs beside it. Options come from --help, so that they never fall behind.

_trireme_options() {
  "$@" --help-all 2>/dev/null | sed -n 's/^  \(-.*\)/\1/p' | sed 's/   *.*//' | grep -o -e '--\[no-\][a-z0-9-]*' -e '--[a-z0-9][a-z0-9-]*' | while read -r name; do
    case $name in
      '--[no-]'*) printf '%s\n' "--${name#--\[no-\]}" "--no-${name#--\[no-\]}" ;;
      *) printf '%s\n' "$name" ;;
    esac
  done
}

_trireme() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} cmd=${COMP_WORDS[1]}
  local -a path=("${COMP_WORDS[0]}" "$cmd")
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W 'serve up gateway submit chat embed classify status top cancel plan pack doctor journal template grammar bench eval keygen help --help --version' -- "$cur")
    return
  fi
  case $prev in
    --file | --output | --key-file | --api-key-file | --allowed-keys | --prompt-file | --chat-template | --input-len-file | --config | --hostfile)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
    --model | -m)
      mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      return
      ;;
    --input-len-distribution)
      mapfile -t COMPREPLY < <(compgen -W 'fixed uniform normal' -- "$cur")
      return
      ;;
    --on-disconnect)
      mapfile -t COMPREPLY < <(compgen -W 'cancel continue' -- "$cur")
      return
      ;;
    --text)
      [[ $cmd == eval ]] && mapfile -t COMPREPLY < <(compgen -f -- "$cur") && return
      ;;
  esac
  [[ $cmd =~ ^(serve|up|plan|pack|chat|eval)$ && $COMP_CWORD == 2 && $cur != -* ]] && mapfile -t COMPREPLY < <(compgen -d -- "$cur") && return
  case $cmd in
    help)
      mapfile -t COMPREPLY < <(compgen -W 'serve up gateway submit chat embed classify status top cancel plan pack doctor journal template grammar bench eval keygen' -- "$cur")
      return
      ;;
    bench)
      if ((COMP_CWORD == 2)); then
        mapfile -t COMPREPLY < <(compgen -W 'serve throughput latency load stream --help' -- "$cur")
        return
      fi
      path+=("${COMP_WORDS[2]}")
      ;;
    journal)
      ((COMP_CWORD == 2)) && mapfile -t COMPREPLY < <(compgen -W 'ls rm --help --version' -- "$cur") && return
      ;;
    keygen)
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
      ;;
  esac
  [[ $cur == -* ]] && mapfile -t COMPREPLY < <(compgen -W "$(_trireme_options "${path[@]}")" -- "$cur")
}
complete -F _trireme trireme

# The programs that the command starts, and those of a cluster by themselves.
_trireme_program() {
  local cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_trireme_options "${COMP_WORDS[0]}")" -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}
complete -F _trireme_program trireme-up trireme-gateway trireme-chat trireme-plan trireme-pack trireme-doctor trireme-template trireme-grammar \
  trireme-coordinator trireme-worker trireme-bench-{latency,load,stream}
