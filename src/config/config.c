/* config.c: reads a configuration and checks its values against each other, for the daemon's start and reloads. */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/account.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "base/nearest.h"
#include "config/access_read.h"
#include "config/secret.h"
#include "config/tls_files.h"
#include "config/yaml_tree.h"
#include "policy/hints.h"
#include "policy/policy_read.h"
#include "redis/options.h"
#include "redis/tls.h"

enum { STALL_MIN_MS = 250, STALL_DEADLINES = 3, FRAME_OVERHEAD = 192, READ_SIZE = 65536, UNIX_PATH_MAX = 107 };

enum { RESTART = 0, RELOAD = USE_RELOAD };

const struct setting daemon_settings[N_SETTINGS] = {
#define SETTING(kind_, field, path, default_, min_, max_, words, reloads, help)                                        \
    {.name = path,                                                                                                     \
     .type = {.kind = VALUE_##kind_, .min = min_, .max = max_, words},                                                 \
     .offset = offsetof(struct config, field),                                                                         \
     .size = sizeof((struct config *)0)->field,                                                                        \
     .fallback = default_,                                                                                             \
     .uses = reloads},
#include "config/settings.def"
#undef SETTING
};

struct loader {
    struct config *config;
    struct faults *faults;
    bool is_dry_run, is_test;
    const struct tree_node *policies, *access; /* NULL = not written */
    uint32_t lines[N_SETTINGS];                /* 0 = not written */
};

static const char tls_section[] = "store.redis.tls", sentinel_tls_section[] = "store.redis.sentinel.tls";

static bool is_in(const struct setting *setting, const char *section)
{
    size_t len = strlen(section);
    return strncmp(setting->name, section, len) == 0 && setting->name[len] == '.';
}

/* Records a fault of a setting, on its line; if it is not written, on the line of the setting `other`. */
__attribute__((format(printf, 4, 5))) static void refuse_setting(struct loader *loader, size_t setting, size_t other,
                                                                 const char *format, ...)
{
    uint32_t line = loader->lines[setting] > 0 ? loader->lines[setting] : loader->lines[other];
    va_list args;
    va_start(args, format);
    faults_record_va(loader->faults, FAULT_INVALID, line, daemon_settings[setting].name, format, args);
    va_end(args);
}

/* ---- Keys: known, planned, or a slip of the pen ---- */

/* `above` is the section with the unknown key; "" = the file. */
static void refuse_key(struct loader *loader, const struct tree_node *key, const char *path, const char *above)
{
    char names[N_SETTINGS][64];
    size_t n = 0, len = strlen(above);
    const char *text = hint_refusal(path, NULL);

    /* The names that are known in this section. */
    struct nearest nearest = nearest_to(key->key);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *name = daemon_settings[i].name;
        if (strncmp(name, above, len) != 0 || (len > 0 && name[len] != '.')) continue;
        name += len + (len > 0);
        snprintf(names[n], sizeof names[n], "%.*s", (int)strcspn(name, "."), name);
        nearest_offer(&nearest, names[n++]);
    }
    if (above[0] == '\0') nearest_offer(&nearest, "policies");
    if (above[0] == '\0') nearest_offer(&nearest, "access");

    for (size_t i = 0; i < N_SETTINGS && text == NULL && nearest.name == NULL; i++) {
        const char *known = daemon_settings[i].name, *leaf = strrchr(known, '.') + 1;
        if (strcmp(leaf, key->key) != 0 && strcmp(known, key->key) != 0) continue;
        faults_add(loader->faults, key->line, path,
                   "no such setting here; did you mean %s, each part on a line of its own?", known);
        return;
    }
    map_refuse_key(MAP_SECTION, key, path, text, nearest.name, loader->faults);
}

static void load_section(struct loader *loader, const struct tree_node *node, const char *above);

