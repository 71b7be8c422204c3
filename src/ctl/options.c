#include "ctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "client/ratelimit.h"

#define MS_US  INT64_C(1000)
#define DAY_MS INT64_C(86400000)

enum {
    LETTER_JSON = 256,
    LETTER_TIMEOUT,
    LETTER_DEADLINE,
    LETTER_MAX_WAIT,
    LETTER_AT_MOST,
    LETTER_REQUEST_ID,
    LETTER_TTL,
    LETTER_WAIT,
    LETTER_ALL,
    LETTER_VERSION
};

static const struct option names[] = {
    {"socket", required_argument, NULL, 's'},
    {"json", no_argument, NULL, LETTER_JSON},
    {"timeout", required_argument, NULL, LETTER_TIMEOUT},
    {"deadline", required_argument, NULL, LETTER_DEADLINE},
    {"max-wait", required_argument, NULL, LETTER_MAX_WAIT},
    {"at-most", required_argument, NULL, LETTER_AT_MOST},
    {"request-id", required_argument, NULL, LETTER_REQUEST_ID},
    {"ttl", required_argument, NULL, LETTER_TTL},
    {"wait", optional_argument, NULL, LETTER_WAIT},
    {"all", no_argument, NULL, LETTER_ALL},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, LETTER_VERSION},
    {0},
};

const char *options_name(unsigned bits)
{
    static const char *const by_bit[] = {"--deadline", "--max-wait", "--at-most", "--request-id",
                                         "--ttl",      "--wait",     "--all"};
    return by_bit[__builtin_ctz(bits)];
}

bool options_is_one(const char *argument)
{
    if (strncmp(argument, "-s", 2) == 0 || strcmp(argument, "-h") == 0) return true;
    if (strncmp(argument, "--", 2) != 0) return false;

    size_t len = strcspn(argument + 2, "=");
    for (const struct option *option = names; option->name != NULL; option++) {
        if (strlen(option->name) == len && strncmp(option->name, argument + 2, len) == 0) return true;
    }
    return false;
}

int options_parse_number(const char *text, int64_t *ret)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0') return -1;
    errno = 0;
    *ret = strtoll(text, NULL, 10);
    return errno == 0 ? 0 : -2;
}

static int complain_of(const char *option, const char *text, const char *wrong)
{
    fprintf(stderr, "ratelimitctl: %s %s: %s\n", option, text, wrong);
    return -1;
}

/* A duration of whole milliseconds. 0, or -1 with the complaint made. */
static int parse_ms(const char *option, const char *text, int64_t min_ms, int64_t max_ms, const char *wanted,
                    int64_t *ret_ms)
{
    int64_t us;
    const char *wrong = units_duration(text, &us);
    if (wrong != NULL) return complain_of(option, text, wrong);
    if (us < min_ms * MS_US || us / MS_US > max_ms) return complain_of(option, text, wanted);
    if (us % MS_US != 0) return complain_of(option, text, "not whole milliseconds; write it without a fraction of 1ms");
    *ret_ms = us / MS_US;
    return 0;
}

static int parse_timeout(const char *text, uint32_t *ret_ms)
{
    int64_t ms;
    if (parse_ms("--timeout", text, 1, DAY_MS, "out of bounds; write a duration from 1ms to 1d", &ms) != 0) return -1;
    *ret_ms = (uint32_t)ms;
    return 0;
}

static int parse_at_most(const char *text, int64_t *ret)
{
    if (options_parse_number(text, ret) == 0 && *ret > 0) return 0;
    return complain_of("--at-most", text, "write a whole number of units, 1 or more");
}

static int parse_request_id(const char *text, const char **ret)
{
    *ret = text;
    if (text[0] != '\0' && strlen(text) <= RATELIMIT_REQUEST_ID_MAX) return 0;
    return complain_of("--request-id", text, "write 1 to 64 bytes");
}

static int parse_wait(const char *text, int64_t *ret_ms)
{
    *ret_ms = -1;
    return text == NULL ? 0 : parse_ms("--wait", text, 0, INT64_MAX / MS_US, "", ret_ms);
}

/* 0, or -1 with the complaint made. */
static int take(int letter, const char *text, struct options *ret)
{
    static const unsigned bits[] = {
        [LETTER_DEADLINE - LETTER_JSON] = OPTION_DEADLINE, [LETTER_MAX_WAIT - LETTER_JSON] = OPTION_MAX_WAIT,
        [LETTER_AT_MOST - LETTER_JSON] = OPTION_AT_MOST,   [LETTER_REQUEST_ID - LETTER_JSON] = OPTION_REQUEST_ID,
        [LETTER_TTL - LETTER_JSON] = OPTION_TTL,           [LETTER_WAIT - LETTER_JSON] = OPTION_WAIT,
        [LETTER_ALL - LETTER_JSON] = OPTION_ALL,           [LETTER_VERSION - LETTER_JSON] = 0};
    if (letter >= LETTER_JSON) ret->given |= bits[letter - LETTER_JSON];

    switch (letter) {
    case 's': ret->socket = text; return 0;
    case 'h': ret->help = true; return 0;
    case LETTER_JSON: ret->json = true; return 0;
    case LETTER_VERSION: ret->version = true; return 0;
    case LETTER_ALL: return 0;
    case LETTER_TIMEOUT: return parse_timeout(text, &ret->timeout_ms);
    case LETTER_AT_MOST: return parse_at_most(text, &ret->at_most);
    case LETTER_REQUEST_ID: return parse_request_id(text, &ret->request_id);
    case LETTER_WAIT: return parse_wait(text, &ret->wait_ms);
    case LETTER_MAX_WAIT: return parse_ms("--max-wait", text, 0, INT64_MAX / MS_US, "", &ret->max_wait_ms);
    case LETTER_TTL:
        return parse_ms("--ttl", text, 1, DAY_MS, "out of bounds; write a duration from 1ms to 1d", &ret->ttl_ms);
    default:
        return parse_ms("--deadline", text, 1, DAY_MS / 24, "out of bounds; write a duration from 1ms to 1h",
                        &ret->deadline_ms);
    }
}

static int refuse(int letter, const char *argument)
{
    bool is_long = strncmp(argument, "--", 2) == 0;
    if (letter == ':')
        fprintf(stderr, "ratelimitctl: %s needs a value; try ratelimitctl --help\n", argument);
    else if (is_long && optopt != 0)
        fprintf(stderr, "ratelimitctl: %s: this option takes no value; try ratelimitctl --help\n", argument);
    else
        fprintf(stderr,
                "ratelimitctl: %s: no such option; try ratelimitctl --help, or put -- before a POLICY that begins with "
                "a dash\n",
                argument);
    return -1;
}

/* "-5": no option of ours looks like a number, which a command may take first. */
static bool is_number(const char *argument)
{
    return argument[0] == '-' && argument[1] >= '0' && argument[1] <= '9';
}

int options_read(int argc, char **argv, struct options *ret)
{
    opterr = 0;
    optind = 1;
    while (optind < argc && !is_number(argv[optind])) {
        int at = optind, letter = getopt_long(argc, argv, "+:s:h", names, NULL);
        if (letter == -1) {
            ret->ended = optind > at;
            break;
        }
        if (letter == '?' || letter == ':') return refuse(letter, argv[at]);
        if (take(letter, optarg, ret) != 0) return -1;
    }
    return optind;
}
