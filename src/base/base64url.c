/* base64url.c: text of bytes and back, for the tokens of reservations (server/reservation_token.c). */
#include "base/base64url.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void base64url_write(char *to, struct slice bytes)
{
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t group = 0;
        for (size_t j = 0; j < 3; j++) group = group << 8 | (j < n ? bytes.data[i + j] : 0U);
        for (size_t j = 0; j <= n; j++) *to++ = alphabet[group >> (18 - 6 * j) & 63];
    }
}

int base64url_read(struct slice text, uint8_t *to, size_t *ret_n)
{
    uint32_t group = 0;
    unsigned n_bits = 0;
    size_t n = 0;
    if (text.len % 4 == 1) return -1;

    for (size_t i = 0; i < text.len; i++) {
        const char *digit = memchr(alphabet, text.data[i], sizeof alphabet - 1);
        if (digit == NULL) return -1;
        group = group << 6 | (uint32_t)(digit - alphabet);
        n_bits += 6;
        if (n_bits < 8) continue;

        n_bits -= 8;
        to[n++] = (uint8_t)(group >> n_bits);
        group &= (1U << n_bits) - 1;
    }

    if (group != 0) return -1; /* bits that no byte has */
    *ret_n = n;
    return 0;
}
