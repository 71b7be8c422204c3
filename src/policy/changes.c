/* changes.c: a list of changes and their lines, filled by policy_diff.c and config/, shown by daemon/. */
#include "policy/changes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/line.h"
#include "base/log.h"

enum { FIRST_CAP = 16 };

void changes_init(struct changes *changes, int64_t wall_us, bool in_redis)
{
    *changes = (struct changes){.wall_us = wall_us, .in_redis = in_redis};
}

void changes_fini(struct changes *changes)
{
    mem_free(changes->items);
    *changes = (struct changes){0};
}

void changes_add(struct changes *changes, const struct change *change)
{
    changes->n_all++;
    changes->n_restart += change->needs_restart;
    if (changes->n == CHANGES_MAX) return;
    if (changes->n == changes->cap) {
        size_t cap = changes->cap > 0 ? 2 * changes->cap : FIRST_CAP;
        struct change *items = mem_realloc(changes->items, cap * sizeof *items);
        if (items == NULL) return;
        changes->items = items;
        changes->cap = cap;
    }
    changes->items[changes->n++] = *change;
}

void change_add_value(struct change *change, const char *name, struct slice from, struct slice to)
{
    if (change->n_values == CHANGE_VALUES_MAX) return;
    struct change_value *value = &change->values[change->n_values++];
    value->name = name;
    log_escape(value->from, sizeof value->from, from.data, from.len);
    log_escape(value->to, sizeof value->to, to.data, to.len);
}

/* ---- As a line ---- */

/* By the host's clock and time zone, with the day if it is not within 20 hours. */
static void add_time(struct line *line, const struct changes *changes, int64_t at_s)
{
    enum { NEAR_S = 20 * 3600 };
    int64_t away_s = at_s - changes->wall_us / 1000000;
    time_t at = (time_t)at_s;
    struct tm local;
    char shown[32];
    if (localtime_r(&at, &local) == NULL || strftime(shown, sizeof shown, "%Y-%m-%d %H:%M", &local) == 0) return;
    line_add(line, "%s", away_s < NEAR_S && away_s > -NEAR_S ? strchr(shown, ' ') + 1 : shown);
}

static void add_old_keys(struct line *line, const struct changes *changes, const struct change *change)
{
    if (!change->has_old_keys) return;
    const char *which = change->kind == CHANGE_REMOVED ? "its keys" : "old keys";
    line_add(line, "; %s", which);
    if (change->old_keys_ms < 0) {
        line_add(line, " end when they expire");
        return;
    }
    enum { MINUTE_S = 60 }; /* rounded up to one */
    int64_t end_s = changes->wall_us / 1000000 + change->old_keys_ms / 1000 + MINUTE_S;
    line_add(line, " end by ");
    add_time(line, changes, end_s - end_s % MINUTE_S);
}

static void add_values(struct line *line, const struct change *change)
{
    for (size_t i = 0; i < change->n_values; i++)
        line_add(line, "%s%s %s -> %s", i > 0 ? ", " : "", change->values[i].name, change->values[i].from,
                 change->values[i].to);
}

static void add_overrides(struct line *line, const struct change *change)
{
    const struct {
        size_t n;
        const char *word;
    } parts[] = {{change->n_added, "added"}, {change->n_changed, "changed"}, {change->n_removed, "removed"}};
    const char *before = "overrides: ";
    for (size_t i = 0; i < N_OF(parts); i++) {
        if (parts[i].n == 0) continue;
        line_add(line, "%s%zu %s", before, parts[i].n, parts[i].word);
        before = ", ";
    }
    if (change->n_afresh > 0)
        line_add(line, "; the keys of %zu of them start afresh, because their windows have other edges",
                 change->n_afresh);
    else
        line_add(line, "; their keys keep their counts");
}

