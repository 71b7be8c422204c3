/* command.c: the table of commands, and how each packs its arguments, for ratelimitctl.c and hold.c. */
#include "ctl/command.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"
#include "client/flow.h"
#include "ctl/complain.h"

/* "COST" of "POLICY KEY [COST]". */
static struct slice name_of_argument(const struct command *command, int index)
{
    const char *at = command->arguments;
    for (; index > 0; index--) at += strcspn(at, " ") + 1;
    at += strspn(at, "[");
    return (struct slice){(const uint8_t *)at, strcspn(at, " ]")};
}

/* What an argument is to the protocol. */
enum argument { ARGUMENT_POLICY /* a name, or settings in braces */, ARGUMENT_TEXT, ARGUMENT_NUMBER };

static enum argument type_of_argument(const struct command *command, int index)
{
    struct slice name = name_of_argument(command, index);
    if (slice_is(name, "POLICY")) return ARGUMENT_POLICY;
    bool is_text = slice_is(name, "KEY") || slice_is(name, "RESERVATION") || slice_is(name, "STATE");
    return is_text ? ARGUMENT_TEXT : ARGUMENT_NUMBER;
}

static enum exit_code pack_argument(struct packer *packer, const struct command *command, int index, const char *text)
{
    int64_t number;
    const char *at, *wrong;
    enum argument type = type_of_argument(command, index);
    if (type == ARGUMENT_NUMBER) {
        int status = options_parse_number(text, &number);
        if (status == 0) {
            pack_int(packer, number);
            return EXIT_DONE;
        }
        struct slice name = name_of_argument(command, index);
        complain_usage("%.*s: '%s' is %s%s", (int)name.len, (const char *)name.data, text,
                       status == -2 ? "too large; the maximum is 9007199254740991" : "not a whole number",
                       command->shape == SHAPE_ALL ? "; a comma between two checks is an argument of its own" : "");
        return EXIT_USAGE;
    }

    if (type == ARGUMENT_TEXT) {
        pack_text(packer, text);
        return EXIT_DONE;
    }
    wrong = flow_pack(packer, text, NULL, &at);
    if (wrong == NULL) return EXIT_DONE;
    complain_usage("the policy's settings: %s, at '%.20s'; write them as in ratelimitd.yaml(5)", wrong, at);
    return EXIT_USAGE;
}

static enum exit_code pack_arguments(struct packer *packer, const struct command *command, int n, char **arguments)
{
    enum exit_code code = EXIT_DONE;
    for (int i = 0; i < n && code == EXIT_DONE; i++) code = pack_argument(packer, command, i, arguments[i]);
    return code;
}

/* How many of the arguments belong to the check that begins there: all, but of several a policy and a key, whatever
 * they are, then a cost if no comma comes first. */
static int check_len(const struct command *command, int n, char **arguments)
{
    int len = n < 2 || command->shape != SHAPE_ALL ? n : 2;
    if (len < n && strcmp(arguments[len], ",") != 0) len++;
    return len;
}

/* ---- Before anything is packed ---- */

/* An option that comes too late, and where it belongs. */
static enum exit_code misplaced(const struct command *command, const char *option)
{
    struct slice first = name_of_argument(command, 0);
    complain_usage("%s comes after %.*s, where options have ended; put it before the command, or between %s and "
                   "%.*s",
                   option, (int)first.len, (const char *)first.data, command->name, (int)first.len,
                   (const char *)first.data);
    return EXIT_USAGE;
}

/* The arguments of one check, or of another command. The first ones, policy and key, may be any text, also the name of
 * an option, unless what follows shows that it was meant as one: `check login --json alice`. */
static enum exit_code look_at(const struct command *command, const struct options *options, int n, char **arguments)
{
    int n_free = 0;
    int64_t number;
    while (n_free < command->n_least && type_of_argument(command, n_free) != ARGUMENT_NUMBER) n_free++;

    for (int i = 0; i < n; i++) {
        bool is_dashes = strcmp(arguments[i], "--") == 0;
        if (i < n_free && is_dashes && !options->ended) { /* rather a mistake, such as `check login -- alice` */
            complain_usage("KEY: a bare -- is not a key; for the key --, end the options first: ratelimitctl %s "
                           "-- POLICY --",
                           command->name);
            return EXIT_USAGE;
        }
        if (i < n_free) continue;

        if (command->shape == SHAPE_HOLD && is_dashes) break;
        if (options_is_one(arguments[i])) return misplaced(command, arguments[i]);
        bool has_no_cost = i > 0 && i == n_free && options_parse_number(arguments[i], &number) == -1;
        if (has_no_cost && options_is_one(arguments[i - 1])) return misplaced(command, arguments[i - 1]);
        bool has_free_wait = (options->given & OPTION_WAIT) && options->wait_ms < 0; /* `check --wait 5s login alice` */
        if (has_no_cost && has_free_wait && units_duration(arguments[0], &number) == NULL) {
            complain_usage("%s is taken for POLICY; did you mean --wait=%s?", arguments[0], arguments[0]);
            return EXIT_USAGE;
        }
    }
    return EXIT_DONE;
}

