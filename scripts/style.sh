#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What clang-format does not look at: statements joined by commas, nested ternaries, statuses tested as booleans, and comments that
# begin with What, Who, Where, Of, As or Whether. And files that do not say their licence in their first two lines.
#   scripts/style.sh              checks the folders of $clean, and every file's licence; exit code 1 where something is wrong
#   scripts/style.sh FOLDER...    checks these
#   scripts/style.sh --counts     how many of each every folder has
#   scripts/style.sh --self-test  planted violations must be found, and what looks like them must not
set -u

# Grows until it has all of $all.
clean="base runtime/model text/unicode text/tokenizer text/jinja runtime/load runtime/step runtime/forward runtime/engine runtime/cost kernels comm offload \
worker tools coordinator client"
all="base runtime/model text/unicode text/tokenizer text/jinja runtime/load runtime/step runtime/forward runtime/engine runtime/cost kernels comm offload \
worker tools coordinator client tests"

look() { # FOLDER...: one line for each violation, "FILE:LINE: KIND: STATEMENT"
  find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs -r awk '
    FNR == 1 { comment = continued = brace = 0; begin_statement() }
    { line($0) }

    function begin_statement() { statement = before = ""; nested = depth = assigned = 0; split("", open); split("", ternaries) }
    function say(kind, text) {
      gsub(/[[:space:]]+/, " ", text)
      gsub(/\001/, ",", text)
      printf "%s:%d: %s: %s\n", FILENAME, kind == "comment" ? FNR : start, kind, substr(text, 1, 100)
    }

    function line(text, at, c, last) {
      text = without_comments(text)
      if (continued || text ~ /^[[:space:]]*#/) { # the preprocessor
        continued = text ~ /\\$/
        return
      }
      for (at = 1; at <= length(text); at++) {
        c = substr(text, at, 1)
        if (statement == "" && c != " ") start = FNR
        if (c == "<" && substr(text, at, 3) == "<<<") { c = "("; at += 2 } # how a kernel is launched
        if (c == ">" && substr(text, at, 3) == ">>>" && open[depth] == "(" && launch == depth) { c = ")"; at += 2 }
        if (c == "(" && substr(text, at, 1) == "<") launch = depth + 1
        if (c ~ /[]()[{}?,;=]/) mark(c)
        else if (statement != "" || c != " ") { statement = statement c; if (c != " ") before = c }
      }
      if (statement != "") statement = statement " "
    }

    # Strings become empty, characters a zero, and comments go; their first words are looked at.
    function without_comments(text, out, at, two) {
      out = ""
      while (text != "") {
        if (comment) {
          at = index(text, "*/")
          if (!at) return out
          text = substr(text, at + 2)
          comment = 0
        }
        if (!match(text, /"|\047|\/\*|\/\//)) return out text
        out = out substr(text, 1, RSTART - 1)
        two = substr(text, RSTART, 2)
        text = substr(text, RSTART)
        if (two == "//") return out
        if (two == "/*") {
          if (text ~ /^\/\* (What|Who|Where|Of|As|Whether)[ ,]/) say("comment", text)
          comment = 1
          text = substr(text, 3)
        } else if (match(text, /^"([^"\\]|\\.)*"/)) {
          out = out "\"\""
          text = substr(text, RLENGTH + 1)
        } else if (match(text, /^\047([^\047\\]|\\[^\047]+|\\.)\047/)) {
          out = out "0"
          text = substr(text, RLENGTH + 1)
        } else { # a quote inside a number, or what no compiler would take
          out = out " "
          text = substr(text, 2)
        }
      }
      return out
    }

    function mark(c) {
      if (c == "{" && depth == 0 && !(before == "=" || before == ")" && (assigned || statement ~ /(^|[^A-Za-z0-9_])return /))) return finish(c)
      if (c == "}" && depth == 0 || c == ";" && depth == 0) return finish(c)
      if (c == "=" && depth == 0) assigned = 1
      if (c == "?") {
        if (total_ternaries() > 0) nested = 1
        ternaries[depth]++
      }
      if (c == "," || c == ";") ternaries[depth] = 0
      if (c ~ /[({[]/) { open[++depth] = c; ternaries[depth] = 0 }
      if (c ~ /[])}]/ && depth > 0) { ternaries[depth - 1] += ternaries[depth]; depth-- }
      if (c == "," && depth == 0) c = "\001" # between statements, unless it is a declaration
      statement = statement c
      before = c
    }
    function total_ternaries(i, sum) { for (i = 0; i <= depth; i++) sum += ternaries[i]; return sum }

    function finish(c, s) {
      s = statement
      if (nested) say("ternary", s)
      if (is_boolean_status(s)) say("status", s)
      if (c == ";" && is_comma_statement(s) && !(start == brace && s !~ /^(else|while) /)) say("comma", s)
      begin_statement()
      brace = c == "}" ? FNR : 0 # "} name = ..., other;" declares
    }

    function is_boolean_status(s) {
      return s ~ /(^|[^A-Za-z0-9_])(if|while) \(st( &&| \|\||\))/ || s ~ /(&&|\|\|) st( &&| \|\||\)|;| \?|$)/ ||
        s ~ /(^|[^A-Za-z0-9_])!st([^A-Za-z0-9_.[(]|$)/ || s ~ /(^|[^A-Za-z0-9_.>])st \?/ || s ~ /\(st (&&|\|\|)/
    }

    # Of "if (x) else for (y) case Z: rest" only the rest.
    function without_control(s, again) {
      do {
        again = s
        sub(/^ +/, "", s)
        sub(/^(else|do) /, "", s)
        sub(/^(case [^:?]*|default|[A-Za-z_][A-Za-z0-9_]*) ?:/, "", s)
        if (s ~ /^(if|while|for|switch) ?\(/) s = behind_brackets(s)
      } while (s != again)
      return s
    }
    function behind_brackets(s, i, level, c) {
      for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c == "(") level++
        if (c == ")" && --level == 0) return substr(s, i + 1)
      }
      return ""
    }

    function is_comma_statement(s) {
      if (!index(s, "\001")) return 0
      s = without_control(s)
      gsub(/<[A-Za-z0-9_:, *\001]*>/, "", s) # arguments of a template
      if (!index(s, "\001")) return 0
      if (s ~ /^(static|const|struct|enum|union|extern|typedef|register|volatile|unsigned|signed|template|using|_Alignas|alignas|__shared__|__constant__|__device__|\.)/) return 0
      if (s ~ /^return[^A-Za-z0-9_]/) return 1
      return s !~ /^[A-Za-z_][A-Za-z0-9_]*([ *&]+[*&]*(const |restrict )*[A-Za-z_]|[ *]*\([*])/
    }'
}

# Files that we wrote and that have comments; build trees, what git keeps and what tests read are left out.
unlicensed() { # DIR: their names
  find "$1" \( -name build -o -name .git -o -name .cache -o -name .whl -o -name .gpu-deps -o -path "$1/tests/data" -o -path "$1/tests/fuzz/corpus" \) -prune -o -type f \( \
    -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.py' -o -name '*.bash' -o -name '*.fish' -o -name '*.cmake' \
    -o -name '*.sbatch' -o -name '*.in' -o -name CMakeLists.txt -o -name '_trireme*' -o -path '*/.ci/run' \) -print | while read -r file; do
    sed 2q "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$file: no line SPDX-License-Identifier: Apache-2.0"
  done | sort
}

counts() {
  printf '%-20s %8s %8s %8s %8s\n' folder comma ternary status comment
  for folder in $all; do
    [ -d "$folder" ] || continue
    look "$folder" | awk -v folder="$folder" -F ': ' '{ n[$2]++ }
      END { printf "%-20s %8d %8d %8d %8d\n", folder, n["comma"], n["ternary"], n["status"], n["comment"] }'
  done
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  wrong=0
  while IFS='|' read -r kind text; do
    printf '%b\n' "$text" >"$dir/x.c"
    found=$(look "$dir" | sed 's/^[^ ]* \([a-z]*\):.*/\1/' | sort -u | tr '\n' ' ')
    [ "$found" = "${kind:+$kind }" ] || { echo "found '$found', not '$kind': $text"; wrong=1; }
  done <<'CASES'
comma|void f(void) { a = 1, b = 2; }
comma|void f(void) {\n  f(x),\n      y = 3;\n}
comma|void f(void) { if (x) a++, b++; }
comma|void f(void) { else if (g(1, 2)) a = (T){1, 2}, b = 3; }
comma|void f(void) { for (int i = 0; i < n; i++) p[i] = 0, q[i] = 1; }
comma|void f(void) { switch (x) { case 1: a = 1, b = 2; break; } }
comma|void f(void) { (void)a, (void)b; }
comma|int f(void) { return a = 1, b; }
comma|void f(void) { *p = 1, *q = 2; }
comma|void f(void) { k<<<1, 2>>>(a, b), x = 1; }
comma|void f(void) { return a = f<T, 1>(x), b; }
|int a = 1, *b = &x, c[] = {1, 2};
|void f(int a, int b) { const char *p = "a = 1, b = 2;", *q; g(a, b); }
|void f(void) { for (i = 0, j = 1; i < n; i++, j--) g(i, j); }
|void f(void) { *s = (struct s){.a = 1, .b = {1, 2}, .c = f(1, 2)}; }
|static const struct x all[] = {{1, 2}, {.a = 1, .b = 2}};
|enum { A = 1, B = 2 };
|struct s { int a, b; char *c, **d; struct t *e, f; };
|void f(void) {\n  struct s {\n    int a;\n  } b = {1}, c[2];\n}
|#define TWICE(a) a = 1, \\\n  b = 2;
|void f(void) { k<<<1, 2>>>(a, b); }
|int f(void) { return a ? f<T, 1>(x) : f<T, 2>(x); }
|void f(void) { f<T, 1>(x, 2); }
|void f(void) { float4 &v = x.v[i], d = delta.v[i]; }
|tri_status f(void) { return (T){a, b}; }
|/* a = 1, b = 2; */ // c = 3, d = 4;
|void f(void) { int (*g)(int, int) = h, (*i)(void) = k; }
|void f(void) { char a = ',', b = '"', c = '\\'', d = 0; }
ternary|int f(void) { return a ? b : c ? d : e; }
ternary|int x = f(a ? b : g(c ? d : e, 1));
ternary|void f(void) { if (a ? b : c ? d : e) g(); }
ternary|void f(void) { x = (a ? b : c) + (d ? e : f); }
|void f(void) { g(a ? b : c, d ? e : f); }
|void f(void) { T x = {.a = b ? 1 : 2, .b = c ? 1 : 2}; }
|void f(void) { if (a) { x = b ? 1 : 2; } y = c ? 1 : 2; }
|void f(void) { puts("a ? b ? c"); g('?', "?"); }
status|void f(void) { if (st) return; }
status|void f(void) { if (!st) x = 1; }
status|void f(void) { while (st && x) g(); }
status|void f(void) { if (x && st) g(); }
status|int f(void) { return st ? 1 : 0; }
status|bool f(void) { return !st; }
|void f(void) { if (st != TRI_OK && x == TRI_OK) g(err, st); }
|void f(void) { if (last) return; if (!stop) g(!st_of(x)); if (p->st) g(); }
comment|/* What it is. */
comment|int a; /* Of the first. */
comment|/* Where two meet,\n * and more. */
|/* Whatever it is. */
|/* Offsets, as they are. */
|char *s = "/* What */";
CASES
  rm "$dir/x.c"
  mkdir "$dir/build" && touch "$dir/build/b.c" && printf '/* SPDX-License-Identifier: Apache-2.0 */\nint a;\n' >"$dir/a.c"
  [ -z "$(unlicensed "$dir")" ] || { echo "a licence was not found"; wrong=1; }
  printf '#!/bin/sh\n\n# SPDX-License-Identifier: Apache-2.0\n' >"$dir/late.sh"
  [ "$(unlicensed "$dir" | wc -l)" = 1 ] || { echo "a file without a licence was not found"; wrong=1; }
  [ $wrong = 0 ] && echo "every planted violation was found, and nothing else"
  exit $wrong
}

case ${1-} in
--self-test) self_test ;;
--counts) cd "$(dirname "$0")/.." && counts && exit ;;
-*) sed -n '3,8p' "$0"; exit 2 ;;
esac
cd "$(dirname "$0")/.." || exit 1
licences=
# shellcheck disable=SC2086
[ $# -gt 0 ] || { set -- $clean; licences=$(unlicensed .); }
found=$(look "$@" && printf '%s' "$licences")
[ -z "$found" ] && exit
printf '%s\n' "$found"
exit 1
