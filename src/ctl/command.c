#include "ctl/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/flow.h"
#include "ctl/json.h"

enum { MESSAGE_SIZE = 1024 };

enum exit_code usage_error(const char *what, const char *which)
{
    fprintf(stderr, "ratelimitctl: %s%s%s; try ratelimitctl --help\n", what, which[0] != '\0' ? ": " : "", which);
    return EXIT_USAGE;
}

enum exit_code complain(enum ratelimit_status status, const char *code, const char *error, bool json)
{
    char message[MESSAGE_SIZE];
    log_escape(message, sizeof message, error, strlen(error));
    fprintf(stderr, "ratelimitctl: %s\n", message);
    if (status == RATELIMIT_BAD_ARGUMENT) return EXIT_USAGE;
    if (status != RATELIMIT_REFUSED) return EXIT_UNREACHABLE;
    if (json) {
        size_t code_len = strlen(code);
        fputs("{\"error\": ", stdout);
        json_text(stdout, slice_of(code));
        fputs(", \"message\": ", stdout);
        json_text(stdout, slice_of(error + (code_len > 0 ? code_len + strlen(": ") : 0)));
        fputs("}\n", stdout);
    }
    return EXIT_REFUSED;
}

enum exit_code complain_open(enum ratelimit_status status)
{
    return usage_error(status == RATELIMIT_BAD_ARGUMENT ? "the socket's path is empty or over 107 bytes"
                                                        : ratelimit_status_text(status),
                       "");
}

int parse_number(const char *text, int64_t *ret)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == ' ' || text[0] == '+') return -1;
    *ret = number;
    return 0;
}

static enum exit_code pack_policy(struct packer *packer, const char *text)
{
    const char *at, *wrong = NULL;
    if (flow_is(text))
        wrong = flow_pack(packer, text, &at);
    else
        pack_text(packer, text);
    if (wrong == NULL) return EXIT_DONE;
    fprintf(stderr, "ratelimitctl: the policy's settings: %s, at '%.20s'\n", wrong, at);
    return EXIT_USAGE;
}

static enum exit_code pack_argument(struct packer *packer, enum argument type, const char *text)
{
    int64_t number;
    if (type == ARGUMENT_POLICY) return pack_policy(packer, text);
    if (type == ARGUMENT_TEXT) {
        pack_text(packer, text);
    } else if (parse_number(text, &number) == 0) {
        pack_int(packer, number);
    } else {
        return usage_error("no whole number", text);
    }
    return EXIT_DONE;
}

static enum exit_code pack_arguments(struct packer *packer, const struct command *command, int n, char **arguments)
{
    enum exit_code code = EXIT_DONE;
    for (int i = 0; i < n && code == EXIT_DONE; i++) code = pack_argument(packer, command->types[i], arguments[i]);
    return code;
}

/* `cost` NULL: it stands elsewhere, or is the default. */
static enum exit_code pack_options(struct packer *packer, const struct options *options, const char *cost)
{
    pack_map(packer, (uint32_t)(cost != NULL) + (uint32_t)__builtin_popcount(options->given));
    if (options->given & ASK_DEADLINE) {
        pack_text(packer, "deadline_ms");
        pack_int(packer, options->deadline_ms);
    }
    if (options->given & ASK_MAX_WAIT) {
        pack_text(packer, "max_wait_ms");
        pack_int(packer, options->max_wait_ms);
    }
    if (options->given & ASK_AT_MOST) {
        pack_text(packer, "at_most");
        pack_int(packer, options->at_most);
    }
    if (options->given & ASK_REQUEST_ID) {
        pack_text(packer, "request_id");
        pack_text(packer, options->request_id);
    }
    if (options->given & ASK_TTL) {
        pack_text(packer, "ttl_ms");
        pack_int(packer, options->ttl_ms);
    }
    if (cost == NULL) return EXIT_DONE;
    pack_text(packer, "cost");
    return pack_argument(packer, ARGUMENT_NUMBER, cost);
}

static enum exit_code pack_check(struct packer *packer, const struct command *command, const struct options *options,
                                 int n, char **arguments)
{
    pack_array(packer, 3);
    enum exit_code code = pack_arguments(packer, command, 2, arguments);
    return code != EXIT_DONE ? code : pack_options(packer, options, n > 2 ? arguments[2] : NULL);
}

/* How many arguments the member has that begins at `arguments`: a policy and a key, whatever they are, then a cost if
 * no comma comes first. */
static int member_len(int n, char **arguments)
{
    int len = n < 2 ? n : 2;
    if (len < n && strcmp(arguments[len], ",") != 0) len++;
    return len;
}

static enum exit_code pack_members(struct packer *packer, const struct command *command, int n, char **arguments)
{
    uint32_t n_members = 1;
    for (int at = member_len(n, arguments); at < n; n_members++) at += 1 + member_len(n - at - 1, arguments + at + 1);
    pack_array(packer, n_members);
    for (int at = 0; n_members > 0; n_members--) {
        int len = member_len(n - at, arguments + at);
        if (len < 2) return usage_error("a policy and a key are missing behind the last comma", "");
        pack_array(packer, (uint32_t)len);
        enum exit_code code = pack_arguments(packer, command, len, arguments + at);
        if (code != EXIT_DONE) return code;
        at += len;
        if (at < n && strcmp(arguments[at], ",") != 0) return usage_error("no comma", arguments[at]);
        at++;
    }
    return EXIT_DONE;
}

static enum exit_code pack_shape(struct packer *packer, const struct command *command, const struct options *options,
                                 int n, char **arguments)
{
    bool has_options = options->given != 0;
    if (command->shape == SHAPE_CHECK && has_options) return pack_check(packer, command, options, n, arguments);
    bool is_all = command->shape == SHAPE_ALL;
    if (command->shape == SHAPE_HOLD && n > 2) n = 2;
    pack_array(packer, (is_all ? 1U : (uint32_t)n) + has_options);
    enum exit_code code =
        is_all ? pack_members(packer, command, n, arguments) : pack_arguments(packer, command, n, arguments);
    if (code == EXIT_DONE && has_options) code = pack_options(packer, options, NULL);
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