static void load_key(struct loader *loader, const struct tree_node *node, const char *above)
{
    char path[FAULTS_KEY_MAX];
    snprintf(path, sizeof path, "%s%s%s", above, above[0] != '\0' ? "." : "", node->key);

    bool is_dotted = strchr(node->key, '.') != NULL, is_section = false;
    for (size_t i = 0, len = strlen(path); i < N_SETTINGS && !is_dotted; i++) {
        const char *known = daemon_settings[i].name;
        if (strncmp(known, path, len) != 0) continue;
        if (known[len] == '\0') {
            const struct setting *setting = &daemon_settings[i];
            const char *value = node->kind == TREE_TEXT ? node->text : NULL;
            const char *refusal = value != NULL ? hint_refusal(setting->name, value) : NULL;
            if (refusal != NULL) {
                faults_add(loader->faults, node->line, setting->name, "%s", refusal);
                return;
            }
            loader->lines[i] = node->line;
            setting_read(setting, setting->name, node, loader->faults, loader->config);
            return;
        }
        is_section |= known[len] == '.'; /* it goes on below it */
    }

    bool is_tls = strcmp(path, tls_section) == 0, is_sentinel_tls = strcmp(path, sentinel_tls_section) == 0;
    if ((is_tls || is_sentinel_tls) && (node->is_null || (node->kind == TREE_MAP && node->first == NULL)))
        faults_add(loader->faults, node->line, path,
                   "is empty, and so would %s; write ca_file: system, or the path of the CA's certificate",
                   is_tls ? "leave the connection in plain text" : "change nothing");
    else if (strcmp(path, "policies") == 0)
        loader->policies = node;
    else if (strcmp(path, "access") == 0)
        loader->access = node;
    else if (strcmp(path, "tests") == 0 && loader->is_test)
        return;
    else if (is_section)
        load_section(loader, node, path);
    else
        refuse_key(loader, node, path, above);
}

static void load_section(struct loader *loader, const struct tree_node *node, const char *above)
{
    const bool is_file = above[0] == '\0';
    if (node->is_null || !map_is_one(is_file ? MAP_FILE : MAP_SECTION, node, is_file ? "yaml" : above, loader->faults))
        return;
    for (const struct tree_node *child = node->first; child != NULL; child = child->next)
        load_key(loader, child, above);
}

/* ---- Values against each other ---- */

/* NULL, or what is wrong. */
static const char *address_fault(const char *address, enum redis_topology topology)
{
    struct redis_address parsed;
    if (strstr(address, "://") != NULL) return "is a URL; write host:port, and user and password_file as settings";
    const char *fault = redis_address_parse(address, &parsed);
    if (fault != NULL || !parsed.is_unix || topology == TOPOLOGY_SINGLE) return fault;
    return topology == TOPOLOGY_SENTINEL ? "a Sentinel has no Unix socket; write host:port"
                                         : "a cluster names its servers by host and port; write host:port";
}

static void check_addresses(struct loader *loader)
{
    const size_t at = SETTING_AT_store_redis_addresses;
    const enum redis_topology topology = (enum redis_topology)loader->config->store_redis_topology;
    const char *all = loader->config->store_redis_addresses;
    char shown[FAULTS_SHOWN_MAX];
    if (all == NULL) return;

    size_t n = 0;
    for (const char *from = all, *end = all; *end != '\0'; from = end + 1, n++) {
        char address[REDIS_HOST_MAX + 64];
        end = from + strcspn(from, "\n");
        snprintf(address, sizeof address, "%.*s", (int)(end - from), from);
        const char *fault = address_fault(address, topology);
        if (fault != NULL) refuse_setting(loader, at, at, "%s: %s", faults_shown(shown, address), fault);
    }
    if (n > 1 && topology == TOPOLOGY_SINGLE)
        refuse_setting(loader, at, at,
                       "has %zu entries; write exactly 1, or topology: sentinel if they are Sentinels, or topology: "
                       "cluster if they are a cluster's",
                       n);
}

static void check_sentinel(struct loader *loader)
{
    const size_t master_name = SETTING_AT_store_redis_master_name;
    if (loader->config->store_redis_topology == TOPOLOGY_SENTINEL) {
        if (loader->config->store_redis_master_name == NULL)
            refuse_setting(loader, master_name, SETTING_AT_store_redis_topology,
                           "is needed with topology: sentinel; write the name that `sentinel monitor` has");
        return;
    }
    for (size_t i = 0; i < N_SETTINGS; i++) {
        bool is_default =
            i == SETTING_AT_store_redis_sentinel_plain_text && !loader->config->store_redis_sentinel_plain_text;
        if (loader->lines[i] == 0 || is_default) continue;
        if (i == master_name || is_in(&daemon_settings[i], "store.redis.sentinel"))
            refuse_setting(loader, i, i, "has no effect without topology: sentinel");
    }
}

