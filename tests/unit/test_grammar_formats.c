/* SPDX-License-Identifier: Apache-2.0 */
/* Formats: texts that have them, and texts that do not. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/grammar/configurations.h"
#include "runtime/grammar/schema.h"

Suite *suite_grammar_formats(void);

#define A10 "aaaaaaaaaa"
#define A60 A10 A10 A10 A10 A10 A10

static const struct {
  const char *format;
  const char *good[14], *bad[20];
} formats[] = {
    {"date",
     {"2026-11-30", "2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "1600-02-29"},
     {"2026-02-29", "1900-02-29", "2100-02-29", "2026-04-31", "2026-13-01", "2026-00-01", "2026-01-00", "2026-1-1",
      "26-01-01", "2026-01-01T", "0000-01-01", ""}},
    {"time",
     {"00:00:00Z", "23:59:59.123456789+23:59", "08:30:06-08:00"},
     {"24:00:00Z", "08:60:00Z", "08:30:60Z", "08:30:06", "08:30Z", "08:30:06.Z", "08:30:06+24:00", "08:30:06+0100",
      "8:30:06Z"}},
    {"date-time",
     {"2026-11-30T20:00:00Z", "2024-02-29T23:59:59.5-01:30"},
     {"2026-11-30 20:00:00Z", "2026-11-30T20:00:00", "2026-02-30T20:00:00Z", "2026-11-30"}},
    {"duration",
     {"P4DT12H30M5S", "P4Y", "PT0S", "P0D", "P1M", "PT1M", "PT36H", "P1DT12H", "P2W", "P1Y2M3D"},
     {"PT1D", "4DT12H30M5S", "P4DT12H30M5S ", "P", "P1YT", "PT", "P2D1Y", "P1D2H", "P1W2D", "P1Y2W", "P1Y2D", "PT1H2S",
      "P1S"}},
    {"email",
     {"joe.bloggs@example.com", "a@b", "te~st@example.com", "~test@a-b.c.d.e", "a+b@x-y-z.org", A60 "@" A60},
     {"2962", ".test@example.com", "test.@example.com", "te..st@example.com", "a@", "@b", "a@b..c", "a@-b", "a@b-",
      "a b@c", "a@b c", A60 "aaaaa@b", "a@" A60 "aaaa"}},
    {"hostname",
     {"www.example.com", "hostname", "host-name", "h0stn4me", "1host", "hostnam3", "a.b.c.d.e.f.g.h", A60 "aaa.com",
      "a-b-c-d-e"},
     {"-a-host", "not_a_valid_host_name", "a-", "a..b", ".a", "a.", "", A60 "aaaa.com", "a--b", "h\xc3\xa9.fr", "a b"}},
    {"ipv4",
     {"192.168.0.1", "0.0.0.0", "255.255.255.255", "87.10.0.1"},
     {"127.0.0.0.1", "256.256.256.256", "127.0", "0x7f000001", "2130706433", "087.10.0.1", "1.2.3.4/24", "1.2.3.04",
      "1.2.3."}},
    {"ipv6",
     {"::1", "::", "1::", "1:2:3:4:5:6:7:8", "::abef", "1::8", "1:2::7:8", "::ffff:192.168.0.1",
      "abcd::", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3::5:6:7:8"},
     {"12345::", "::abcef", "1:1:1:1:1:1:1:1:1", "::laptop", "1:2:3:4:5:::8", ":2:3:4:5:6:7:8",
      "1:2:3:4:5:6:7:", "1:2:3:4:5:6:7", "1", "::1%eth0", "1::2::3", "1:2:3:4::5:6:7:8", "::1/64"}},
    {"uuid",
     {"2EB8AA08-AA98-11EA-B4AA-73B441D16380", "2eb8aa08-aa98-11ea-b4aa-73b441d16380"},
     {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08-aa98-11ea-73b441d16380", "2eb8aa08aa9811eab4aa73b441d16380",
      "2eb8aa08-aa98-11ea-b4ga-73b441d16380"}},
    {"uri",
     {"http://foo.bar/?baz=qux#quux", "mailto:John.Doe@example.com", "urn:oasis:names:a:b:4.1.2", "tel:+1-816-555-1212",
      "ldap://[2001:db8::7]/c=GB?objectClass?one", "http://u:p%20@h:80/", "file:///a/b", "a:", "a:/b//c", "http://a?#"},
     {"//foo.bar/", "/abc", "abc", "http:// shouldfail.com", ":// should fail", "bar,baz:foo", "http://a b", "a:%zz",
      "http://[1]", "http://[@e.org/x", "a:\\b", "h\xc3\xa9:x", "a:<b>", "1a:b"}},
    {"uri-reference",
     {"http://foo.bar/?baz=qux#quux", "//foo.bar/?baz", "/abc", "abc", "#fragment", "?q", "", "a/b:c", "./a:b"},
     {"\\\\WINDOWS\\fileshare", "#frag\\ment", "a b", "1a:b", ":a", "%1"}},
};

static tri_net *compile(const char *text) {
  tri_json_doc *doc;
  tri_net *net;
  tri_error err = {0};
  ck_assert_int_eq(tri_json_parse(text, strlen(text), &doc, &err), TRI_OK);
  tri_status st = tri_schema_compile(tri_json_root(doc), NULL, &net, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", text, err.message);
  tri_json_free(doc);
  return net;
}

static bool takes(tri_configs *c, const char *answer) {
  uint32_t at = tri_configs_walk(c, tri_configs_begin(c), answer, strlen(answer));
  return at && tri_configs_may_end(c, at);
}

/* Backslashes have escapes. */
static bool takes_string(tri_configs *c, const char *text) {
  tri_buf b = {0};
  tri_text_add(&b, "\"", 1);
  for (; *text; text++) tri_text_add(&b, *text == '\\' ? "\\\\" : text, *text == '\\' ? 2 : 1);
  tri_text_add(&b, "\"", 1);
  bool whole = takes(c, b.data);
  tri_buf_free(&b);
  return whole;
}

