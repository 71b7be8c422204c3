#include "ctl/command.h"

#include <stdio.h>
#include <string.h>

#include "client/flow.h"
#include "ctl/access.h"
#include "ctl/json.h"
#include "ctl/text.h"

enum exit_code usage_error(const char *what, const char *which)
{
    fprintf(stderr, "ratelimitctl: %s%s%s; try ratelimitctl --help\n", what, which[0] != '\0' ? ": " : "", which);
    return EXIT_USAGE;
}

/* A code that came before the daemon closed is about what was asked here: there was nothing else on this connection. */
static bool is_refusal(enum ratelimit_status status, const char *code)
{
    return status == RATELIMIT_REFUSED || (status == RATELIMIT_LOST && code[0] != '\0');
}

/* What makes no connection is often the wrong place to look; what was sent and lost is not to be asked again unseen. */
static const char *way_out(enum ratelimit_status status, const char *error)
{
    if (status == RATELIMIT_TIMEOUT || status == RATELIMIT_LOST)
        return "; the request was sent and may have taken effect";
    bool is_path = status == RATELIMIT_UNREACHABLE && strncmp(error, "cannot connect", strlen("cannot connect")) == 0;
    return is_path ? "; is ratelimitd running, and is this its socket? Set another with -s or $RATELIMIT_SOCKET" : "";
}

static void print_json_error(const char *code, const char *error)
{
    size_t code_len = strlen(code);
    fputs("{\"error\": ", stdout);
    json_text(stdout, slice_of(code));
    fputs(", \"message\": ", stdout);
    json_text(stdout, slice_of(error + (code_len > 0 ? code_len + strlen(": ") : 0)));
    fputs("}\n", stdout);
}

enum exit_code complain(enum ratelimit_status status, const char *code, const char *error, bool json)
{
    fputs("ratelimitctl: ", stderr);
    if (is_refusal(status, code)) {
        text_print_sentence(stderr, slice_of(error));
    } else if (status != RATELIMIT_UNREACHABLE || !access_explain(stderr, error)) {
        text_print(stderr, slice_of(error));
        fputs(way_out(status, error), stderr);
    }
    fputc('\n', stderr);

    if (status == RATELIMIT_BAD_ARGUMENT) return EXIT_USAGE;
    if (!is_refusal(status, code)) return EXIT_UNREACHABLE;
    if (json) print_json_error(code, error);
    return EXIT_REFUSED;
}

enum exit_code complain_open(enum ratelimit_status status)
{
    return usage_error(status == RATELIMIT_BAD_ARGUMENT
                           ? "the socket's path (of -s, or $RATELIMIT_SOCKET) is empty or over 107 bytes"
                           : ratelimit_status_text(status),
                       "");
}

/* "COST" of "POLICY KEY [COST]". */
static struct slice name_of_argument(const struct command *command, int index)
{
    const char *at = command->arguments;
    for (; index > 0; index--) at += strcspn(at, " ") + 1;
    at += strspn(at, "[");
    return (struct slice){(const uint8_t *)at, strcspn(at, " ]")};
}

static enum exit_code number_error(const struct command *command, int index, const char *text, bool too_large)
{
    struct slice name = name_of_argument(command, index);
    const char *way = command->shape == SHAPE_ALL ? "; a comma between two checks is an argument of its own" : "";
    fprintf(stderr, "ratelimitctl: %.*s: '%s' is %s%s\n", (int)name.len, (const char *)name.data, text,
            too_large ? "too large; the maximum is 9007199254740991" : "not a whole number", way);
    return EXIT_USAGE;
}

static enum exit_code pack_policy(struct packer *packer, const char *text)
{
    const char *at, *wrong = NULL;
    if (flow_is(text))
        wrong = flow_pack(packer, text, &at);
    else
        pack_text(packer, text);
    if (wrong == NULL) return EXIT_DONE;
    fprintf(stderr, "ratelimitctl: the policy's settings: %s, at '%.20s'; write them as in ratelimitd.yaml(5)\n", wrong,
            at);
    return EXIT_USAGE;
}

