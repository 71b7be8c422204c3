/*
 * ratelimitctl.c: ask a running ratelimitd from the command line.
 *
 * A command is a row of `commands`: the method it calls, how many arguments it takes, and how its answer is told. The
 * connection asks for decisions as maps, so that --json shows what the daemon sent, name by name.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "client/ratelimit.h"
#include "ctl/json.h"
#include "ctl/report.h"
#include "proto/pack.h"

enum exit_code {
    EXIT_DONE = 0, /* allowed, or done */
    EXIT_DENIED = 1,
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3,
    EXIT_REFUSED = 4, /* the daemon answered with an error */
    EXIT_OUTPUT = 5,  /* standard output took no more */
};

#define TIMEOUT_MAX_US INT64_C(86400000000) /* a day */

enum { DEFAULT_TIMEOUT_MS = 2000, ARGUMENTS_MAX = 3, MESSAGE_SIZE = 1024 };

struct options {
    const char *socket; /* NULL: the library's default */
    bool json;
    uint32_t timeout_ms;
};

/* What an argument is to the protocol. */
enum argument { ARGUMENT_TEXT, ARGUMENT_NUMBER };

struct command {
    const char *name;
    const char *method;
    const char *arguments; /* as the help shows them */
    int n_least;
    int n_most;
    enum argument types[ARGUMENTS_MAX];
    report_fn *report; /* NULL: not in this version */
    const char *help;
};

#define POLICY_KEY_COST                                                                                                \
    {                                                                                                                  \
        ARGUMENT_TEXT, ARGUMENT_TEXT, ARGUMENT_NUMBER                                                                  \
    }

static const struct command commands[] = {
    {"check", "check", "POLICY KEY [COST]", 2, 3, POLICY_KEY_COST, report_decision, "charge COST (1) if it may be"},
    {"peek", "peek", "POLICY KEY [COST]", 2, 3, POLICY_KEY_COST, report_decision,
     "what a check of COST (0) would answer"},
    {"reset", "reset", "POLICY KEY", 2, 2, POLICY_KEY_COST, report_removed, "forget what POLICY knows of KEY"},
    {"policies", "policies", "", 0, 0, {0}, report_policies, "the policies as configured"},
    {"stats", "stats", "", 0, 0, {0}, report_table, "counters and gauges"},
    {"ping", "ping", "", 0, 0, {0}, report_value, "is the daemon there?"},
    {"version", "version", "", 0, 0, {0}, report_table, "the daemon's version"},
    {"test-clock",
     "test_clock",
     "MICROSECONDS",
     1,
     1,
     {ARGUMENT_NUMBER},
     report_value,
     "set the time of a daemon under --test-clock"},
    {"refund", NULL, "", 0, 0, {0}, NULL, NULL},
    {"explain", NULL, "", 0, 0, {0}, NULL, NULL},
    {"top", NULL, "", 0, 0, {0}, NULL, NULL},
    {"doctor", NULL, "", 0, 0, {0}, NULL, NULL},
    {"replay", NULL, "", 0, 0, {0}, NULL, NULL},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- Usage ---- */

static void print_help(FILE *out)
{
    fputs("usage: ratelimitctl [-s SOCKET] [--json] [--timeout DURATION] COMMAND ...\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];
        if (command->report == NULL) continue;
        fprintf(out, "  %-10s %-17s  %s\n", command->name, command->arguments, command->help);
    }
    fputs("\n  -s, --socket SOCKET      the daemon's socket; else $RATELIMIT_SOCKET, else " RATELIMIT_DEFAULT_SOCKET
          "\n"
          "      --json               print the answer as one JSON object\n"
          "      --timeout DURATION   give up after this long, such as 50ms or 2s (the default)\n"
          "      --help, --version\n\n"
          "Options come before the command, so that a key may begin with a dash.\n"
          "Exit codes: 0 allowed or done, 1 denied, 2 usage, 3 daemon not reachable, 4 the daemon answered with an\n"
          "error, 5 the answer could not be written.\n",
          out);
}

static enum exit_code usage_error(const char *what, const char *which)
{
    fprintf(stderr, "ratelimitctl: %s%s%s; try ratelimitctl --help\n", what, which[0] != '\0' ? ": " : "", which);
    return EXIT_USAGE;
}

static int parse_number(const char *text, int64_t *ret)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == ' ' || text[0] == '+') return -1;
    *ret = number;
    return 0;
}

