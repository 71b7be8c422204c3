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

static void print_number(FILE *out, struct pull *pull)
{
    int64_t number;
    uint64_t large;
    if (pull_int(pull, &number) == 0) {
        fprintf(out, "%" PRId64, number);
    } else if (pull_uint64(pull, &large) == 0) {
        fprintf(out, "%" PRIu64, large);
    } else {
        pull_skip(pull);
        fputs("null", out);
    }
}

static void print_array(FILE *out, struct pull *pull)
{
    uint32_t n = 0;
    pull_array(pull, &n);
    fputc('[', out);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) fputs(", ", out);
        json_value(out, pull);
    }
    fputc(']', out);
}

/* A key that is no text has no place in JSON; its pair is left out. */
static void print_map(FILE *out, struct pull *pull)
{
    uint32_t n = 0;
    const char *between = "";
    pull_map(pull, &n);
    fputc('{', out);
    for (uint32_t i = 0; i < n; i++) {
        struct slice name;
        if (pull_text(pull, &name) != 0) {
            pull_skip(pull);
            pull_skip(pull);
            continue;
        }
        fputs(between, out);
        between = ", ";
        json_text(out, name);
        fputs(": ", out);
        json_value(out, pull);
    }
    fputc('}', out);
}

void json_value(FILE *out, struct pull *pull)
{
    struct slice text = {NULL, 0};
    bool yes;
    switch (pull_type(pull)) {
    case PULL_BOOL:
        pull_bool(pull, &yes);
        fputs(yes ? "true" : "false", out);
        break;
    case PULL_TEXT:
        pull_text(pull, &text);
        json_text(out, text);
        break;
    case PULL_ARRAY: print_array(out, pull); break;
    case PULL_MAP: print_map(out, pull); break;
    case PULL_INT:
    case PULL_FLOAT: print_number(out, pull); break;
    case PULL_NIL:
    case PULL_EXT:
    case PULL_END:
        pull_skip(pull);
        fputs("null", out);
        break;
    }
}
