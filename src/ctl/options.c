/* options.c: reads the options and complains about those that are wrong, for ratelimitctl.c. */
#include "ctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/units.h"
#include "client/ratelimit.h"
#include "ctl/complain.h"

#define DAY_MS INT64_C(86400000)

/* What getopt returns: a letter, or this and the bit of an option that not every command takes. */
enum { LETTER_BIT = 1 << 24, LETTER_JSON = 1 << 25, LETTER_TIMEOUT, LETTER_VERSION };

static const struct option names[] = {
    {"socket", required_argument, NULL, 's'},
    {"json", no_argument, NULL, LETTER_JSON},
    {"timeout", required_argument, NULL, LETTER_TIMEOUT},
    {"deadline", required_argument, NULL, LETTER_BIT | OPTION_DEADLINE},
    {"max-wait", required_argument, NULL, LETTER_BIT | OPTION_MAX_WAIT},
    {"at-most", required_argument, NULL, LETTER_BIT | OPTION_AT_MOST},
    {"request-id", required_argument, NULL, LETTER_BIT | OPTION_REQUEST_ID},
    {"ttl", required_argument, NULL, LETTER_BIT | OPTION_TTL},
    {"wait", optional_argument, NULL, LETTER_BIT | OPTION_WAIT},
    {"all", no_argument, NULL, LETTER_BIT | OPTION_ALL},
    {"output", required_argument, NULL, LETTER_BIT | OPTION_OUTPUT},
    {"taken-exit", required_argument, NULL, LETTER_BIT | OPTION_TAKEN_EXIT},
    {"run", required_argument, NULL, LETTER_BIT | OPTION_RUN},
    {"junit", required_argument, NULL, LETTER_BIT | OPTION_JUNIT},
    {"dry-run", no_argument, NULL, LETTER_BIT | OPTION_DRY_RUN},
    {"turns", required_argument, NULL, LETTER_BIT | OPTION_TURNS},
    {"by", required_argument, NULL, LETTER_BIT | OPTION_BY},
    {"follow", no_argument, NULL, LETTER_BIT | OPTION_FOLLOW},
    {"policy", required_argument, NULL, LETTER_BIT | OPTION_POLICY},
    {"key", required_argument, NULL, LETTER_BIT | OPTION_KEY},
    {"uid", required_argument, NULL, LETTER_BIT | OPTION_UID},
    {"match", required_argument, NULL, LETTER_BIT | OPTION_MATCH},
    {"reset", no_argument, NULL, LETTER_BIT | OPTION_RESET},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, LETTER_VERSION},
    {0},
};