static void check_store(struct loader *loader)
{
    static const char section[] = "store.redis.";
    const size_t addresses = SETTING_AT_store_redis_addresses, type = SETTING_AT_store_type;
    const size_t topology = SETTING_AT_store_redis_topology, database = SETTING_AT_store_redis_database;
    const uint32_t *lines = loader->lines;
    check_addresses(loader);
    check_sentinel(loader);
    if (loader->config->store_redis_topology == TOPOLOGY_CLUSTER && loader->config->store_redis_database != 0)
        refuse_setting(loader, database, topology, "is not 0, and a cluster has no other database; leave it out");
    if (loader->config->store_type == STORE_TYPE_REDIS && lines[addresses] == 0)
        refuse_setting(
            loader, addresses, type,
            "is needed with store.type redis; write [\"127.0.0.1:6379\"] or [\"unix:/run/redis/redis.sock\"]");

    /* A file with settings of Redis but without store.type: redis would quietly count in memory, which is noticed much
     * later. With type: memory written, the settings of Redis may stay for later use. */
    size_t first = N_SETTINGS;
    for (size_t i = 0; i < N_SETTINGS && lines[type] == 0; i++) {
        if (strncmp(daemon_settings[i].name, section, strlen(section)) != 0 || lines[i] == 0) continue;
        if (first == N_SETTINGS || lines[i] < lines[first]) first = i;
    }
    if (first < N_SETTINGS)
        refuse_setting(
            loader, first, first,
            "has no effect without store.type, and counters would stay in memory; add the line `type: redis` "
            "below store: (or `type: memory`, to keep them there)");
}

static void check_admin(struct loader *loader)
{
    const size_t at = SETTING_AT_admin_listen;
    const char *text = loader->config->admin_listen;
    struct listen_address address;
    char shown[FAULTS_SHOWN_MAX];
    if (text == NULL) return;
    if (!listen_address_parse(&address, text))
        refuse_setting(loader, at, at,
                       "%s is no address to listen on; write one such as 127.0.0.1:7429, [::]:7429 or "
                       "unix:/run/ratelimitd/http.sock",
                       faults_shown(shown, text));
    else if (address.unix_path != NULL && strlen(address.unix_path) > UNIX_PATH_MAX)
        refuse_setting(loader, at, at,
                       "its path is longer than a Unix socket's may be (%d bytes); choose a shorter one",
                       UNIX_PATH_MAX);
    else if (!RL_HTTP)
        refuse_setting(
            loader, at, at,
            "this build has no HTTP (it was configured with RL_HTTP=OFF); leave it out, or install one that has");
}

static void check_values(struct loader *loader)
{
    struct config *config = loader->config;
    const size_t group = SETTING_AT_listen_group, socket = SETTING_AT_listen_socket;
    const size_t prefix = SETTING_AT_store_redis_key_prefix;
    const uint32_t *lines = loader->lines;
    char shown[FAULTS_SHOWN_MAX];

    if (config->listen_group != NULL && !loader->is_test && !account_group(config->listen_group, &config->listen_gid))
        refuse_setting(
            loader, group, group,
            "there is no group %s on this machine; create it (systemd-sysusers does, from the installed file), "
            "or write one that exists",
            faults_shown(shown, config->listen_group));
    if (config->listen_socket[0] != '/')
        refuse_setting(loader, socket, socket,
                       "is not absolute; write the whole path, e.g. /run/ratelimitd/ratelimitd.sock");

    const size_t at = SETTING_AT_control_socket;
    const char *path = config->control_socket;
    if (path != NULL) {
        if (path[0] != '/')
            refuse_setting(loader, at, at, "is not absolute; write the whole path, e.g. /run/ratelimitd/control.sock");
        else if (strcmp(path, config->listen_socket) == 0)
            refuse_setting(loader, at, at,
                           "is listen.socket, too; write another path, e.g. that one with .control at its end");
    }

    check_admin(loader);
    if (strpbrk(config->store_redis_key_prefix, "{}") != NULL)
        refuse_setting(loader, prefix, prefix,
                       "has a brace, and the first braces of a key are the daemon's own; leave it out");
    if (config->store_redis_reconnect_min_ms > config->store_redis_reconnect_max_ms)
        faults_add(loader->faults,
                   lines[SETTING_AT_store_redis_reconnect_min_ms] > 0 ? lines[SETTING_AT_store_redis_reconnect_min_ms]
                                                                      : lines[SETTING_AT_store_redis_reconnect_max_ms],
                   "store.redis.reconnect", "min is above max; write a min that is not");

    if (config->caps_max_key + FRAME_OVERHEAD > config->caps_max_frame)
        refuse_setting(loader, SETTING_AT_caps_max_frame, SETTING_AT_caps_max_key,
                       "is too small for a check with a key of max_key (%" PRId64 " bytes); write at least %" PRId64
                       "B",
                       config->caps_max_key, config->caps_max_key + FRAME_OVERHEAD);
}

