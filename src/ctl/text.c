/* text.c: prints texts from outside so that a terminal stays as it is, for all that prints. */
#include "ctl/text.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"

size_t text_utf8_len(struct slice text)
{
    const uint8_t *at = text.data;
    size_t len = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    CHECK(text.len > 0);
    if (len > text.len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (len == 3 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0))) return 0;
    if (len == 4 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))) return 0;
    return len;
}

void text_print(FILE *out, struct slice text)
{
    while (text.len > 0) {
        const uint8_t *at = text.data;
        size_t len = text_utf8_len(text);
        /* Also the controls beyond ASCII, U+0080 to U+009F, which terminals obey as well. */
        bool is_control = len == 1 ? at[0] < 0x20 || at[0] == 0x7f : len == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        bool as_is = len > 0 && at[0] != '\\' && !is_control;
        if (len == 0) len = 1;
        for (size_t i = 0; i < len; i++) {
            if (as_is)
                fputc(at[i], out);
            else
                fprintf(out, "\\x%02x", at[i]);
        }
        text = (struct slice){at + len, text.len - len};
    }
}

/* Of "\xNN"; -1: it is none. */
static int digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') return byte - '0';
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

void text_print_sentence(FILE *out, struct slice text)
{
    uint8_t *bytes = malloc(text.len + 1);
    size_t n = 0;
    if (bytes == NULL) return;

    while (text.len > 0) {
        bool may_be = text.len >= 4 && text.data[0] == '\\' && text.data[1] == 'x';
        int high = may_be ? digit(text.data[2]) : -1, low = may_be ? digit(text.data[3]) : -1;
        bool is_escape = high >= 0 && low >= 0;
        bytes[n++] = is_escape ? (uint8_t)(high * 16 + low) : text.data[0];
        size_t len = is_escape ? 4 : 1;
        text = (struct slice){text.data + len, text.len - len};
    }

    text_print(out, (struct slice){bytes, n});
    free(bytes);
}
