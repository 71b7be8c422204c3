/*
 * config.h: the whole configuration, as one immutable value.
 *
 *   bytes of the file ─▶ yaml_tree ─▶ settings.def ─┬▶ checks of values against each other ─▶ struct config
 *                                     policy_read   ┘
 *
 * Faults gather on the way, all of them; with any error there is no configuration, so a reload that
 * fails leaves the old one untouched. Nothing here opens sockets or knows who uses the values.
 */
#ifndef RL_CONFIG_CONFIG_H
#define RL_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "policy/access.h"
#include "policy/faults.h"
#include "policy/policy.h"
#include "policy/policy_read.h"
#include "policy/setting.h"
#include "redis/options.h"

enum redis_calls { REDIS_CALLS_AUTO, REDIS_CALLS_SLOT }; /* keys of a call to a node of a cluster */

/* What could follow if the file were longer, as one that was cut off. What is in brackets has its own end. */
enum file_end { END_ANYWHERE, END_IN_ACCESS, END_IN_RULES /* or in access.default */ };

enum store_type { STORE_TYPE_MEMORY, STORE_TYPE_REDIS };

#define SETTING_TYPE_TEXT     char *
#define SETTING_TYPE_LIST     char *
#define SETTING_TYPE_MODE     int64_t
#define SETTING_TYPE_SIZE     int64_t
#define SETTING_TYPE_DURATION int64_t
#define SETTING_TYPE_COUNT    int64_t
#define SETTING_TYPE_CHOICE   int64_t
#define SETTING_TYPE_BOOL     int64_t

enum {
#define SETTING(kind, field, ...) SETTING_AT_##field,
#include "config/settings.def"
#undef SETTING
    N_SETTINGS
};

struct config {
#define SETTING(kind, field, ...) SETTING_TYPE_##kind field;
#include "config/settings.def"
#undef SETTING
    char *redis_password;           /* owned; from store.redis.password_file; NULL = none. Never printed */
    struct redis_tls *redis_tls;    /* one reference; from store.redis.tls; NULL = plain text */
    struct redis_tls *sentinel_tls; /* the same for the Sentinels; from store.redis.sentinel.tls, or redis_tls */
    char *sentinel_password;        /* owned; from store.redis.sentinel.password_file; likewise */
    char *keys_secret;              /* owned; from keys.secret_file; likewise */
    struct policy_set *policies;    /* one reference; NULL once a reload has replaced them */
    gid_t listen_gid;               /* of listen.group, if that is set; looked up when the file is read */
    struct access *access;          /* one reference; bound to these policies */
    enum file_end end;
    bool has_tls;          /* the file has a setting of store.redis.tls */
    bool has_sentinel_tls; /* one of store.redis.sentinel.tls */
    bool has_policies;     /* the file has some; else they are the default, or there are none */
    bool is_store_held;    /* store.redis is that of the configuration before it (config_diff.h) */
    /* hash_keyed() of what the file holds that a setting names, by SETTING_AT_; 0 = none was read. */
    uint64_t contents[N_SETTINGS];
    uint64_t hash;   /* config_hash() of it, once it is in force */
    int64_t read_us; /* CLOCK_MONOTONIC before the file was opened: it has every earlier change */
};

extern const struct setting daemon_settings[N_SETTINGS]; /* by SETTING_AT_; their fields are in struct config */

enum { CONFIG_FILE_MAX = 16 << 20 };

enum config_use {
    CONFIG_START,
    CONFIG_DRY_RUN, /* --check-config, --print-config: a credential that only the service has is not missed */
    CONFIG_TEST,    /* --test-limits: the store is memory, and what depends on the machine (sockets, files, users) and
                       the key `tests` are passed over */
    CONFIG_RELOAD,  /* never waits for a pipe's other end, and reads regular files only */
};

/* Read `path`. NULL when there was an error; `faults` holds it, sorted, and the warnings of a success.
 * Touches nothing that other threads use but the table of calendars, which is locked. */
struct config *config_load(const char *path, enum config_use use, struct faults *faults);
/* The same from bytes: of none every default, and one policy `default`, on which a daemon without a file runs. */
struct config *config_parse(const char *bytes, size_t len, enum config_use use, struct faults *faults);

/* The secrets are wiped. NULL is fine. */
void config_free(struct config *config);

/* Wipe the password and the keys' secret, and drop what TLS needs, once the store and the log have made of them what
 * they need. */
void config_forget_secrets(struct config *config);

/* A setting of TLS in a section of which none is written. Written, it would turn TLS on, even with its default. */
bool config_is_tls_off(const struct config *config, const struct setting *setting);

/* For policies that do not set their own. */
struct policy_defaults config_policy_defaults(const struct config *config);

/* store.redis.stall, or what its 0 means. */
int64_t config_redis_stall_ms(const struct config *config);

/* As the YAML that would make it, every setting written; what is not set is a comment. Secrets are never in it: only
 * the names of their files. */
void config_print(FILE *out, const struct config *config);
/* The same of a daemon that was started with `started`: what only a start can change is as it was then. */
void config_print_in_force(FILE *out, const struct config *config, const struct config *started);
/* A hash of the text of the configuration in force: FNV-1a, 64 bits; 0 without memory. It takes a while if there are
 * many policies. */
uint64_t config_hash(const struct config *config, const struct config *started);
uint64_t config_hash_access(struct access *access); /* the same of its rules */

#endif
