/*
 * ratelimitctl.c: ask a running ratelimitd from the command line.
 *
 * A command is a row of `commands`: the method it calls, how many arguments it takes, and how its answer is printed.
 * The connection asks for decisions as maps, so that --json shows what the daemon sent, name by name.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"
#include "client/blocking.h"
#include "client/wait.h"
#include "ctl/command.h"
#include "ctl/control_socket.h"
#include "ctl/find.h"
#include "ctl/hold.h"
#include "ctl/json.h"
#include "ctl/listing.h"
#include "ctl/page.h"
#include "ctl/test_run.h"
#include "ctl/top.h"
#include "ctl/views.h"
#include "ctl/words.h"

enum { DEFAULT_TIMEOUT_MS = 2000, RELOAD_TIMEOUT_MS = 60000 };

/* In the order of the help: a row without a method is the heading of those that follow. */
static const struct command commands[] = {
    {.name = "Charge:"},
    {"check", "check", "POLICY KEY [COST]", "charge COST (1) if the policy allows it", 2, 3,
     .takes = OPTION_DEADLINE | OPTION_MAX_WAIT | OPTION_AT_MOST | OPTION_REQUEST_ID | OPTION_WAIT,
     .report = report_decision, .shape = SHAPE_CHECK, .decides = true, .default_cost = 1},
    {"check-all", "check_all", "POLICY KEY [COST] , ...", "charge all of several, or none", 2, INT_MAX,
     .takes = OPTION_DEADLINE | OPTION_REQUEST_ID, .report = report_all, .shape = SHAPE_ALL, .decides = true,
     .default_cost = 1},
    {"check-many", "check_many", "POLICY KEY [COST] , ...", "charge several, each by itself", 2, INT_MAX,
     .report = report_many, .shape = SHAPE_ALL, .decides = true, .default_cost = 1},
    {"refund", "refund", "POLICY KEY UNITS", "give back UNITS that were charged", 3, 3,
     .takes = OPTION_DEADLINE | OPTION_REQUEST_ID, .report = report_change},
    {"reset", "reset", "POLICY KEY", "forget what KEY has used under POLICY", 2, 2, .takes = OPTION_MATCH,
     .report = report_removed},

    {.name = "Charge an estimate, and correct it later:"},
    {"reserve", "reserve", "POLICY KEY UNITS", "charge an estimate; prints the reservation", 3, 3,
     .takes = OPTION_DEADLINE | OPTION_TTL | OPTION_REQUEST_ID, .report = report_reserved, .decides = true,
     .default_cost = 1},
    {"settle", "settle", "RESERVATION UNITS", "UNITS of it were used", 2, 2, .report = report_change},
    {"cancel", "cancel", "RESERVATION", "nothing of it was used", 1, 1, .report = report_change},

    {.name = "Limit what runs at the same time:"},
    {"acquire", "acquire", "POLICY KEY [-- COMMAND]", "hold a slot while COMMAND runs, or until standard input ends", 2,
     INT_MAX, .takes = OPTION_WAIT | OPTION_TAKEN_EXIT, .shape = SHAPE_HOLD},

    {.name = "Show; nothing is charged:"},
    {"peek", "peek", "POLICY KEY [COST]", "what a check of COST (0) would answer", 2, 3, .report = report_decision,
     .decides = true},
    {"explain", "explain", "POLICY KEY [COST]", "explain the answer to a check of COST (1)", 2, 3,
     .takes = OPTION_MATCH, .report = report_explain, .decides = true, .default_cost = 1},
    {"policies", "policies", "[NAME]", "the policies, or that one, with their limits and counts", 0, 1,
     .report = report_policies, .shape = SHAPE_LISTING},

    {.name = "Who is limited, since when, by whom; for operators:"},
    {"top", "top", "", "policies, denied keys and clients, the most first, every 2 s", .shape = SHAPE_TOP,
     .takes = OPTION_TURNS | OPTION_BY},
    {"denials", "denials", "", "the last denied checks", .shape = SHAPE_CHECKS,
     .takes = OPTION_FOLLOW | OPTION_POLICY | OPTION_KEY | OPTION_UID},
    {"slowlog", "slowlog", "", "the last slow checks", .shape = SHAPE_CHECKS,
     .takes = OPTION_FOLLOW | OPTION_POLICY | OPTION_KEY | OPTION_UID | OPTION_RESET},
    {"clients", "clients", "", "the connections, whose they are, and what each asks for", .shape = SHAPE_CLIENTS},
    {"hash", "hash", "KEY", "how KEY is written in the log; -: the first line of standard input", 1, 1,
     .report = report_hash, .shape = SHAPE_HASH},

    {.name = "The daemon:"},
    {"ping", "ping", "", "test that it answers", .report = report_value},
    {"stats", "stats", "", "its main counts; --all: every counter", .takes = OPTION_ALL, .report = report_stats},
    {"metrics", "metrics", "", "all its numbers, for Prometheus", .takes = OPTION_OUTPUT, .shape = SHAPE_PAGE},
    {"version", "version", "", "its version, uptime, and when its configuration was read", .report = report_version},
    {"reload", "reload", "", "read its configuration again; prints what this changes", .takes = OPTION_DRY_RUN,
     .report = report_reload, .uses_control = true, .timeout_ms = RELOAD_TIMEOUT_MS, .code_of = report_reload_code},
    {"config", "config", "", "the configuration in force", .report = report_config, .uses_control = true,
     .timeout_ms = RELOAD_TIMEOUT_MS},

    {.name = "Tests:"},
    {"test", "test", "FILE ...", "run the files' tests of limits, each on a private daemon", 1, INT_MAX,
     .takes = OPTION_RUN | OPTION_JUNIT, .shape = SHAPE_TEST},
    {"test-clock", "test_clock", "MICROSECONDS", "set the daemon's time, under --test-clock", 1, 1,
     .report = report_value},
    {"test-store", "test_store", "STATE", "down, up or clear: its store, under --test-clock", 1, 1,
     .report = report_value},
};

