#include "ctl/text.h"

#include <stdbool.h>
#include <stdlib.h>

size_t text_utf8_len(struct slice text)
{
    const uint8_t *at = text.data;
    size_t len = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (len > text.len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (len == 3 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0))) return 0;
    if (len == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))) return 0;
    return len;
}

/* Also those beyond ASCII, U+0080 to U+009F, which terminals obey as well. */
static bool is_control(const uint8_t *at, size_t len)
{
    return len == 1 ? at[0] < 0x20 || at[0] == 0x7f : at[0] == 0xc2 && at[1] < 0xa0;
}

void text_print(FILE *out, struct slice text)
{
    while (text.len > 0) {
        size_t len = text_utf8_len(text);
        bool as_is = len > 0 && text.data[0] != '\\' && !is_control(text.data, len);
        if (len == 0) len = 1;
        for (size_t i = 0; i < len; i++) {
            if (as_is)
                fputc(text.data[i], out);
            else
                fprintf(out, "\\x%02x", text.data[i]);
        }
        text = (struct slice){text.data + len, text.len - len};
    }
}

static int digit(uint8_t at)
{
    if (at >= '0' && at <= '9') return at - '0';
    return at >= 'a' && at <= 'f' ? at - 'a' + 10 : -1;
}

/* The byte that "\xNN" at the front stands for; -1: there is none. */
static int escaped_byte(struct slice text)
{
    if (text.len < 4 || text.data[0] != '\\' || text.data[1] != 'x') return -1;
    int high = digit(text.data[2]), low = digit(text.data[3]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void text_print_sentence(FILE *out, struct slice text)
{
    uint8_t *bytes = malloc(text.len + 1);
    size_t n = 0;
    if (bytes == NULL) return;

    while (text.len > 0) {
        int byte = escaped_byte(text);
        size_t len = byte >= 0 ? 4 : 1;
        bytes[n++] = byte >= 0 ? (uint8_t)byte : text.data[0];
        text = (struct slice){text.data + len, text.len - len};
    }

    text_print(out, (struct slice){bytes, n});
    free(bytes);
}
