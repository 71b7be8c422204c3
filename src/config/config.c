#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/group.h"
#include "base/nearest.h"
#include "config/secret.h"
#include "config/yaml_tree.h"
#include "policy/hints.h"
#include "policy/policy_read.h"
#include "store/redis_options.h"

enum { STALL_MIN_MS = 250, STALL_DEADLINES = 3, FRAME_OVERHEAD = 192, READ_SIZE = 65536 };

struct loader {
    struct config *config;
    struct faults *faults;
    bool is_trial;
    const struct tree_node *policies; /* NULL = not written */
    uint32_t lines[N_SETTINGS];       /* by place in the table; 0 = not written */
};

/* ---- Keys: known, planned, or a slip of the pen ---- */

static void refuse_key(struct loader *loader, const struct tree_node *node, const char *path, const char *above)
{
    char names[64][64];
    size_t n = 0, len = strlen(above);
    const char *meant = hint_key(path);
    if (meant != NULL) {
        faults_add(loader->faults, node->line, path, "no such setting; write %s", meant);
        return;
    }

    /* The names that are known in this section. */
    struct nearest nearest = nearest_to(node->key);
    for (size_t i = 0; i < N_SETTINGS && n < 64; i++) {
        const char *name = setting_table[i].path;
        if (strncmp(name, above, len) != 0 || (len > 0 && name[len] != '.')) continue;
        name += len + (len > 0);
        snprintf(names[n], sizeof names[n], "%.*s", (int)strcspn(name, "."), name);
        nearest_offer(&nearest, names[n++]);
    }
    if (above[0] == '\0') nearest_offer(&nearest, "policies");
    if (nearest.name != NULL) {
        faults_add(loader->faults, node->line, path, "no such setting; did you mean %s?", nearest.name);
        return;
    }

    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *leaf = strrchr(setting_table[i].path, '.') + 1;
        if (strcmp(leaf, node->key) != 0 && strcmp(setting_table[i].path, node->key) != 0) continue;
        faults_add(loader->faults, node->line, path,
                   "no such setting here; did you mean %s, each part on a line of its own?", setting_table[i].path);
        return;
    }
    faults_add(loader->faults, node->line, path, "no such setting; ratelimitd.yaml(5) lists them all");
}

static void load_section(struct loader *loader, const struct tree_node *node, const char *above);

static void load_key(struct loader *loader, const struct tree_node *node, const char *above)
{
    char path[FAULTS_KEY_MAX];
    snprintf(path, sizeof path, "%s%s%s", above, above[0] != '\0' ? "." : "", node->key);

    bool is_dotted = strchr(node->key, '.') != NULL, is_section = false;
    const struct setting *setting = NULL;
    for (size_t i = 0, len = strlen(path); i < N_SETTINGS && !is_dotted; i++) {
        const char *known = setting_table[i].path;
        if (strncmp(known, path, len) != 0) continue;
        if (known[len] == '\0') setting = &setting_table[i];
        if (known[len] == '.') is_section = true; /* it goes on below it */
    }

    /* A value of a setting may be planned, and so may a key that is not a setting yet. */
    const char *value = setting != NULL && node->kind == TREE_TEXT ? node->text : NULL, *advice = NULL;
    if (!is_dotted && (setting == NULL || value != NULL)) advice = hint_not_built(path, value);

    if (setting != NULL && advice != NULL) {
        faults_add(loader->faults, node->line, path, "%s is not built yet; %s", value, advice);
    } else if (setting != NULL) {
        loader->lines[setting - setting_table] = node->line;
        setting_parse(setting, loader->config, node, loader->faults);
    } else if (advice != NULL) {
        faults_add(loader->faults, node->line, path, "not built yet; %s", advice);
    } else if (strcmp(path, "policies") == 0) {
        loader->policies = node;
    } else if (strcmp(path, "store.redis.password") == 0) {
        faults_add(loader->faults, node->line, path,
                   "a password does not belong in this file; write it into a file of its own and that one's name as "
                   "password_file");
    } else if (is_section) {
        load_section(loader, node, path);
    } else {
        refuse_key(loader, node, path, above);
    }
}

static void load_section(struct loader *loader, const struct tree_node *node, const char *above)
{
    if (node->kind == TREE_REFUSED || node->is_null) return;
    if (node->kind != TREE_MAP) {
        faults_add(loader->faults, node->line, above[0] != '\0' ? above : "yaml",
                   "is not a map of settings; write `key: value` lines%s",
                   above[0] != '\0' ? " below it, indented" : ", e.g. policies:");
        return;
    }

    for (const struct tree_node *child = node->first; child != NULL; child = child->next)
        load_key(loader, child, above);
}

/* ---- Values against each other ---- */

static void check_store(struct loader *loader)
{
    static const char key[] = "store.redis.addresses", section[] = "store.redis.";
    const uint32_t *lines = loader->lines;
    const char *address = loader->config->store_redis_addresses, *wrong = NULL;
    struct redis_address parsed;
    char shown[FAULTS_SHOWN_MAX];
    if (address != NULL)
        wrong = strstr(address, "://") != NULL ? "is a URL; write host:port, and user and password_file as settings"
                                               : redis_address_parse(address, &parsed);
    if (wrong != NULL)
        faults_add(loader->faults, lines[SETTING_AT_store_redis_addresses], key, "%s: %s", faults_shown(shown, address),
                   wrong);
    if (loader->config->store_type == STORE_TYPE_REDIS && lines[SETTING_AT_store_redis_addresses] == 0)
        faults_add(loader->faults, lines[SETTING_AT_store_type], key,
                   "is needed with store.type redis; write [\"127.0.0.1:6379\"] or [\"unix:/run/redis/redis.sock\"]");

    /* A file with settings of Redis but without store.type: redis would quietly count in memory, which is noticed much
     * later. With type: memory written, the settings of Redis may stay for later use. */
    size_t first = N_SETTINGS;
    for (size_t i = 0; i < N_SETTINGS && lines[SETTING_AT_store_type] == 0; i++) {
        if (strncmp(setting_table[i].path, section, strlen(section)) != 0 || lines[i] == 0) continue;
        if (first == N_SETTINGS || lines[i] < lines[first]) first = i;
    }
    if (first < N_SETTINGS)
        faults_add(loader->faults, lines[first], setting_table[first].path,
                   "has no effect without store.type, and counters would stay in memory; add the line `type: redis` "
                   "below store: (or `type: memory`, to keep them there)");
}

