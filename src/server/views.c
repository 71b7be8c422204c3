/* views.c: the methods top, denials, slowlog and clients, for methods.c: some rows each, of what watch.c has kept. */
#include "server/views.h"

#include <string.h>

#include "base/assert.h"
#include "server/access.h"
#include "server/cursor.h"
#include "server/session.h"
#include "server/session_output.h"

enum {
    ROWS_UNITS = 64,    /* of an answer: a row is one, */
    PROGRAM_UNITS = 16, /* and the name of a program, which is read from /proc, so many more */
    LOOKED_AT = 1024,   /* rows of which few are asked for, and places of which most are free */
};

static void pack_key(struct packer *packer, const struct kept_key *key)
{
    char space[KEPT_KEY_SHOWN_MAX];
    pack_text(packer, "key");
    pack_str(packer, kept_key_shown(key, space));
}

static void pack_limit(struct packer *packer, const struct kept_names *names)
{
    char path[LIMIT_PATH_MAX];
    pack_text(packer, "limit");
    if (kept_limit_path(names, path) != NULL)
        pack_text(packer, path);
    else
        pack_nil(packer);
}

static int64_t uid_of(uid_t uid)
{
    return uid == (uid_t)-1 ? -1 : (int64_t)uid;
}

/* ---- connections ---- */

/* Sessions from places->items[*from] on, as many as an answer may have; *from is then where the next ones begin, or
 * places->n. */
static uint32_t gather_clients(const struct places *places, uint64_t *from, uint32_t *units,
                               struct session *ret[ROWS_UNITS])
{
    uint32_t n = 0;
    for (uint64_t end = *from + LOOKED_AT; *units != 0 && *from < places->n && *from < end; ++*from) {
        struct session *session = places->items[*from];
        if (session == NULL) continue;
        uint32_t cost = session->program[0] == '\0' ? 1 + PROGRAM_UNITS : 1;
        ret[n++] = session;
        *units -= cost < *units ? cost : *units;
    }
    return n;
}

static void pack_clients(struct packer *packer, struct session *const *sessions, uint32_t n, bool has_more)
{
    pack_text(packer, "clients");
    pack_array(packer, n);
    for (uint32_t i = 0; i < n; i++) {
        struct session *session = sessions[i];
        CHECK(session != NULL);
        int64_t now_us = session->sessions->clock->mono_us;
        if (session->program[0] == '\0') peer_program(session->peer.pid, session->program);

        pack_map(packer, has_more ? 11 : 7);
        pack_int_field(packer, "pid", session->peer.pid);
        pack_int_field(packer, "uid", uid_of(session->peer.uid));
        pack_text_field(packer, "program", session->program);
        pack_uint_field(packer, "requests", session->n_requests);
        pack_int_field(packer, "inflight", session->n_inflight);
        pack_uint_field(packer, "bytes_in", session->bytes_in);
        pack_uint_field(packer, "bytes_out", session->bytes_out);
        if (!has_more) continue;

        char path[ACCESS_PATH_MAX];
        pack_uint_field(packer, "connection", session->client);
        pack_int_field(packer, "connected_ms", (now_us - session->opened_us) / 1000);
        pack_int_field(packer, "idle_ms", (now_us - session->asked_us) / 1000);
        pack_text_field(packer, "rule", access_session_rule(session, path));
    }
}

int views_clients(struct params *params)
{
    struct session *session = params->session, *rows[ROWS_UNITS];
    const struct places *places = &session->sessions->places;
    struct view_question question;
    uint32_t units = ROWS_UNITS;
    char next[CURSOR_TEXT_MAX];
    uint64_t from = 0;
    if (params_view(params, VIEW_PARTS, &question) != 0) return -1;
    if (cursor_read(params, question.next, &from, 1) != 0) return -1;

    uint32_t n = gather_clients(places, &from, &units, rows);
    bool is_more = from < places->n;
    struct packer *packer = session_begin_answer(session, params->msgid);
    cursor_print(&from, 1, next);
    pack_map(packer, 1U + is_more);
    pack_clients(packer, rows, n, true);
    if (is_more) pack_text_field(packer, "next", next);
    session_end_answer(session);
    return 0;
}