/* The content of the file that a setting names, or NULL. */
static char *read_secret(struct loader *loader, const char *what, size_t setting)
{
    const struct setting *row = &daemon_settings[setting];
    const char *file = *setting_text(row, loader->config);
    if (file == NULL) return NULL;
    char *secret = secret_read(what, file, loader->is_dry_run, loader->lines[setting], row->name, loader->faults);
    if (secret != NULL) loader->config->contents[setting] = hash_keyed(secret, strlen(secret));
    return secret;
}

static void read_secrets(struct loader *loader)
{
    const size_t username = SETTING_AT_store_redis_username, of_sentinels = SETTING_AT_store_redis_sentinel_username;
    struct config *config = loader->config;
    if (config->store_type == STORE_TYPE_REDIS) {
        config->redis_password = read_secret(loader, "password", SETTING_AT_store_redis_password_file);
        config->sentinel_password = read_secret(loader, "password", SETTING_AT_store_redis_sentinel_password_file);
        if (config->store_redis_password_file == NULL && config->store_redis_username != NULL)
            refuse_setting(loader, username, username,
                           "is of no use without a password; write store.redis.password_file as well");
        if (config->store_redis_sentinel_password_file == NULL && config->store_redis_sentinel_username != NULL)
            refuse_setting(loader, of_sentinels, of_sentinels,
                           "is of no use without a password; write store.redis.sentinel.password_file as well");
    }
    config->keys_secret = read_secret(loader, "secret", SETTING_AT_keys_secret_file);
}

bool config_is_tls_off(const struct config *config, const struct setting *setting)
{
    return (is_in(setting, tls_section) && !config->has_tls) ||
           (is_in(setting, sentinel_tls_section) && !config->has_sentinel_tls);
}

/* The line of one of its settings; 0 = none is written. */
static uint32_t section_line(const struct loader *loader, const char *section)
{
    uint32_t line = 0;
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (is_in(&daemon_settings[i], section) && loader->lines[i] > 0) line = loader->lines[i];
    return line;
}

static struct tls_file tls_file(const struct loader *loader, size_t setting)
{
    return (struct tls_file){*setting_text(&daemon_settings[setting], loader->config), loader->lines[setting],
                             &loader->config->contents[setting]};
}

/* The settings of store.redis.tls, and what their files hold. */
static void read_tls(struct loader *loader, uint32_t line)
{
    struct config *config = loader->config;
    const struct tls_files files = {.section = tls_section,
                                    .server_name = config->store_redis_tls_server_name,
                                    .server_name_line = loader->lines[SETTING_AT_store_redis_tls_server_name],
                                    .verify = (enum redis_tls_verify)config->store_redis_tls_verify,
                                    .ca = tls_file(loader, SETTING_AT_store_redis_tls_ca_file),
                                    .cert = tls_file(loader, SETTING_AT_store_redis_tls_cert_file),
                                    .key = tls_file(loader, SETTING_AT_store_redis_tls_key_file),
                                    .is_dry_run = loader->is_dry_run};
    struct redis_address address;
    const char *written = config->store_redis_addresses;
    if (written != NULL && redis_address_parse(written, &address) == NULL && address.is_unix)
        faults_add(
            loader->faults, line, tls_section,
            "does not go with a Unix socket, on which Redis has no TLS; write an address host:port, or leave tls "
            "out");
    else
        config->redis_tls = tls_files_read(&files, line, loader->faults);
}

