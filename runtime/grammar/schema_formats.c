/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of strings, each a pattern. Whatever fits a pattern has the format; some texts of a format do not fit: hours
 * with a leap second, the year 0000, quoted names before an @, names with more parts than the lengths below allow,
 * addresses of IPv4 within most of IPv6. */
#include <string.h>

#include "runtime/grammar/schema_impl.h"

/* RFC 3339 */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                           \
  "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"                \
  "02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define CLOCK "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" CLOCK ")"

/* Durations of ISO 8601 as RFC 3339 has them */
#define NUMBER "[0-9]{1,9}"
#define CLOCK_PARTS "T(?:" NUMBER "H(?:" NUMBER "M(?:" NUMBER "S)?)?|" NUMBER "M(?:" NUMBER "S)?|" NUMBER "S)"
#define DATE_PARTS "(?:" NUMBER "D|" NUMBER "M(?:" NUMBER "D)?|" NUMBER "Y(?:" NUMBER "M(?:" NUMBER "D)?)?)"
#define DURATION "P(?:" NUMBER "W|" DATE_PARTS "(?:" CLOCK_PARTS ")?|" CLOCK_PARTS ")"

/* RFC 1123 and 5321: labels of at most 63 characters, without two hyphens in a row (which IDNA has its own rules for),
 * and no more of them than fit into 253; 64 characters before the @, and 254 in all. */
#define AN "[A-Za-z0-9]"
#define LABEL "(?:" AN "{1,63}|" AN "{1,20}(?:-" AN "{1,20}){1,2}|" AN "{1,11}(?:-" AN "{1,11}){3,4})"
#define SHORT_LABEL AN "{1,15}(?:-" AN "{1,14})?"
#define HOST "(?:" LABEL "(?:\\." LABEL "){0,2}|" SHORT_LABEL "(?:\\." SHORT_LABEL "){3,7})"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LOCAL                                                                                                          \
  "(?:" ATEXT "{1,64}|" ATEXT "{1,20}(?:\\." ATEXT "{1,20}){1,2}|" ATEXT "{1,12}(?:\\." ATEXT "{1,12}){3,4})"
#define EMAIL LOCAL "@(?:" LABEL "(?:\\." LABEL ")?|" SHORT_LABEL "(?:\\." SHORT_LABEL "){2,5})"

/* RFC 2673, RFC 4291 */
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                                           \
  "(?:(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H "){1,2}|(?:" H ":){1,4}(?::" H  \
  "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H "){1,5}|" H ":(?::" H "){1,6}|:(?::" H                 \
  "){1,7}|::|::(?:[Ff]{4}:)?" IPV4 ")"
#define UUID "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"

/* RFC 3986 */
#define ENCODED "%[0-9A-Fa-f]{2}"
#define NAMED "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" ENCODED ")"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ENCODED ")"
#define REST "(?:\\?(?:[/?]|" PCHAR ")*)?(?:#(?:[/?]|" PCHAR ")*)?"
#define AUTHORITY "//(?:(?::|" NAMED ")*@)?(?:\\[" IPV6 "\\]|" NAMED "*)(?::[0-9]{0,5})?(?:/" PCHAR "*)*"
#define ROOTED "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:(?:" AUTHORITY "|" ROOTED "|" PCHAR "+(?:/" PCHAR "*)*)?" REST
#define RELATIVE "(?:" AUTHORITY "|" ROOTED "|(?:@|" NAMED ")+(?:/" PCHAR "*)*)?" REST

static const struct {
  const char *name, *pattern; /* NULL: without effect on strings */
  bool counts;                /* it has an effect on something */
} formats[] = {
    {"date-time", "^" DATE "T" TIME "$", true},
    {"date", "^" DATE "$", true},
    {"time", "^" TIME "$", true},
    {"duration", "^" DURATION "$", true},
    {"email", "^" EMAIL "$", true},
    {"hostname", "^" HOST "$", true},
    {"ipv4", "^" IPV4 "$", true},
    {"ipv6", "^" IPV6 "$", true},
    {"uuid", "^" UUID "$", true},
    {"uri", "^" URI "$", true},
    {"uri-reference", "^(?:" URI "|" RELATIVE ")$", true},
    {"int32", NULL, true}, /* schema_numbers.c */
    {"int64", NULL, true},
    {"float", NULL, false},
    {"double", NULL, false},
    {"password", NULL, false},
    {"byte", NULL, false},
    {"binary", NULL, false},
    {"regex", NULL, false},
};

static int find(const char *name) {
  for (int i = 0; i < (int)(sizeof formats / sizeof *formats); i++)
    if (!strcmp(formats[i].name, name)) return i;
  return -1;
}

tri_status schema_check_format(const schema_maker *m, const tri_json *node) {
  const char *name = tri_json_get_str(node, "format");
  if (!name) return schema_fail(m, TRI_INVALID_ARGUMENT, node, "format", "format must be a text");
  if (find(name) >= 0) return TRI_OK;
  return schema_fail(m, TRI_UNSUPPORTED, node, "format", "the format %.60s cannot be kept", name);
}

bool schema_format_counts(const char *name) { return find(name) >= 0 && formats[find(name)].counts; }

const char *schema_format_pattern(const char *name) { return find(name) >= 0 ? formats[find(name)].pattern : NULL; }
