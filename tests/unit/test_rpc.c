/* test_rpc.c: the envelope both ways, and the error codes' texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/rpc.h"
#include "proto/scan.h"

#define PARSE(text, ret)          rpc_parse_request((const uint8_t *)(text), sizeof(text) - 1, ret)
#define PARSE_RESPONSE(text, ret) rpc_parse_response((const uint8_t *)(text), sizeof(text) - 1, ret)

static void a_request_is_parsed(void **state)
{
    (void)state;
    struct rpc_request request;
    int64_t value;
    assert_int_equal(PARSE("\x94\x00\xcd\x01\x00\xa4ping\x91\x07", &request), RPC_OK);
    assert_int_equal(request.kind, RPC_REQUEST);
    assert_int_equal(request.msgid, 256);
    assert_true(slice_is(request.method, "ping"));
    assert_int_equal(request.n_params, 1);
    assert_int_equal(pull_int(&request.params, &value), 0);
    assert_int_equal(value, 7);
    assert_int_equal(pull_type(&request.params), PULL_END);
}

static void a_request_may_be_written_in_long_forms(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(
        PARSE("\xdd\x00\x00\x00\x04\xd3\x00\x00\x00\x00\x00\x00\x00\x00\xcf\xff\xff\xff\xff\xff\xff\xff\xff"
              "\xc6\x00\x00\x00\x04ping\xdc\x00\x00",
              &request),
        RPC_OK);
    assert_true(request.msgid == UINT64_MAX);
    assert_true(slice_is(request.method, "ping"));
    assert_int_equal(request.n_params, 0);
}

static void a_msgid_that_is_a_whole_float_is_its_integer(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(PARSE("\x94\x00\xcb\x41\xe0\x00\x00\x00\x20\x00\x00\xa4ping\x90", &request), RPC_OK);
    assert_true(request.msgid == (UINT64_C(1) << 31) + 1);
}

static void nil_params_are_none(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(PARSE("\x94\x00\x01\xa4ping\xc0", &request), RPC_OK);
    assert_int_equal(request.n_params, 0);
    assert_int_equal(pull_type(&request.params), PULL_END);
}

static void a_notification_is_parsed(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(PARSE("\x93\x02\xa3"
                           "foo\x91\xc0",
                           &request),
                     RPC_OK);
    assert_int_equal(request.kind, RPC_NOTIFICATION);
    assert_true(slice_is(request.method, "foo"));
    assert_int_equal(request.n_params, 1);
}

static void a_broken_envelope_is_a_framing_fault(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(PARSE("\x90", &request), RPC_FRAMING);
    assert_int_equal(PARSE("\x93\x00\x01\xa4ping", &request), RPC_FRAMING);         /* a request of 3 */
    assert_int_equal(PARSE("\x95\x00\x01\xa4ping\x90\xc0", &request), RPC_FRAMING); /* of 5 */
    assert_int_equal(PARSE("\x94\x02\x01\xa4ping\x90", &request), RPC_FRAMING);     /* a notification of 4 */
    assert_int_equal(PARSE("\x94\x01\x01\xc0\xc3", &request), RPC_FRAMING);         /* a response */
    assert_int_equal(PARSE("\x94\x03\x01\xa4ping\x90", &request), RPC_FRAMING);     /* type 3 */
    assert_int_equal(PARSE("\x94\xff\x01\xa4ping\x90", &request), RPC_FRAMING);     /* type -1 */
    assert_int_equal(PARSE("\x94\xa1x\x01\xa4ping\x90", &request), RPC_FRAMING);    /* type "x" */
    assert_int_equal(PARSE("\x94\xca\x00\x00\x00\x00\x01\xa4ping\x90", &request), RPC_FRAMING); /* type 0.0 */
    assert_int_equal(PARSE("\x94\x00\xff\xa4ping\x90", &request), RPC_FRAMING);                 /* msgid -1 */
    assert_int_equal(PARSE("\x94\x00\xc0\xa4ping\x90", &request), RPC_FRAMING);                 /* msgid nil */
    assert_int_equal(PARSE("\x94\x00\xa1\x31\xa4ping\x90", &request), RPC_FRAMING);             /* msgid "1" */
    assert_int_equal(PARSE("\x94\x00\xca\x3f\xc0\x00\x00\xa4ping\x90", &request), RPC_FRAMING); /* msgid 1.5 */
    assert_int_equal(PARSE("", &request), RPC_FRAMING);
}

