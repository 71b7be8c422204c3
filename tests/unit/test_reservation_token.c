/* test_reservation_token.c: what a reservation's text contains, and which texts are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/base64url.h"
#include "proto/pull.h"
#include "server/reservation_token.h"

enum { TEXT_MAX = 2048 };

static const struct reservation_token sample = {
    .source = SOURCE_REDIS,
    .reservation = {.id = UINT64_C(0xfedcba9876543210),
                    .units = (INT64_C(1) << 53) - 1,
                    .made_us = INT64_C(4000000000000001),
                    .ttl_ms = RESERVATION_TTL_MAX_MS},
    .policy = {(const uint8_t *)"llm", 3},
    .key = {(const uint8_t *)"a\0\xff{b}", 6},
};

/* The text of a token; valid until the next call. */
static struct slice text_of(const struct reservation_token *token, struct buffer *out)
{
    struct slice text;
    buffer_truncate(out, 0);
    struct packer packer = packer_of(out);
    reservation_token_pack(&packer, token);
    assert_false(packer.failed);
    struct pull pull = pull_of(buffer_data(out), buffer_len(out));
    assert_int_equal(pull_text(&pull, &text), 0);
    return text;
}

static void a_token_comes_back_as_it_was(void **state)
{
    (void)state;
    struct buffer out;
    struct reservation_token token;
    buffer_init(&out, 0);
    assert_int_equal(reservation_token_read(text_of(&sample, &out), &token), 0);
    assert_int_equal(token.source, SOURCE_REDIS);
    assert_int_equal(token.reason, REASON_NONE);
    assert_true(token.reservation.id == sample.reservation.id && token.reservation.units == sample.reservation.units);
    assert_true(token.reservation.made_us == sample.reservation.made_us &&
                token.reservation.ttl_ms == sample.reservation.ttl_ms);
    assert_true(slice_eq(token.policy, sample.policy) && slice_eq(token.key, sample.key));
    reservation_token_fini(&token);
    buffer_fini(&out);
}

static void any_changed_character_is_found(void **state)
{
    (void)state;
    static const char others[] = "A_-z0=+/ ";
    struct buffer out;
    char changed[TEXT_MAX];
    buffer_init(&out, 0);
    struct slice text = text_of(&sample, &out);
    memcpy(changed, text.data, text.len);
    for (size_t i = 0; i < text.len; i++) {
        for (size_t j = 0; j < sizeof others - 1; j++) {
            struct reservation_token token;
            if (others[j] == (char)text.data[i]) continue;
            changed[i] = others[j];
            assert_int_equal(reservation_token_read((struct slice){(uint8_t *)changed, text.len}, &token), -1);
        }
        changed[i] = (char)text.data[i];
    }
    buffer_fini(&out);
}

static void any_shorter_text_is_refused(void **state)
{
    (void)state;
    struct buffer out;
    struct reservation_token token;
    buffer_init(&out, 0);
    struct slice text = text_of(&sample, &out);
    for (size_t len = 0; len < text.len; len++)
        assert_int_equal(reservation_token_read((struct slice){text.data, len}, &token), -1);
    buffer_fini(&out);
}

static void impossible_values_are_refused_though_their_checksum_is_right(void **state)
{
    (void)state;
    struct reservation_token bad[] = {sample, sample, sample, sample, sample, sample};
    struct buffer out;
    struct reservation_token token;
    buffer_init(&out, 0);
    bad[0].reservation.ttl_ms = 0;
    bad[1].reservation.ttl_ms = RESERVATION_TTL_MAX_MS + 1;
    bad[2].reservation.units = -1;
    bad[3].reservation.made_us = INT64_C(1) << 53;
    bad[4].key.len = 0;
    bad[5].source = (enum source)99;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(reservation_token_read(text_of(&bad[i], &out), &token), -1);
    buffer_fini(&out);
}

static void without_memory_nothing_is_read_or_written(void **state)
{
    (void)state;
    struct buffer out, none;
    struct reservation_token token;
    buffer_init(&out, 0);
    buffer_init(&none, 0);
    struct slice text = text_of(&sample, &out);
    struct packer packer = packer_of(&none);
    mem_fail_nth(1);
    assert_int_equal(reservation_token_read(text, &token), -2);
    mem_fail_nth(1);
    reservation_token_pack(&packer, &sample);
    mem_fail_nth(0);
    assert_true(packer.failed);
    buffer_fini(&out);
    buffer_fini(&none);
}

static void base64url_is_that_of_the_rfc(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } known[] = {{"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
                 {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff", "-_8"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char text[16];
        uint8_t bytes[16];
        size_t n, len = base64url_len(strlen(known[i].bytes));
        base64url_write(text, slice_of(known[i].bytes));
        assert_true(slice_is((struct slice){(uint8_t *)text, len}, known[i].text));
        assert_int_equal(base64url_read(slice_of(known[i].text), bytes, &n), 0);
        assert_true(slice_is((struct slice){bytes, n}, known[i].bytes));
    }
    const char *const bad[] = {"A", "AAAAA", "Zh", "Zm9=", "Zm8=", "Z m8", "Zm9v\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[16];
        size_t n;
        assert_int_equal(base64url_read(slice_of(bad[i]), bytes, &n), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_comes_back_as_it_was),
        cmocka_unit_test(any_changed_character_is_found),
        cmocka_unit_test(any_shorter_text_is_refused),
        cmocka_unit_test(impossible_values_are_refused_though_their_checksum_is_right),
        cmocka_unit_test(without_memory_nothing_is_read_or_written),
        cmocka_unit_test(base64url_is_that_of_the_rfc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
