#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program that was compiled for an older header, in which structs end earlier, goes on working with this library.
# Usage: abi.sh TRIREME FAKE_COORDINATOR CC LIBRARY
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/fake.sh" "$1" "$2"
cc=$3 library=$4
mkdir new old
cp "$SRC/client/trireme.h" new/
# The older header: every struct that a program makes or is handed lacks its last member.
awk '
  /^typedef struct/ { inside = 1; last = 0 }
  { line[NR] = $0 }
  inside && /;/ && !/^}/ { last = NR }
  inside && /^} trireme_(config|request|embed_request|choice|finished|logprobs|group_status|rank_status|group_floors|status);/ {
    for (i = last; i < NR; i++) line[i] = ""; dropped++
  }
  /^}/ { inside = 0 }
  END { for (i = 1; i <= NR; i++) print line[i]; if (dropped != 10) exit 1 }
' new/trireme.h >old/trireme.h || failed "the older header lacks the last member of fewer than 10 structs"
for version in new old; do
  "$cc" -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c "$version/trireme.h" 2>cc.err || failed "$version: $(cat cc.err)"
  "$cc" -std=c11 -Wall -Werror -I$version "$SRC/tests/tools/old_client.c" "$library" -Wl,-rpath,"$(dirname "$library")" -o $version/client 2>cc.err ||
    failed "$version/client: $(cat cc.err)"
done
start
for version in new old; do
  timeout $HANG_S $version/client "$TRIREME_ENDPOINT" >$version.out || failed "the $version client: exit code $?: $(tail -1 $version.out)"
  sort $version.out >$version.sorted # answers and streams come in between one another
done
stop
cmp new.sorted old.sorted || diff new.sorted old.sorted
[[ $? == 0 && $(grep -c '^tokens' new.sorted) == 6 && $(grep -c '^rank' new.sorted) == 2 ]] || failed "the older client differs: $(cat old.sorted)"
((failures == 0)) && echo "all fine: $(wc -l <new.out) lines"
exit $((failures > 0))
