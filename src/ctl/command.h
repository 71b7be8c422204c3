/*
 * command.h: what a command of ratelimitctl is, and how its arguments and options become the parameters of a request.
 */
#ifndef RL_CTL_COMMAND_H
#define RL_CTL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ratelimit.h"
#include "ctl/options.h"
#include "ctl/report.h"
#include "proto/pack.h"

enum exit_code {
    EXIT_DONE = 0, /* allowed, or done */
    EXIT_DENIED = 1,
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3,
    EXIT_REFUSED = 4,     /* the daemon answered with an error */
    EXIT_OUTPUT = 5,      /* standard output took no more */
    EXIT_SIGNALLED = 128, /* and the signal's number */
};

/* What an argument is to the protocol. */
enum argument { ARGUMENT_TEXT, ARGUMENT_NUMBER, ARGUMENT_POLICY /* a name, or settings in braces */ };

/* Which parameters the arguments become, if there are options. */
enum shape {
    SHAPE_PLAIN, /* the arguments, then the options */
    SHAPE_CHECK, /* as that; a cost is one of the options */
    SHAPE_ALL,   /* a list of policy, key and cost, separated by commas; then the options, if there are any */
    SHAPE_HOLD,  /* policy and key; the rest is for hold.h */
};

enum { ARGUMENTS_MAX = 3 };

struct command {
    const char *name;
    const char *method;
    const char *arguments; /* as the help shows them */
    const char *help;
    int n_least;
    int n_most;
    enum argument types[ARGUMENTS_MAX];
    report_fn *report;    /* NULL: not in this version */
    unsigned takes;       /* bits of enum option_bit */
    int64_t default_cost; /* of a check that names none */
    bool decides;         /* its answer is a decision, or several: the exit status says which */
    enum shape shape;
};

/* A complaint on standard error; EXIT_USAGE. */
enum exit_code usage_error(const char *what, const char *which);
/* What a call ended with; with --json also on standard output. */
enum exit_code complain(enum ratelimit_status status, const char *code, const char *error, bool json);
/* There is no client: of what ratelimit_open() said. */
enum exit_code complain_open(enum ratelimit_status status);

/* Is there the right number of arguments, no option and no bare `--` among them? 0, or the exit code with the complaint
 * made. */
enum exit_code command_look(const struct command *command, const struct options *options, int n, char **arguments);

/* 0, or the exit code with the complaint made. */
enum exit_code command_pack(const struct command *command, const struct options *options, int n, char **arguments,
                            struct packer *packer);

/* The cost of each check that is asked for, into `ret`, which has room for n + 1; returns how many. */
size_t command_costs(const struct command *command, const struct options *options, int n, char **arguments,
                     int64_t *ret);

#endif