enum exit_code command_look(const struct command *command, const struct options *options, int n, char **arguments)
{
    for (int at = 0, len; command->n_most > 0 && at < n; at += len + 1) {
        len = check_len(command, n - at, arguments + at);
        enum exit_code code = look_at(command, options, len, arguments + at);
        if (code != EXIT_DONE) return code;
    }

    bool misses_command = command->shape == SHAPE_HOLD && n > 2 && (n == 3 || strcmp(arguments[2], "--") != 0);
    if (n >= command->n_least && n <= command->n_most && !misses_command) return EXIT_DONE;
    fprintf(stderr, "usage: ratelimitctl %s [OPTION ...] %s\n", command->name, command->arguments);
    struct slice missing = name_of_argument(command, n < command->n_least ? n : 0);
    if (n < command->n_least) return complain_usage("%.*s is missing", (int)missing.len, (const char *)missing.data);
    if (!misses_command) return complain_usage("'%s' is one argument too many", arguments[command->n_most]);
    if (strcmp(arguments[2], "--") == 0) return complain_usage("COMMAND is missing behind --");
    return complain_usage("write -- before the command: ratelimitctl %s %s %s -- %s", command->name, arguments[0],
                          arguments[1], arguments[2]);
}

size_t command_costs(const struct command *command, const struct options *options, int n, char **arguments,
                     int64_t *ret)
{
    size_t n_costs = 0;
    if (options->given & OPTION_AT_MOST) n = 2;
    for (int at = 0, len; at < n; at += len + 1) {
        len = check_len(command, n - at, arguments + at);
        ret[n_costs] = command->default_cost;
        if (len > 2) options_parse_number(arguments[at + 2], &ret[n_costs]);
        n_costs++;
    }
    return n_costs;
}

/* ---- The parameters ---- */

static enum exit_code pack_members(struct packer *packer, const struct command *command, int n, char **arguments)
{
    uint32_t n_members = 1;
    for (int at = check_len(command, n, arguments); at < n; n_members++)
        at += 1 + check_len(command, n - at - 1, arguments + at + 1);
    pack_array(packer, n_members);

    for (int at = 0; n_members > 0; n_members--) {
        int len = check_len(command, n - at, arguments + at);
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

enum exit_code command_pack(const struct command *command, const struct options *options, int n, char **arguments,
                            struct buffer *params)
{
    const struct {
        unsigned bit;
        const char *name;
        int64_t number;
    } taken[] = {{OPTION_DEADLINE, "deadline_ms", options->deadline_ms},
                 {OPTION_MAX_WAIT, "max_wait_ms", options->max_wait_ms},
                 {OPTION_AT_MOST, "at_most", options->at_most},
                 {OPTION_REQUEST_ID, "request_id", 0},
                 {OPTION_TTL, "ttl_ms", options->ttl_ms},
                 {OPTION_DRY_RUN, "dry_run", 0}};
    struct packer packer = packer_of(params);
    unsigned given = options->given & OPTIONS_OF_PROTOCOL;
    bool has_options = given != 0, is_all = command->shape == SHAPE_ALL;
    bool has_cost = command->shape == SHAPE_CHECK && has_options && n > 2; /* as an option */
    CHECK(command->method != NULL);
    if (command->shape == SHAPE_LISTING) n = 0;
    if (has_cost || (command->shape == SHAPE_HOLD && n > 2)) n = 2;

    buffer_truncate(params, 0);
    pack_array(&packer, (is_all ? 1U : (uint32_t)n) + has_options);
    enum exit_code code =
        is_all ? pack_members(&packer, command, n, arguments) : pack_arguments(&packer, command, n, arguments);
    if (code != EXIT_DONE) return code;

    if (has_options) pack_map(&packer, (uint32_t)__builtin_popcount(given) + has_cost);
    for (size_t i = 0; i < N_OF(taken); i++) {
        if (!(given & taken[i].bit)) continue;
        pack_text(&packer, taken[i].name);
        if (taken[i].bit == OPTION_REQUEST_ID)
            pack_text(&packer, options->request_id);
        else if (taken[i].bit == OPTION_DRY_RUN)
            pack_bool(&packer, true);
        else
            pack_int(&packer, taken[i].number);
    }
    if (has_cost) {
        pack_text(&packer, "cost");
        code = pack_argument(&packer, command, 2, arguments[2]);
    }

    if (code != EXIT_DONE || !packer.failed) return code;
    fputs("ratelimitctl: no memory\n", stderr);
    return EXIT_USAGE;
}