static const char *const later_commands[] = {"doctor", "replay"};

enum {
    N_COMMANDS = N_OF(commands),
    N_LATER = N_OF(later_commands),
};

/* ---- Usage ---- */

static const struct some_option {
    unsigned bit;
    const char *name, *help;
} some_options[] = {
    {OPTION_WAIT, "--wait[=DURATION]", "after a denial, wait and try again, for at most DURATION"},
    {OPTION_AT_MOST, "--at-most N", "instead of COST, charge as many units as are available, up to N"},
    {OPTION_MAX_WAIT, "--max-wait DURATION", "the longest acceptable delay of a leaky bucket; else denied"},
    {OPTION_REQUEST_ID, "--request-id ID", "sent again with the same ID, it is done once"},
    {OPTION_DEADLINE, "--deadline DURATION", "answered by then, without the store if it must be"},
    {OPTION_TTL, "--ttl DURATION", "gives the units back if not settled within this time (1m)"},
    {OPTION_ALL, "--all", "every counter and gauge"},
    {OPTION_OUTPUT, "--output FILE", "replace FILE by it in one step, for a collector of text files"},
    {OPTION_TAKEN_EXIT, "--taken-exit N", "exit with N instead of 1 if no slot is available"},
    {OPTION_RUN, "--run REGEX", "only the tests whose names match"},
    {OPTION_JUNIT, "--junit FILE", "write the results into FILE, in JUnit's format"},
    {OPTION_TURNS, "-n, --turns N", "look N times, then end"},
    {OPTION_BY, "--by KIND", "policy, key or client alone"},
    {OPTION_FOLLOW, "-f, --follow", "go on with those that come"},
    {OPTION_POLICY, "--policy POLICY", "of this policy alone"},
    {OPTION_KEY, "--key KEY", "of this key alone; -: the first line of standard input"},
    {OPTION_UID, "--uid N", "of this user's connections alone"},
    {OPTION_MATCH, "--match GLOB", "in place of KEY, all keys that match; * stands for any bytes; -: as --key"},
    {OPTION_RESET, "--reset", "forget them"},
    {OPTION_DRY_RUN, "--dry-run", "print what would change, and change nothing"},
};

/* `with_commands`: after the names of those that take it. */
static void print_option(FILE *out, const struct some_option *option, bool with_commands)
{
    const char *between = "";
    fprintf(out, "      %-19s  ", option->name);
    for (int i = 0; i < N_COMMANDS && with_commands; i++) {
        if (!(commands[i].takes & option->bit)) continue;
        fprintf(out, "%s%s", between, commands[i].name);
        between = ", ";
    }
    fprintf(out, "%s%s\n", with_commands ? ": " : "", option->help);
}

