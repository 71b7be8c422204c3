/*
 * changes.h: what a reload changes, as lines for people and as fields for programs.
 *
 * A change is of one setting of the daemon, of a policy, of one of its limits, of its candidate or of its overrides.
 * changes_text() makes the line of the fields, so both say the same.
 */
#ifndef RL_POLICY_CHANGES_H
#define RL_POLICY_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "limit/limit.h"

enum {
    CHANGES_MAX = 1000,     /* are kept; the others are only counted */
    CHANGE_VALUES_MAX = 12, /* settings of one change */
    CHANGE_VALUE_MAX = 64,  /* a longer value is cut */
    CHANGE_TEXT_MAX = 1024,
    CHANGE_COPIES_MAX = 16,
};

enum change_subject { CHANGE_OF_DAEMON, CHANGE_OF_POLICY, CHANGE_OF_LIMIT, CHANGE_OF_OVERRIDES };

enum change_kind { CHANGE_ADDED, CHANGE_REMOVED, CHANGE_RENAMED, CHANGE_CHANGED };

/* What becomes of the counters that exist. */
enum change_counts {
    COUNTS_NONE, /* the change is of no counters */
    COUNTS_KEPT,
    COUNTS_SOME,   /* some keys keep them, the others start afresh */
    COUNTS_AFRESH, /* nothing that was counted counts any more */
};

struct change_value {
    const char *name; /* of the setting; static */
    char from[CHANGE_VALUE_MAX], to[CHANGE_VALUE_MAX];
};

struct change {
    enum change_subject subject;
    enum change_kind kind;
    enum change_counts counts;
    bool needs_restart;  /* of the daemon's: what is written is not in force until then */
    const char *held_by; /* so does this one of the same part, which is why this change waits; NULL = it waits alone */
    bool is_proved;      /* it takes effect once a second connection has shown that it works */
    bool is_content;     /* of what the file holds that a setting names: its path is the same */
    bool is_candidate;   /* a candidate, or a limit of one */
    bool keys_moved;     /* without a change of the limit's own settings, by what its policy says of keys */
    bool has_old_keys;   /* keys of the old name stay until they end */
    int64_t old_keys_ms; /* for that long at most; -1: unknown */
    uint32_t n_asked;    /* of a policy that is removed: how often in the last ASKED_MINUTES */
    char policy[NAME_MAX_LEN + 1], limit[NAME_MAX_LEN + 1], renamed_from[NAME_MAX_LEN + 1];
    size_t n_added, n_changed, n_removed, n_afresh; /* overrides */
    size_t n_values;
    struct change_value values[CHANGE_VALUES_MAX];
};

/* A file that a setting names, which is a copy: what it was copied from may have changed without a sign. */
struct change_copy {
    const char *name; /* of the setting; static */
    int64_t made_s;   /* of the wall clock */
};

struct changes {
    struct change *items; /* owned */
    size_t n, cap;
    size_t n_all;     /* with those that were not kept */
    size_t n_restart; /* of these, settings that need a restart */
    size_t n_copies;
    struct change_copy copies[CHANGE_COPIES_MAX];
    int64_t wall_us; /* when they were found */
    bool in_redis;   /* where the counters are */
};

void changes_init(struct changes *changes, int64_t wall_us, bool in_redis);
void changes_fini(struct changes *changes);

/* Keeps a copy, if there is space and memory. */
void changes_add(struct changes *changes, const struct change *change);
/* Adds what a setting was and is to `change`; beyond CHANGE_VALUES_MAX they are dropped. Not printable bytes are
 * escaped. */
void change_add_value(struct change *change, const char *name, struct slice from, struct slice to);

/* `login/day: limit 5 -> 10, keeps its counts; takes effect now` into `out`, which is returned. */
const char *changes_text(const struct changes *changes, const struct change *change, char out[CHANGE_TEXT_MAX]);

/* `store.redis.password_file: the credential is a copy of 12:00: ...`, likewise. */
const char *changes_copy_text(const struct changes *changes, const struct change_copy *copy, char out[CHANGE_TEXT_MAX]);

const char *change_kind_name(enum change_kind kind);       /* "added" */
const char *change_counts_name(enum change_counts counts); /* "kept"; NULL: COUNTS_NONE */

#endif