static void check_values(struct loader *loader)
{
    const struct config *config = loader->config;
    const uint32_t *lines = loader->lines;
    char shown[FAULTS_SHOWN_MAX];
    gid_t gid;

    bool has_group = config->listen_group == NULL || group_find(config->listen_group, &gid);
    if (!has_group) /* reported here too, because otherwise only the start would notice */
        faults_add(loader->faults, lines[SETTING_AT_listen_group], "listen.group",
                   "there is no group %s on this machine; create it (systemd-sysusers does, from the installed file), "
                   "or write one that exists",
                   faults_shown(shown, config->listen_group));
    if (config->listen_socket[0] != '/')
        faults_add(loader->faults, lines[SETTING_AT_listen_socket], "listen.socket",
                   "is not absolute; write the whole path, e.g. /run/ratelimitd/ratelimitd.sock");

    if (strpbrk(config->store_redis_key_prefix, "{}") != NULL)
        faults_add(loader->faults, lines[SETTING_AT_store_redis_key_prefix], "store.redis.key_prefix",
                   "has a brace, and the first braces of a key are the daemon's own; leave it out");
    if (config->store_redis_reconnect_min_ms > config->store_redis_reconnect_max_ms)
        faults_add(loader->faults,
                   lines[SETTING_AT_store_redis_reconnect_min_ms] > 0 ? lines[SETTING_AT_store_redis_reconnect_min_ms]
                                                                      : lines[SETTING_AT_store_redis_reconnect_max_ms],
                   "store.redis.reconnect", "min is above max; write a min that is not");

    if (config->caps_max_key + FRAME_OVERHEAD > config->caps_max_frame)
        faults_add(loader->faults,
                   lines[SETTING_AT_caps_max_frame] > 0 ? lines[SETTING_AT_caps_max_frame]
                                                        : lines[SETTING_AT_caps_max_key],
                   "caps.max_frame",
                   "is too small for a check with a key of max_key (%" PRId64 " bytes); write at least %" PRId64 "B",
                   config->caps_max_key, config->caps_max_key + FRAME_OVERHEAD);
}

static void read_secrets(struct loader *loader)
{
    static const char password[] = "store.redis.password_file", secret[] = "keys.secret_file";
    struct config *config = loader->config;
    const uint32_t *lines = loader->lines;
    bool is_redis = config->store_type == STORE_TYPE_REDIS;
    if (is_redis && config->store_redis_password_file != NULL)
        config->redis_password = secret_read("password", config->store_redis_password_file, loader->is_trial,
                                             lines[SETTING_AT_store_redis_password_file], password, loader->faults);
    else if (is_redis && config->store_redis_username != NULL)
        faults_add(loader->faults, lines[SETTING_AT_store_redis_username], "store.redis.username",
                   "is of no use without a password; write store.redis.password_file as well");

    if (config->keys_secret_file != NULL)
        config->keys_secret = secret_read("secret", config->keys_secret_file, loader->is_trial,
                                          lines[SETTING_AT_keys_secret_file], secret, loader->faults);
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
    struct loader loader = {.config = config, .faults = faults, .is_trial = use == CONFIG_TRIAL};
    if (config == NULL || setting_set_defaults(config) < 0) {
        faults_no_memory(faults, 0, NULL, "out of memory; give the daemon more");
        config_free(config);
        return NULL;
    }

    load_section(&loader, root, "");
    check_store(&loader);
    check_values(&loader);
    read_secrets(&loader);

    struct policy_defaults defaults = config_policy_defaults(config);
    config->policies = loader.policies != NULL ? policy_read_all(loader.policies, &defaults, faults)
                                               : default_policies(&defaults, faults);
    config->has_policies = loader.policies != NULL && config->policies != NULL && config->policies->n > 0;
    warn_of_compat_in_memory(&loader);

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

/* 0, or -1 with the fault recorded. At start, a pipe is accepted; a file that everybody may write to never is. */
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
    if (is_known && S_ISREG(status.st_mode) && (status.st_mode & S_IWOTH)) {
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
    setting_free_all(config);
    mem_free(config);
}

void config_forget_secrets(struct config *config)
{
    secret_free(config->redis_password);
    secret_free(config->keys_secret);
    config->redis_password = config->keys_secret = NULL;
}

struct policy_defaults config_policy_defaults(const struct config *config)
{
    return (struct policy_defaults){
        .deadline_ms = config->defaults_deadline_ms,
        .on_failure = (enum on_failure)config->defaults_on_failure,
        .idempotency_ms = config->defaults_idempotency_window_ms,
    };
}

int64_t config_redis_stall_ms(const struct config *config)
{
    if (config->store_redis_stall_ms > 0) return config->store_redis_stall_ms;
    int64_t stall_ms = STALL_DEADLINES * config->defaults_deadline_ms;
    return stall_ms > STALL_MIN_MS ? stall_ms : STALL_MIN_MS;
}
