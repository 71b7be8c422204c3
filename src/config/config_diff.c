/* config_diff.c: compares two configurations, for daemon/reload.c. */
#include "config/config_diff.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "config/config_mark.h"
#include "config/secret.h"
#include "policy/policy_diff.h"

enum { LIST_MAX = 512 };

/* A value as in a configuration file, but without quotes; the entries of a list with commas in between. */
static struct slice shown(const struct setting *setting, const struct config *config, char out[LIST_MAX])
{
    char **text = setting_text(setting, config);
    if (text == NULL) return slice_of(value_print(&setting->type, setting_number(setting, config), out));
    if (*text == NULL) return slice_of("not set");

    snprintf(out, LIST_MAX, "%s", *text);
    for (char *end = out; (end = strchr(end, '\n')) != NULL;) *end = ',';
    return slice_of(out);
}

/* Its table cannot grow beyond what it was made for. */
static bool needs_restart(const struct setting *setting, const struct config *started, const struct config *next)
{
    if (setting == &daemon_settings[SETTING_AT_store_memory_max_keys])
        return next->store_memory_max_keys > started->store_memory_max_keys;
    return !(setting->uses & USE_RELOAD) && !setting_equal(setting, started, next);
}

static bool is_of(const struct setting *setting, const char *section)
{
    return strncmp(setting->name, section, strlen(section)) == 0;
}

/* The setting whose restart all of store.redis waits for; NULL: none. */
static const char *holds_store(const struct config *started, const struct config *next)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (is_of(&daemon_settings[i], "store.") && needs_restart(&daemon_settings[i], started, next))
            return daemon_settings[i].name;
    return NULL;
}

/* How one server is reached: redis/store.c. */
static bool is_of_server(const struct setting *setting, const struct config *next)
{
    static const size_t of_server[] = {SETTING_AT_store_redis_addresses, SETTING_AT_store_redis_username,
                                       SETTING_AT_store_redis_password_file, SETTING_AT_store_redis_database};
    if (next->store_type != STORE_TYPE_REDIS || next->store_redis_topology != TOPOLOGY_SINGLE) return false;
    for (size_t i = 0; i < N_OF(of_server); i++)
        if (setting == &daemon_settings[of_server[i]]) return true;
    return is_of(setting, "store.redis.tls.");
}

/* What systemd has copied into its directory of credentials stays as it was when the service was started. */
static void note_copy(struct changes *changes, const struct setting *setting, const struct config *next)
{
    const char *directory = getenv("CREDENTIALS_DIRECTORY"), *named = *setting_text(setting, next);
    char path[PATH_MAX];
    struct stat status;
    if (directory == NULL || named == NULL || changes->n_copies == CHANGE_COPIES_MAX) return;
    size_t len = strlen(directory);
    if (len == 0 || !secret_path(named, path, sizeof path)) return;
    if (strncmp(path, directory, len) != 0 || path[len] != '/' || stat(path, &status) != 0) return;
    changes->copies[changes->n_copies++] = (struct change_copy){setting->name, status.st_mtim.tv_sec};
}

/* Not rule by rule: one that is moved counts for others. */
static void compare_access(struct changes *changes, const struct config *before, const struct config *next)
{
    struct change change = {.subject = CHANGE_OF_DAEMON, .kind = CHANGE_CHANGED};
    if (config_hash_access(before->access) == config_hash_access(next->access)) return;

    char from[32], to[32];
    snprintf(from, sizeof from, "%zu rules", before->access->n);
    snprintf(to, sizeof to, "%zu other rules", next->access->n);
    change_add_value(&change, "access", slice_of(from), slice_of(to));
    changes_add(changes, &change);
}

void config_diff(struct changes *changes, const struct config *in_force, const struct config *started,
                 const struct config *next)
{
    const char *held_by = holds_store(started, next);
    CHECK(in_force->policies != NULL && next->policies != NULL);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &daemon_settings[i];
        const struct config *before = setting->uses & USE_RELOAD ? in_force : started;
        bool is_equal = setting_equal(setting, before, next), is_other_content = false;
        if (config_names_file(setting)) {
            is_other_content = before->contents[i] != next->contents[i];
            note_copy(changes, setting, next);
        }
        if (is_equal && !is_other_content) continue;

        bool waits = needs_restart(setting, started, next), is_held = held_by != NULL && is_of(setting, "store.redis.");
        char from[LIST_MAX], to[LIST_MAX];
        struct change change = {.subject = CHANGE_OF_DAEMON,
                                .kind = CHANGE_CHANGED,
                                .needs_restart = waits || is_held,
                                .held_by = is_held && !waits ? held_by : NULL,
                                .is_proved = is_of_server(setting, next),
                                .is_content = is_equal};
        change_add_value(&change, setting->name, shown(setting, before, from), shown(setting, next, to));
        changes_add(changes, &change);
    }
    compare_access(changes, in_force, next);
    policy_diff(changes, in_force->policies, next->policies);
}

int config_hold_store(struct config *next, const struct config *in_force, const struct config *started)
{
    CHECK(!next->is_store_held);
    if (holds_store(started, next) == NULL) return 0;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &daemon_settings[i];
        if (i != SETTING_AT_store_type && !is_of(setting, "store.redis.")) continue;
        next->contents[i] = in_force->contents[i];
        char **to = setting_text(setting, next), **from = setting_text(setting, in_force);
        if (to == NULL) {
            setting_store(setting, next, setting_number(setting, in_force));
            continue;
        }
        char *copy = *from != NULL ? mem_strdup(*from) : NULL;
        if (*from != NULL && copy == NULL) return -1;
        mem_free(*to);
        *to = copy;
    }
    next->has_tls = in_force->has_tls;
    next->has_sentinel_tls = in_force->has_sentinel_tls;
    next->is_store_held = true;
    return 0;
}
