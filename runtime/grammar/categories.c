/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/categories.h"

#include <string.h>

#include "text/unicode/unicode.h"

/* Characters next to each other that have one category. */
typedef struct run {
  uint32_t lo, hi;
  char name[3];
} run;

struct categories {
  run *list;
  size_t num, room;
};

/* Looking at one character takes so long. */
enum { CHARACTERS_OF_STEP = 2 };

static tri_status add_run(expr_context *x, struct categories *all, uint32_t lo, const char *name) {
  if (all->num == all->room) {
    size_t room = all->room ? 2 * all->room : 1024;
    run *grown = tri_arena_alloc(x->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (all->num) memcpy(grown, all->list, all->num * sizeof *grown);
    all->list = grown;
    all->room = room;
  }
  run *r = &all->list[all->num++];
  *r = (run){.lo = lo};
  memcpy(r->name, name, 2);
  return TRI_OK;
}

static tri_status list_runs(expr_context *x) {
  struct categories *all = tri_arena_alloc(x->arena, 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  TRI_CHECK(expr_work(x, CHARSET_LAST / CHARACTERS_OF_STEP));
  for (uint32_t c = 0; c <= CHARSET_LAST; c++) {
    const char *name = tok_category(c);
    if (!all->num || memcmp(all->list[all->num - 1].name, name, 2)) TRI_CHECK(add_run(x, all, c, name));
    all->list[all->num - 1].hi = c;
  }
  x->categories = all;
  return TRI_OK;
}

static const struct {
  char letters[3];
  const char *name;
} names[] = {
    {"L", "Letter"},
    {"LC", "Cased_Letter"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"M", "Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"S", "Symbol"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"C", "Other"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Co", "Private_Use"},
    {"Cn", "Unassigned"},
};

/* wanted: "Lu", "L", "LC", or "!Cn" of all but Cn. */
static bool is_of(const char *category, const char *wanted) {
  if (!strcmp(wanted, "LC")) return category[0] == 'L' && strchr("ult", category[1]);
  if (wanted[0] == '!') return strcmp(category, wanted + 1) != 0;
  return category[0] == wanted[0] && (!wanted[1] || category[1] == wanted[1]);
}

static tri_status add_runs(expr_context *x, const char *wanted, charset *out) {
  if (!x->categories) TRI_CHECK(list_runs(x));
  const struct categories *all = x->categories;
  for (size_t i = 0; i < all->num; i++)
    if (is_of(all->list[i].name, wanted) && !charset_add(x->arena, out, all->list[i].lo, all->list[i].hi))
      return TRI_NO_MEMORY;
  return expr_work(x, all->num);
}

tri_status categories_add(expr_context *x, const char *name, charset *out, bool *is_known) {
  bool is_any = !strcmp(name, "Any");
  *is_known = true;
  if (is_any || !strcmp(name, "ASCII"))
    return charset_add(x->arena, out, 0, is_any ? CHARSET_LAST : 0x7f) ? TRI_OK : TRI_NO_MEMORY;
  if (!strcmp(name, "Assigned")) return add_runs(x, "!Cn", out);
  if (!strncmp(name, "gc=", 3)) name += 3;
  if (!strncmp(name, "General_Category=", 17)) name += 17;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i].letters) || !strcmp(name, names[i].name)) return add_runs(x, names[i].letters, out);
  *is_known = false;
  return TRI_OK;
}
