/*
 * find.c: the method find, and the keys that `explain` names for one that was never counted; for methods.c and
 * request.c.
 *
 * A row of a table is compared with the pattern by what is kept of its key: of a longer one the beginning, which
 * decides if the pattern ends in a star.
 */
#include "server/find.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/line.h"
#include "base/log.h"
#include "base/units.h"
#include "policy/inline_policies.h"
#include "policy/pattern.h"
#include "server/access.h"
#include "server/cursor.h"
#include "server/operator_log.h"
#include "server/session.h"
#include "server/session_output.h"

enum {
    FIND_STEPS = 8192,   /* of work for an answer (struct store_walk), about 50 us */
    STEPS_OF_LOOK = 24,  /* at a row of a table */
    STEPS_OF_FOUND = 96, /* to write a row */
    BYTES_A_STEP = 8,    /* of a key that is compared, or hashed */
    REDIS_LINES_MAX = 6144,
    LIKE_SHOWN = 5,
    LIKE_ROWS = 1024, /* of each table, to be looked at */
    LIKE_UNITS = 96,  /* of a tick (sessions.h) for that */
    LIKE_KEY_MAX = 96,
};

/* What is looked at, one after another. */
enum part { PART_DENIED, PART_DENIED_COMPLETE, PART_DENIALS, PART_STORE, N_PARTS };

/* Where it goes on. With another window the tables begin anew. */
enum { AT_WINDOW, AT_PART, AT_ROW, N_AT };

struct finding {
    struct store_walk walk; /* the steps are those of all parts */
    const struct session *session;
    const struct policy *policy;
    struct slice match;
    bool resets;
    const struct limit *limits[2 * POLICY_LIMITS_MAX]; /* whose counters: the policy's, then the candidate's */
    size_t n_limits;
    struct packer packer; /* of the rows */
    uint32_t n_rows;
    uint64_t n_removed;
};

/* ---- rows ---- */

static void begin_row(struct finding *finding, uint32_t n_fields, const char *from)
{
    finding->n_rows++;
    finding->walk.steps -= STEPS_OF_FOUND;
    pack_map(&finding->packer, n_fields);
    pack_text_field(&finding->packer, "from", from);
}

static void pack_kept(struct finding *finding, const struct kept_names *names, const struct kept_key *key)
{
    char space[KEPT_KEY_SHOWN_MAX], path[LIMIT_PATH_MAX];
    const char *limit = kept_limit_path(names, path);
    pack_text(&finding->packer, "key");
    pack_str(&finding->packer, kept_key_shown(key, space));
    pack_text(&finding->packer, "limit");
    if (limit != NULL)
        pack_text(&finding->packer, limit);
    else
        pack_nil(&finding->packer);
}

static bool is_of_policy(const struct policy *policy, const struct kept_names *names)
{
    return strcmp(policy->label, names->policy) == 0 && names->is_inline == inline_is_name(policy->name);
}

static bool takes(struct finding *finding, const struct kept_names *names, const struct kept_key *key)
{
    const struct slice start = kept_key_start(key), match = finding->match;
    finding->walk.steps -= STEPS_OF_LOOK;
    if (!is_of_policy(finding->policy, names) || !access_shows(finding->session, names, start)) return false;
    return (key->len == start.len || match.data[match.len - 1] == '*') && pattern_matches(match, start);
}

static void look_at_table(struct finding *finding, const struct top_table *table, uint64_t *row)
{
    for (; *row < table->n && finding->walk.steps > 0; ++*row) {
        const struct top_row *found = &table->rows[*row];
        if (!takes(finding, &found->names, &found->key)) continue;
        begin_row(finding, 5, "denied");
        pack_kept(finding, &found->names, &found->key);
        pack_uint_field(&finding->packer, "count", found->count);
        pack_uint_field(&finding->packer, "error", found->error);
    }
    if (*row >= table->n) *row = UINT64_MAX;
}

