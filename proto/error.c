#include "proto/error.h"

static const char *const names[N_ERROR_CODES] = {
    [ERROR_NONE] = "NONE",
#define ERROR_CODE(name, help) [ERROR_##name] = #name,
#include "proto/error.def"
#undef ERROR_CODE
};

const char *error_name(enum error_code code)
{
    return names[code];
}

enum error_code error_of_name(struct slice name)
{
    for (int code = ERROR_NONE + 1; code < N_ERROR_CODES; code++) {
        if (slice_is(name, names[code])) return (enum error_code)code;
    }
    return ERROR_NONE;
}

/* Bytes before the first ": "; all of them where there is none. */
static size_t code_len(struct slice text)
{
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.data[i] == ':' && text.data[i + 1] == ' ') return i;
    }
    return text.len;
}

enum error_code error_split(struct slice text, struct slice *ret_message)
{
    size_t len = code_len(text);
    enum error_code code = len < text.len ? error_of_name((struct slice){text.data, len}) : ERROR_NONE;
    if (code == ERROR_NONE) {
        *ret_message = text;
        return ERROR_INTERNAL;
    }
    *ret_message = (struct slice){text.data + len + 2, text.len - len - 2};
    return code;
}