static enum exit_code pack_argument(struct packer *packer, const struct command *command, int index, const char *text)
{
    int64_t number;
    if (command->types[index] == ARGUMENT_POLICY) return pack_policy(packer, text);
    if (command->types[index] == ARGUMENT_TEXT) {
        pack_text(packer, text);
        return EXIT_DONE;
    }
    int status = options_parse_number(text, &number);
    if (status != 0) return number_error(command, index, text, status == -2);
    pack_int(packer, number);
    return EXIT_DONE;
}

static enum exit_code pack_arguments(struct packer *packer, const struct command *command, int n, char **arguments)
{
    enum exit_code code = EXIT_DONE;
    for (int i = 0; i < n && code == EXIT_DONE; i++) code = pack_argument(packer, command, i, arguments[i]);
    return code;
}

/* `n_more` options follow, packed by the caller. */
static void pack_options(struct packer *packer, const struct options *options, uint32_t n_more)
{
    pack_map(packer, n_more + (uint32_t)__builtin_popcount(options->given & OPTIONS_OF_PROTOCOL));
    if (options->given & OPTION_DEADLINE) {
        pack_text(packer, "deadline_ms");
        pack_int(packer, options->deadline_ms);
    }
    if (options->given & OPTION_MAX_WAIT) {
        pack_text(packer, "max_wait_ms");
        pack_int(packer, options->max_wait_ms);
    }
    if (options->given & OPTION_AT_MOST) {
        pack_text(packer, "at_most");
        pack_int(packer, options->at_most);
    }
    if (options->given & OPTION_REQUEST_ID) {
        pack_text(packer, "request_id");
        pack_text(packer, options->request_id);
    }
    if (options->given & OPTION_TTL) {
        pack_text(packer, "ttl_ms");
        pack_int(packer, options->ttl_ms);
    }
}

static enum exit_code pack_check(struct packer *packer, const struct command *command, const struct options *options,
                                 int n, char **arguments)
{
    pack_array(packer, 3);
    enum exit_code code = pack_arguments(packer, command, 2, arguments);
    if (code != EXIT_DONE) return code;
    pack_options(packer, options, n > 2);
    if (n == 2) return EXIT_DONE;
    pack_text(packer, "cost");
    return pack_argument(packer, command, 2, arguments[2]);
}

/* How many arguments the member has that begins at `arguments`: a policy and a key, whatever they are, then a cost if
 * no comma comes first. */
static int member_len(int n, char **arguments)
{
    int len = n < 2 ? n : 2;
    if (len < n && strcmp(arguments[len], ",") != 0) len++;
    return len;
}

/* ---- Before anything is packed ---- */

/* An option that comes too late, and where it belongs. */
static enum exit_code misplaced(const struct command *command, const char *option)
{
    struct slice first = name_of_argument(command, 0);
    fprintf(stderr,
            "ratelimitctl: %s comes after %.*s, where options have ended; put it before the command, or between %s and "
            "%.*s\n",
            option, (int)first.len, (const char *)first.data, command->name, (int)first.len, (const char *)first.data);
    return EXIT_USAGE;
}

/* In the place of a key it is rather a mistake, such as `check login -- alice`. */
static enum exit_code bare_dashes(const struct command *command)
{
    fprintf(stderr,
            "ratelimitctl: KEY: a bare -- is not a key; for the key --, end the options first: ratelimitctl %s -- "
            "POLICY --\n",
            command->name);
    return EXIT_USAGE;
}

/* The arguments of one check, or of another command. The first ones, policy and key, may be any text, also the name of
 * an option, unless what follows shows that it was meant as one: `check login --json alice`. */
static enum exit_code look_at(const struct command *command, const struct options *options, int n, char **arguments)
{
    int n_free = 0;
    int64_t number;
    while (n_free < command->n_least && n_free < ARGUMENTS_MAX && command->types[n_free] != ARGUMENT_NUMBER) n_free++;