static void look_at_denials(struct finding *finding, const struct check_ring *ring, uint64_t *id)
{
    if (*id < ring->first_id) *id = ring->first_id;
    for (; *id < ring->next_id && finding->walk.steps > 0; ++*id) {
        const struct kept_check *found = check_ring_at(ring, *id);
        if (!takes(finding, &found->names, &found->key)) continue;
        begin_row(finding, 4, "denials");
        pack_kept(finding, &found->names, &found->key);
        pack_int_field(&finding->packer, "time_ms", found->time_ms);
    }
    if (*id >= ring->next_id) *id = UINT64_MAX;
}

/* A counter of the store (store_walk.found). A longer key has the name `short`, too, that the tables have for it. */
static bool on_counter(struct store_walk *walk, size_t i, struct slice id)
{
    struct finding *finding = CONTAINER_OF(walk, struct finding, walk);
    char path[LIMIT_PATH_MAX], space[KEPT_KEY_SHOWN_MAX], hash[LOG_KEY_HASH_MAX];
    walk->steps -= (int64_t)id.len / BYTES_A_STEP;
    if (!access_takes_key(finding->session, id) || !pattern_matches(finding->match, id)) return false;
    if (finding->resets) {
        walk->steps -= STEPS_OF_FOUND;
        finding->n_removed++;
        return true;
    }

    bool is_long = id.len > KEPT_KEY_BYTES;
    begin_row(finding, 3U + is_long, "store");
    pack_text(&finding->packer, "key");
    pack_str(&finding->packer, log_key_in_view(id, log_key_hash(hash, id)));
    pack_text_field(&finding->packer, "limit", limit_path(finding->limits[i], path));
    if (!is_long) return false;

    struct kept_key kept;
    kept_key_take(&kept, id);
    pack_text(&finding->packer, "short");
    pack_str(&finding->packer, kept_key_shown(&kept, space));
    return false;
}

/* From `at` on, as far as the steps go; at the end at[AT_PART] is N_PARTS. False: the store's counters are in Redis. */
static bool look(struct finding *finding, uint64_t at[N_AT])
{
    struct sessions *sessions = finding->session->sessions;
    const struct watch *watch = &sessions->watch;
    bool is_here = true;
    for (; at[AT_PART] < N_PARTS && finding->walk.steps > 0; at[AT_PART]++, at[AT_ROW] = 0) {
        switch ((enum part)at[AT_PART]) {
        case PART_DENIED: look_at_table(finding, top_keys_table(&watch->denied, TOP_RUNNING), &at[AT_ROW]); break;
        case PART_DENIED_COMPLETE:
            look_at_table(finding, top_keys_table(&watch->denied, TOP_COMPLETE), &at[AT_ROW]);
            break;
        case PART_DENIALS: look_at_denials(finding, &watch->denials, &at[AT_ROW]); break;
        default:
            finding->walk.at = at[AT_ROW];
            is_here = engine_walk(sessions->engine, &finding->walk);
            at[AT_ROW] = is_here ? finding->walk.at : STORE_WALK_OVER;
        }
        if (at[AT_ROW] != UINT64_MAX) break; /* there is more of this part */
    }
    return is_here;
}

/* ---- what lies in Redis ---- */

/* As a pattern of Redis between the quotes of a shell, without a backslash, which messages escape. What cannot be shown
 * is ?, which stands for one byte. */
static void add_pattern(struct line *line, struct slice text, bool is_pattern)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = (char)text.data[i];
        if (c < ' ' || c > '~' || c == '\\')
            line_add(line, "?");
        else if (c == '\'')
            line_add(line, "'\"'\"'");
        else
            line_add(line, c == '?' || c == '[' || (c == '*' && !is_pattern) ? "[%c]" : "%c", c);
    }
}

/* "redis-cli --scan --pattern 'rl:{b???}:fw1:login:acme*'", with `then` behind it; in `out`. False: it does not fit. */
static bool redis_line(const struct finding *finding, const struct limit *limit, const char *then,
                       char out[REDIS_LINES_MAX])
{
    const struct algo_ops *ops = limit_ops(limit);
    struct line line = line_of(out, REDIS_LINES_MAX);
    line_add(&line, "redis-cli --scan --pattern '");
    if (!ops->is_compat) {
        add_pattern(&line, slice_of(finding->session->sessions->options.key_prefix), false);
        line_add(&line, ":{b?\?\?}:");
    }
    add_pattern(&line, (struct slice){(const uint8_t *)limit->key_head, limit->key_head_len}, false);
    add_pattern(&line, finding->match, true);
    line_add(&line, "%s'%s", ops->name_window != NULL ? "*" : "", then);
    return !line.is_cut;
}

