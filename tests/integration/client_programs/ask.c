/*
 * ask.c: calls libratelimit's blocking functions, one per input line, for test_everywhere.py.
 *
 *     ask SOCKET
 *
 * A line is a method and its arguments, separated by tabs. Options of a check (name=value) follow at the end, after an
 * empty argument. The answer to each is a line of JSON: the decision's fields with the protocol's names.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ratelimit.h>

enum { TIMEOUT_MS = 10000, WORDS_MAX = 64, ITEMS_MAX = 16, LINE_SIZE = 16384 };

static struct ratelimit *client;
static char *words[WORDS_MAX];
static size_t n_words; /* without the options */
static struct ratelimit_options options;

static int64_t number_at(size_t i)
{
    return i < n_words ? strtoll(words[i], NULL, 10) : 0;
}

static void print_text(const char *name, const char *text)
{
    printf(", \"%s\": \"", name);
    for (; *text != '\0'; text++) printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('"');
}

static void print_bool(const char *name, bool value)
{
    printf(", \"%s\": %s", name, value ? "true" : "false");
}

static void print_fields(const struct ratelimit_decision *decision)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"limit", decision->limit},
        {"remaining", decision->remaining},
        {"retry_after_ms", decision->retry_after_ms},
        {"reset_after_ms", decision->reset_after_ms},
        {"delay_ms", decision->delay_ms},
        {"granted", decision->granted},
        {"policy_version", decision->policy_version},
        {"refunded", decision->refunded},
        {"charged", decision->charged},
    };
    printf("{\"allowed\": %s", decision->allowed ? "true" : "false");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        printf(", \"%s\": %" PRId64, numbers[i].name, numbers[i].value);
    print_bool("shadow_denied", decision->shadow_denied);
    print_bool("ended", decision->ended);
    print_text("source", ratelimit_source_name(decision->source));
    print_text("reason", ratelimit_reason_name(decision->reason));
    print_text("bound_by", decision->bound_by);
}

static void print_list(const struct ratelimit_decision *decisions, size_t n)
{
    putchar('[');
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stdout);
        print_fields(&decisions[i]);
        putchar('}');
    }
    putchar(']');
}

static bool failed(enum ratelimit_status status)
{
    if (status == RATELIMIT_OK) return false;
    printf("{\"status\": %d", (int)status);
    print_text("error", ratelimit_error(client));
    printf("}\n");
    return true;
}

static void ask_decision(void)
{
    const char *method = words[0], *policy = words[1], *key = n_words > 2 ? words[2] : "";
    struct ratelimit_decision decision;
    enum ratelimit_status status = RATELIMIT_BAD_ARGUMENT;
    size_t len = strlen(key);
    if (strcmp(method, "check") == 0) {
        if (n_words > 3) options.cost = number_at(3);
        status = ratelimit_check_with(client, policy, key, len, &options, TIMEOUT_MS, &decision);
    } else if (strcmp(method, "peek") == 0) {
        status = ratelimit_peek(client, policy, key, len, number_at(3), TIMEOUT_MS, &decision);
    } else if (strcmp(method, "refund") == 0) {
        status = ratelimit_refund(client, policy, key, len, number_at(3), TIMEOUT_MS, &decision);
    } else if (strcmp(method, "reserve") == 0) {
        status = ratelimit_reserve(client, policy, key, len, number_at(3), &options, TIMEOUT_MS, &decision);
    } else if (strcmp(method, "settle") == 0) {
        status = ratelimit_settle(client, policy, number_at(2), TIMEOUT_MS, &decision);
    } else if (strcmp(method, "cancel") == 0) {
        status = ratelimit_cancel(client, policy, TIMEOUT_MS, &decision);
    } else if (strcmp(method, "acquire") == 0) {
        status = ratelimit_acquire(client, policy, key, len, TIMEOUT_MS, &decision);
    }
    if (failed(status)) return;
    print_fields(&decision);
    print_text("id", ratelimit_id(client));
    printf("}\n");
}