/* Those of store.redis.sentinel.tls. */
static void read_sentinel_tls(struct loader *loader, uint32_t line)
{
    struct config *config = loader->config;
    const size_t plain_text = SETTING_AT_store_redis_sentinel_plain_text;
    const struct tls_files files = {.section = sentinel_tls_section,
                                    .server_name = config->store_redis_sentinel_tls_server_name,
                                    .server_name_line = loader->lines[SETTING_AT_store_redis_sentinel_tls_server_name],
                                    .verify = (enum redis_tls_verify)config->store_redis_sentinel_tls_verify,
                                    .ca = tls_file(loader, SETTING_AT_store_redis_sentinel_tls_ca_file),
                                    .cert = tls_file(loader, SETTING_AT_store_redis_sentinel_tls_cert_file),
                                    .key = tls_file(loader, SETTING_AT_store_redis_sentinel_tls_key_file),
                                    .is_dry_run = loader->is_dry_run};
    if (config->store_redis_sentinel_plain_text)
        refuse_setting(loader, plain_text, plain_text,
                       "does not go with store.redis.sentinel.tls; leave one of the two out");
    else
        config->sentinel_tls = tls_files_read(&files, line, loader->faults);
}

static void unset_text(char **text)
{
    mem_free(*text);
    *text = NULL;
}

static void read_both_tls(struct loader *loader)
{
    struct config *config = loader->config;
    uint32_t line = section_line(loader, tls_section), sentinel_line = section_line(loader, sentinel_tls_section);
    config->has_tls = line > 0;
    config->has_sentinel_tls = sentinel_line > 0;
    if (config->store_type != STORE_TYPE_REDIS) return;
    if (config->has_tls) read_tls(loader, line);
    if (config->store_redis_topology != TOPOLOGY_SENTINEL) return;
    if (config->has_sentinel_tls)
        read_sentinel_tls(loader, sentinel_line);
    else if (!config->store_redis_sentinel_plain_text)
        config->sentinel_tls = redis_tls_ref(config->redis_tls);
}

static enum file_end end_of(const struct tree_node *root, const struct tree_node *access)
{
    bool is_last = access != NULL && root->last == access && access->kind == TREE_MAP && access->first != NULL;
    if (!is_last || access->first->line == access->line) return END_ANYWHERE;
    const struct tree_node *last = access->last->last;
    return last != NULL && last->line > access->last->line ? END_IN_RULES : END_IN_ACCESS;
}

/* What shares the keys of another limiter shares nothing in this process' memory. */
static void warn_of_compat_in_memory(struct loader *loader)
{
    const struct policy_set *policies = loader->config->policies;
    if (loader->config->store_type != STORE_TYPE_MEMORY || policies == NULL) return;
    if (loader->policies == NULL || loader->policies->kind != TREE_MAP) return;

    for (const struct tree_node *node = loader->policies->first; node != NULL; node = node->next) {
        const struct policy *policy = policy_find(policies, slice_of(node->key));
        if (policy == NULL || policy->n_limits == 0 || !limit_ops(&policy->limits[0])->is_compat) continue;
        faults_warn(loader->faults, node->line, "store.type",
                    "is memory, so policy %s and other compat policies share no counter with the limiter in place; "
                    "write type: redis and the addresses of its Redis",
                    policy->name);
        return;
    }
}

/* In a cluster all keys of a call must be known before it, and lie in one hash slot. */
static void check_policy_in_cluster(struct loader *loader, const struct tree_node *node, const struct policy *policy)
{
    char path[FAULTS_KEY_MAX];
    snprintf(path, sizeof path, "policies.%s", policy->name);
    if (policy->n_limits > 0 && limit_ops(&policy->limits[0])->name_window != NULL)
        faults_add(loader->faults, node->line, path,
                   "is compat: %s, whose script makes the key's name out of Redis' clock, and a cluster has to know it "
                   "before; write topology: single and the address of one server, or another algorithm",
                   limit_ops(&policy->limits[0])->name);
    if (policy->format != NULL && policy->n_limits > 0 && policy->plan.shard_parts == 0)
        faults_warn(
            loader->faults, node->line, path,
            "counts by no part of the key in common (by), so one server of the cluster has all its counters; write "
            "two policies, and name both in check_all, if that is too much for it");
}