static void a_bad_method_or_params_keep_the_msgid(void **state)
{
    (void)state;
    struct rpc_request request;
    assert_int_equal(PARSE("\x94\x00\x09\x05\x90", &request), RPC_BAD_METHOD);
    assert_int_equal(request.msgid, 9);
    assert_int_equal(PARSE("\x94\x00\x09\xa4ping\x80", &request), RPC_BAD_PARAMS);
    assert_int_equal(request.msgid, 9);
    assert_int_equal(PARSE("\x94\x00\x09\xa4ping\x07", &request), RPC_BAD_PARAMS);
    assert_int_equal(PARSE("\x93\x02\x05\x90", &request), RPC_BAD_METHOD);
    assert_int_equal(request.kind, RPC_NOTIFICATION);
}

static struct buffer out;

static int set_up(void **state)
{
    (void)state;
    buffer_init(&out, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    buffer_fini(&out);
    return 0;
}

static void expect_out(const char *bytes, size_t len)
{
    assert_int_equal(buffer_len(&out), len);
    assert_memory_equal(buffer_data(&out), bytes, len);
    buffer_consume(&out, len);
}

#define EXPECT(text) expect_out(text, sizeof(text) - 1)

static void responses_are_packed(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    rpc_pack_result(&packer, UINT64_MAX);
    pack_text(&packer, "pong");
    EXPECT("\x94\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xc0\xa4pong");
    rpc_pack_error(&packer, 7, ERROR_BAD_KEY, "empty");
    EXPECT("\x94\x01\x07\xae"
           "BAD_KEY: empty\xc0");
    rpc_pack_broken(&packer, ERROR_TOO_LARGE, "x");
    EXPECT("\x94\x01\xc0\xac"
           "TOO_LARGE: x\xc0");
    assert_false(packer.failed);
}

static void a_packed_request_is_parsed_back(void **state)
{
    (void)state;
    struct packer packer = packer_of(&out);
    rpc_pack_request(&packer, 300, "check", 2);
    pack_text(&packer, "login");
    pack_text(&packer, "alice");
    struct scanner scanner;
    scanner_init(&scanner, 65536, 8);
    assert_int_equal(scanner_next(&scanner, buffer_data(&out), buffer_len(&out)), buffer_len(&out));
    struct rpc_request request;
    assert_int_equal(rpc_parse_request(buffer_data(&out), buffer_len(&out), &request), RPC_OK);
    assert_int_equal(request.msgid, 300);
    assert_true(slice_is(request.method, "check"));
    assert_int_equal(request.n_params, 2);
}

/* At every length of what is here, and under a frame that is too small for some of it. */
static void the_next_request_ends_where_the_scanner_ends_it(void **state)
{
    (void)state;
    static const struct slice messages[] = {
        {(const uint8_t *)"\x94\x00\x05\xa5"
                          "check\x93\xa4open\xd9\x05alice\x81\xa4"
                          "cost\x02\x94",
         32},
        {(const uint8_t *)"\x94\x00\xce\x00\x01\x00\x00\xa4ping\x90\x94\x00", 15},
        {(const uint8_t *)"\x93\x02\xa4ping\x91\x91\x91\x91\x07\x93", 13},
        {(const uint8_t *)"\x94\x00\x05\xa4ping\xc0\x94", 10},
        {(const uint8_t *)"\x94\x00\x05\xa4ping\xdd\x00\x00\x00\x09\x01\x02\x03\x04\x05\x06\x07\x08", 21},
        {(const uint8_t *)"\x94\x00\x05\xa4ping\x92\x01\xc1", 11},
        {(const uint8_t *)"\x94\x00\x05\x07\x91\x01", 6},
        {(const uint8_t *)"\x94\x00\x05\xa4ping\x97\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xd1\x01\x02\xc4\x02\x07\x07"
                          "\xd4\x01\x07\xda\x00\x02ok\xc0\x91\x07\x94",
         37},
    };
    for (uint32_t max_frame = 8; max_frame < 40; max_frame++) {
        for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
            struct scanner alone, pieces, whole;
            struct rpc_request request;
            enum rpc_fault fault;
            scanner_init(&alone, max_frame, 4);
            scanner_init(&pieces, max_frame, 4);
            for (size_t len = 0; len <= messages[i].len; len++) {
                int64_t n = scanner_next(&alone, messages[i].data, len);
                assert_int_equal(rpc_next_request(&pieces, messages[i].data, len, &request, &fault), n);
                scanner_init(&whole, max_frame, 4);
                assert_int_equal(rpc_next_request(&whole, messages[i].data, len, &request, &fault), n);
                if (n != 0) break;
            }
        }
    }
}

