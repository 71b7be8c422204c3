/* json.c: prints a packed value as JSON, for every command with --json. */
#include "ctl/json.h"

#include <inttypes.h>

#include "ctl/text.h"

void json_text(FILE *out, struct slice text)
{
    fputc('"', out);
    while (text.len > 0) {
        uint8_t first = text.data[0];
        size_t len = text_utf8_len(text);
        if (len == 0) {
            fprintf(out, "\\\\x%02x", first);
            len = 1;
        } else if (first == '"' || first == '\\') {
            fprintf(out, "\\%c", first);
        } else if (first < 0x20 || first == 0x7f) {
            fprintf(out, "\\u%04x", first);
        } else {
            fwrite(text.data, 1, len, out);
        }
        text = (struct slice){text.data + len, text.len - len};
    }
    fputc('"', out);
}

void json_value(FILE *out, struct pull *pull)
{
    struct slice text = {NULL, 0};
    const char *between = "";
    uint32_t n = 0;
    int64_t number;
    uint64_t large;
    bool yes;

    switch (pull_type(pull)) {
    case PULL_BOOL:
        pull_bool(pull, &yes);
        fputs(yes ? "true" : "false", out);
        return;
    case PULL_TEXT:
        pull_text(pull, &text);
        json_text(out, text);
        return;
    case PULL_INT:
    case PULL_FLOAT:
        if (pull_int(pull, &number) == 0)
            fprintf(out, "%" PRId64, number);
        else if (pull_uint64(pull, &large) == 0)
            fprintf(out, "%" PRIu64, large);
        else
            break;
        return;
    case PULL_ARRAY:
        fputc('[', out);
        for (pull_array(pull, &n); n > 0; n--, between = ", ") {
            fputs(between, out);
            json_value(out, pull);
        }
        fputc(']', out);
        return;
    case PULL_MAP:
        fputc('{', out);
        for (pull_map(pull, &n); n > 0; n--) {
            if (pull_text(pull, &text) != 0) { /* a key that JSON has no form for: its pair is left out */
                pull_skip(pull);
                pull_skip(pull);
                continue;
            }
            fputs(between, out);
            between = ", ";
            json_text(out, text);
            fputs(": ", out);
            json_value(out, pull);
        }
        fputc('}', out);
        return;
    case PULL_NIL:
    case PULL_EXT:
    case PULL_END: break;
    }
    pull_skip(pull);
    fputs("null", out);
}
