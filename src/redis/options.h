/*
 * redis/options.h: how to reach Redis and how far to go with it, as one plain value, and an address taken apart; pure.
 */
#ifndef RL_REDIS_OPTIONS_H
#define RL_REDIS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_tls;

enum { REDIS_ADDRESSES_MAX = 16 }; /* that `address` may have, or servers of a cluster */

enum redis_topology {
    TOPOLOGY_SINGLE,   /* one server */
    TOPOLOGY_SENTINEL, /* one server, which Sentinels name (redis/sentinel.h) */
    TOPOLOGY_CLUSTER,  /* those that the cluster's map names (redis/cluster_watch.h) */
};

struct redis_options {
    enum redis_topology topology;
    const char *address;     /* "unix:/path" or "host:port"; with Sentinels theirs, one a line; of a cluster any of its
                            servers, likewise; all strings are copied */
    const char *username;    /* NULL = the default user */
    const char *password;    /* NULL = none */
    const char *key_prefix;  /* "rl" */
    uint32_t n_shards;       /* {bNNN} of the keys: 1 to 1000, usually STORE_SHARDS */
    struct redis_tls *tls;   /* NULL = plain text; a copy has a reference */
    const char *master_name; /* by which the Sentinels know the master; else NULL */
    const char *sentinel_username, *sentinel_password; /* on the Sentinels; NULL as above */
    struct redis_tls *sentinel_tls;                    /* likewise */
    int database;
    uint32_t server;          /* the store's: store_server() */
    uint32_t batch_max_keys;  /* unique keys in one EVALSHA, 1 to 64 */
    bool by_slot;             /* of a cluster: each call has the keys of one hash slot */
    bool merge;               /* equal checks of one key in one batch become one */
    uint64_t deny_max_keys;   /* denials kept; 0 = none */
    uint32_t deny_max_age_ms; /* and for how long */
    uint32_t window;          /* EVALSHA calls without reply; beyond: ops wait, round robin */
    uint32_t max_inflight;    /* the same; beyond: SUBMIT_OVERLOAD or OP_OVERLOAD */
    uint32_t deadline_ms;     /* the usual op's: how long a reply may take while more is sent */
    uint64_t max_output;      /* bytes waiting to be written; beyond: SUBMIT_OVERLOAD */
    uint32_t breaker_errors;  /* batches in a row that Redis refuses, after which it is not asked any more; 0 = never */
    uint32_t breaker_late;    /* the same for batches answered after all their deadlines */
    uint32_t breaker_late_ms; /* and after no less than this: a check may be given any time, however short */
    uint32_t breaker_probe_every_ms;
    uint32_t stall_ms; /* the oldest command may wait this long for its reply, then the connection is closed */
    uint32_t backoff_min_ms, backoff_max_ms, refused_max_ms; /* reconnect, full jitter */
    uint64_t random_seed;                                    /* jitter */
    bool is_server_held; /* a reload that leaves address, login and topology as they are: these need not be filled in */
};

/* A copy that owns its strings and references to what TLS needs. 0, or -1 without memory (then `ret_copy` is
 * untouched). */
int redis_options_copy(struct redis_options *ret_copy, const struct redis_options *from);
void redis_options_fini(struct redis_options *copy); /* of such a copy; wipes the password */

/* Who asks: the username, or "default". */
static inline const char *redis_options_user(const struct redis_options *options)
{
    return options->username != NULL ? options->username : "default";
}

/* Would a connection opened now be another one: address, user, password, database or TLS? */
bool redis_options_same_server(const struct redis_options *a, const struct redis_options *b);
/* What differs if the address does not: "password", "user", "database", "TLS settings"; NULL: the address differs. */
const char *redis_options_other_part(const struct redis_options *a, const struct redis_options *b);
/* Are the counters in the same place, as far as the settings show: address, database, the name for Sentinels? */
bool redis_options_same_place(const struct redis_options *a, const struct redis_options *b);
/* All of these change places, and who owns them. */
void redis_options_swap_server(struct redis_options *a, struct redis_options *b);

/*
 * "unix:/path", "host:port" or "[v6 address]:port" taken apart. A name is only looked up if it is no numeric
 * address, and never by hiredis, whose lookup blocks.
 */
enum { REDIS_HOST_MAX = 253, REDIS_PATH_MAX = 107 };

struct redis_address {
    bool is_unix;
    bool is_numeric;               /* host needs no lookup */
    bool is_v6;                    /* if is_numeric */
    char path[REDIS_PATH_MAX + 1]; /* if is_unix */
    char host[REDIS_HOST_MAX + 1]; /* else; without brackets */
    uint16_t port;
};

enum { REDIS_SENTINELS_TEXT_MAX = REDIS_HOST_MAX + 96 }; /* redis_sentinel_text() */

/* The n-th line of several addresses, round and round, cut at `size`. Their number. */
uint32_t redis_address_nth(const char *all, uint32_t nth, char *ret, size_t size);

/* NULL, or what is wrong and what to write instead (static). */
const char *redis_address_parse(const char *text, struct redis_address *ret);

#endif