/* 0, or -1 with the complaint made. */
static int parse_timeout(const char *text, uint32_t *ret_ms)
{
    int64_t us;
    const char *wrong = units_duration(text, &us);
    if (wrong == NULL && (us <= 0 || us > TIMEOUT_MAX_US)) wrong = "out of bounds; write a duration from 1us to 1d";
    if (wrong != NULL) {
        fprintf(stderr, "ratelimitctl: --timeout %s: %s\n", text, wrong);
        return -1;
    }
    *ret_ms = (uint32_t)((us + 999) / 1000);
    return 0;
}

/* -1 to go on with the arguments from optind, else the exit code. */
static int parse_options(int argc, char **argv, struct options *ret)
{
    enum { OPTION_JSON = 256, OPTION_TIMEOUT, OPTION_HELP, OPTION_VERSION };
    static const struct option names[] = {
        {"socket", required_argument, NULL, 's'},
        {"json", no_argument, NULL, OPTION_JSON},
        {"timeout", required_argument, NULL, OPTION_TIMEOUT},
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

/* 0, or the exit code with the complaint made. */
static enum exit_code pack_arguments(const struct command *command, int n, char **arguments, struct packer *packer)
{
    pack_array(packer, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        int64_t number;
        if (command->types[i] == ARGUMENT_TEXT) {
            pack_text(packer, arguments[i]);
        } else if (parse_number(arguments[i], &number) == 0) {
            pack_int(packer, number);
        } else {
            return usage_error("no whole number", arguments[i]);
        }
    }
    if (!packer->failed) return EXIT_DONE;
    fputs("ratelimitctl: no memory\n", stderr);
    return EXIT_USAGE;
}

static enum exit_code complain(const struct ratelimit *client, enum ratelimit_status status, bool json)
{
    char message[MESSAGE_SIZE];
    const char *error = ratelimit_error(client), *code = ratelimit_error_code(client);
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
    bool allowed = true;
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
    if (status != RATELIMIT_OK) return complain(client, status, options->json);
    struct pull answer = pull_of(result, len);
    if (options->json) {
        print_json(command, answer);
    } else if (command->report(stdout, answer) != 0) {
        fputs("ratelimitctl: what came is not what this method answers\n", stderr);
        return EXIT_UNREACHABLE;
    }
    return command->report == report_decision && is_denied(answer) ? EXIT_DENIED : EXIT_DONE;
}

static enum exit_code run(const struct options *options, const struct command *command, int n, char **arguments)
{
    struct buffer params;
    struct ratelimit *client = NULL;
    buffer_init(&params, 0);
    struct packer packer = packer_of(&params);
    enum exit_code code = pack_arguments(command, n, arguments, &packer);
    if (code != EXIT_DONE) goto out;
    enum ratelimit_status status = ratelimit_open(options->socket, &client);
    if (status != RATELIMIT_OK) {
        code = usage_error(status == RATELIMIT_BAD_ARGUMENT ? "the socket's path is empty or over 107 bytes"
                                                            : ratelimit_status_text(status),
                           "");
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
    int n = argc - optind - 1;
    if (n < command->n_least || n > command->n_most) {
        fprintf(stderr, "usage: ratelimitctl %s %s\n", command->name, command->arguments);
        return EXIT_USAGE;
    }
    return (int)finish(run(&options, command, n, argv + optind + 1));
}
