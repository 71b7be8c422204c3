/* log_key.c: writes a key in clear, as its hash, or not at all, for the log and for the views of operators. */
#include "base/log_key.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"

enum { HASH_SPARE_BITS = 16 }; /* a hash of 48 bits is 12 hex digits */

static enum log_keys in_log = LOG_KEYS_HASH, in_views = LOG_KEYS_CLEAR;
static uint64_t drawn[2], secret[2];

void log_keys_seed(uint64_t k0, uint64_t k1)
{
    drawn[0] = secret[0] = k0;
    drawn[1] = secret[1] = k1;
}

void log_keys_set(enum log_keys log, enum log_keys views, const char *secret_text)
{
    static const uint64_t first[2] = {1, 0}, second[2] = {2, 0};
    in_log = log;
    in_views = views;
    secret[0] = drawn[0];
    secret[1] = drawn[1];
    if (secret_text == NULL) return;

    struct slice text = slice_of(secret_text);
    secret[0] = hash_with(first, text.data, text.len);
    secret[1] = hash_with(second, text.data, text.len);
}

/* log_escape() leaves spaces as they are, so a key with a space could look like the rest of the line. */
static void write_clear(char *out, size_t cap, struct slice key)
{
    enum { ESCAPED_MAX = 4, DOTS = 4 };
    size_t at = 0;
    for (size_t i = 0; i < key.len; i++) {
        if (at + ESCAPED_MAX + DOTS > cap) {
            memcpy(out + at, "...", DOTS);
            return;
        }

        if (key.data[i] == ' ')
            at += (size_t)snprintf(out + at, cap - at, "\\x20");
        else
            at += strlen(log_escape(out + at, cap - at, key.data + i, 1));
    }
    out[at] = '\0';
}

const char *log_key(char out[LOG_KEY_MAX], struct slice key)
{
    static const char label[] = " key ";
    enum { LABEL = sizeof label - 1 };
    out[0] = '\0';
    if (in_log == LOG_KEYS_NONE) return out;

    memcpy(out, label, sizeof label);
    if (in_log == LOG_KEYS_CLEAR)
        write_clear(out + LABEL, LOG_KEY_MAX - LABEL, key);
    else
        log_key_hash(out + LABEL, key);
    return out;
}

const char *log_key_hash(char out[LOG_KEY_HASH_MAX], struct slice key)
{
    snprintf(out, LOG_KEY_HASH_MAX, "#%012" PRIx64, hash_with(secret, key.data, key.len) >> HASH_SPARE_BITS);
    return out;
}

struct slice log_key_in_view(struct slice key, const char *hash)
{
    if (in_views == LOG_KEYS_CLEAR) return key;
    return slice_of(in_views == LOG_KEYS_HASH ? hash : "");
}
