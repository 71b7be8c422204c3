/*
 * command.h: what a command of ratelimitctl is, what the options on the line say, and how both become the parameters of
 * a request.
 */
#ifndef RL_CTL_COMMAND_H
#define RL_CTL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ratelimit.h"
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

/* The options of the protocol; each is a bit of what a command takes. */
enum ask_option { ASK_DEADLINE = 1, ASK_MAX_WAIT = 2, ASK_AT_MOST = 4, ASK_REQUEST_ID = 8, ASK_TTL = 16 };

struct options {
    const char *socket; /* NULL: the library's default */
    bool json;
    uint32_t timeout_ms;
    unsigned given; /* bits of enum ask_option */
    int64_t deadline_ms;
    int64_t max_wait_ms;
    int64_t at_most;
    int64_t ttl_ms;
    const char *request_id;
};

/* What an argument is to the protocol. */
enum argument { ARGUMENT_TEXT, ARGUMENT_NUMBER, ARGUMENT_POLICY /* a name, or settings in braces */ };

/* Which parameters the arguments become, if there are options. */
enum shape {
    SHAPE_PLAIN, /* the arguments, then the options */
    SHAPE_CHECK, /* as that; a cost is one of the options */
    SHAPE_ALL,   /* a list of policy, key and cost, separated by commas; then the options, if there are any */
    SHAPE_HOLD,  /* policy and key; what stands behind them is for hold.h */
};

enum { ARGUMENTS_MAX = 3 };

struct command {
    const char *name;
    const char *method;
    const char *arguments; /* as the help shows them */
    int n_least;
    int n_most;
    enum argument types[ARGUMENTS_MAX];
    report_fn *report; /* NULL: not in this version, or not a request of its own */
    const char *help;
    unsigned takes; /* bits of enum ask_option */
    enum shape shape;
};

/* A complaint on standard error; EXIT_USAGE. */
enum exit_code usage_error(const char *what, const char *which);
/* What a call ended with; with --json also on standard output. */
enum exit_code complain(enum ratelimit_status status, const char *code, const char *error, bool json);
/* There is no client: of what ratelimit_open() said. */
enum exit_code complain_open(enum ratelimit_status status);
int parse_number(const char *text, int64_t *ret); /* 0, -1 where it is no whole number, -2 where it is too large */

/* 0, or the exit code with the complaint made. */
enum exit_code command_pack(const struct command *command, const struct options *options, int n, char **arguments,
                            struct packer *packer);

#endif
