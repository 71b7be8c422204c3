#include "config/meant.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "base/units.h"

/* `setting` is the last part of the path. */
static const struct {
    const char *setting;
    const char *word;
    const char *meant;
} values[] = {
    {"on_failure", "open", "allow"},  {"on_failure", "fail_open", "allow"},
    {"on_failure", "closed", "deny"}, {"on_failure", "fail_closed", "deny"},
    {"type", "valkey", "redis"},      {"algorithm", "sliding_window", "sliding_counter or sliding_log"},
};

static const struct {
    const char *path;
    const char *meant;
} keys[] = {
    {"store.redis.host", "addresses: [\"HOST:PORT\"]"},    {"store.redis.port", "addresses: [\"HOST:PORT\"]"},
    {"store.redis.address", "addresses: [\"HOST:PORT\"]"}, {"store.redis.url", "addresses: [\"HOST:PORT\"]"},
    {"store.redis.socket", "addresses: [\"unix:/PATH\"]"},
};

static const struct {
    const char *unit;
    const char *window;
} rates[] = {
    {"s", "1s"},      {"sec", "1s"}, {"second", "1s"}, {"m", "1m"}, {"min", "1m"},
    {"minute", "1m"}, {"h", "1h"},   {"hour", "1h"},   {"d", "1d"}, {"day", "1d"},
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *nearest_choice(const char *choices, const char *word, char *out)
{
    struct nearest nearest = nearest_to(word);
    char name[MEANT_MAX];

    while (*choices != '\0') {
        size_t len = strcspn(choices, " ");
        size_t distance = nearest.distance;
        snprintf(name, sizeof name, "%.*s", (int)len, choices);
        nearest_offer(&nearest, name);
        if (nearest.distance < distance) strcpy(out, name);
        choices += len + (choices[len] == ' ');
    }
    return nearest.name != NULL ? out : NULL;
}

const char *meant_value(const char *path, const char *word, const char *choices, char *out)
{
    const char *dot = strrchr(path, '.');
    const char *setting = dot != NULL ? dot + 1 : path;

    for (size_t i = 0; i < N_OF(values); i++)
        if (strcmp(values[i].setting, setting) == 0 && strcmp(values[i].word, word) == 0) return values[i].meant;
    return choices != NULL ? nearest_choice(choices, word, out) : NULL;
}

const char *meant_key(const char *path)
{
    for (size_t i = 0; i < N_OF(keys); i++)
        if (strcmp(keys[i].path, path) == 0) return keys[i].meant;
    return NULL;
}

const char *meant_rate(const char *text, char *out)
{
    int64_t us;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 15 || text[digits] != '/') return NULL;

    const char *per = text + digits + 1, *window = NULL;
    for (size_t i = 0; i < N_OF(rates); i++)
        if (strcmp(rates[i].unit, per) == 0) window = rates[i].window;
    if (window == NULL && strlen(per) < 16 && units_duration(per, &us) == NULL && us > 0) window = per;
    if (window == NULL) return NULL;

    snprintf(out, MEANT_MAX, "limit: %.*s with window: %s", (int)digits, text, window);
    return out;
}
