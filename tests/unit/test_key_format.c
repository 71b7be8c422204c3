/* test_key_format.c: a key is split into its parts, and some of the parts make a name that is theirs alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "limit/key_format.h"

static struct key_format format;

static void parse(const char *text)
{
    const char *wrong = key_format_parse(&format, text);
    if (wrong != NULL) fail_msg("%s %s", text, wrong);
}

/* Splits `key`, and writes its parts with a bar between them. */
static const char *split_text(const char *key)
{
    static char text[256];
    struct key_split split;
    if (!key_format_split(&format, slice_of(key), &split)) return "no";
    int at = 0;
    for (int i = 0; i < format.n_parts; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%.*s", i > 0 ? "|" : "", (int)split.parts[i].len,
                       (const char *)split.parts[i].data);
    return text;
}

static const char *id_text(const char *key, key_parts parts)
{
    static char text[256];
    uint8_t space[256];
    struct key_split split;
    assert_true(key_format_split(&format, slice_of(key), &split));
    struct slice id = key_format_id(&format, &split, parts, space);
    assert_non_null(id.data);
    assert_true((id.data == space) == (key_format_is_joined(&format, parts) && id.len > 0));
    snprintf(text, sizeof text, "%.*s", (int)id.len, (const char *)id.data);
    return text;
}

static void a_key_is_split_at_the_first_occurrence_of_each_literal(void **state)
{
    (void)state;
    parse("{tenant}:{user}");
    assert_int_equal(format.n_parts, 2);
    assert_string_equal(split_text("acme:42"), "acme|42");
    assert_string_equal(split_text("acme:42:more:"), "acme|42:more:");
    assert_string_equal(split_text("acme::"), "acme|:");
    parse("{a}--{b}/{c}");
    assert_string_equal(split_text("x-y--z/w"), "x-y|z|w");
    assert_string_equal(split_text("x--y--z/w/v"), "x|y--z|w/v");
    assert_string_equal(split_text("x---y/z"), "x|-y|z");
    parse("{only}");
    assert_string_equal(split_text("anything at: all"), "anything at: all");
    parse("ip={ip};path={path}");
    assert_string_equal(split_text("ip=::1;path=/;path=/x"), "::1|/;path=/x");
}

static void a_key_with_an_empty_part_or_without_a_literal_does_not_fit(void **state)
{
    (void)state;
    parse("{tenant}:{user}");
    static const char *const bad[] = {"acme", "acme:", ":42", ":", "::x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_string_equal(split_text(bad[i]), "no");
    parse("v1/{tenant}:{user}");
    assert_string_equal(split_text("v1/a:b"), "a|b");
    assert_string_equal(split_text("v2/a:b"), "no");
    assert_string_equal(split_text("v1"), "no");
    assert_string_equal(split_text("v1/"), "no");
    struct key_split split;
    const uint8_t bytes[] = {'v', '1', '/', 0, ':', 0xff};
    assert_true(key_format_split(&format, (struct slice){bytes, sizeof bytes}, &split));
    assert_int_equal(split.parts[0].len, 1);
    assert_int_equal(split.parts[1].data[0], 0xff);
}

static void some_parts_make_an_id(void **state)
{
    (void)state;
    parse("v1/{region}:{tenant}:{user}");
    assert_string_equal(id_text("v1/eu:acme:42:x", 0), "");
    assert_string_equal(id_text("v1/eu:acme:42:x", 1), "eu");
    assert_string_equal(id_text("v1/eu:acme:42:x", 2), "acme");
    assert_string_equal(id_text("v1/eu:acme:42:x", 3), "eu:acme");
    assert_string_equal(id_text("v1/eu:acme:42:x", 4), "42:x");
    assert_string_equal(id_text("v1/eu:acme:42:x", 5), "eu:42:x");
    assert_string_equal(id_text("v1/eu:acme:42:x", 6), "acme:42:x");
    assert_string_equal(id_text("v1/eu:acme:42:x", 7), "v1/eu:acme:42:x");
    assert_int_equal(key_format_find(&format, slice_of("tenant")), 1);
    assert_int_equal(key_format_find(&format, slice_of("Tenant")), -1);
}

/* Every key of a few letters: two of them have an id in common only where they have the parts in common. */
static void an_id_determines_its_parts(void **state)
{
    (void)state;
    enum { LENGTH = 7, LETTERS = 3, N = 2187, KEPT = 64 };
    static const char *const formats[] = {"{a}x{b}y{c}", "{a}xx{b}x{c}", "{a}xy{b}yx{c}", "{a}x{b}x{c}x{d}"};
    static char keys[N][LENGTH + 1];
    static struct key_split splits[N];
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        size_t n = 0;
        parse(formats[f]);
        for (int number = 0; number < N; number++) {
            int rest = number;
            for (int i = 0; i < LENGTH; i++, rest /= LETTERS) keys[n][i] = "xyz"[rest % LETTERS];
            if (key_format_split(&format, (struct slice){(uint8_t *)keys[n], LENGTH}, &splits[n])) n++;
        }
        assert_true(n > 10);
        for (key_parts parts = 0; parts <= key_format_all(&format); parts++)
            for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < i; j++) {
                    uint8_t one[KEPT], other[KEPT];
                    bool same = slice_eq(key_format_id(&format, &splits[i], parts, one),
                                         key_format_id(&format, &splits[j], parts, other));
                    assert_int_equal(same, key_format_same(&splits[i], &splits[j], parts));
                }
    }
}

static void a_format_that_cannot_be_split_by_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wrong;
    } bad[] = {
        {"", "no parts"},
        {"literal", "no parts"},
        {"{a}{b}", "nothing between"},
        {"{a}:{a}", "two parts"},
        {"{a}:", "ends in a literal"},
        {"{a}:{b", "without its }"},
        {"{a:{b}", "without its }"},
        {"a}:{b}", "without a {"},
        {"{}:{b}", "with an invalid name"},
        {"{a b}", "with an invalid name"},
        {"{a}}{b}", "without a {"},
        {"{{a}", "without its }"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *wrong = key_format_parse(&format, bad[i].text);
        if (wrong == NULL || strstr(wrong, bad[i].wrong) == NULL) fail_msg("%s: %s", bad[i].text, wrong);
    }
    char many[KEY_FORMAT_MAX + 2];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_non_null(strstr(key_format_parse(&format, many), "longer than"));
    parse("{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}:{i}:{j}:{k}:{l}:{m}:{n}:{o}:{p}");
    assert_int_equal(key_format_all(&format), 0xffff);
    assert_non_null(strstr(key_format_parse(&format, "{a}:{b}:{c}:{d}:{e}:{f}:{g}:{h}:{i}:{j}:{k}:{l}:{m}:{n}:{o}:{p}"
                                                     ":{q}"),
                           "more than 16"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_split_at_the_first_occurrence_of_each_literal),
        cmocka_unit_test(a_key_with_an_empty_part_or_without_a_literal_does_not_fit),
        cmocka_unit_test(some_parts_make_an_id),
        cmocka_unit_test(an_id_determines_its_parts),
        cmocka_unit_test(a_format_that_cannot_be_split_by_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