static void print_help_of_all(FILE *out)
{
    fputs("usage: ratelimitctl [OPTION ...] COMMAND [OPTION ...] [ARGUMENT ...]\n", out);
    for (int i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];
        if (command->method == NULL)
            fprintf(out, "\n%s\n", command->name);
        else
            fprintf(out, "  %-10s %-23s  %s\n", command->name, command->arguments, command->help);
    }
    fputs("\nOptions of every command:\n"
          "  -s, --socket SOCKET      the daemon's socket; else $RATELIMIT_SOCKET, else " RATELIMIT_DEFAULT_SOCKET "\n"
          "      --json               print the answer as one JSON object\n"
          "      --timeout DURATION   give up after this time, such as 50ms or 2s (the default)\n"
          "  -h, --help\n"
          "      --version            of ratelimitctl itself\n",
          out);
    fputs("\nOptions of some:\n", out);
    for (size_t i = 0; i < N_OF(some_options); i++) print_option(out, &some_options[i], true);
    fputs("\nhelp COMMAND, or COMMAND --help, shows one command.\n"
          "\nOptions come before the command, or between it and POLICY. From POLICY on everything is an argument, so a "
          "key may\nbegin with a dash; -- ends the options earlier. POLICY is a name or, if the daemon allows it, "
          "settings:\n'{algorithm: token_bucket, limit: 10, window: 1m}'. A comma between the checks of check-all and "
          "check-many is\nan argument of its own.\n"
          "\nExit status: 0 allowed or done, 1 denied, 2 usage, 3 daemon not reachable, 4 the daemon answered with an\n"
          "error, 5 the answer could not be written; 130 interrupted while waiting.\n",
          out);
}

/* NULL: of all commands. */
static void print_help(FILE *out, const struct command *command)
{
    if (command == NULL) {
        print_help_of_all(out);
        return;
    }
    fprintf(out, "usage: ratelimitctl [OPTION ...] %s [OPTION ...] %s\n\n%s\n", command->name, command->arguments,
            command->help);
    if (command->takes != 0) fputs("\nOptions:\n", out);
    for (size_t i = 0; i < N_OF(some_options); i++)
        if (command->takes & some_options[i].bit) print_option(out, &some_options[i], false);
    fputs("\nratelimitctl --help lists the options of every command; ratelimitctl(1) has the details.\n", out);
}

/* The command, or NULL with the complaint made. */
static const struct command *find_command(const char *name, const struct options *options)
{
    int64_t us;
    struct nearest nearest = nearest_within(slice_of(name), 2);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].method == NULL) continue;
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
        nearest_offer(&nearest, commands[i].name);
    }

    for (int i = 0; i < N_LATER; i++) {
        if (strcmp(later_commands[i], name) != 0) continue;
        complain_usage("%s is not available in this version", name);
        return NULL;
    }
    if ((options->given & OPTION_WAIT) && units_duration(name, &us) == NULL)
        complain_usage("%s is not a command; did you mean --wait=%s?", name, name);
    else if (nearest.name != NULL)
        complain_usage("no such command: %s; did you mean %s?", name, nearest.name);
    else
        usage_error("no such command", name);
    return NULL;
}

/* ---- Asking ---- */

static bool is_denied(struct pull answer)
{
    uint32_t n;
    bool allowed = true;
    if (pull_array(&answer, &n) == 0) { /* of a check_many: one is enough */
        for (; n > 0; n--) {
            if (is_denied(answer)) return true;
            pull_skip(&answer);
        }
        return false;
    }

    struct pull value = words_member(answer, "allowed");
    pull_bool(&value, &allowed);
    return !allowed;
}

/* One command on its way. */
struct invocation {
    const struct command *command;
    struct options options;
    int n;
    char **arguments;
    struct buffer params;     /* owned; packed */
    struct buffer listing;    /* owned; the answer, of SHAPE_LISTING and SHAPE_PAGE */
    struct ratelimit *client; /* owned */
    struct asked asked;
};

static enum exit_code show(const struct invocation *invocation, struct pull answer)
{
    /* With --json, too, only what the command can read: what is no decision would end with the status of "allowed". */
    bool json = invocation->options.json;
    FILE *out = json ? fopen("/dev/null", "w") : stdout;
    bool is_valid = out != NULL && invocation->command->report(out, answer, &invocation->asked) == 0;
    if (json && out != NULL) fclose(out);
    if (!is_valid) return complain_answer(invocation->client);

    if (json) {
        /* A map is printed as it is; what is no map gets the method's name, so that it is one object all the same. */
        bool is_map = pull_type(&answer) == PULL_MAP;
        struct pull at = answer;
        if (!is_map) printf("{\"%s\": ", invocation->command->method);
        json_value(stdout, &at);
        puts(is_map ? "" : "}");
    }
    if (invocation->command->code_of != NULL) return (enum exit_code)invocation->command->code_of(answer);
    return invocation->command->decides && is_denied(answer) ? EXIT_DENIED : EXIT_DONE;
}

