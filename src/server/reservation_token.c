/*
 * reservation_token.c: a reservation's bytes, which are base64url on the wire. Little-endian:
 *
 *   <B version> <B source> <B reason> <I8 id> <I8 units> <I8 made us> <I4 time limit ms> <B n> <n policy> <key>
 *   <I4 checksum of all before>
 */
#include "server/reservation_token.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/base64url.h"
#include "base/exact.h"
#include "base/hash.h"
#include "limit/limit.h"

enum { VERSION = 1, HEAD_SIZE = 3 + 8 + 8 + 8 + 4 + 1, CHECKSUM_SIZE = 4 };

static uint8_t *put_integer(uint8_t *to, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) to[i] = (uint8_t)(value >> 8 * i);
    return to + size;
}

static uint64_t get(const uint8_t **from, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (uint64_t)(*from)[i] << 8 * i;
    *from += size;
    return value;
}

static uint32_t checksum_of(const uint8_t *bytes, size_t n)
{
    uint64_t hash = hash_stable(HASH_STABLE_START, bytes, n);
    return (uint32_t)(hash ^ hash >> 32);
}

void reservation_token_pack(struct packer *packer, const struct reservation_token *token)
{
    size_t n = HEAD_SIZE + token->policy.len + token->key.len + CHECKSUM_SIZE, len = base64url_len(n);
    uint8_t *bytes = mem_alloc(n + len);
    if (bytes == NULL) {
        packer->failed = true;
        return;
    }

    const struct op_reservation *reservation = &token->reservation;
    uint8_t *to = put_integer(put_integer(put_integer(bytes, VERSION, 1), token->source, 1), token->reason, 1);
    CHECK(token->policy.len <= UINT8_MAX && reservation->ttl_ms <= UINT32_MAX);
    to = put_integer(put_integer(put_integer(to, reservation->id, 8), (uint64_t)reservation->units, 8),
                     (uint64_t)reservation->made_us, 8);
    to = put_integer(put_integer(to, (uint64_t)reservation->ttl_ms, 4), token->policy.len, 1);
    memcpy(to, token->policy.data, token->policy.len);
    to += token->policy.len;
    memcpy(to, token->key.data, token->key.len);
    to += token->key.len;
    put_integer(to, checksum_of(bytes, (size_t)(to - bytes)), CHECKSUM_SIZE);

    base64url_write((char *)bytes + n, (struct slice){bytes, n});
    pack_str(packer, (struct slice){bytes + n, len});
    mem_free(bytes);
}

/* 0, or -1 if write_bytes() would not write them. */
static int read_bytes(const uint8_t *bytes, size_t n, struct reservation_token *ret)
{
    struct op_reservation *reservation = &ret->reservation;
    const uint8_t *at = bytes, *end = bytes + n - CHECKSUM_SIZE, *sum = end;
    if (n < HEAD_SIZE + CHECKSUM_SIZE || get(&sum, CHECKSUM_SIZE) != checksum_of(bytes, (size_t)(end - bytes)))
        return -1;
    if (get(&at, 1) != VERSION) return -1;

    ret->source = (enum source)get(&at, 1);
    ret->reason = (enum reason)get(&at, 1);
    reservation->id = get(&at, 8);
    reservation->units = (int64_t)get(&at, 8);
    reservation->made_us = (int64_t)get(&at, 8);
    reservation->ttl_ms = (int64_t)get(&at, 4);
    ret->policy.len = get(&at, 1);
    if (ret->policy.len > (size_t)(end - at)) return -1;
    ret->policy.data = at;
    ret->key = (struct slice){at + ret->policy.len, (size_t)(end - at) - ret->policy.len};

    bool is_sound = ret->source <= SOURCE_LOCAL && ret->reason <= REASON_STORE_ERROR && reservation->units >= 0 &&
                    reservation->units <= EXACT_MAX && reservation->made_us >= 0 && reservation->made_us <= EXACT_MAX &&
                    reservation->ttl_ms >= 1 && reservation->ttl_ms <= RESERVATION_TTL_MAX_MS && ret->key.len > 0;
    return is_sound ? 0 : -1;
}

int reservation_token_read(struct slice text, struct reservation_token *ret)
{
    struct reservation_token token = {.bytes = mem_alloc(base64url_max_bytes(text.len))};
    size_t n;
    if (token.bytes == NULL) return -2;
    if (base64url_read(text, token.bytes, &n) < 0 || n < CHECKSUM_SIZE || read_bytes(token.bytes, n, &token) < 0) {
        mem_free(token.bytes);
        return -1;
    }
    *ret = token;
    return 0;
}

void reservation_token_fini(struct reservation_token *token)
{
    mem_free(token->bytes);
    token->bytes = NULL;
}
