/* flow.c: a recursive reader of YAML's flow style that packs as it reads, for request.c, denials.c and ctl/. */
#include "client/flow.h"

#include <string.h>

#include "proto/pull.h"

enum { HEADER_SIZE = 3, MAP_16 = 0xde, LIST_16 = 0xdc, TEXT_MAX = 1024 };

#define SPACE           " \t\r\n"
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

struct flow {
    const char *at;
    const char *wrong; /* static; NULL while all is well */
    struct packer *packer;
    struct flow_name *name; /* NULL: a name is a setting as others */
    int depth;
    bool is_number; /* the last value, a plain text */
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
    flow->is_number = false;
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
    flow->is_number = strspn((const char *)plain.data, "0123456789.") >= plain.len;
    if (!is_key && (slice_is(plain, "null") || slice_is(plain, "~")))
        pack_nil(flow->packer);
    else
        pack_str(flow->packer, plain);
    return !flow->packer->failed;
}

/* The entry of the policy that was packed last may be its name: to be noted, and not every daemon takes it. */
static bool note_name(struct flow *flow, size_t start)
{
    struct buffer *out = flow->packer->out;
    struct pull entry = pull_of(buffer_data(out) + start, buffer_len(out) - start);
    struct slice key, name;
    if (pull_text(&entry, &key) != 0 || !slice_is(key, "name")) return true;

    char *to = flow->name->text;
    bool is_name = !flow->is_number && pull_text(&entry, &name) == 0 && name.len > 0 && name.len < FLOW_NAME_SIZE;
    if (is_name) memcpy(to, name.data, name.len);
    to[is_name ? name.len : 0] = '\0';
    if (!is_name || strspn(to, NAME_CHARACTERS) != name.len || strncmp(to, "inline-", strlen("inline-")) == 0)
        return fail_flow(flow, "name is a text of 1 to 64 letters, digits, '.', '_' and '-', and not inline-...");

    if (flow->name->is_left_out) buffer_truncate(out, start);
    return true;
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
    size_t n = 0, n_packed = 0, start = buffer_len(out);
    flow->packer->failed = buffer_append(out, header, sizeof header) != 0;
    if (flow->packer->failed) return false;

    flow->depth++;
    for (; !take_char(flow, end); n++) {
        if (n > 0 && !take_char(flow, ','))
            return fail_flow(flow, is_map ? "a comma or } is missing" : "a comma or ] is missing");
        if (n > 0 && take_char(flow, end)) break; /* a comma may stand before the end, as in YAML */
        if (n == FLOW_ENTRIES_MAX) return fail_flow(flow, "too many entries");

        size_t before = buffer_len(out);
        if (is_map && !pack_scalar(flow, true)) return false;
        if (is_map && !take_char(flow, ':')) return fail_flow(flow, "a colon is missing after the name of a setting");
        if (!pack_value(flow)) return false;
        bool may_be_name = is_map && flow->depth == 1 && flow->name != NULL;
        if (may_be_name && !note_name(flow, before)) return false;
        n_packed += buffer_len(out) > before;
    }
    flow->depth--;

    uint8_t *count = buffer_data(out) + start + 1;
    count[0] = (uint8_t)(n_packed >> 8);
    count[1] = (uint8_t)n_packed;
    return true;
}

const char *flow_pack(struct packer *packer, const char *text, struct flow_name *name, const char **ret_at)
{
    struct flow flow = {.at = text, .packer = packer, .name = name};
    if (name != NULL) name->text[0] = '\0';
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
