/*
 * arguments.h: the command line of ratelimitd, and its exit statuses.
 */
#ifndef RL_DAEMON_ARGUMENTS_H
#define RL_DAEMON_ARGUMENTS_H

#include <stdbool.h>

enum { EXIT_CLEAN = 0, EXIT_RUNNING = 1, EXIT_USAGE = 2, EXIT_CONFIG = 3, EXIT_SOCKET = 4 };

/* The texts are argv's. */
struct arguments {
    const char *config_path; /* NULL = none */
    const char *socket_path; /* NULL = listen.socket */
    bool check_config, print_config;
    bool test_clock;
    bool test_limits; /* with test_clock: for ratelimitctl test */
};

/* -1 to go on, else the exit status: then the request is done, or the error is on standard error. */
int arguments_read(int argc, char **argv, struct arguments *ret);

#endif