/* Nothing has been printed, and what was charged stays charged: there is nothing to put in order. */
static void on_interrupt(int number)
{
    _exit(EXIT_SIGNALLED + number);
}

/* --wait: as ratelimit_check_wait() does, but for the answer's own names in --json. */
static enum exit_code ask_until_allowed(struct invocation *invocation)
{
    struct wait wait;
    struct options *options = &invocation->options;
    const struct command *command = invocation->command;
    signal(SIGINT, on_interrupt);
    wait_start(&wait, WAIT_FOR_UNITS, options->wait_ms, wait_now_ms(), wait_seed());

    for (;;) {
        struct pull answer = {0};
        struct ratelimit_decision decision;
        int64_t left_ms = wait_left_ms(&wait, wait_now_ms());
        if (left_ms != INT64_MAX && (!(options->given & OPTION_MAX_WAIT) || options->max_wait_ms > left_ms)) {
            options->given |= OPTION_MAX_WAIT;
            options->max_wait_ms = left_ms;
        }

        enum exit_code code = command_pack(command, options, invocation->n, invocation->arguments, &invocation->params);
        if (code == EXIT_DONE)
            code = call_or_complain(invocation->client, command->method, &invocation->params, options->timeout_ms,
                                    &answer);
        if (code != EXIT_DONE) return code;

        invocation->asked.waited = report_read(answer, &decision) == 0;
        if (!invocation->asked.waited || !wait_after(&wait, &decision)) return show(invocation, answer);
    }
}

static enum exit_code list(struct invocation *invocation)
{
    static const uint8_t no_parameters[] = {0x90};
    const uint32_t timeout_ms = (uint32_t)invocation->options.timeout_ms;
    const char *only = invocation->n > 0 ? invocation->arguments[0] : NULL;
    const void *result;
    size_t len;
    enum exit_code code = listing_ask(invocation->client, timeout_ms, only, &invocation->listing);
    if (code != EXIT_DONE) return code;
    code = show(invocation, pull_of(buffer_data(&invocation->listing), buffer_len(&invocation->listing)));

    /* Below the policies: why all or some of them get their failure answer. Without the right to ask, nothing. */
    if (!invocation->options.json && ratelimit_call(invocation->client, "stats", no_parameters, sizeof no_parameters,
                                                    timeout_ms, &result, &len) == RATELIMIT_OK)
        words_text(stdout, pull_of(result, len), "redis_trouble", "Redis is ", "\n");
    return code;
}

static enum exit_code show_page(struct invocation *invocation)
{
    const struct options *options = &invocation->options;
    struct buffer *page = &invocation->listing;
    enum exit_code code = page_ask(invocation->client, options->timeout_ms, page);
    if (code != EXIT_DONE) return code;
    if (options->output != NULL) return page_write(options->output, page);
    struct slice text = {buffer_data(page), buffer_len(page)};
    if (!options->json) {
        fwrite(text.data, 1, text.len, stdout);
        return EXIT_DONE;
    }
    fputs("{\"metrics\": ", stdout);
    json_text(stdout, text);
    puts("}");
    return EXIT_DONE;
}

static enum exit_code run_command(struct invocation *invocation)
{
    const struct command *command = invocation->command;
    const struct options *options = &invocation->options;
    int64_t *costs = malloc(((size_t)invocation->n + 1) * sizeof *costs); /* of each check */
    if (costs == NULL) return usage_error("no memory", "");
    size_t n_costs = command_costs(command, options, invocation->n, invocation->arguments, costs);
    invocation->asked = (struct asked){.costs = costs,
                                       .n_costs = n_costs,
                                       .at_most = (options->given & OPTION_AT_MOST) != 0,
                                       .all = (options->given & OPTION_ALL) != 0};