static void check_policies_in_cluster(struct loader *loader)
{
    const struct policy_set *policies = loader->config->policies;
    if (loader->config->store_type != STORE_TYPE_REDIS || policies == NULL) return;
    if (loader->config->store_redis_topology != TOPOLOGY_CLUSTER) return;
    if (loader->policies == NULL || loader->policies->kind != TREE_MAP) return;

    for (const struct tree_node *node = loader->policies->first; node != NULL; node = node->next) {
        const struct policy *policy = policy_find(policies, slice_of(node->key));
        if (policy == NULL) continue;
        check_policy_in_cluster(loader, node, policy);
        if (policy->candidate != NULL) check_policy_in_cluster(loader, node, policy->candidate);
    }
}

/* ---- Loading ---- */

/* The policies of a file without `policies:`; NULL without memory (recorded). */
static struct policy_set *default_policies(const struct policy_defaults *defaults, struct faults *faults)
{
    static const char text[] = "default: {algorithm: token_bucket, limit: 100, window: 1s}\n";
    struct tree_node *tree = yaml_tree_parse(text, sizeof text - 1, faults);
    struct policy_set *set = tree != NULL ? policy_read_all(tree, defaults, faults) : NULL;
    tree_free(tree);
    return set;
}

static struct config *load_tree(const struct tree_node *root, enum config_use use, struct faults *faults)
{
    struct config *config = mem_zalloc(sizeof *config);
    struct loader loader = {
        .config = config, .faults = faults, .is_dry_run = use == CONFIG_DRY_RUN, .is_test = use == CONFIG_TEST};
    bool is_set = config != NULL;
    for (size_t i = 0; i < N_SETTINGS && is_set; i++) is_set = setting_set_default(&daemon_settings[i], config);
    if (!is_set) {
        faults_no_memory(faults, 0, NULL, "out of memory; give the daemon more");
        config_free(config);
        return NULL;
    }

    load_section(&loader, root, "");
    check_store(&loader);
    check_values(&loader);
    if (!loader.is_test) read_secrets(&loader);
    if (!loader.is_test) read_both_tls(&loader);

    struct policy_defaults defaults = config_policy_defaults(config);
    config->policies = loader.policies != NULL ? policy_read_all(loader.policies, &defaults, faults)
                                               : default_policies(&defaults, faults);
    config->has_policies = loader.policies != NULL && config->policies != NULL && config->policies->n > 0;
    config->end = end_of(root, loader.access);
    config->access = access_read(loader.is_test ? NULL : loader.access, config->policies, config->inline_allow, faults);
    if (config->defaults_shadow)
        faults_warn(faults, 0, "defaults.shadow",
                    "is on: nothing is denied, except by policies with shadow: false; leave it out to enforce the "
                    "limits again");
    if (!loader.is_test) warn_of_compat_in_memory(&loader);
    check_policies_in_cluster(&loader);

    if (loader.is_test) {
        /* A test's daemon counts in memory, for one client, and no other process reaches it. */
        enum { CONNECTIONS = 16, HOUR_MS = 3600000 };
        const struct setting *max_keys = &daemon_settings[SETTING_AT_store_memory_max_keys];
        if (config->store_type == STORE_TYPE_REDIS) { /* which has as many places as there are keys */
            config->store_type = STORE_TYPE_MEMORY;
            setting_set_default(max_keys, config);
        }
        unset_text(&config->listen_group);
        unset_text(&config->admin_listen);
        unset_text(&config->control_socket);
        config->caps_max_connections = CONNECTIONS;
        config->listen_idle_timeout_ms = config->reload_watch_ms = 0;
        config->listen_write_stall_ms = HOUR_MS;
        config->log_level = LOG_LEVEL_ERROR;
    }

