/* test_pattern.c: which keys a pattern matches, and which of many patterns counts for a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "policy/pattern.h"

/* ---- one pattern ---- */

static bool matches(const char *pattern, const char *key)
{
    return pattern_matches(slice_of(pattern), slice_of(key));
}

static void a_star_stands_for_any_run_of_bytes(void **state)
{
    (void)state;
    assert_true(matches("partner:*", "partner:7"));
    assert_true(matches("partner:*", "partner:"));
    assert_false(matches("partner:*", "partner"));
    assert_false(matches("partner:*", "a partner:7"));
    assert_true(matches("*", "anything"));
    assert_true(matches("*:admin", "a:b:admin"));
    assert_false(matches("*:admin", "a:b:admins"));
    assert_true(matches("a*b*c", "a--b-b-c-c"));
    assert_false(matches("a*b*c", "a--c-c"));
    assert_true(matches("**x**", "x"));
    assert_true(matches("exact", "exact"));
    assert_false(matches("exact", "exactly"));
    assert_true(matches("*ab", "aab"));
    assert_true(matches("*aab*", "aaaab"));
    assert_true(pattern_matches(slice_of("a*b"), (struct slice){(const uint8_t *)"a\0\xff*b", 5}));
}

static bool plainly_matches(const char *pattern, const char *key)
{
    if (*pattern == '\0') return *key == '\0';
    if (*pattern == '*')
        return plainly_matches(pattern + 1, key) || (*key != '\0' && plainly_matches(pattern, key + 1));
    return *pattern == *key && plainly_matches(pattern + 1, key + 1);
}

/* The number-th text of these letters, of at most six. */
static const char *text_of(int number, const char *letters, char *out)
{
    int n_letters = (int)strlen(letters), len = 0;
    for (; number > 0; number = (number - 1) / n_letters) out[len++] = letters[(number - 1) % n_letters];
    out[len] = '\0';
    return out;
}

static void every_short_pattern_matches_as_defined(void **state)
{
    (void)state;
    enum { N_PATTERNS = 1093, N_KEYS = 127 }; /* all of up to six letters */
    char pattern[8], key[8];
    for (int i = 0; i < N_PATTERNS; i++)
        for (int j = 0; j < N_KEYS; j++) {
            text_of(i, "ab*", pattern);
            text_of(j, "ab", key);
            if (matches(pattern, key) != plainly_matches(pattern, key)) fail_msg("%s %s", pattern, key);
        }
}

/* ---- a set ---- */

enum { TEXT_MAX = 96 };

struct many {
    struct pattern_set set;
    struct pattern *patterns; /* owned, as the texts */
    char (*texts)[TEXT_MAX];
};

static void many_begin(struct many *many, size_t cap)
{
    assert_int_equal(pattern_set_init(&many->set, cap), 0);
    many->patterns = mem_alloc(cap * sizeof many->patterns[0]);
    many->texts = mem_alloc(cap * sizeof many->texts[0]);
}

__attribute__((format(printf, 2, 3))) static void many_add(struct many *many, const char *format, ...)
{
    size_t n = many->set.n;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(many->texts[n], TEXT_MAX, format, arguments);
    va_end(arguments);
    pattern_set_add(&many->set, &many->patterns[n], slice_of(many->texts[n]));
}

static void many_end(struct many *many)
{
    pattern_set_fini(&many->set);
    mem_free(many->patterns);
    mem_free(many->texts);
}

/* All of them, in the order they were added: the one with the most bytes that are no star, the first of several. */
static const struct pattern *plainly_find(const struct many *many, struct slice key)
{
    const struct pattern *best = NULL;
    for (size_t i = 0; i < many->set.n; i++) {
        const struct pattern *pattern = &many->patterns[i];
        bool is_better = best == NULL || pattern->n_literal > best->n_literal;
        if (is_better && pattern_matches(pattern->text, key)) best = pattern;
    }
    return best;
}

static void assert_finds(const struct many *many, struct slice key)
{
    const struct pattern *wanted = plainly_find(many, key), *found = pattern_set_find(&many->set, key);
    if (found != wanted)
        fail_msg("%.*s: %s, not %s", (int)key.len, (const char *)key.data,
                 found != NULL ? (const char *)found->text.data : "none",
                 wanted != NULL ? (const char *)wanted->text.data : "none");
    assert_true(pattern_set_n_compared(&many->set, key) <= many->set.n);
}

static uint32_t seed = 12345;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

/* Of up to `most` of these letters; a prefix that many have, now and then. */
static void random_text(char *out, size_t most, const char *letters)
{
    static const char *const starts[] = {
        "", "", "", "user:", "ab", "a-text-of-more-than-sixty-three-bytes-that-many-keys-begin-with:"};
    size_t len = (size_t)snprintf(out, TEXT_MAX, "%s", starts[random_below(6)]), n = random_below((uint32_t)most + 1);
    for (size_t i = 0; i < n; i++) out[len++] = letters[random_below((uint32_t)strlen(letters))];
    if (random_below(8) == 0) len += (size_t)snprintf(out + len, TEXT_MAX - len, ":admin");
    out[len] = '\0';
}