/* ---- the last ones denied, and the last slow ones ---- */

static bool is_asked_for(const struct session *session, const struct kept_check *entry,
                         const struct view_question *question)
{
    if (!access_shows(session, &entry->names, kept_key_start(&entry->key))) return false;
    if (question->uid >= 0 && question->uid != uid_of(entry->uid)) return false;
    if (question->policy.len > 0 && !slice_is(question->policy, entry->names.policy)) return false;
    return question->key.len == 0 || kept_key_is(&entry->key, question->key);
}

/* Begins the map of an entry; n_more fields follow these, and what pack_source() packs. */
static void pack_kept(struct packer *packer, const struct kept_check *entry, uint32_t n_more)
{
    pack_map(packer, 5U + (reason_name(entry->reason) != NULL) + n_more);
    pack_uint_field(packer, "id", entry->id);
    pack_int_field(packer, "time_ms", entry->time_ms);
    pack_text_field(packer, "policy", entry->names.policy);
    pack_key(packer, &entry->key);
}

static void pack_source(struct packer *packer, const struct kept_check *entry)
{
    const char *reason = reason_name(entry->reason);
    pack_text_field(packer, "source", source_name(entry->source));
    if (reason != NULL) pack_text_field(packer, "reason", reason);
}

static void pack_asker(struct packer *packer, const struct kept_check *entry)
{
    pack_int_field(packer, "uid", uid_of(entry->uid));
    pack_int_field(packer, "pid", entry->pid);
}

static void pack_denial(struct packer *packer, const struct kept_check *entry)
{
    pack_kept(packer, entry, 4);
    pack_limit(packer, &entry->names);
    pack_int_field(packer, "cost", entry->cost);
    pack_asker(packer, entry);
    pack_source(packer, entry);
}

static void pack_slow(struct packer *packer, const struct kept_check *entry)
{
    pack_kept(packer, entry, 5);
    pack_source(packer, entry);
    pack_int_field(packer, "total_us", entry->total_us);
    pack_int_field(packer, "queue_us", entry->queue_us);
    pack_int_field(packer, "store_us", entry->store_us);
    pack_asker(packer, entry);
}

/* The entries behind question->after. `last` is the newest id that was looked at: what to send as `after` for those
 * that come later; with `more` some are there already. An id that was never given is of another daemon, before a
 * restart. */
static void answer_entries(const struct params *params, const struct check_ring *ring,
                           const struct view_question *question, const char *name,
                           void (*pack)(struct packer *packer, const struct kept_check *entry))
{
    const struct kept_check *rows[ROWS_UNITS];
    uint32_t n = 0;
    uint64_t id = (uint64_t)question->after + 1;
    if (id > ring->next_id || id < ring->first_id) id = ring->first_id;
    for (uint64_t end = id + LOOKED_AT; id < ring->next_id && id < end && n < ROWS_UNITS; id++) {
        const struct kept_check *entry = check_ring_at(ring, id);
        if (is_asked_for(params->session, entry, question)) rows[n++] = entry;
    }

    bool is_more = id < ring->next_id;
    struct packer *packer = session_begin_answer(params->session, params->msgid);
    pack_map(packer, 2U + is_more);
    pack_text(packer, name);
    pack_array(packer, n);
    for (uint32_t i = 0; i < n; i++) pack(packer, rows[i]);
    pack_uint_field(packer, "last", id > 0 ? id - 1 : 0);
    if (is_more) pack_bool_field(packer, "more", true);
    session_end_answer(params->session);
}

int views_denials(struct params *params)
{
    struct view_question question;
    if (params_view(params, VIEW_AFTER | VIEW_FILTERS, &question) != 0) return -1;
    answer_entries(params, &params->session->sessions->watch.denials, &question, "denials", pack_denial);
    return 0;
}

int views_slowlog(struct params *params)
{
    struct view_question question;
    struct check_ring *ring = &params->session->sessions->watch.slow;
    if (params_view(params, VIEW_AFTER | VIEW_FILTERS | VIEW_RESET, &question) != 0) return -1;
    if (question.reset && access_is_confined(params->session))
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "reset: forgets the entries of others, too, so it is not for a user whose rule of access "
                           "has policies or a key_prefix");
    if (question.reset) check_ring_clear(ring);
    answer_entries(params, ring, &question, "slowlog", pack_slow);
    return 0;
}

