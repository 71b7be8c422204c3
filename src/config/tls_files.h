/*
 * tls_files.h: TLS to Redis out of the files that store.redis.tls names.
 */
#ifndef RL_CONFIG_TLS_FILES_H
#define RL_CONFIG_TLS_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/faults.h"
#include "redis/tls.h"

struct tls_file {
    const char *path;      /* NULL = not set */
    uint32_t line;         /* 0 = not written */
    uint64_t *ret_content; /* gets hash_keyed() of what it holds */
};

struct tls_files {
    const char *section; /* of the settings, for faults: "store.redis.tls" */
    struct tls_file ca, cert, key;
    const char *server_name; /* NULL = not set */
    uint32_t server_name_line;
    enum redis_tls_verify verify;
    bool is_dry_run;
};

/* One reference. `line` is that of any setting of TLS. NULL with the faults recorded; or without one in a dry run that
 * could not see a file. */
struct redis_tls *tls_files_read(const struct tls_files *files, uint32_t line, struct faults *faults);

#endif
