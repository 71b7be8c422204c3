/* rpc.c: the envelope of a message, for server/, which answers requests, and client/, which makes them. */
#include "proto/rpc.h"

#include <string.h>

#include "proto/put.h"

/* Inline in rpc_next_request(), which runs for each message. */
inline enum rpc_fault rpc_parse_request(const uint8_t *message, size_t len, struct rpc_request *ret)
{
    struct pull pull = pull_of(message, len);
    uint32_t n;
    uint64_t type; /* in any encoding of an integer, but no float, however whole */
    *ret = (struct rpc_request){0};

    if (pull_array(&pull, &n) != 0 || pull_uint64(&pull, &type) != 0) return RPC_FRAMING;
    if (!(type == RPC_REQUEST && n == 4) && !(type == RPC_NOTIFICATION && n == 3)) return RPC_FRAMING;
    ret->kind = (enum rpc_kind)type;
    if (type == RPC_REQUEST && pull_msgid(&pull, &ret->msgid) != 0) return RPC_FRAMING;

    if (pull_text(&pull, &ret->method) != 0) return RPC_BAD_METHOD;
    if (pull_array(&pull, &ret->n_params) != 0 && pull_nil(&pull) != 0) return RPC_BAD_PARAMS;
    ret->params = pull;
    return RPC_OK;
}

int64_t rpc_next_request(struct scanner *scanner, const uint8_t *bytes, size_t len, struct rpc_request *ret,
                         enum rpc_fault *ret_fault)
{
    *ret_fault = RPC_OK;
    if (scanner->at == 0 && rpc_parse_request(bytes, len, ret) == RPC_OK) {
        size_t head = (size_t)(ret->params.at - bytes);
        int64_t n = scanner_next_after(scanner, bytes, len, head, ret->n_params);
        if (n > 0) ret->params.end = bytes + n;
        return n;
    }

    int64_t n = scanner_next(scanner, bytes, len);
    if (n > 0) *ret_fault = rpc_parse_request(bytes, (size_t)n, ret);
    return n;
}

void rpc_pack_result(struct packer *packer, uint64_t msgid)
{
    enum { HEAD_MAX = 2 + PUT_INT_MAX + 1 };
    uint8_t *start = packer->failed ? NULL : buffer_reserve(packer->out, HEAD_MAX);
    if (start == NULL) {
        packer->failed = true;
        return;
    }

    uint8_t *at = start;
    at = put_array(at, 4);
    at = put_uint(at, RPC_RESPONSE);
    at = put_uint(at, msgid);
    at = put_nil(at);
    buffer_grew(packer->out, (size_t)(at - start));
}

static void pack_error_text(struct packer *packer, enum error_code code, const char *message)
{
    const struct slice pieces[] = {slice_of(error_name(code)), slice_of(": "), slice_of(message)};
    pack_str_of(packer, pieces, 3);
}

void rpc_pack_error(struct packer *packer, uint64_t msgid, enum error_code code, const char *message)
{
    pack_array(packer, 4);
    pack_uint(packer, RPC_RESPONSE);
    pack_uint(packer, msgid);
    pack_error_text(packer, code, message);
    pack_nil(packer);
}

void rpc_pack_broken(struct packer *packer, enum error_code code, const char *message)
{
    pack_array(packer, 4);
    pack_uint(packer, RPC_RESPONSE);
    pack_nil(packer);
    pack_error_text(packer, code, message);
    pack_nil(packer);
}

void rpc_pack_request(struct packer *packer, uint64_t msgid, const char *method, uint32_t n_params)
{
    pack_array(packer, 4);
    pack_uint(packer, RPC_REQUEST);
    pack_uint(packer, msgid);
    pack_text(packer, method);
    pack_array(packer, n_params);
}

int rpc_parse_response(const uint8_t *message, size_t len, struct rpc_response *ret)
{
    struct pull pull = pull_of(message, len);
    struct rpc_response response = {0};
    uint64_t type;
    uint32_t n;
    if (pull_array(&pull, &n) != 0 || n != 4) return -1;
    if (pull_uint64(&pull, &type) != 0 || type != RPC_RESPONSE) return -1;

    response.has_msgid = pull_nil(&pull) != 0;
    if (response.has_msgid && pull_uint64(&pull, &response.msgid) != 0) return -1;
    response.is_error = pull_nil(&pull) != 0;
    if (response.is_error && pull_text(&pull, &response.error) != 0) return -1;

    response.result = pull;
    if (response.is_error && pull_nil(&pull) != 0) return -1; /* both an error and a result */
    *ret = response;
    return 0;
}