/* ---- top ---- */

/* Its tables, one after another. */
enum part {
    PART_POLICIES,
    PART_DENIED,
    PART_DENIED_COMPLETE,
    PART_GRANTED,
    PART_GRANTED_COMPLETE,
    PART_CLIENTS,
    N_PARTS
};

/* Where it goes on. Numbers of the window and of the policies: with others, it begins anew. */
enum { AT_WINDOW, AT_POLICIES, AT_PART, AT_ROW, N_AT };

static const struct top_table *table_of(const struct watch *watch, unsigned part)
{
    const struct top_keys *top = part <= PART_DENIED_COMPLETE ? &watch->denied : &watch->granted;
    return top_keys_table(top, (part - PART_DENIED) % 2 == 0 ? TOP_RUNNING : TOP_COMPLETE);
}

/* The i-th policy; behind those of the configuration all inline ones as one: NULL. */
static const struct policy *policy_at(const struct policy_set *set, uint64_t i)
{
    return i < set->n ? set->in_order[i] : NULL;
}

static bool shows_policy(const struct session *session, const struct policy *policy)
{
    return policy != NULL ? access_rule_grants(session->rule, policy) : session->rule->grants_inline;
}

static bool shows_row(const struct session *session, const struct top_row *row)
{
    return access_shows(session, &row->names, kept_key_start(&row->key));
}

/* Of the n rows from `from` on, those of keys that the session's user may see. */
static void pack_rows(struct packer *packer, const char *name, const struct session *session,
                      const struct top_table *table, uint64_t from, uint64_t n)
{
    const struct top_row *end = table->rows + from + n;
    uint32_t n_shown = 0;
    for (const struct top_row *row = table->rows + from; row < end; row++) n_shown += shows_row(session, row);

    pack_text(packer, name);
    pack_array(packer, n_shown);
    for (const struct top_row *row = table->rows + from; row < end; row++) {
        if (!shows_row(session, row)) continue;
        pack_map(packer, 5);
        pack_text_field(packer, "policy", row->names.policy);
        pack_key(packer, &row->key);
        pack_uint_field(packer, "count", row->count);
        pack_uint_field(packer, "error", row->error);
        pack_limit(packer, &row->names);
    }
}

static bool is_part_asked_for(unsigned part, struct slice by)
{
    static const char *const kinds[N_PARTS] = {"policy", "key", "key", "key", "key", "client"};
    return by.len == 0 || slice_is(by, kinds[part]);
}

/* What an answer has of each part. */
struct selection {
    uint64_t from[N_PARTS], n[N_PARTS];
    struct session *clients[ROWS_UNITS];
};

static uint64_t n_rows(const struct sessions *sessions, const struct policy_set *set, unsigned part)
{
    if (part == PART_POLICIES)
        return set->n +
               (policy_counts_allowed(&policy_counts_inline) > 0 || policy_counts_denied(&policy_counts_inline) > 0);
    return table_of(&sessions->watch, part)->n;
}

/* Chooses the rows from `at` on, and moves it behind them; at the end its part is N_PARTS. */
static void choose(const struct sessions *sessions, const struct policy_set *set, struct slice by, uint64_t at[N_AT],
                   struct selection *ret)
{
    uint32_t units = ROWS_UNITS;
    for (; at[AT_PART] < N_PARTS; at[AT_PART]++, at[AT_ROW] = 0) {
        unsigned part = (unsigned)at[AT_PART];
        uint64_t n = 0;
        if (!is_part_asked_for(part, by)) continue;
        if (units == 0) return;

        ret->from[part] = at[AT_ROW];
        if (part == PART_CLIENTS) {
            ret->n[part] = gather_clients(&sessions->places, &at[AT_ROW], &units, ret->clients);
            if (at[AT_ROW] < sessions->places.n) return;
            continue;
        }
        n = n_rows(sessions, set, part);
        n = at[AT_ROW] < n ? n - at[AT_ROW] : 0;
        ret->n[part] = n < units ? n : units;
        units -= (uint32_t)ret->n[part];
        at[AT_ROW] += ret->n[part];
        if (ret->n[part] < n) return;
    }
}

