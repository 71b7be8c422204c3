#include "client/flow.h"

#include <string.h>

enum { HEADER_SIZE = 3, MAP_16 = 0xde, LIST_16 = 0xdc, TEXT_MAX = 1024 };

struct flow {
    const char *at;
    const char *wrong; /* static; NULL while all is well */
    struct packer *packer;
    int depth;
};

static void pack_value(struct flow *flow);

static bool fail(struct flow *flow, const char *wrong)
{
    if (flow->wrong == NULL) flow->wrong = wrong;
    return false;
}

static void skip_space(struct flow *flow)
{
    flow->at += strspn(flow->at, " \t\r\n");
}

/* `what` comes next, and is passed over. */
static bool take(struct flow *flow, char what)
{
    skip_space(flow);
    if (*flow->at != what) return false;
    flow->at++;
    return true;
}

/* The byte of JSON's escape \x; 0 if it is not one that a setting needs. */
static char unescaped(char escape)
{
    static const char pairs[] = "\"\"\\\\//n\nt\tr\r";
    for (const char *pair = pairs; *pair != '\0'; pair += 2) {
        if (*pair == escape) return pair[1];
    }
    return '\0';
}

/* In single quotes a quote is doubled, in double ones things are escaped as in JSON. */
static bool read_quoted(struct flow *flow, char quote, char *text, size_t *len)
{
    for (; *flow->at != '\0' && *len < TEXT_MAX; flow->at++) {
        char byte = *flow->at;
        if (byte == quote) {
            flow->at++;
            if (quote == '"' || *flow->at != quote) return true;
        } else if (quote == '"' && byte == '\\') {
            byte = unescaped(*++flow->at);
            if (byte == '\0') return fail(flow, "an unknown escape sequence");
        }
        text[(*len)++] = byte;
    }
    return fail(flow, "a quoted text that does not end, or is too long");
}

/* Up to what structures the flow; a colon does so only before a space or in a key. */
static bool read_plain(struct flow *flow, bool is_key, char *text, size_t *len)
{
    const char *from = flow->at;
    while (*flow->at != '\0' && strchr(",[]{}\n", *flow->at) == NULL) {
        if (*flow->at == ':' && (is_key || strchr(" \t\n", flow->at[1]) != NULL)) break;
        flow->at++;
    }
    *len = (size_t)(flow->at - from);
    while (*len > 0 && strchr(" \t\r", from[*len - 1]) != NULL) --*len;
    if (*len == 0) return fail(flow, is_key ? "a setting without a name" : "a value is missing");
    if (*len > TEXT_MAX) return fail(flow, "a text that is too long");
    memcpy(text, from, *len);
    return true;
}

static void pack_scalar(struct flow *flow, bool is_key)
{
    char text[TEXT_MAX];
    size_t len = 0;
    char quote = *flow->at;
    bool is_quoted = quote == '"' || quote == '\'';
    if (is_quoted) flow->at++;
    if (!(is_quoted ? read_quoted(flow, quote, text, &len) : read_plain(flow, is_key, text, &len))) return;
    struct slice value = {(const uint8_t *)text, len};
    if (!is_quoted && !is_key && (slice_is(value, "null") || slice_is(value, "~")))
        pack_nil(flow->packer);
    else
        pack_str(flow->packer, value);
}

static void pack_entry(struct flow *flow, bool in_map)
{
    skip_space(flow);
    if (in_map) {
        pack_scalar(flow, true);
        if (flow->wrong == NULL && !take(flow, ':')) fail(flow, "a colon is missing after the name of a setting");
        if (flow->wrong != NULL) return;
        skip_space(flow);
    }
    pack_value(flow);
}

/* How many entries there are is known at the end, so the header is written then. */
static void pack_entries(struct flow *flow, char end)
{
    struct buffer *out = flow->packer->out;
    uint8_t header[HEADER_SIZE] = {end == '}' ? MAP_16 : LIST_16};
    size_t n = 0, start = buffer_len(out);
    if (buffer_append(out, header, sizeof header) != 0) flow->packer->failed = true;
    while (flow->wrong == NULL && !flow->packer->failed && !take(flow, end)) {
        if (n > 0 && !take(flow, ',')) {
            fail(flow, end == '}' ? "a comma or } is missing" : "a comma or ] is missing");
        } else if (n == FLOW_ENTRIES_MAX) {
            fail(flow, "too many entries");
        } else if (n == 0 || !take(flow, end)) { /* a comma may stand before the end, as in YAML */
            pack_entry(flow, end == '}');
            n++;
        } else {
            break;
        }
    }
    if (flow->packer->failed) return;
    uint8_t *count = buffer_data(out) + start + 1;
    count[0] = (uint8_t)(n >> 8);
    count[1] = (uint8_t)n;
}

static void pack_value(struct flow *flow)
{
    bool is_map = *flow->at == '{';
    if (!is_map && *flow->at != '[') {
        pack_scalar(flow, false);
        return;
    }
    if (flow->depth == FLOW_DEPTH_MAX) {
        fail(flow, "nested too deeply");
        return;
    }
    flow->at++;
    flow->depth++;
    pack_entries(flow, is_map ? '}' : ']');
    flow->depth--;
}

const char *flow_pack(struct packer *packer, const char *text, const char **ret_at)
{
    struct flow flow = {.at = text, .packer = packer};
    if (packer->failed) return NULL;
    pack_value(&flow);
    skip_space(&flow);
    if (!packer->failed && *flow.at != '\0') fail(&flow, "there is text after the last brace");
    *ret_at = flow.at;
    return flow.wrong;
}
