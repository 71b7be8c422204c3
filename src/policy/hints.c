#include "policy/hints.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"
#include "policy/faults.h"

/* ---- What has another name here ---- */

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

const char *hint_value(const char *path, const char *word, const char *choices, char *out)
{
    const char *dot = strrchr(path, '.');
    const char *setting = dot != NULL ? dot + 1 : path;
    for (size_t i = 0; i < N_OF(values); i++)
        if (strcmp(values[i].setting, setting) == 0 && strcmp(values[i].word, word) == 0) return values[i].meant;

    struct nearest nearest = nearest_to(word);
    char name[HINT_MAX];
    while (choices != NULL && *choices != '\0') {
        size_t len = strcspn(choices, " "), distance = nearest.distance;
        snprintf(name, sizeof name, "%.*s", (int)len, choices);
        nearest_offer(&nearest, name);
        if (nearest.distance < distance) strcpy(out, name);
        choices += len + (choices[len] == ' ');
    }
    return nearest.name != NULL ? out : NULL;
}

const char *hint_key(const char *path)
{
    for (size_t i = 0; i < N_OF(keys); i++)
        if (strcmp(keys[i].path, path) == 0) return keys[i].meant;
    return NULL;
}

const char *hint_rate(const char *text, char *out)
{
    int64_t us;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 15 || text[digits] != '/') return NULL;

    const char *per = text + digits + 1, *window = NULL;
    for (size_t i = 0; i < N_OF(rates); i++)
        if (strcmp(rates[i].unit, per) == 0) window = rates[i].window;
    if (window == NULL && strlen(per) < 16 && units_duration(per, &us) == NULL && us > 0) window = per;
    if (window == NULL) return NULL;

    snprintf(out, HINT_MAX, "limit: %.*s with window: %s", (int)digits, text, window);
    return out;
}

/* ---- Time zones ---- */

static const char *city_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

/* Name by name: only the best so far is kept. */
bool hint_zone(const char *written, char ret_name[CALENDAR_ZONE_MAX + 1])
{
    char path[4096], line[512];
    bool found = false, same_city = false;
    struct nearest nearest = nearest_to(written);
    snprintf(path, sizeof path, "%s/zone.tab", calendar_zone_dir());
    FILE *table = fopen(path, "re");
    if (table == NULL) return false;

    while (!same_city && fgets(line, sizeof line, table) != NULL) {
        /* "DE", a tab, the coordinates, a tab, the name, perhaps a tab and a comment. */
        char *rest = NULL;
        if (line[0] == '#') continue;
        const char *country = strtok_r(line, "\t\n", &rest), *where = strtok_r(NULL, "\t\n", &rest);
        const char *name = strtok_r(NULL, "\t\n", &rest);
        if (country == NULL || where == NULL || name == NULL || strlen(name) > CALENDAR_ZONE_MAX) continue;

        size_t distance = nearest.distance;
        nearest_offer(&nearest, name);
        same_city = strcasecmp(city_of(name), city_of(written)) == 0;
        if (nearest.distance == distance && !same_city) continue;
        strcpy(ret_name, name);
        found = true;
    }
    fclose(table);
    return found;
}

/* ---- What comes later ---- */

/* What the interface names but this version lacks; a configuration that relies on it is refused. `*` stands for a
 * policy's name; `path: value` is one value of a setting. */
static const struct {
    const char *path;
    const char *advice;
} not_built[] = {
    {"admin", "ask through the socket: ratelimitctl stats"},
    {"busy_poll", "leave it out"},
    {"store.redis.topology: sentinel", "write single and the address of the master"},
    {"store.redis.topology: cluster", "write single and the address of one server"},
    {"store.redis.master_name", "write the master's address under addresses"},
    {"store.redis.tls", "reach Redis over a Unix socket or a network you trust"},
    {"store.redis.buckets", "leave it out"},
    {"store.redis.breaker", "leave it out; while Redis is away checks are answered at once"},
    {"defaults.local_share", "leave it out; a local answer has the whole limit"},
    {"policies.*.local_share", "leave it out; a local answer has the whole limit"},
    {"policies.*.merge_back", "leave it out"},
    {"policies.*.lease", "leave it out"},
};

const char *hint_not_built(const char *path, const char *value)
{
    char asked[FAULTS_KEY_MAX + FAULTS_SHOWN_MAX];
    snprintf(asked, sizeof asked, "%.*s%s%.*s", FAULTS_KEY_MAX - 1, path, value != NULL ? ": " : "",
             FAULTS_SHOWN_MAX - 3, value != NULL ? value : "");
    for (size_t i = 0; i < N_OF(not_built); i++)
        if (strcmp(not_built[i].path, asked) == 0) return not_built[i].advice;
    return NULL;
}
