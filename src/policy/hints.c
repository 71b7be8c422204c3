/* hints.c: the words of other systems, and names that are near, for the readers of settings. */
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

/* For the settings that have `meant` among their choices. */
static const struct {
    const char *word;
    const char *meant;
} words[] = {
    {"open", "allow"}, {"fail_open", "allow"}, {"closed", "deny"}, {"fail_closed", "deny"}, {"valkey", "redis"},
};

static const struct {
    const char *unit;
    const char *window;
} rates[] = {
    {"s", "1s"},      {"sec", "1s"}, {"second", "1s"}, {"m", "1m"}, {"min", "1m"},
    {"minute", "1m"}, {"h", "1h"},   {"hour", "1h"},   {"d", "1d"}, {"day", "1d"},
};

const char *hint_choice(const char *word, const char *choices, char *out)
{
    const char *meant = NULL;
    for (size_t i = 0; i < N_OF(words); i++)
        if (strcmp(words[i].word, word) == 0) meant = words[i].meant;

    struct nearest nearest = nearest_to(word);
    char name[HINT_MAX];
    while (*choices != '\0') {
        size_t len = strcspn(choices, " "), distance = nearest.distance;
        snprintf(name, sizeof name, "%.*s", (int)len, choices);
        if (meant != NULL && strcmp(name, meant) == 0) return meant;
        nearest_offer(&nearest, name);
        if (nearest.distance < distance) strcpy(out, name);
        choices += len + (choices[len] == ' ');
    }
    return nearest.name != NULL ? out : NULL;
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

/* ---- Keys and values that are refused by name ---- */

/* What the interface names and this version lacks, on which no configuration may rely; and what has another place.
 * `path: value` is one value of a setting. */
static const struct {
    const char *path;
    const char *text;
} refused[] = {
    {"busy_poll", "not built yet; leave it out"},
    {"store.redis.host", "no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store.redis.port", "no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store.redis.address", "no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store.redis.url", "no such setting; write addresses: [\"HOST:PORT\"]"},
    {"store.redis.socket", "no such setting; write addresses: [\"unix:/PATH\"]"},
    {"store.redis.password", "a password does not belong in this file; write it into a file of its own and that one's "
                             "name as password_file"},
    {"policies.*.id",
     "for the settings of a policy in a request, at their top; leave it out: a policy's name says what is counted "
     "together"},
};

const char *hint_refusal(const char *path, const char *value)
{
    char asked[FAULTS_KEY_MAX + FAULTS_SHOWN_MAX];
    snprintf(asked, sizeof asked, "%.*s%s%.*s", FAULTS_KEY_MAX - 1, path, value != NULL ? ": " : "",
             FAULTS_SHOWN_MAX - 3, value != NULL ? value : "");
    for (size_t i = 0; i < N_OF(refused); i++)
        if (strcmp(refused[i].path, asked) == 0) return refused[i].text;
    return NULL;
}
