/*
 * ratelimitctl.c: ask a running ratelimitd from the command line.
 *
 * A command is a row of `commands`: the method it calls, how many arguments it takes, and how its answer is told. The
 * connection asks for decisions as maps, so that --json shows what the daemon sent, name by name.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "client/ratelimit.h"
#include "ctl/command.h"
#include "ctl/hold.h"
#include "ctl/json.h"

#define TIMEOUT_MAX_US INT64_C(86400000000) /* a day */

enum { DEFAULT_TIMEOUT_MS = 2000 };

#define POLICY_KEY_COST                                                                                                \
    {                                                                                                                  \
        ARGUMENT_POLICY, ARGUMENT_TEXT, ARGUMENT_NUMBER                                                                \
    }

static const struct command commands[] = {
    {"check", "check", "POLICY KEY [COST]", 2, 3, POLICY_KEY_COST, report_decision, "charge COST (1) if it may be",
     ASK_DEADLINE | ASK_MAX_WAIT | ASK_AT_MOST | ASK_REQUEST_ID, SHAPE_CHECK},
    {"check-all", "check_all", "POLICY KEY [COST] , ...", 2, INT_MAX, POLICY_KEY_COST, report_all,
     "charge several as one: all, or none", ASK_DEADLINE | ASK_REQUEST_ID, SHAPE_ALL},
    {"check-many", "check_many", "POLICY KEY [COST] , ...", 2, INT_MAX, POLICY_KEY_COST, report_many,
     "charge several, each on its own", 0, SHAPE_ALL},
    {"peek", "peek", "POLICY KEY [COST]", 2, 3, POLICY_KEY_COST, report_decision,
     "what a check of COST (0) would answer", 0, SHAPE_PLAIN},
    {"explain", "explain", "POLICY KEY [COST]", 2, 3, POLICY_KEY_COST, report_explain,
     "why a check of COST (1) would be answered as it would", 0, SHAPE_PLAIN},
    {"reset", "reset", "POLICY KEY", 2, 2, POLICY_KEY_COST, report_removed, "forget what POLICY knows of KEY", 0,
     SHAPE_PLAIN},
    {"policies", "policies", "", 0, 0, {0}, report_policies, "the policies as configured", 0, SHAPE_PLAIN},
    {"stats", "stats", "", 0, 0, {0}, report_table, "counters and gauges", 0, SHAPE_PLAIN},
    {"ping", "ping", "", 0, 0, {0}, report_value, "is the daemon there?", 0, SHAPE_PLAIN},
    {"version", "version", "", 0, 0, {0}, report_table, "the daemon's version", 0, SHAPE_PLAIN},
    {"test-clock",
     "test_clock",
     "MICROSECONDS",
     1,
     1,
     {ARGUMENT_NUMBER},
     report_value,
     "set the time of a daemon under --test-clock",
     0,
     SHAPE_PLAIN},
    {"refund", "refund", "POLICY KEY UNITS", 3, 3, POLICY_KEY_COST, report_change, "give back UNITS that were charged",
     0, SHAPE_PLAIN},
    {"reserve", "reserve", "POLICY KEY UNITS", 3, 3, POLICY_KEY_COST, report_taken,
     "charge an estimate; prints the reservation", ASK_DEADLINE | ASK_TTL, SHAPE_PLAIN},
    {"settle",
     "settle",
     "RESERVATION UNITS",
     2,
     2,
     {ARGUMENT_TEXT, ARGUMENT_NUMBER},
     report_change,
     "what of a reservation was used",
     0,
     SHAPE_PLAIN},
    {"cancel", "cancel", "RESERVATION", 1, 1, {ARGUMENT_TEXT}, report_change, "nothing of it was used", 0, SHAPE_PLAIN},
    {"acquire", "acquire", "POLICY KEY [-- COMMAND]", 2, INT_MAX, POLICY_KEY_COST, report_taken,
     "hold a slot while COMMAND runs, or standard input lasts", 0, SHAPE_HOLD},
    {"top", NULL, "", 0, 0, {0}, NULL, NULL, 0, SHAPE_PLAIN},
    {"doctor", NULL, "", 0, 0, {0}, NULL, NULL, 0, SHAPE_PLAIN},
    {"replay", NULL, "", 0, 0, {0}, NULL, NULL, 0, SHAPE_PLAIN},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- Usage ---- */

static void print_help(FILE *out)
{
    fputs("usage: ratelimitctl [-s SOCKET] [--json] [--timeout DURATION] COMMAND ...\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];
        if (command->report == NULL) continue;
        fprintf(out, "  %-10s %-23s  %s\n", command->name, command->arguments, command->help);
    }
    fputs(
        "\n  -s, --socket SOCKET      the daemon's socket; else $RATELIMIT_SOCKET, else " RATELIMIT_DEFAULT_SOCKET "\n"
        "      --json               print the answer as one JSON object\n"
        "      --timeout DURATION   give up after this long, such as 50ms or 2s (the default)\n"
        "      --deadline DURATION  check, check-all, reserve: the daemon decides by then, without its store if it "
        "must\n"
        "      --max-wait DURATION  check: the longest wait that will do; else denied\n"
        "      --at-most N          check: charge up to N units, in place of COST\n"
        "      --request-id ID      check, check-all: asked again with the same ID, it is charged once\n"
        "      --ttl DURATION       reserve: settled within this time, or given back (1m)\n"
        "      --help, --version\n\n"
        "Options come before the command, so that a key may begin with a dash. POLICY is a name or, where the daemon\n"
        "allows it, settings: '{algorithm: token_bucket, limit: 10, window: 1m}'. A comma between the checks of "
        "check-all\n"
        "and check-many is an argument of its own.\n"
        "Exit codes: 0 allowed or done, 1 denied, 2 usage, 3 daemon not reachable, 4 the daemon answered with an\n"
        "error, 5 the answer could not be written.\n",
        out);
}

/* A duration of `min_us` to `max_us`, said in `wanted`. 0, or -1 with the complaint made. */
static int parse_duration(const char *option, const char *text, int64_t min_us, int64_t max_us, const char *wanted,
                          int64_t *ret_us)
{
    const char *wrong = units_duration(text, ret_us);
    if (wrong == NULL && (*ret_us < min_us || *ret_us > max_us)) wrong = wanted;
    if (wrong == NULL) return 0;
    fprintf(stderr, "ratelimitctl: %s %s: %s\n", option, text, wrong);
    return -1;
}

static int parse_timeout(const char *text, uint32_t *ret_ms)
{
    int64_t us;
    if (parse_duration("--timeout", text, 1, TIMEOUT_MAX_US, "out of bounds; write a duration from 1us to 1d", &us) !=
        0)
        return -1;
    *ret_ms = (uint32_t)((us + 999) / 1000);
    return 0;
}

static int parse_deadline(const char *text, int64_t *ret_ms)
{
    int64_t us;
    if (parse_duration("--deadline", text, 1, INT64_C(3600000000), "out of bounds; write a duration from 1ms to 1h",
                       &us) != 0)
        return -1;
    *ret_ms = (us + 999) / 1000;
    return 0;
}

static int parse_ttl(const char *text, int64_t *ret_ms)
{
    int64_t us;
    if (parse_duration("--ttl", text, 1, TIMEOUT_MAX_US, "out of bounds; write a duration from 1ms to 1d", &us) != 0)
        return -1;
    *ret_ms = (us + 999) / 1000;
    return 0;
}

static int parse_max_wait(const char *text, int64_t *ret_ms)
{
    int64_t us;
    if (parse_duration("--max-wait", text, 0, INT64_MAX, "", &us) != 0) return -1;
    *ret_ms = us / 1000;
    return 0;
}

static int parse_at_most(const char *text, int64_t *ret)
{
    if (parse_number(text, ret) == 0 && *ret > 0) return 0;
    usage_error("--at-most wants a whole number of units, 1 or more", text);
    return -1;
}

static int parse_request_id(const char *text, const char **ret)
{
    *ret = text;
    if (text[0] != '\0' && strlen(text) <= RATELIMIT_REQUEST_ID_MAX) return 0;
    usage_error("--request-id wants 1 to 64 bytes", text);
    return -1;
}

enum {
    OPTION_JSON = 256,
    OPTION_TIMEOUT,
    OPTION_DEADLINE,
    OPTION_MAX_WAIT,
    OPTION_AT_MOST,
    OPTION_REQUEST_ID,
    OPTION_TTL,
    OPTION_HELP,
    OPTION_VERSION
};

/* The first of `bits`, which are options that `command` does not take. */
static enum exit_code option_error(const struct command *command, unsigned bits)
{
    static const char *const names[] = {"--deadline", "--max-wait", "--at-most", "--request-id", "--ttl"};
    fprintf(stderr, "ratelimitctl: %s takes no %s; try ratelimitctl --help\n", command->name,
            names[__builtin_ctz(bits)]);
    return EXIT_USAGE;
}

/* One of those that the protocol has too. 0, or -1 with the complaint made. */
static int parse_ask_option(int option, const char *text, struct options *ret)
{
    static const enum ask_option bits[] = {ASK_DEADLINE, ASK_MAX_WAIT, ASK_AT_MOST, ASK_REQUEST_ID, ASK_TTL};
    ret->given |= bits[option - OPTION_DEADLINE];
    switch (option) {
    case OPTION_DEADLINE: return parse_deadline(text, &ret->deadline_ms);
    case OPTION_MAX_WAIT: return parse_max_wait(text, &ret->max_wait_ms);
    case OPTION_AT_MOST: return parse_at_most(text, &ret->at_most);
    case OPTION_TTL: return parse_ttl(text, &ret->ttl_ms);
    default: return parse_request_id(text, &ret->request_id);
    }
}

/* -1 to go on with the arguments from optind, else the exit code. */
static int parse_options(int argc, char **argv, struct options *ret)
{
    static const struct option names[] = {
        {"socket", required_argument, NULL, 's'},
        {"json", no_argument, NULL, OPTION_JSON},
        {"timeout", required_argument, NULL, OPTION_TIMEOUT},
        {"deadline", required_argument, NULL, OPTION_DEADLINE},
        {"max-wait", required_argument, NULL, OPTION_MAX_WAIT},
        {"at-most", required_argument, NULL, OPTION_AT_MOST},
        {"request-id", required_argument, NULL, OPTION_REQUEST_ID},
        {"ttl", required_argument, NULL, OPTION_TTL},
        {"help", no_argument, NULL, OPTION_HELP},
        {"version", no_argument, NULL, OPTION_VERSION},
        {0},
    };
    for (int option; (option = getopt_long(argc, argv, "+s:h", names, NULL)) != -1;) {
        switch (option) {
        case 's': ret->socket = optarg; break;
        case OPTION_JSON: ret->json = true; break;
        case OPTION_TIMEOUT:
            if (parse_timeout(optarg, &ret->timeout_ms) != 0) return EXIT_USAGE;
            break;
        case OPTION_DEADLINE:
        case OPTION_MAX_WAIT:
        case OPTION_AT_MOST:
        case OPTION_REQUEST_ID:
        case OPTION_TTL:
            if (parse_ask_option(option, optarg, ret) != 0) return EXIT_USAGE;
            break;
        case 'h':
        case OPTION_HELP: print_help(stdout); return EXIT_DONE;
        case OPTION_VERSION: printf("ratelimitctl %s\n", ratelimit_version()); return EXIT_DONE;
        default: fputs("try ratelimitctl --help\n", stderr); return EXIT_USAGE;
        }
    }
    return -1;
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

/* ---- Asking ---- */

/* A map is printed as it is; what is no map gets the method's name, so that it is one object all the same. */
static void print_json(const struct command *command, struct pull answer)
{
    bool is_map = pull_type(&answer) == PULL_MAP;
    if (!is_map) printf("{\"%s\": ", command->method);
    json_value(stdout, &answer);
    puts(is_map ? "" : "}");
}

static bool is_denied(struct pull answer)
{
    struct slice name;
    uint32_t n;
    bool allowed = true, denied = false;
    if (pull_array(&answer, &n) == 0) { /* of a check_many: one is enough */
        for (; n > 0 && !denied; n--) {
            denied = is_denied(answer);
            pull_skip(&answer);
        }
        return denied;
    }
    if (pull_map(&answer, &n) != 0) return false;
    for (; n > 0 && pull_text(&answer, &name) == 0; n--) {
        if (slice_is(name, "allowed")) {
            pull_bool(&answer, &allowed);
            break;
        }
        pull_skip(&answer);
    }
    return !allowed;
}

static enum exit_code ask(struct ratelimit *client, const struct options *options, const struct command *command,
                          const struct buffer *params)
{
    const void *result;
    size_t len;
    enum ratelimit_status status = ratelimit_call(client, command->method, buffer_data(params), buffer_len(params),
                                                  options->timeout_ms, &result, &len);
    if (status != RATELIMIT_OK)
        return complain(status, ratelimit_error_code(client), ratelimit_error(client), options->json);
    struct pull answer = pull_of(result, len);
    if (options->json) {
        print_json(command, answer);
    } else if (command->report(stdout, answer) != 0) {
        fputs("ratelimitctl: what came is not what this method answers\n", stderr);
        return EXIT_UNREACHABLE;
    }
    bool is_verdict = command->report == report_decision || command->report == report_all ||
                      command->report == report_many || command->report == report_taken ||
                      command->report == report_explain;
    return is_verdict && is_denied(answer) ? EXIT_DENIED : EXIT_DONE;
}

static enum exit_code run(const struct options *options, const struct command *command, int n, char **arguments)
{
    struct buffer params;
    struct ratelimit *client = NULL;
    buffer_init(&params, 0);
    struct packer packer = packer_of(&params);
    enum exit_code code = command_pack(command, options, n, arguments, &packer);
    if (code != EXIT_DONE) goto out;
    if (command->shape == SHAPE_HOLD) {
        code = (enum exit_code)hold_run(options, n, arguments);
        goto out;
    }
    enum ratelimit_status status = ratelimit_open(options->socket, &client);
    if (status != RATELIMIT_OK) {
        code = complain_open(status);
        goto out;
    }
    ratelimit_use_maps(client);
    code = ask(client, options, command, &params);
    ratelimit_close(client);
out:
    buffer_fini(&params);
    return code;
}

/* ---- The process ---- */

/* A descriptor 0, 1 or 2 that is closed would become the daemon's socket, and the answer would be printed into it. One
 * that cannot be written to fails as a closed one should. */
static void occupy_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

static enum exit_code finish(enum exit_code code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "ratelimitctl: cannot write the answer: %s\n", strerror(errno));
    return EXIT_OUTPUT;
}

int main(int argc, char **argv)
{
    struct options options = {.timeout_ms = DEFAULT_TIMEOUT_MS};
    occupy_standard_descriptors();
    int early = parse_options(argc, argv, &options);
    if (early >= 0) return (int)finish((enum exit_code)early);
    if (optind == argc) return (int)usage_error("no command", "");
    const struct command *command = find_command(argv[optind]);
    if (command == NULL) return (int)usage_error("no such command", argv[optind]);
    if (command->report == NULL) {
        fprintf(stderr, "ratelimitctl: %s is not available in this version\n", command->name);
        return EXIT_USAGE;
    }
    if (options.given & ~command->takes) return (int)option_error(command, options.given & ~command->takes);
    int n = argc - optind - 1;
    bool misses_command = command->shape == SHAPE_HOLD && n > 2 && (n == 3 || strcmp(argv[optind + 3], "--") != 0);
    if (n < command->n_least || n > command->n_most || misses_command) {
        fprintf(stderr, "usage: ratelimitctl [OPTION ...] %s %s\n", command->name, command->arguments);
        return EXIT_USAGE;
    }
    return (int)finish(run(&options, command, n, argv + optind + 1));
}
