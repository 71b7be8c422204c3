/* test_redis_reader.c: replies from bytes, whole or in pieces, and bytes that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "redis/reader.h"

static struct redis_reader reader;
static struct buffer *keeps; /* what it keeps replies in; NULL = nothing */

static enum redis_progress feed(const char *text)
{
    size_t used;
    enum redis_progress progress = redis_reader_feed(&reader, (const uint8_t *)text, strlen(text), &used);
    if (progress == REDIS_WHOLE) assert_int_equal(used, strlen(text));
    return progress;
}

static void read_whole(const char *text)
{
    reader = (struct redis_reader){.whole = keeps};
    assert_int_equal(feed(text), REDIS_WHOLE);
}

/* The same, a byte more each time; what was used does not come again. */
static void read_in_bytes(const char *text)
{
    size_t len = strlen(text), from = 0;
    reader = (struct redis_reader){.whole = keeps};
    for (size_t to = 1; to <= len; to++) {
        size_t used;
        enum redis_progress progress = redis_reader_feed(&reader, (const uint8_t *)text + from, to - from, &used);
        assert_int_equal(progress, to < len ? REDIS_MORE : REDIS_WHOLE);
        from += used;
    }
    assert_int_equal(from, len);
}

static void refuse(const char *text, const char *why)
{
    reader = (struct redis_reader){.whole = keeps};
    assert_int_equal(feed(text), REDIS_BAD);
    assert_non_null(strstr(reader.fault, why));
    assert_int_equal(feed("+OK\r\n"), REDIS_BAD); /* and nothing behind it is read */
}

static void integers_of_an_array_are_kept(void **state)
{
    (void)state;
    void (*const ways[])(const char *text) = {read_whole, read_in_bytes};
    for (size_t i = 0; i < 2; i++) {
        ways[i]("*4\r\n:0\r\n:-1\r\n:9007199254740992\r\n:-9223372036854775808\r\n");
        assert_true(redis_reader_is_integers(&reader));
        assert_int_equal(reader.n_integers, 4);
        assert_int_equal(reader.integers[1], -1);
        assert_int_equal(reader.integers[2], INT64_C(1) << 53);
        assert_int_equal(reader.integers[3], INT64_MIN);
    }
}

static void an_array_of_anything_else_is_not_integers(void **state)
{
    (void)state;
    read_whole("*2\r\n:1\r\n$1\r\n2\r\n");
    assert_false(redis_reader_is_integers(&reader));
    read_whole("*2\r\n:1\r\n*1\r\n:2\r\n");
    assert_false(redis_reader_is_integers(&reader));
    assert_int_equal(reader.n_integers, 1);
    read_whole("*0\r\n");
    assert_true(redis_reader_is_integers(&reader));
}

static void fields_are_found_by_name(void **state)
{
    (void)state;
    const char *text = "*6\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n"
                       "*1\r\n*4\r\n$4\r\nname\r\n$2\r\nbf\r\n$4\r\nargs\r\n*1\r\n$4\r\nrole\r\n";
    read_in_bytes(text);
    assert_string_equal(redis_reader_field(&reader, "role"), "master");
    assert_null(redis_reader_field(&reader, "args"));
    assert_null(redis_reader_field(&reader, "modules")); /* nothing of it is kept */
}

static void texts_are_kept_and_cut(void **state)
{
    (void)state;
    read_in_bytes("+OK\r\n");
    assert_true(slice_is(redis_reader_text(&reader), "OK"));
    read_whole("$0\r\n\r\n");
    assert_int_equal(redis_reader_text(&reader).len, 0);
    read_whole("-ERR no\r\n");
    assert_true(redis_reader_is_error(&reader));
    read_whole("$-1\r\n");
    assert_false(redis_reader_is_error(&reader) || redis_reader_is_integers(&reader));

    char text[2 * REDIS_TEXTS_MAX + 3];
    memset(text, 'x', sizeof text);
    text[0] = '-';
    memcpy(text + sizeof text - 3, "\r\n", 3);
    read_whole(text);
    assert_int_equal(redis_reader_text(&reader).len, REDIS_TEXTS_MAX - 1);
}

static void one_reply_is_read_at_a_time(void **state)
{
    (void)state;
    size_t used;
    const char *text = "*1\r\n:1\r\n-ERR next\r\n";
    reader = (struct redis_reader){.whole = keeps};
    assert_int_equal(redis_reader_feed(&reader, (const uint8_t *)text, strlen(text), &used), REDIS_WHOLE);
    assert_int_equal(used, 8);
    assert_true(redis_reader_is_integers(&reader));
    assert_int_equal(feed(text + used), REDIS_WHOLE);
    assert_true(redis_reader_is_error(&reader));
}

static void what_no_honest_server_sends_is_refused(void **state)
{
    (void)state;
    refuse("\x16\x03\x01", "Protocol error");
    refuse("HTTP/1.1", "Protocol error");
    refuse(":12a\r\n", "integer");
    refuse(":9223372036854775808\r\n", "integer");
    refuse(":12345678901234567890\r\n", "integer");
    refuse(":\r\n", "integer");
    refuse(":1\rx", "integer");
    refuse("+a\rb", "Protocol error");
    refuse("$-2\r\n", "length");
    refuse("$2\r\nabc\r\n", "without its end");
    refuse("$1000000000\r\n", "larger than any");
    refuse("*8193\r\n", "larger than any");
    refuse("*-2\r\n", "length");
    refuse("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "nested too deeply");
    refuse("%1\r\n", "not asked for");
    refuse("*1\r\n,3.14\r\n", "not asked for");
}

static void a_reply_is_kept_whole_for_what_is_nested_in_it(void **state)
{
    (void)state;
    const char *nested = "*1\r\n*2\r\n:0\r\n*1\r\n$2\r\nhi\r\n";
    void (*const ways[])(const char *text) = {read_whole, read_in_bytes};
    struct buffer whole;
    buffer_init(&whole, 64);
    for (size_t i = 0; i < 2; i++) {
        keeps = &whole;
        ways[i](nested);
        assert_int_equal(buffer_len(&whole), strlen(nested));
        assert_memory_equal(buffer_data(&whole), nested, strlen(nested));
        assert_int_equal(feed("+OK\r\n"), REDIS_WHOLE); /* the next one takes its place */
        assert_int_equal(buffer_len(&whole), 5);
    }

    refuse("*2\r\n$40\r\n0123456789012345678901234567890123456789\r\n$9\r\n012345678\r\n", "larger than any");
    refuse("*32769\r\n", "larger than any");
    reader = (struct redis_reader){.whole = keeps};
    assert_int_equal(feed("*32768\r\n"), REDIS_MORE);
    keeps = NULL;
    refuse("*32768\r\n", "larger than any");
    buffer_fini(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_an_array_are_kept),
        cmocka_unit_test(an_array_of_anything_else_is_not_integers),
        cmocka_unit_test(fields_are_found_by_name),
        cmocka_unit_test(texts_are_kept_and_cut),
        cmocka_unit_test(a_reply_is_kept_whole_for_what_is_nested_in_it),
        cmocka_unit_test(one_reply_is_read_at_a_time),
        cmocka_unit_test(what_no_honest_server_sends_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
