/*
 * rpc.h: the MessagePack-RPC envelope, both directions; pure functions over bytes.
 *
 *   request       [0, msgid, method, params]
 *   response      [1, msgid, error, result]
 *   notification  [2, method, params]
 *
 * Servers parse requests and pack responses, clients the reverse.
 */
#ifndef RL_PROTO_RPC_H
#define RL_PROTO_RPC_H

#include <stdint.h>

#include "base/slice.h"
#include "proto/error.h"
#include "proto/pack.h"
#include "proto/pull.h"
#include "proto/scan.h"

enum rpc_kind { RPC_REQUEST = 0, RPC_RESPONSE = 1, RPC_NOTIFICATION = 2 };

enum rpc_fault {
    RPC_OK = 0,
    RPC_FRAMING,    /* not an array of 4 (3), unusable type or msgid: answer with msgid nil, then close */
    RPC_BAD_METHOD, /* the method is not a text: BAD_REQUEST for this msgid, the connection lives */
    RPC_BAD_PARAMS, /* params are neither an array nor nil: BAD_REQUEST for this msgid, the connection lives */
};

struct rpc_request {
    enum rpc_kind kind;  /* RPC_REQUEST or RPC_NOTIFICATION */
    uint64_t msgid;      /* 0 for a notification */
    struct slice method; /* into the message */
    struct pull params;  /* stands before the first parameter */
    uint32_t n_params;   /* nil counts as none */
};

/* Parse one whole message as the scanner found it. ret->msgid is set for every fault but RPC_FRAMING. */
enum rpc_fault rpc_parse_request(const uint8_t *message, size_t len, struct rpc_request *ret);

/* The same for the message at the front of `bytes`, whose end is found in one pass with that. Returns what
 * scanner_next() does; `ret` and ret_fault are filled only if that is > 0. */
int64_t rpc_next_request(struct scanner *scanner, const uint8_t *bytes, size_t len, struct rpc_request *ret,
                         enum rpc_fault *ret_fault);

/* What comes before a successful result: [1, msgid, nil, ...; the caller packs the result next. */
void rpc_pack_result(struct packer *packer, uint64_t msgid);
/* A whole error response `[1, msgid, "CODE: message", nil]`. */
void rpc_pack_error(struct packer *packer, uint64_t msgid, enum error_code code, const char *message);
/* The final error of a connection whose framing is lost: the same with msgid nil. */
void rpc_pack_broken(struct packer *packer, enum error_code code, const char *message);

/* Clients: what comes before the parameters: [0, msgid, method, array of n_params ... */
void rpc_pack_request(struct packer *packer, uint64_t msgid, const char *method, uint32_t n_params);

struct rpc_response {
    bool has_msgid; /* false: the daemon's final error before it closes */
    uint64_t msgid;
    bool is_error;
    struct slice error; /* "CODE: message", into the message; empty when !is_error */
    struct pull result; /* stands before the result */
};

/* Parse one whole message as the scanner found it; 0, or -1 when it is not a response. */
int rpc_parse_response(const uint8_t *message, size_t len, struct rpc_response *ret);

#endif