    enum exit_code code;
    char space[CONTROL_SOCKET_MAX];
    const char *socket = command->uses_control ? control_socket(options->socket, space) : options->socket;
    enum ratelimit_status status = ratelimit_open(socket, &invocation->client);
    struct ratelimit *client = invocation->client;
    if (status != RATELIMIT_OK) {
        code = complain_open(status);
        goto out;
    }
    ratelimit_use_maps(client);
    ratelimit_describe(client);
    if (options->given & OPTION_WAIT) {
        code = ask_until_allowed(invocation);
    } else if (command->shape == SHAPE_LISTING) {
        code = list(invocation);
    } else if (command->shape == SHAPE_PAGE) {
        code = show_page(invocation);
    } else if (command->shape == SHAPE_TOP) {
        code = top_run(client, options);
    } else if (command->shape == SHAPE_CHECKS) {
        code = views_print_checks(client, command->method, options);
    } else if (command->shape == SHAPE_FIND) {
        code = find_print(client, &invocation->params, options, strcmp(command->name, "reset") == 0);
    } else if (command->shape == SHAPE_CLIENTS) {
        code = views_print_clients(client, options);
    } else {
        struct pull answer = {0};
        code = call_or_complain(client, command->method, &invocation->params, options->timeout_ms, &answer);
        if (code == EXIT_DONE) code = show(invocation, answer);
    }

out:
    ratelimit_close(client);
    free(costs);
    return code;
}

/* ---- The process ---- */

static enum exit_code finish_output(enum exit_code code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "ratelimitctl: cannot write the answer: %s\n", strerror(errno));
    return EXIT_OUTPUT;
}

/* Read the options from `argv`, those after `command`, or NULL. The index of the first argument after them; or -1 to
 * end with *ret_code: they are wrong, or what they ask for instead of a command is done. */
static int read_arguments(int argc, char **argv, const struct command *command, struct options *options,
                          enum exit_code *ret_code)
{
    int at = options_read(argc, argv, options);
    *ret_code = EXIT_USAGE;
    if (at < 0 || (!options->help && !options->version)) return at;
    if (options->help)
        print_help(stdout, command);
    else
        printf("ratelimitctl %s\n", ratelimit_version());
    *ret_code = finish_output(EXIT_DONE);
    return -1;
}

/* help [COMMAND] */
static enum exit_code run_help(int n, char **names, const struct options *options)
{
    const struct command *command = n > 0 ? find_command(names[0], options) : NULL;
    if (n > 0 && command == NULL) return EXIT_USAGE;
    print_help(stdout, command);
    return finish_output(EXIT_DONE);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    enum exit_code code;

    /* A descriptor 0, 1 or 2 that is closed would become the daemon's socket, and the answer would be printed into it.
     * One that cannot be written to fails as a closed one should. */
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);

    int at = read_arguments(argc, argv, NULL, &options, &code);
    if (at < 0) return (int)code;
    if (at == argc) return (int)usage_error("no command", "");
    if (strcmp(argv[at], "help") == 0) return (int)run_help(argc - at - 1, argv + at + 1, &options);
    const struct command *command = find_command(argv[at], &options);
    if (command == NULL) return EXIT_USAGE;

    argc -= at;
    argv += at;
    at = options.ended ? 1 : read_arguments(argc, argv, command, &options, &code);
    if (at < 0) return (int)code;
    argc -= at;
    argv += at;
    if (options.timeout_ms == 0) options.timeout_ms = command->timeout_ms;
    if (options.timeout_ms == 0 && command->shape != SHAPE_TEST) options.timeout_ms = DEFAULT_TIMEOUT_MS;
    if (options.given & ~command->takes) {
        complain_usage("%s takes no --%s; try ratelimitctl --help", command->name,
                       options_name(options.given & ~command->takes));
        return EXIT_USAGE;
    }

    struct command of_many;
    if (options.given & OPTION_MATCH) {
        of_many = (struct command){command->name, "find", "POLICY", command->help, 1, 1, .shape = SHAPE_FIND};
        command = &of_many;
    }

    /* Wrong usage is reported before a daemon is asked. */
    struct invocation invocation = {.command = command, .options = options, .n = argc, .arguments = argv};
    code = command_look(command, &options, argc, argv);
    if (code == EXIT_DONE && command->shape == SHAPE_HASH && strcmp(argv[0], "-") == 0) {
        argv[0] = (char *)options_line();
        if (argv[0] == NULL) code = usage_error("KEY: standard input has no line", "");
    }
    if (code == EXIT_DONE && command->shape == SHAPE_TEST) return (int)finish_output(test_run(&options, argc, argv));
    if (code == EXIT_DONE) code = command_pack(command, &options, argc, argv, &invocation.params);
    if (code == EXIT_DONE)
        code = command->shape == SHAPE_HOLD ? (enum exit_code)hold_run(&options, argc, argv) : run_command(&invocation);
    buffer_fini(&invocation.listing);
    buffer_fini(&invocation.params);
    return (int)finish_output(code);
}