/* The answer to a reset of what is not here: what does it there. */
static void refuse_reset(const struct finding *finding, uint64_t msgid)
{
    static const char then[] = " | while read -r key; do redis-cli unlink \"$key\"; done";
    char text[2 * REDIS_LINES_MAX], one[REDIS_LINES_MAX];
    struct line line = line_of(text, sizeof text);
    line_add(&line, "the counters are in Redis, where this removes them (add -h, -p and --user):");
    for (size_t i = 0; i < finding->n_limits; i++) {
        bool fits = redis_line(finding, finding->limits[i], then, one);
        line_add(&line, "%s %s", i > 0 ? ";" : "", fits ? one : "(too long)");
    }
    if (line.is_cut)
        snprintf(text, sizeof text,
                 "the counters are in Redis; name one limit, POLICY/LIMIT, for a line of redis-cli "
                 "that removes them");
    session_answer_error((struct session *)finding->session, msgid, ERROR_UNSUPPORTED, text);
}

static void pack_redis(struct packer *packer, const struct finding *finding)
{
    char line[REDIS_LINES_MAX];
    pack_text(packer, "redis");
    pack_array(packer, (uint32_t)finding->n_limits);
    for (size_t i = 0; i < finding->n_limits; i++)
        pack_text(packer, redis_line(finding, finding->limits[i], "", line) ? line : "");
}

/* ---- the method ---- */

/* Limits that keys share by some of their parts are left to those who name them, as with `reset`. */
static void add_limits(struct finding *finding, const struct policy *policy, const struct limit *only)
{
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        const struct limit *limit = &policy->limits[i];
        if (only != NULL ? limit == only : !limit->shared) finding->limits[finding->n_limits++] = limit;
    }
}

static int read_question(struct params *params, struct finding *finding, struct view_question *question)
{
    const struct limit *only;
    const struct session *session = params->session;
    if (params_pattern(params, &finding->policy, &only, &finding->match) != 0) return -1;
    if (params_view(params, VIEW_PARTS | VIEW_RESET, question) != 0) return -1;
    finding->resets = question->reset;

    if (session->sessions->draining) return params_fail(params, ERROR_SHUTTING_DOWN, SESSION_STOPPING);
    if (finding->resets && access_refuses_method(params->session, METHOD_reset, params->fault)) return -1;
    if (only != NULL && only->shared && session->rule->prefix[0] != NULL)
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "policy: its limit '%s' counts keys of others, too, and this user's are confined "
                           "(key_prefix)",
                           only->name);

    add_limits(finding, finding->policy, only);
    if (only == NULL && finding->resets && finding->policy->candidate != NULL)
        add_limits(finding, finding->policy->candidate, NULL);
    if (finding->resets && finding->n_limits == 0)
        return params_fail(params, ERROR_UNSUPPORTED,
                           "policy: has no limit that counts whole keys; name one of its limits, POLICY/LIMIT");
    return 0;
}

