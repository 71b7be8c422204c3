/*
 * fuzz_request.c: whatever a peer sends, the envelope is parsed and every parameter read without a
 * byte too many, and a response that we pack from it is one that we can parse. Its end is the one that the scanner
 * finds alone.
 */
#include "base/assert.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { MAX_FRAME = 65536, MAX_DEPTH = 8 };

static void read_value(struct pull *pull);

static void read_values(struct pull *pull, uint64_t n)
{
    while (n-- > 0) read_value(pull);
}

/* Read by type, as a method would; the result must be where a skip would end. */
static void read_value(struct pull *pull)
{
    struct pull skipped = *pull;
    CHECK(pull_skip(&skipped) == 0);
    bool truth;
    int64_t number;
    uint32_t n;
    struct slice text;
    switch (pull_type(pull)) {
    case PULL_NIL: CHECK(pull_nil(pull) == 0); break;
    case PULL_BOOL: CHECK(pull_bool(pull, &truth) == 0); break;
    case PULL_INT:
    case PULL_FLOAT:
        if (pull_int(pull, &number) != 0) CHECK(pull_skip(pull) == 0);
        break;
    case PULL_TEXT: CHECK(pull_text(pull, &text) == 0); break;
    case PULL_ARRAY:
        CHECK(pull_array(pull, &n) == 0);
        read_values(pull, n);
        break;
    case PULL_MAP:
        CHECK(pull_map(pull, &n) == 0);
        read_values(pull, (uint64_t)n * 2);
        break;
    case PULL_EXT: CHECK(pull_skip(pull) == 0); break;
    case PULL_END: CHECK(!"a scanned message ends within a value");
    }
    CHECK(pull->at == skipped.at);
}

static void answer(struct buffer *out, uint64_t msgid)
{
    struct packer packer = packer_of(out);
    rpc_pack_error(&packer, msgid, ERROR_BAD_REQUEST, "no");
    struct rpc_response response;
    CHECK(!packer.failed);
    CHECK(rpc_parse_response(buffer_data(out), buffer_len(out), &response) == 0);
    CHECK(response.is_error && response.has_msgid && response.msgid == msgid);
    buffer_consume(out, buffer_len(out));
}

/* The end and the envelope found in one pass, with all that follows or piece by piece, are those of two. */
static void compare_next(const uint8_t *bytes, size_t len, size_t piece, int64_t end)
{
    struct scanner scanner;
    struct rpc_request request, parsed;
    enum rpc_fault fault = RPC_OK;
    int64_t n = 0;
    scanner_init(&scanner, MAX_FRAME, MAX_DEPTH);
    for (size_t here = piece < len ? piece : len; n == 0; here += piece < len - here ? piece : len - here) {
        n = rpc_next_request(&scanner, bytes, here, &request, &fault);
        if (here == len) break;
    }
    CHECK(n == end);
    if (n <= 0) return;

    CHECK(fault == rpc_parse_request(bytes, (size_t)n, &parsed));
    if (fault != RPC_FRAMING) CHECK(request.kind == parsed.kind && request.msgid == parsed.msgid);
    if (fault != RPC_OK) return;
    CHECK(slice_eq(request.method, parsed.method) && request.n_params == parsed.n_params);
    CHECK(request.params.at == parsed.params.at && request.params.end == parsed.params.end);
}

static void read_message(struct buffer *out, const uint8_t *message, size_t len)
{
    struct rpc_request request;
    struct rpc_response response;
    enum rpc_fault fault = rpc_parse_request(message, len, &request);
    if (fault == RPC_OK) {
        read_values(&request.params, request.n_params);
        /* [0, 1, "m", nil] leaves nothing: nil was the params. */
        CHECK(request.params.at == message + len);
    }
    if (fault != RPC_FRAMING) answer(out, request.msgid);
    if (rpc_parse_response(message, len, &response) != 0) return;
    CHECK(fault == RPC_FRAMING);
    read_value(&response.result);
    CHECK(response.result.at == message + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scanner scanner;
    struct buffer out;
    buffer_init(&out, 0);
    scanner_init(&scanner, MAX_FRAME, MAX_DEPTH);
    int64_t n;
    for (size_t start = 0; start < size; start += (size_t)n) {
        n = scanner_next(&scanner, data + start, size - start);
        compare_next(data + start, size - start, size - start, n);
        compare_next(data + start, size - start, 1 + data[start] % 8, n);
        if (n <= 0) break;
        read_message(&out, data + start, (size_t)n);
    }
    buffer_fini(&out);
    return 0;
}
