/*
 * server_options.h: what the settings and the wiring give to server/.
 */
#ifndef RL_SERVER_SERVER_OPTIONS_H
#define RL_SERVER_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "server/denial_log.h"
#include "server/watch.h"

struct access;
struct inline_policies;

enum late_kind { LATE_RELOAD, LATE_DRY_RUN, LATE_CONFIG };

struct late_source {
    /* The ticket of the answer to come; 0: there is no file to read. NULL: there is no such work in this program. */
    uint64_t (*ask)(void *arg, enum late_kind kind);
    void *arg;
};

/* Who may write a policy out in place of its name. */
enum inline_access { INLINE_NOBODY, INLINE_OWN_USER /* the user that the daemon runs as */, INLINE_EVERYBODY };

/* Where it listens. The control socket's connections are served while the others are as many as may be, and during the
 * drain. */
enum server_endpoint { SERVER_DATA, SERVER_CONTROL, N_SERVER_ENDPOINTS };

enum { CONTROL_CONNECTIONS = 16 }; /* of the control socket, at once; beyond, the longest idle gives way */

struct server_options {
    uint32_t max_key;   /* bytes */
    uint32_t max_frame; /* bytes */
    uint32_t max_depth;
    uint32_t max_connections;             /* of the data socket */
    uint32_t n_store_files;               /* descriptors that the store may take besides the usual few */
    uint32_t max_inflight_per_connection; /* checks; beyond: reading pauses */
    uint64_t max_output;                  /* bytes unread by a peer; at half of it reading from it pauses */
    uint64_t max_output_total;            /* the same of all peers together; beyond it the slowest is closed */
    uint32_t idle_timeout_ms;             /* without a request for this time: close; 0 = never */
    uint32_t write_stall_ms;              /* output waiting and none taken for this time: close; 0 = never */
    struct access *access; /* not owned; NULL: every user is a client, root and the daemon's own user admins */
    enum inline_access inline_access;
    struct inline_policies *inline_policies; /* not owned; used if inline_access allows it */
    enum denials denials;
    uint32_t denials_per_second; /* lines of denial_log.h */
    struct watch_options watch;
    bool test_clock;             /* the methods test_clock and test_store exist */
    bool test_limits;            /* and the clock goes forward only */
    const char *store_name;      /* "memory" or "redis", for `version`; static */
    const char *hiredis_version; /* for `version`; static */
    int64_t configured_us;       /* CLOCK_MONOTONIC: these settings were read, for `version` */
    const char *config_path;     /* NULL: there is none; as long as the server */
    uint64_t config_hash;        /* of the configuration in force */
    struct late_source late;     /* who makes the answers of reload and config */
    char key_prefix[65];         /* of the keys in Redis, without the colon, for `explain` */
    uint32_t n_shards;           /* likewise */
};

/* Appends a part of the page of metrics to `text`, from *from on, which is 0 at first; *from is then where the next
 * part begins. 1: there is one; 0: there is none; -1: no memory. */
typedef int metrics_part_fn(void *arg, uint64_t *from, struct buffer *text);

/* "down for 3m 12s: WRONGPASS ...", printable: why the store does not decide, if only some checks. False: it does. */
enum { STORE_TROUBLE_MAX = 1664 };
typedef bool store_trouble_fn(void *arg, char out[STORE_TROUBLE_MAX]);

#endif