static void add_counts(struct line *line, const struct changes *changes, const struct change *change)
{
    bool is_first = line->len >= 2 && strcmp(line->out + line->len - 2, ": ") == 0;
    if (change->counts != COUNTS_NONE && !is_first) line_add(line, ", ");
    switch (change->counts) {
    case COUNTS_NONE: break;
    case COUNTS_KEPT: line_add(line, "keeps its counts"); break;
    case COUNTS_SOME: line_add(line, "some keys keep their counts, the others start a new window"); break;
    case COUNTS_AFRESH:
        line_add(line, "starts afresh");
        /* After a way back within their time there are some, of any daemon. They are not looked for. */
        if (change->has_old_keys) line_add(line, " where no keys of these settings are left");
        break;
    }
    if (change->has_old_keys)
        add_old_keys(line, changes, change);
    else
        line_add(line, "; takes effect now");
}

const char *changes_text(const struct changes *changes, const struct change *change, char out[CHANGE_TEXT_MAX])
{
    struct line line = line_of(out, CHANGE_TEXT_MAX);
    bool is_trial = change->is_candidate && change->limit[0] == '\0';
    out[0] = '\0';
    if (change->subject == CHANGE_OF_DAEMON) {
        const struct change_value *value = &change->values[0];
        if (change->is_content)
            line_add(&line, "%s: its content has changed", value->name);
        else
            line_add(&line, "%s: %s -> %s", value->name, value->from, value->to);
        if (change->held_by != NULL && change->is_content)
            line_add(&line, "; held back until the restart: %s needs one", change->held_by);
        else if (change->held_by != NULL)
            line_add(&line, "; held back until the restart: %s needs one; until then %s stays in force",
                     change->held_by, value->from);
        else if (change->needs_restart)
            line_add(&line, " needs a restart; until then %s stays in force", value->from);
        else
            line_add(&line, "; takes effect %s",
                     change->is_proved ? "once it has proved good on a second connection" : "now");
        return out;
    }

    /* "login/day: ", "login: candidate day: " */
    line_add(&line, "%s", change->policy);
    if (change->is_candidate)
        line_add(&line, ": candidate%s%s", change->limit[0] != '\0' ? " " : "", change->limit);
    else if (change->limit[0] != '\0')
        line_add(&line, "/%s", change->limit);
    line_add(&line, ": ");
    bool is_one_limit = change->subject == CHANGE_OF_LIMIT && change->limit[0] == '\0';
    if (is_one_limit && change->kind != CHANGE_CHANGED) line_add(&line, "its one limit ");

    if (change->subject == CHANGE_OF_OVERRIDES) {
        add_overrides(&line, change);
        line_add(&line, "; takes effect now");
        return out;
    }

    switch (change->kind) {
    case CHANGE_ADDED: line_add(&line, is_trial ? "begins its trial" : "added"); break;
    case CHANGE_REMOVED:
        line_add(&line, is_trial ? "ended its trial" : "removed");
        if (change->n_asked > 0) line_add(&line, "; asked %u times in the last 10 minutes", (unsigned)change->n_asked);
        add_old_keys(&line, changes, change);
        break;
    case CHANGE_RENAMED:
        line_add(&line, "was %s", change->renamed_from[0] != '\0' ? change->renamed_from : "the one limit");
        if (change->n_values > 0) line_add(&line, ", ");
        add_values(&line, change);
        add_counts(&line, changes, change);
        break;
    case CHANGE_CHANGED:
        if (change->keys_moved)
            line_add(&line, "its keys get other names, which follow from key_format, by and on_change");
        add_values(&line, change);
        add_counts(&line, changes, change);
        break;
    }
    return out;
}

const char *changes_copy_text(const struct changes *changes, const struct change_copy *copy, char out[CHANGE_TEXT_MAX])
{
    struct line line = line_of(out, CHANGE_TEXT_MAX);
    line_add(&line, "%s: the credential is a copy of ", copy->name);
    add_time(&line, changes, copy->made_s);
    line_add(&line, ": restart the service, if what it was copied from has changed");
    return out;
}

const char *change_kind_name(enum change_kind kind)
{
    static const char *const names[] = {"added", "removed", "renamed", "changed"};
    CHECK(kind <= CHANGE_CHANGED);
    return names[kind];
}

const char *change_counts_name(enum change_counts counts)
{
    static const char *const names[] = {NULL, "kept", "some", "afresh"};
    return names[counts];
}