const char *options_name(unsigned bits)
{
    const struct option *option = names;
    while (option->name != NULL && option->val != (LETTER_BIT | 1 << __builtin_ctz(bits))) option++;
    return option->name;
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
    complain_usage("--%s %s: %s", option, text, wrong);
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

const char *options_line(void)
{
    static char *line;
    size_t size = 0;
    ssize_t len = getline(&line, &size, stdin);
    if (len <= 0) return NULL;
    if (line[len - 1] == '\n') line[len - 1] = '\0';
    return line;
}

/* A key, or -, for the first line of standard input: others see what is on a command line. */
static int take_key(const char *option, const char *text, const char *wanted, const char **ret)
{
    *ret = strcmp(text, "-") == 0 ? options_line() : text;
    if (*ret == NULL) return complain_of(option, text, "standard input has no line");
    return (*ret)[0] != '\0' ? 0 : complain_of(option, text, wanted);
}

/* 0, or -1 with the complaint made, for which the long options have a `name`. */
static int take_option(int letter, const char *name, const char *text, struct options *ret)
{
    static const char to_a_day[] = "out of bounds; write a duration from 1ms to 1d";
    if (letter & LETTER_BIT) ret->given |= (unsigned)letter & ~(unsigned)LETTER_BIT;

    switch (letter) {
    case 's': ret->socket = text; return 0;
    case 'h': ret->help = true; return 0;
    case LETTER_JSON:
        ret->json = true;
        complain_in_json();
        return 0;
    case LETTER_VERSION: ret->version = true; return 0;
    case LETTER_BIT | OPTION_ALL:
    case LETTER_BIT | OPTION_DRY_RUN:
    case LETTER_BIT | OPTION_FOLLOW:
    case LETTER_BIT | OPTION_RESET: return 0;
    case LETTER_TIMEOUT: return parse_ms(name, text, 1, DAY_MS, to_a_day, &ret->timeout_ms);
    case LETTER_BIT | OPTION_TTL: return parse_ms(name, text, 1, DAY_MS, to_a_day, &ret->ttl_ms);
    case LETTER_BIT | OPTION_MAX_WAIT: return parse_ms(name, text, 0, INT64_MAX / MS_US, "", &ret->max_wait_ms);
    case LETTER_BIT | OPTION_DEADLINE:
        return parse_ms(name, text, 1, DAY_MS / 24, "out of bounds; write a duration from 1ms to 1h",
                        &ret->deadline_ms);
    case LETTER_BIT | OPTION_WAIT:
        ret->wait_ms = -1;
        return text == NULL ? 0 : parse_ms(name, text, 0, INT64_MAX / MS_US, "", &ret->wait_ms);
    case LETTER_BIT | OPTION_AT_MOST:
        if (options_parse_number(text, &ret->at_most) == 0 && ret->at_most > 0) return 0;
        return complain_of(name, text, "write a whole number of units, 1 or more");
    case LETTER_BIT | OPTION_TURNS:
        if (options_parse_number(text, &ret->turns) == 0 && ret->turns > 0) return 0;
        return complain_of(name, text, "write how often to look, 1 or more");
    case LETTER_BIT | OPTION_BY:
        ret->by = text;
        if (strcmp(text, "policy") == 0 || strcmp(text, "key") == 0 || strcmp(text, "client") == 0) return 0;
        return complain_of(name, text, "write policy, key or client");
    case LETTER_BIT | OPTION_POLICY:
        ret->policy = text;
        return text[0] != '\0' ? 0 : complain_of(name, text, "write the name of a policy");
    case LETTER_BIT | OPTION_KEY: return take_key(name, text, "write a key", &ret->key);
    case LETTER_BIT | OPTION_MATCH: return take_key(name, text, "write a pattern, such as 'acme*'", &ret->match);
    case LETTER_BIT | OPTION_UID:
        if (options_parse_number(text, &ret->uid) == 0 && ret->uid >= 0 && ret->uid <= UINT32_MAX) return 0;
        return complain_of(name, text, "write the number of a user");
    case LETTER_BIT | OPTION_TAKEN_EXIT: {
        int64_t number = 0;
        if (options_parse_number(text, &number) != 0 || number < 0 || number > UINT8_MAX)
            return complain_of(name, text, "write an exit status, 0 to 255");
        ret->taken_exit = (int)number;
        return 0;
    }
    case LETTER_BIT | OPTION_RUN: ret->run = text; return 0;
    case LETTER_BIT | OPTION_JUNIT:
        ret->junit = text;
        return text[0] != '\0' ? 0 : complain_of(name, text, "write the name of a file");
    case LETTER_BIT | OPTION_OUTPUT:
        ret->output = text;
        return text[0] != '\0' ? 0 : complain_of(name, text, "write the name of a file");
    default: /* --request-id */
        ret->request_id = text;
        if (text[0] != '\0' && strlen(text) <= RATELIMIT_REQUEST_ID_MAX) return 0;
        return complain_of(name, text, "write 1 to 64 bytes");
    }
}

static void complain_unknown(const char *option)
{
    const char *name = option + strspn(option, "-");
    const struct slice written = {(const uint8_t *)name, strcspn(name, "=")};
    struct nearest nearest = nearest_within(written, 2);
    for (const struct option *known = names; known->name != NULL; known++) nearest_offer(&nearest, known->name);
    if (strncmp(option, "--", 2) == 0 && nearest.name != NULL)
        complain_usage("%s: no such option; did you mean --%s?", option, nearest.name);
    else
        complain_usage("%s: no such option; try ratelimitctl --help, or put -- before a POLICY that begins with a dash",
                       option);
}

int options_read(int argc, char **argv, struct options *ret)
{
    opterr = 0;
    optind = 1;
    while (optind < argc) {
        /* "-5": no option of ours looks like a number, which a command may take first. */
        int at = optind, index = 0;
        if (argv[at][0] == '-' && argv[at][1] >= '0' && argv[at][1] <= '9') break;

        int letter = getopt_long(argc, argv, "+:s:hn:f", names, &index);
        if (letter == -1) {
            ret->ended = optind > at;
            break;
        }
        if (letter == ':')
            complain_usage("%s needs a value; try ratelimitctl --help", argv[at]);
        else if (letter == '?' && strncmp(argv[at], "--", 2) == 0 && optopt != 0)
            complain_usage("%s: this option takes no value; try ratelimitctl --help", argv[at]);
        else if (letter == '?')
            complain_unknown(argv[at]);
        if (letter == 'n' || letter == 'f') {
            letter = LETTER_BIT | (letter == 'n' ? OPTION_TURNS : OPTION_FOLLOW);
            while (names[index].val != letter) index++;
        }
        if (letter == ':' || letter == '?' || take_option(letter, names[index].name, optarg, ret) != 0) return -1;
    }
    return optind;
}
