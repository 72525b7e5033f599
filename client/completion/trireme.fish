# SPDX-License-Identifier: Apache-2.0
# fish completion of the trireme command, and of the programs beside it. Commands and options come from --help, so that they never fall behind.

# "NAME<tab>TEXT" of the lines behind the heading in the help of a command.
function __trireme_listed --argument-names heading
    $argv[2..] --help 2>/dev/null | sed -n "/^$heading:/,/^\$/s/^  \([a-z]*\)  *\(.*\)/\1\t\2/p"
end

# The command line as far as it says whose options are meant.
function __trireme_program
    set -l words (commandline -opc)
    if test (basename -- $words[1]) != trireme
        echo $words[1]
    else if test (count $words) -ge 3; and test $words[2] = bench
        printf '%s\n' $words[1..3]
    else if test (count $words) -ge 2
        printf '%s\n' $words[1..2]
    else
        echo $words[1]
    end
end

function __trireme_words
    set -l words (commandline -opc)
    test (basename -- $words[1]) = trireme; and type -q $words[1]; or return
    if test (count $words) = 1
        __trireme_listed Commands $words[1]
    else if test (count $words) = 2; and test $words[2] = bench
        __trireme_listed Kinds $words[1] bench
    end
end

function __trireme_options
    set -l program (__trireme_program)
    type -q $program[1]; or return
    for name in ($program --help-all 2>/dev/null | sed -n 's/^  \(-.*\)/\1/p' | sed 's/   *.*//' | grep -o -e '--\[no-\][a-z0-9-]*' -e '--[a-z0-9][a-z0-9-]*')
        if string match -q -- '--[no-]*' $name
            string replace -- '[no-]' '' $name
            string replace -- '[no-]' no- $name
        else
            printf '%s\n' $name
        end
    end
end

for program in trireme trireme-{up,gateway,chat,plan,pack,doctor,template,grammar,coordinator,worker,bench-latency,bench-load,bench-stream}
    complete -c $program -f -n '__trireme_words | string length -q' -a '(__trireme_words)'
    complete -c $program -n 'string match -q -- "-*" (commandline -ct)' -a '(__trireme_options)'
end