START_TEST(texts_have_their_formats) {
  char schema[80];
  tri_configs *c;
  snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[_i].format);
  tri_net *net = compile(schema);
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  for (int i = 0; i < 14 && formats[_i].good[i]; i++)
    ck_assert_msg(takes_string(c, formats[_i].good[i]), "%s: %s", formats[_i].format, formats[_i].good[i]);
  for (int i = 0; i < 20 && formats[_i].bad[i]; i++)
    ck_assert_msg(!takes_string(c, formats[_i].bad[i]), "%s: %s", formats[_i].format, formats[_i].bad[i]);
  tri_configs_destroy(c);
  tri_net_destroy(net);
}
END_TEST

static const struct {
  const char *schema, *good[5], *bad[5];
} others[] = {
    {"{\"type\":\"integer\",\"format\":\"int32\"}",
     {"0", "2147483647", "-2147483648"},
     {"2147483648", "-2147483649", "1.0", "\"1\""}},
    {"{\"type\":\"integer\",\"format\":\"int64\"}",
     {"9223372036854775807", "-9223372036854775808"},
     {"9223372036854775808", "-9223372036854775809"}},
    {"{\"type\":\"number\",\"format\":\"int32\",\"minimum\":5}", {"5", "2147483647"}, {"4", "5.5", "2147483648"}},
    {"{\"type\":\"integer\",\"format\":\"int64\",\"maximum\":7}", {"7", "-9223372036854775808"}, {"8"}},
    {"{\"type\":\"number\",\"format\":\"double\"}", {"1.5e3"}, {"\"a\""}},
    {"{\"type\":\"string\",\"format\":\"password\",\"minLength\":1}", {"\"a\""}, {"\"\""}},
    {"{\"type\":\"string\",\"format\":\"int32\"}", {"\"a\""}, {"1"}},
    {"{\"enum\":[\"a\"],\"format\":\"password\"}", {"\"a\""}, {"\"b\""}},
    {"{\"format\":\"ipv4\"}", {"\"1.2.3.4\"", "1", "null", "{}"}, {"\"1\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\",\"maxLength\":5}", {"\"a.b.c\""}, {"\"a.b.cd\""}},
};

START_TEST(formats_are_of_their_types) {
  tri_configs *c;
  tri_net *net = compile(others[_i].schema);
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  for (int i = 0; i < 5 && others[_i].good[i]; i++)
    ck_assert_msg(takes(c, others[_i].good[i]), "%s: %s", others[_i].schema, others[_i].good[i]);
  for (int i = 0; i < 5 && others[_i].bad[i]; i++)
    ck_assert_msg(!takes(c, others[_i].bad[i]), "%s: %s", others[_i].schema, others[_i].bad[i]);
  tri_configs_destroy(c);
  tri_net_destroy(net);
}
END_TEST

Suite *suite_grammar_formats(void) {
  Suite *s = suite_create("grammar_formats");
  TCase *c = tcase_create("all");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, texts_have_their_formats, 0, (int)(sizeof formats / sizeof *formats));
  tcase_add_loop_test(c, formats_are_of_their_types, 0, (int)(sizeof others / sizeof *others));
  suite_add_tcase(s, c);
  return s;
}