static void the_pattern_found_is_the_one_that_trying_all_finds(void **state)
{
    (void)state;
    static const char *const letters[] = {"ab", "abc", "ab:*", "abcdefgh:**", "a*"};
    for (int round = 0; round < 400; round++) {
        struct many many;
        size_t n = 1 + random_below(round % 10 == 0 ? 500 : 20);
        many_begin(&many, n);
        for (size_t i = 0; i < n; i++) {
            char text[TEXT_MAX];
            random_text(text, 9, letters[2 + random_below(3)]);
            many_add(&many, "%s", text[0] != '\0' ? text : "*");
        }
        mem_fail_nth(round % 7 == 0 ? 1 : 0); /* then the anchors are others, and what is found is the same */
        pattern_set_seal(&many.set);
        mem_fail_nth(0);

        for (int i = 0; i < 200; i++) {
            char key[TEXT_MAX];
            random_text(key, 14, letters[random_below(4)]);
            assert_finds(&many, slice_of(key));
        }
        for (size_t i = 0; i < n; i++) assert_finds(&many, many.patterns[i].text);
        many_end(&many);
    }
}

static void a_byte_of_any_value_is_found(void **state)
{
    (void)state;
    struct many many;
    many_begin(&many, 3);
    many_add(&many, "*\xff\x80*");
    many_add(&many, "\x01\xff*");
    many_add(&many, "*\xfe");
    pattern_set_seal(&many.set);
    assert_finds(&many, (struct slice){(const uint8_t *)"a\0\xff\x80", 4});
    assert_finds(&many, (struct slice){(const uint8_t *)"\x01\xff\0", 3});
    assert_finds(&many, (struct slice){(const uint8_t *)"\0\xfe", 2});
    assert_finds(&many, (struct slice){(const uint8_t *)"\0\0\0\0\0", 5});
    many_end(&many);
}

/* The form of the patterns, and of the key that the i-th of them matches. */
static const struct {
    const char *pattern, *key;
} forms[] = {
    {"partner-%d:*", "partner-%d:x"},
    {"*:user-%d", "acme:user-%d"},
    {"tenant:*:user-%d", "tenant:acme:user-%d"},
    {"user-%d", "user-%d"},
    {"a-text-of-more-than-sixty-three-bytes-that-all-of-the-patterns-begin-with:%d:*",
     "a-text-of-more-than-sixty-three-bytes-that-all-of-the-patterns-begin-with:%d:x"},
    {"*-%d-*", "acme-%d-x"},
    {"api:*-%d-*:read", "api:acme-%d-x:read"},
};

static void ten_thousand_patterns_are_found_by_comparing_a_few(void **state)
{
    (void)state;
    enum { N = 10000 };
    for (size_t form = 0; form < sizeof forms / sizeof forms[0]; form++) {
        struct many many;
        many_begin(&many, N + 2);
        for (int i = 0; i < N; i++) {
            char text[TEXT_MAX], number[16];
            snprintf(number, sizeof number, "%d", 10000 + i * 7);
            const char *at = strstr(forms[form].pattern, "%d");
            snprintf(text, sizeof text, "%.*s%s%s", (int)(at - forms[form].pattern), forms[form].pattern, number,
                     at + 2);
            many_add(&many, "%s", text);
        }
        many_add(&many, "*");
        many_add(&many, "*:x:*");
        pattern_set_seal(&many.set);

        size_t most = 0;
        for (int i = 0; i < N; i += 97) {
            char key[TEXT_MAX];
            const char *at = strstr(forms[form].key, "%d");
            snprintf(key, sizeof key, "%.*s%d%s", (int)(at - forms[form].key), forms[form].key, 10000 + i * 7, at + 2);
            assert_ptr_equal(pattern_set_find(&many.set, slice_of(key)), &many.patterns[i]);
            size_t n = pattern_set_n_compared(&many.set, slice_of(key));
            if (n > most) most = n;
        }
        assert_true(most <= 10);
        many_end(&many);
    }
}

static void no_key_makes_a_pattern_be_compared_twice(void **state)
{
    (void)state;
    struct many many;
    char key[1024];
    many_begin(&many, 40);
    for (int i = 0; i < 40; i++) many_add(&many, "*aaaa*b%d*", i);
    pattern_set_seal(&many.set);
    memset(key, 'a', sizeof key);
    assert_true(pattern_set_n_compared(&many.set, (struct slice){(const uint8_t *)key, sizeof key}) <= 40);
    many_end(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_stands_for_any_run_of_bytes),
        cmocka_unit_test(every_short_pattern_matches_as_defined),
        cmocka_unit_test(the_pattern_found_is_the_one_that_trying_all_finds),
        cmocka_unit_test(a_byte_of_any_value_is_found),
        cmocka_unit_test(ten_thousand_patterns_are_found_by_comparing_a_few),
        cmocka_unit_test(no_key_makes_a_pattern_be_compared_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
