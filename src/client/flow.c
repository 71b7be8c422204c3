#include "client/flow.h"

#include <string.h>

enum { HEADER_SIZE = 3, MAP_16 = 0xde, LIST_16 = 0xdc, TEXT_MAX = 1024 };

#define SPACE " \t\r\n"

struct flow {
    const char *at;
    const char *wrong; /* static; NULL while all is well */
    struct packer *packer;
    int depth;
};

static bool fail_flow(struct flow *flow, const char *wrong)
{
    flow->wrong = wrong;
    return false;
}

/* `what` comes next, and is passed over. */
static bool take_char(struct flow *flow, char what)
{
    flow->at += strspn(flow->at, SPACE);
    if (*flow->at != what) return false;
    flow->at++;
    return true;
}

/* In single quotes a quote is doubled, in double ones things are escaped as in JSON. */
static bool read_quoted(struct flow *flow, char quote, char *text, size_t *len)
{
    static const char escapes[] = "\"\\/ntr", escaped[] = "\"\\/\n\t\r";
    for (; *flow->at != '\0' && *len < TEXT_MAX; flow->at++) {
        char byte = *flow->at;
        if (byte == quote) {
            flow->at++;
            if (quote == '"' || *flow->at != quote) return true;
        } else if (quote == '"' && byte == '\\') {
            const char *escape = *++flow->at != '\0' ? strchr(escapes, *flow->at) : NULL;
            if (escape == NULL) return fail_flow(flow, "an unknown escape sequence");
            byte = escaped[escape - escapes];
        }
        text[(*len)++] = byte;
    }
    return fail_flow(flow, "a quoted text that does not end, or is too long");
}

/* False here and below: something is wrong, or memory is short. */
static bool pack_scalar(struct flow *flow, bool is_key)
{
    char text[TEXT_MAX];
    size_t len = 0;
    char quote = *flow->at;
    if (quote == '"' || quote == '\'') {
        flow->at++;
        if (!read_quoted(flow, quote, text, &len)) return false;
        pack_str(flow->packer, (struct slice){(const uint8_t *)text, len});
        return !flow->packer->failed;
    }

    /* Up to what structures the flow; a colon does so only before a space or in a key. */
    struct slice plain = {(const uint8_t *)flow->at, 0};
    for (; *flow->at != '\0' && strchr(",[]{}\n", *flow->at) == NULL; flow->at++) {
        if (*flow->at == ':' && (is_key || strchr(" \t\n", flow->at[1]) != NULL)) break;
        if (strchr(" \t\r", *flow->at) == NULL) plain.len = (size_t)(flow->at + 1 - (const char *)plain.data);
    }

    if (plain.len == 0) return fail_flow(flow, is_key ? "a setting without a name" : "a value is missing");
    if (plain.len > TEXT_MAX) return fail_flow(flow, "a text that is too long");
    if (!is_key && (slice_is(plain, "null") || slice_is(plain, "~")))
        pack_nil(flow->packer);
    else
        pack_str(flow->packer, plain);
    return !flow->packer->failed;
}

/* A scalar, or a map or list with all that is in it. */
static bool pack_value(struct flow *flow)
{
    bool is_map = take_char(flow, '{');
    if (!is_map && !take_char(flow, '[')) return pack_scalar(flow, false);
    if (flow->depth == FLOW_DEPTH_MAX) {
        flow->at--;
        return fail_flow(flow, "nested too deeply");
    }

    struct buffer *out = flow->packer->out;
    char end = is_map ? '}' : ']';
    uint8_t header[HEADER_SIZE] = {is_map ? MAP_16 : LIST_16}; /* the count is known at the end */
    size_t n = 0, start = buffer_len(out);
    flow->packer->failed = buffer_append(out, header, sizeof header) != 0;
    if (flow->packer->failed) return false;

    flow->depth++;
    for (; !take_char(flow, end); n++) {
        if (n > 0 && !take_char(flow, ','))
            return fail_flow(flow, is_map ? "a comma or } is missing" : "a comma or ] is missing");
        if (n > 0 && take_char(flow, end)) break; /* a comma may stand before the end, as in YAML */
        if (n == FLOW_ENTRIES_MAX) return fail_flow(flow, "too many entries");

        if (is_map && !pack_scalar(flow, true)) return false;
        if (is_map && !take_char(flow, ':')) return fail_flow(flow, "a colon is missing after the name of a setting");
        if (!pack_value(flow)) return false;
    }
    flow->depth--;

    uint8_t *count = buffer_data(out) + start + 1;
    count[0] = (uint8_t)(n >> 8);
    count[1] = (uint8_t)n;
    return true;
}

const char *flow_pack(struct packer *packer, const char *text, const char **ret_at)
{
    struct flow flow = {.at = text, .packer = packer};
    if (text[0] != '{') {
        pack_text(packer, text);
        return NULL;
    }
    if (packer->failed) return NULL;

    bool is_whole = pack_value(&flow);
    flow.at += strspn(flow.at, SPACE);
    if (is_whole && *flow.at != '\0') fail_flow(&flow, "there is text after the last brace");
    *ret_at = flow.at;
    return flow.wrong;
}
