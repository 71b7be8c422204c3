/*
 * reload.h: the configuration's file, read again while the daemon runs.
 *
 *   SIGHUP, the method `reload`, reload.watch
 *                 │
 *             READING (thread pool): bytes ─▶ a finished configuration, or faults
 *                 │
 *             on the loop: log the faults, hand every part the new values, swap the policies
 *                 │
 *             FREEING (thread pool): the faults, and old policies that no check holds any more. Then what is free goes
 *             back to the system, as it does without a reload when a burst is over
 *
 * Reading and freeing 100 000 policies takes most of a second, so the loop does neither. What the thread works on is
 * its own for that time. Shared with the loop are: the counts of policies with the same name (their references are
 * atomic; the configuration holds the set they come from until the thread is done) and the table of calendars (which
 * has a lock).
 *
 * A file with a fault, or one that looks cut off (config/cut.h), changes nothing. reload.watch takes a change once two
 * looks, a period apart, have found the same. A setting that only a start can change stays as it was started with, and
 * the log says so. What is wanted while one is under way is done after it, once for all that want it: each that asked
 * gets the report of a reading that began after the question (server/late_answer.h). READY=1 comes after the last.
 */
#ifndef RL_DAEMON_RELOAD_H
#define RL_DAEMON_RELOAD_H

#include <stdbool.h>

#include <uv.h>

#include "base/buffer.h"
#include "base/counters.h"
#include "base/list.h"
#include "config/config.h"
#include "policy/changes.h"
#include "server/server_options.h"

#define RELOAD_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(reloads, "configuration reloads that took effect")                                                         \
    COUNTER(reload_failures, "configuration reloads refused because of an error")

COUNTERS_DECLARE(reload, RELOAD_COUNTERS);

struct daemon;

enum reload_phase { RELOAD_IDLE, RELOAD_READING, RELOAD_FREEING };

/* What the thread is to do, the most urgent first. */
enum reload_task {
    RELOAD_FILE,
    RELOAD_WATCHED, /* the same, if the files are still what two looks have found */
    RELOAD_DRY_RUN, /* the same, and then nothing */
    RELOAD_SHOW,    /* print the configuration in force */
    RELOAD_LOOK,    /* have the files changed, and are they complete? */
    N_RELOAD_TASKS
};

struct reload {
    enum reload_phase phase;
    enum reload_task task;           /* under way; if IDLE, the last one */
    uint64_t ticket;                 /* whose answer it is */
    uint64_t wanted[N_RELOAD_TASKS]; /* the tickets of the next ones; 0: not wanted */
    uint64_t n_tickets;
    int64_t look_us;  /* CLOCK_MONOTONIC: the next look at the files */
    bool was_refused; /* the last one */
    uv_work_t work;
    uint64_t peak_bytes; /* in use, since memory was last given back to the system */
    struct list retired; /* struct policy_set: one reference each to those replaced, until no check holds them */

    /* The thread's, except while IDLE: */
    struct faults faults;
    struct changes changes;
    struct buffer answer;     /* for who asked; empty: there was no memory, or too much to show */
    struct config *next;      /* owned; NULL = the file has a fault, or nothing was read */
    size_t asked_cursor;      /* of policy_set_note_asked() */
    uint64_t mark;            /* of the files as they were read last (config_mark.h) */
    uint64_t seen;            /* of the files and what they hold, as the last look found them; 0: unchanged */
    uint32_t n_restless;      /* looks in a row that found another change each */
    bool has_changed;         /* since `mark`; after RELOAD_WATCHED: since the last look, so nothing was read */
    struct list unreferenced; /* struct policy_set, owned */
};

void reload_init(struct daemon *daemon);
void reload_file(struct daemon *daemon); /* SIGHUP: arguments.config_path, which there is */
/* For struct late_source; `arg` is the daemon. */
uint64_t reload_ask(void *arg, enum late_kind kind);
void reload_look(struct daemon *daemon); /* each second: free what was replaced and has lost its last user, give back
                                            what a burst has left, look at the files */
void reload_fini(struct daemon *daemon); /* once the engine is gone and no work is under way */

#endif