    for (int i = 0; i < n; i++) {
        bool is_dashes = strcmp(arguments[i], "--") == 0;
        if (i < n_free && is_dashes && !options->ended) return bare_dashes(command);
        if (i < n_free) continue;
        if (command->shape == SHAPE_HOLD && is_dashes) break;
        if (options_is_one(arguments[i])) return misplaced(command, arguments[i]);
        bool has_no_cost = i > 0 && i == n_free && options_parse_number(arguments[i], &number) == -1;
        if (has_no_cost && options_is_one(arguments[i - 1])) return misplaced(command, arguments[i - 1]);
    }
    return EXIT_DONE;
}

enum exit_code command_look(const struct command *command, const struct options *options, int n, char **arguments)
{
    enum exit_code code = EXIT_DONE;
    if (command->n_most > 0) {
        bool is_all = command->shape == SHAPE_ALL;
        for (int at = 0; at < n && code == EXIT_DONE;) {
            int len = is_all ? member_len(n - at, arguments + at) : n;
            code = look_at(command, options, len, arguments + at);
            at += len + is_all;
        }
        if (code != EXIT_DONE) return code;
    }

    bool misses_command = command->shape == SHAPE_HOLD && n > 2 && (n == 3 || strcmp(arguments[2], "--") != 0);
    if (n >= command->n_least && n <= command->n_most && !misses_command) return EXIT_DONE;
    fprintf(stderr, "usage: ratelimitctl %s [OPTION ...] %s\n", command->name, command->arguments);
    return EXIT_USAGE;
}

static int64_t cost_of(const struct command *command, int n, char **arguments)
{
    int64_t cost = command->default_cost;
    if (command->shape != SHAPE_HOLD && n > 2) options_parse_number(arguments[2], &cost);
    return cost;
}

size_t command_costs(const struct command *command, const struct options *options, int n, char **arguments,
                     int64_t *ret)
{
    if (options->given & OPTION_AT_MOST) n = 2;
    if (command->shape != SHAPE_ALL) {
        ret[0] = cost_of(command, n, arguments);
        return 1;
    }

    size_t n_costs = 0;
    for (int at = 0; at < n;) {
        int len = member_len(n - at, arguments + at);
        ret[n_costs++] = cost_of(command, len, arguments + at);
        at += len + 1;
    }
    return n_costs;
}

/* ---- The parameters ---- */

static enum exit_code pack_members(struct packer *packer, const struct command *command, int n, char **arguments)
{
    uint32_t n_members = 1;
    for (int at = member_len(n, arguments); at < n; n_members++) at += 1 + member_len(n - at - 1, arguments + at + 1);
    pack_array(packer, n_members);
    for (int at = 0; n_members > 0; n_members--) {
        int len = member_len(n - at, arguments + at);
        if (len < 2) return usage_error("a policy and its key are missing after the last comma", "");
        pack_array(packer, (uint32_t)len);
        enum exit_code code = pack_arguments(packer, command, len, arguments + at);
        if (code != EXIT_DONE) return code;
        at += len;
        if (at < n && strcmp(arguments[at], ",") != 0) return usage_error("a comma is missing before", arguments[at]);
        at++;
    }
    return EXIT_DONE;
}

static enum exit_code pack_shape(struct packer *packer, const struct command *command, const struct options *options,
                                 int n, char **arguments)
{
    bool has_options = (options->given & OPTIONS_OF_PROTOCOL) != 0;
    if (command->shape == SHAPE_CHECK && has_options) return pack_check(packer, command, options, n, arguments);
    bool is_all = command->shape == SHAPE_ALL;
    if (command->shape == SHAPE_HOLD && n > 2) n = 2;
    pack_array(packer, (is_all ? 1U : (uint32_t)n) + has_options);
    enum exit_code code =
        is_all ? pack_members(packer, command, n, arguments) : pack_arguments(packer, command, n, arguments);
    if (code == EXIT_DONE && has_options) pack_options(packer, options, 0);
    return code;
}

enum exit_code command_pack(const struct command *command, const struct options *options, int n, char **arguments,
                            struct packer *packer)
{
    enum exit_code code = pack_shape(packer, command, options, n, arguments);
    if (code != EXIT_DONE || !packer->failed) return code;
    fputs("ratelimitctl: no memory\n", stderr);
    return EXIT_USAGE;
}