    if (faults->n_errors == 0) return config;
    config_free(config);
    return NULL;
}

struct config *config_parse(const char *bytes, size_t len, enum config_use use, struct faults *faults)
{
    struct tree_node *root = yaml_tree_parse(bytes, len, faults);
    struct config *config = root != NULL ? load_tree(root, use, faults) : NULL;
    if (config != NULL) config->read_us = clock_mono_us();
    tree_free(root);
    faults_sort(faults);
    return config;
}

/* 0, or -1 with the fault recorded. At start, a pipe is accepted; a file that everybody may write to never is, but for
 * tests: a CI's checkout often is. */
static int read_file(int fd, enum config_use use, struct buffer *content, struct faults *faults)
{
    struct stat status;
    bool is_known = fstat(fd, &status) == 0; /* else the read below fails */
    if (is_known && use == CONFIG_RELOAD && !S_ISREG(status.st_mode)) {
        faults_add(faults, 0, NULL,
                   "is not a regular file, and a reload reads nothing else; write the configuration into a file at "
                   "this path");
        return -1;
    }
    if (is_known && use != CONFIG_TEST && S_ISREG(status.st_mode) && (status.st_mode & S_IWOTH)) {
        faults_add(faults, 0, NULL, "can be written by everybody; chmod o-w it");
        return -1;
    }

    for (;;) {
        uint8_t *space = buffer_reserve(content, READ_SIZE);
        if (space == NULL) {
            faults_add(faults, 0, NULL, "is larger than %d bytes, or memory is short; write fewer policies",
                       CONFIG_FILE_MAX);
            return -1;
        }
        ssize_t n = read(fd, space, READ_SIZE);
        if (n == 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            faults_add(faults, 0, NULL, "cannot be read: %s; write the path of a readable file", strerror(errno));
            return -1;
        }
        buffer_grew(content, (size_t)n);
    }
}

struct config *config_load(const char *path, enum config_use use, struct faults *faults)
{
    CHECK(path != NULL);
    struct config *config = NULL;
    struct buffer content;
    int64_t read_us = clock_mono_us();
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (use == CONFIG_RELOAD ? O_NONBLOCK : 0));
    if (fd < 0) {
        faults_add(faults, 0, NULL, "cannot be read: %s; write the path of a readable file", strerror(errno));
        return NULL;
    }

    buffer_init(&content, CONFIG_FILE_MAX + READ_SIZE);
    if (read_file(fd, use, &content, faults) == 0)
        config = config_parse(buffer_len(&content) > 0 ? (const char *)buffer_data(&content) : "", buffer_len(&content),
                              use, faults);
    if (config != NULL) config->read_us = read_us;
    buffer_fini(&content);
    close(fd);
    return config;
}

void config_free(struct config *config)
{
    if (config == NULL) return;
    config_forget_secrets(config);
    policy_set_unref(config->policies);
    access_unref(config->access);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char **text = setting_text(&daemon_settings[i], config);
        if (text != NULL) mem_free(*text);
    }
    mem_free(config);
}

void config_forget_secrets(struct config *config)
{
    secret_free(config->redis_password);
    secret_free(config->sentinel_password);
    secret_free(config->keys_secret);
    redis_tls_unref(config->redis_tls);
    redis_tls_unref(config->sentinel_tls);
    config->redis_password = config->sentinel_password = config->keys_secret = NULL;
    config->redis_tls = config->sentinel_tls = NULL;
}

struct policy_defaults config_policy_defaults(const struct config *config)
{
    return (struct policy_defaults){
        .deadline_ms = config->defaults_deadline_ms,
        .on_failure = (enum on_failure)config->defaults_on_failure,
        .local_share = config->defaults_local_share,
        .idempotency_ms = config->defaults_idempotency_window_ms,
        .shadow = config->defaults_shadow,
    };
}

int64_t config_redis_stall_ms(const struct config *config)
{
    if (config->store_redis_stall_ms > 0) return config->store_redis_stall_ms;
    int64_t stall_ms = STALL_DEADLINES * config->defaults_deadline_ms;
    return stall_ms > STALL_MIN_MS ? stall_ms : STALL_MIN_MS;
}