int views_top(struct params *params)
{
    struct session *session = params->session;
    struct sessions *sessions = session->sessions;
    struct watch *watch = &sessions->watch;
    const struct policy_set *set = params_policies(params);
    struct view_question question;
    uint64_t at[N_AT];
    char next[CURSOR_TEXT_MAX];
    if (params_view(params, VIEW_PARTS | VIEW_BY, &question) != 0) return -1;
    if (cursor_read(params, question.next, at, N_AT) != 0) return -1;
    if (at[AT_PART] >= N_PARTS) return cursor_fail(params);

    watch_look(watch, sessions->clock->mono_us);
    const uint64_t now[N_AT] = {watch->denied.number, engine_policies_generation(sessions->engine), 0, 0};
    bool is_first = question.next.len == 0 || at[AT_WINDOW] != now[AT_WINDOW] || at[AT_POLICIES] != now[AT_POLICIES];
    if (is_first) memcpy(at, now, sizeof at);

    struct selection chosen = {0};
    choose(sessions, set, question.by, at, &chosen);
    bool is_more = at[AT_PART] < N_PARTS, by_policy = is_part_asked_for(PART_POLICIES, question.by),
         by_key = is_part_asked_for(PART_DENIED, question.by), by_client = is_part_asked_for(PART_CLIENTS, question.by);
    struct packer *packer = session_begin_answer(session, params->msgid);
    pack_map(packer, 2U + is_first + is_more + by_policy + 2U * by_key + by_client);
    if (is_first) pack_bool_field(packer, "first", true);
    pack_int_field(packer, "window_ms", watch->denied.window_us / 1000);
    pack_int_field(packer, "running_ms", (sessions->clock->mono_us - watch->denied.began_us) / 1000);

    if (by_policy) {
        /* Of the n policies from `from` on, those that the session's user may ask for. */
        uint32_t n_shown = 0;
        for (uint64_t i = chosen.from[PART_POLICIES]; i < chosen.from[PART_POLICIES] + chosen.n[PART_POLICIES]; i++)
            n_shown += shows_policy(session, policy_at(set, i));

        pack_text(packer, "policies");
        pack_array(packer, n_shown);
        for (uint64_t i = chosen.from[PART_POLICIES]; i < chosen.from[PART_POLICIES] + chosen.n[PART_POLICIES]; i++) {
            const struct policy *policy = policy_at(set, i);
            if (!shows_policy(session, policy)) continue;
            const struct policy_counts *counts = policy != NULL ? policy->counts : &policy_counts_inline;
            uint64_t denied = policy_counts_denied(counts);
            pack_map(packer, 4);
            pack_text_field(packer, "policy", policy != NULL ? policy->label : ACCESS_INLINE);
            pack_uint_field(packer, "checks", policy_counts_allowed(counts) + denied);
            pack_uint_field(packer, "denied", denied);
            pack_uint_field(packer, "near", counts->all.near);
        }
    }

    for (unsigned part = PART_DENIED; by_key && part < PART_CLIENTS; part += 2) {
        pack_text(packer, part == PART_DENIED ? "denied" : "granted");
        pack_map(packer, 2);
        pack_rows(packer, "running", session, table_of(watch, part), chosen.from[part], chosen.n[part]);
        pack_rows(packer, "complete", session, table_of(watch, part + 1), chosen.from[part + 1], chosen.n[part + 1]);
    }
    if (by_client) pack_clients(packer, chosen.clients, (uint32_t)chosen.n[PART_CLIENTS], false);
    cursor_print(at, N_AT, next);
    if (is_more) pack_text_field(packer, "next", next);
    session_end_answer(session);
    return 0;
}

/* ---- hash ---- */

int views_hash(struct params *params)
{
    char hash[LOG_KEY_HASH_MAX];
    struct slice key;
    if (params_key(params, &key) != 0) return -1;

    struct packer *packer = session_begin_answer(params->session, params->msgid);
    pack_map(packer, 1);
    pack_text_field(packer, "hash", log_key_hash(hash, key));
    session_end_answer(params->session);
    return 0;
}
