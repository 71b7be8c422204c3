/*
 * options.h: what the options on ratelimitctl's command line say.
 *
 * They come before the command or right after it. From the command's first argument on everything is an argument, so
 * that a key may begin with a dash. `--` ends the options earlier.
 */
#ifndef RL_CTL_OPTIONS_H
#define RL_CTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Options that not every command takes. */
enum option_bit {
    OPTION_DEADLINE = 1,
    OPTION_MAX_WAIT = 2,
    OPTION_AT_MOST = 4,
    OPTION_REQUEST_ID = 8,
    OPTION_TTL = 16,
    OPTION_DRY_RUN = 256,
    OPTIONS_OF_PROTOCOL = 31 | OPTION_DRY_RUN, /* those above: they go into the request */
    OPTION_WAIT = 32,
    OPTION_ALL = 64,
    OPTION_OUTPUT = 128,
    OPTION_TAKEN_EXIT = 512,
    OPTION_RUN = 1024,
    OPTION_JUNIT = 2048,
    OPTION_TURNS = 4096,
    OPTION_BY = 8192,
    OPTION_FOLLOW = 16384,
    OPTION_POLICY = 32768,
    OPTION_KEY = 65536,
    OPTION_UID = 131072,
    OPTION_RESET = 262144,
    OPTION_MATCH = 524288,
};

struct options {
    const char *socket; /* NULL: the library's default */
    bool json;
    bool help, version;
    bool ended;         /* by a `--` */
    int64_t timeout_ms; /* 0: the command's own */
    unsigned given;     /* bits of enum option_bit */
    int64_t deadline_ms;
    int64_t max_wait_ms;
    int64_t at_most;
    int64_t ttl_ms;
    int64_t wait_ms; /* -1: without end */
    const char *request_id;
    const char *output; /* a file */
    const char *run;    /* a regular expression */
    const char *junit;  /* a file */
    int taken_exit;     /* of acquire, in place of EXIT_DENIED; with OPTION_TAKEN_EXIT */
    int64_t turns;      /* of top; 0: without end */
    const char *by;     /* policy, key or client; NULL: all */
    const char *policy; /* of these alone; NULL: of any */
    const char *key;
    const char *match; /* a pattern of keys */
    int64_t uid;
};

/* The options at the front of `argv`, whose first member is skipped. Returns the index of the first argument after
 * them, or -1 with the complaint made. */
int options_read(int argc, char **argv, struct options *ret);

/* The first line of standard input, without its end; NULL: there is none. It is kept for the whole program. */
const char *options_line(void);

bool options_is_one(const char *argument); /* `--json`, `--timeout=5s`, `-s` */
const char *options_name(unsigned bits);   /* of the first one, without its dashes */

int options_parse_number(const char *text, int64_t *ret); /* 0; -1 if it is no whole number; -2 if it is too large */

#endif