int find_run(struct params *params)
{
    struct session *session = params->session;
    struct watch *watch = &session->sessions->watch;
    struct buffer rows = {0};
    struct finding finding = {.session = session, .packer = packer_of(&rows)};
    struct view_question question;
    uint64_t at[N_AT];
    char next[CURSOR_TEXT_MAX];
    if (read_question(params, &finding, &question) != 0) return -1;
    if (cursor_read(params, question.next, at, N_AT) != 0) return -1;
    if (at[AT_PART] >= N_PARTS) return cursor_fail(params);

    watch_look(watch, session->sessions->clock->mono_us);
    bool is_new_window = at[AT_PART] < PART_DENIALS && at[AT_WINDOW] != watch->denied.number;
    bool is_first = question.next.len == 0 || (is_new_window && !finding.resets);
    if (is_first) {
        at[AT_WINDOW] = watch->denied.number;
        at[AT_PART] = finding.resets ? PART_STORE : PART_DENIED;
        at[AT_ROW] = 0;
    }

    finding.walk = (struct store_walk){
        .limits = finding.limits, .n_limits = finding.n_limits, .steps = FIND_STEPS, .found = on_counter};
    bool is_here = look(&finding, at), is_more = at[AT_PART] < N_PARTS;
    if (finding.packer.failed) {
        buffer_fini(&rows);
        return params_fail_overloaded(params);
    }
    if (finding.resets && !is_here) {
        refuse_reset(&finding, params->msgid);
        return 0;
    }

    if (finding.n_removed > 0) {
        char what[64];
        snprintf(what, sizeof what, "reset of %" PRIu64 " counters by a pattern", finding.n_removed);
        operator_log_note(session, what, NULL);
    }

    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_map(packer, 1U + is_first + is_more + !is_here);
    if (is_first) pack_bool_field(packer, "first", true);
    if (finding.resets) {
        pack_uint_field(packer, "removed", finding.n_removed);
    } else {
        pack_text(packer, "keys");
        pack_array(packer, finding.n_rows);
        packer->failed |= buffer_append(packer->out, buffer_data(&rows), buffer_len(&rows)) != 0;
    }
    if (!is_here) pack_redis(packer, &finding);
    cursor_print(at, N_AT, next);
    if (is_more) pack_text_field(packer, "next", next);
    session_end_answer(session);
    buffer_fini(&rows);
    return 0;
}

/* ---- for explain ---- */

/* The rows that count most, of those that begin as the key does; false: one of them is the key itself. */
static bool find_like(const struct session *session, const struct policy *policy, struct slice key,
                      const struct top_row *ret[LIKE_SHOWN], size_t *ret_n)
{
    const struct top_keys *top = &session->sessions->watch.denied;
    for (int window = 0; window < N_TOP_WINDOWS; window++) {
        const struct top_table *table = top_keys_table(top, (enum top_window)window);
        for (uint32_t i = 0; i < table->n && i < LIKE_ROWS; i++) {
            const struct top_row *row = &table->rows[i];
            const struct slice start = kept_key_start(&row->key);
            bool is_like = start.len >= key.len && memcmp(start.data, key.data, key.len) == 0 &&
                           is_of_policy(policy, &row->names) && access_shows(session, &row->names, start);
            if (!is_like) continue;
            if (row->key.len == key.len) return false;

            size_t at = 0;
            while (at < *ret_n && ret[at]->hash != row->hash) at++; /* it may be in both windows */
            if (at < *ret_n) continue;
            for (at = *ret_n; at > 0 && ret[at - 1]->count < row->count; at--)
                if (at < LIKE_SHOWN) ret[at] = ret[at - 1];
            if (at < LIKE_SHOWN) ret[at] = row;
            if (*ret_n < LIKE_SHOWN) ++*ret_n;
        }
    }
    return true;
}

const char *find_denied_like(const struct session *session, const struct policy *policy, struct slice key,
                             char out[FIND_DENIED_MAX])
{
    struct sessions *sessions = session->sessions;
    const struct top_row *rows[LIKE_SHOWN];
    char window[UNITS_TEXT_MAX];
    size_t n = 0;
    out[0] = '\0';
    if (!(session->rule->may >> METHOD_find & 1)) return out;

    watch_look(&sessions->watch, sessions->clock->mono_us);
    sessions_spend(sessions, LIKE_UNITS);
    if (!find_like(session, policy, key, rows, &n) || n == 0) return out;

    int64_t window_us = sessions->watch.denied.window_us;
    bool is_minute = window_us == INT64_C(60) * SECOND_US;
    struct line line = line_of(out, FIND_DENIED_MAX);
    line_add(&line, "%s: ", is_minute ? "minute" : units_print_duration(window, window_us));
    for (size_t i = 0; i < n; i++) {
        char space[KEPT_KEY_SHOWN_MAX], text[LIKE_KEY_MAX];
        const struct slice shown = kept_key_shown(&rows[i]->key, space);
        if (shown.len == 0) { /* views show no keys */
            out[0] = '\0';
            return out;
        }
        line_add(&line, "%s%s", i > 0 ? ", " : "", log_escape(text, sizeof text, shown.data, shown.len));
    }
    return out;
}