static void responses_are_parsed(void **state)
{
    (void)state;
    struct rpc_response response;
    struct slice text = {NULL, 0};
    assert_int_equal(PARSE_RESPONSE("\x94\x01\x05\xc0\xa4pong", &response), 0);
    assert_true(response.has_msgid);
    assert_int_equal(response.msgid, 5);
    assert_false(response.is_error);
    assert_int_equal(pull_text(&response.result, &text), 0);
    assert_true(slice_is(text, "pong"));
    assert_int_equal(PARSE_RESPONSE("\x94\x01\x05\xae"
                                    "BAD_KEY: empty\xc0",
                                    &response),
                     0);
    assert_true(response.is_error);
    assert_true(slice_is(response.error, "BAD_KEY: empty"));
    assert_int_equal(PARSE_RESPONSE("\x94\x01\xc0\xac"
                                    "TOO_LARGE: x\xc0",
                                    &response),
                     0);
    assert_false(response.has_msgid);
}

static void what_is_no_response_is_refused(void **state)
{
    (void)state;
    struct rpc_response response = {.msgid = 77};
    assert_int_equal(PARSE_RESPONSE("\x93\x01\x05\xc0", &response), -1);
    assert_int_equal(PARSE_RESPONSE("\x94\x00\x05\xa4ping\x90", &response), -1);
    assert_int_equal(PARSE_RESPONSE("\x94\x01\xff\xc0\xc3", &response), -1);
    assert_int_equal(PARSE_RESPONSE("\x94\x01\xca\x3f\x80\x00\x00\xc0\xc3", &response), -1); /* msgid 1.0 */
    assert_int_equal(PARSE_RESPONSE("\x94\x01\x05\x81\xa1k\x00\xc0", &response), -1);
    assert_int_equal(PARSE_RESPONSE("\xa4pong", &response), -1);
    assert_int_equal(PARSE_RESPONSE("\x94\x01\x05\xa1x\xc3", &response), -1); /* an error and a result */
    assert_int_equal(response.msgid, 77);
}

static void error_codes_have_their_names(void **state)
{
    (void)state;
    assert_string_equal(error_name(ERROR_NONE), "NONE");
    assert_string_equal(error_name(ERROR_BAD_KEY), "BAD_KEY");
    for (int code = 1; code < N_ERROR_CODES; code++) assert_non_null(error_name((enum error_code)code));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_parsed),
        TEST(a_request_may_be_written_in_long_forms),
        TEST(a_msgid_that_is_a_whole_float_is_its_integer),
        TEST(nil_params_are_none),
        TEST(a_notification_is_parsed),
        TEST(a_broken_envelope_is_a_framing_fault),
        TEST(a_bad_method_or_params_keep_the_msgid),
        TEST(responses_are_packed),
        TEST(a_packed_request_is_parsed_back),
        TEST(the_next_request_ends_where_the_scanner_ends_it),
        TEST(responses_are_parsed),
        TEST(what_is_no_response_is_refused),
        TEST(error_codes_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