static void ask_items(bool all)
{
    struct ratelimit_item items[ITEMS_MAX];
    struct ratelimit_decision whole, members[ITEMS_MAX];
    size_t n = 0;
    for (size_t at = 1; at + 3 <= n_words && n < ITEMS_MAX; at += 3, n++)
        items[n] = (struct ratelimit_item){words[at], words[at + 1], strlen(words[at + 1]), number_at(at + 2)};
    if (failed(all ? ratelimit_check_all(client, items, n, &options, TIMEOUT_MS, &whole, members)
                   : ratelimit_check_many(client, items, n, TIMEOUT_MS, members)))
        return;
    if (all) {
        print_fields(&whole);
        printf(", \"members\": ");
    }
    print_list(members, n);
    puts(all ? "}" : "");
}

static void ask_ended(bool reset)
{
    bool done;
    if (failed(reset ? ratelimit_reset(client, words[1], words[2], strlen(words[2]), TIMEOUT_MS, &done)
                     : ratelimit_release(client, words[1], TIMEOUT_MS, &done)))
        return;
    printf("{\"%s\": %s}\n", reset ? "removed" : "released", done ? "true" : "false");
}

/* Any method, with text parameters; prints the raw answer in hex. */
static void ask_other(void)
{
    unsigned char params[LINE_SIZE];
    const void *result;
    size_t len = 0, result_len;
    params[len++] = (unsigned char)(0x90 + n_words - 1);
    for (size_t i = 1; i < n_words; i++) {
        size_t text_len = strlen(words[i]);
        params[len++] = 0xda;
        params[len++] = (unsigned char)(text_len >> 8);
        params[len++] = (unsigned char)text_len;
        memcpy(params + len, words[i], text_len);
        len += text_len;
    }
    if (failed(ratelimit_call(client, words[0], params, len, TIMEOUT_MS, &result, &result_len))) return;
    printf("{\"packed\": \"");
    for (size_t i = 0; i < result_len; i++) printf("%02x", ((const unsigned char *)result)[i]);
    printf("\"}\n");
}

static void read_option(char *word)
{
    char *value = strchr(word, '=');
    if (value == NULL) exit(2);
    *value++ = '\0';
    if (strcmp(word, "request_id") == 0) {
        options.request_id = value;
        options.request_id_len = (uint32_t)strlen(value);
    }
    if (strcmp(word, "at_most") == 0) options.at_most = strtoll(value, NULL, 10);
    if (strcmp(word, "deadline_ms") == 0) options.deadline_ms = (uint32_t)strtoul(value, NULL, 10);
    if (strcmp(word, "max_wait_ms") == 0) options.max_wait_ms = strtoll(value, NULL, 10);
    if (strcmp(word, "ttl_ms") == 0) options.ttl_ms = strtoll(value, NULL, 10);
}

static void read_line(char *line)
{
    bool in_options = false;
    options = (struct ratelimit_options)RATELIMIT_OPTIONS;
    n_words = 0;
    line[strcspn(line, "\n")] = '\0';
    for (char *word; (word = strsep(&line, "\t")) != NULL;) {
        if (word[0] == '\0')
            in_options = true;
        else if (in_options)
            read_option(word);
        else if (n_words < WORDS_MAX)
            words[n_words++] = word;
    }
}

int main(int argc, char **argv)
{
    static const char *const decided[] = {"check", "peek", "refund", "reserve", "settle", "cancel", "acquire"};
    char line[LINE_SIZE];
    if (argc != 2 || ratelimit_open(argv[1], &client) != RATELIMIT_OK) return 2;
    ratelimit_use_maps(client);
    while (fgets(line, sizeof line, stdin) != NULL) {
        bool done = false;
        read_line(line);
        for (size_t i = 0; i < sizeof decided / sizeof decided[0] && !done; i++) {
            done = strcmp(words[0], decided[i]) == 0;
            if (done) ask_decision();
        }
        if (strcmp(words[0], "check_all") == 0 || strcmp(words[0], "check_many") == 0)
            ask_items(strcmp(words[0], "check_all") == 0);
        else if (strcmp(words[0], "reset") == 0 || strcmp(words[0], "release") == 0)
            ask_ended(strcmp(words[0], "reset") == 0);
        else if (!done)
            ask_other();
        fflush(stdout);
    }
    ratelimit_close(client);
    return 0;
}
