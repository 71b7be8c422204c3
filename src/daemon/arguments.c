/* arguments.c: reads the command line with getopt, for main(). */
#include "daemon/arguments.h"

#include <getopt.h>
#include <stdio.h>

#include <uv.h>

static void usage(FILE *out)
{
    fputs(
        "usage: ratelimitd [-c FILE] [-s SOCKET] [--check-config] [--print-config] [--test-clock] [--test-limits]\n"
        "                  [--version] [--help]\n"
        "\n"
        "  -c, --config FILE    configuration, see ratelimitd.yaml(5); without it: memory store, one policy `default`\n"
        "  -s, --socket SOCKET  Unix socket to listen on, in place of listen.socket\n"
        "      --check-config   read the configuration, report what is wrong with it, and end\n"
        "      --print-config   write the configuration with every default filled in, and end\n"
        "      --test-clock     the method test_clock sets the time (memory store only; for replaying schedules)\n"
        "      --test-limits    the same for `ratelimitctl test`: a store in memory that forgets nothing, whatever "
        "the\n"
        "                       configuration says, and a clock that goes forward only\n"
        "      --version        write the versions of ratelimitd and its libraries, and end\n"
        "  -h, --help           write this, and end\n"
        "\n"
        "Signals: TERM and INT drain and end, a second one ends at once; HUP reloads the configuration.\n"
        "Exit status: 0 clean stop, 1 failure, 2 usage, 3 configuration, 4 the socket cannot be bound.\n",
        out);
}

enum { OPTION_CHECK = 256, OPTION_PRINT, OPTION_TEST_CLOCK, OPTION_TEST_LIMITS, OPTION_VERSION };

/* Refuses a second value: one of the two would silently be lost. -1 to go on, else the exit status. */
static int take_once(const char **ret, const char *option)
{
    if (*ret != NULL) {
        fprintf(stderr, "ratelimitd: %s is given twice: %s and %s; give it once\n", option, *ret, optarg);
        return EXIT_USAGE;
    }
    *ret = optarg;
    return -1;
}

int arguments_read(int argc, char **argv, struct arguments *ret)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"socket", required_argument, NULL, 's'},
                                            {"check-config", no_argument, NULL, OPTION_CHECK},
                                            {"print-config", no_argument, NULL, OPTION_PRINT},
                                            {"test-clock", no_argument, NULL, OPTION_TEST_CLOCK},
                                            {"test-limits", no_argument, NULL, OPTION_TEST_LIMITS},
                                            {"version", no_argument, NULL, OPTION_VERSION},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};

    for (int option; (option = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            if (take_once(&ret->config_path, "-c") >= 0) return EXIT_USAGE;
            break;
        case 's':
            if (take_once(&ret->socket_path, "-s") >= 0) return EXIT_USAGE;
            break;
        case OPTION_CHECK: ret->check_config = true; break;
        case OPTION_PRINT: ret->print_config = true; break;
        case OPTION_TEST_CLOCK: ret->test_clock = true; break;
        case OPTION_TEST_LIMITS: ret->test_limits = ret->test_clock = true; break;
        case OPTION_VERSION:
            printf("ratelimitd %s (libuv %s, hiredis %s)\n", RL_VERSION, uv_version_string(), RL_HIREDIS_VERSION);
            return EXIT_CLEAN;
        case 'h': usage(stdout); return EXIT_CLEAN;
        default: usage(stderr); return EXIT_USAGE;
        }
    }

    if (optind == argc) return -1;
    fprintf(stderr, "ratelimitd: %s: no such argument\n", argv[optind]);
    usage(stderr);
    return EXIT_USAGE;
}
