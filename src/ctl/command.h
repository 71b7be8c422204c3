/*
 * command.h: what a command of ratelimitctl is, and how its arguments and options become the parameters of a request.
 */
#ifndef RL_CTL_COMMAND_H
#define RL_CTL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "ctl/complain.h"
#include "ctl/options.h"
#include "ctl/report.h"

/* Which parameters the arguments become, if there are options. */
enum shape {
    SHAPE_PLAIN,   /* the arguments, then the options */
    SHAPE_CHECK,   /* as that; a cost is one of the options */
    SHAPE_ALL,     /* a list of policy, key and cost, separated by commas; then the options, if there are any */
    SHAPE_HOLD,    /* policy and key; the rest is for hold.h */
    SHAPE_LISTING, /* listing.h's; a name at most, which the daemon is not sent */
    SHAPE_PAGE,    /* page.h's */
    SHAPE_TEST,    /* test_run.h's; no daemon that runs is asked */
    SHAPE_TOP,     /* top.h's */
    SHAPE_CHECKS,  /* views.h's, */
    SHAPE_CLIENTS, /* and that one, too */
    SHAPE_FIND,    /* find.h's; a policy: in place of its command's arguments, with --match */
    SHAPE_HASH,    /* a key; -: the first line of standard input */
};

struct command {
    const char *name;
    const char *method;
    const char *arguments; /* as the help shows them; their names say what they are */
    const char *help;
    int n_least;
    int n_most;
    report_fn *report;    /* prints the answer; hold.h prints its own */
    unsigned takes;       /* bits of enum option_bit */
    int64_t default_cost; /* of a check that names none */
    bool decides;         /* its answer is a decision, or several: the exit status says which */
    enum shape shape;
    bool uses_control;                  /* only the control socket serves it (control_socket.h) */
    int64_t timeout_ms;                 /* it takes longer than others; 0: as they do */
    int (*code_of)(struct pull answer); /* the enum exit_code that an answer means; NULL: done */
};

/* Is there the right number of arguments, no option and no bare `--` among them? 0, or the exit code with the complaint
 * made. */
enum exit_code command_look(const struct command *command, const struct options *options, int n, char **arguments);

/* The parameters, instead of what is in `params`. 0, or the exit code with the complaint made. */
enum exit_code command_pack(const struct command *command, const struct options *options, int n, char **arguments,
                            struct buffer *params);

/* The cost of each check that is asked for, into `ret`, which has space for n; returns how many. */
size_t command_costs(const struct command *command, const struct options *options, int n, char **arguments,
                     int64_t *ret);

#endif
