/*
 * base64url.h: bytes as text that needs no quotes anywhere (RFC 4648, section 5, without padding).
 */
#ifndef RL_BASE_BASE64URL_H
#define RL_BASE_BASE64URL_H

#include <stddef.h>

#include "base/slice.h"

static inline size_t base64url_len(size_t n_bytes) /* of the text */
{
    return n_bytes / 3 * 4 + (n_bytes % 3 > 0 ? n_bytes % 3 + 1 : 0);
}

static inline size_t base64url_max_bytes(size_t len)
{
    return len / 4 * 3 + 2;
}

void base64url_write(char *to, struct slice bytes); /* base64url_len() characters, no NUL */
/* Decodes into `to`, which has base64url_max_bytes(). 0, or -1 if base64url_write() does not make such a text. */
int base64url_read(struct slice text, uint8_t *to, size_t *ret_n);

#endif
