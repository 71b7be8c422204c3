/* access.c: users, their quotas and rules, for session_input.c (connections), methods.c and params.c (what is asked),
 * and sessions_tick.c (what a reload takes away). The rules themselves are policy/access.c. */
#include "server/access.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/slots.h"
#include "policy/inline_policies.h"
#include "server/session_output.h"

enum {
    USERS_EXPECTED = 1024,
    GROUPS_USUAL = 64,
    REFUSED_MAX = 16,  /* connections of one user that wait for their refusal */
    REVIEWED_MAX = 64, /* connections in a tick */
    REVOKE_US = 2000000,
};

/* ---- the rules in force ---- */

int access_users_init(struct sessions *sessions, struct access *rules)
{
    sessions->users.rules = rules != NULL ? access_ref(rules) : access_new(0);
    if (sessions->users.rules == NULL) return -1;
    if (map_init(&sessions->users.by_uid, USERS_EXPECTED) == 0) return 0;
    access_unref(sessions->users.rules);
    return -1;
}

void access_users_fini(struct sessions *sessions)
{
    CHECK(sessions->users.by_uid.n == 0);
    map_fini(&sessions->users.by_uid);
    access_unref(sessions->users.rules);
}

void access_set_rules(struct sessions *sessions, struct access *rules)
{
    if (rules == NULL || rules == sessions->users.rules) return;
    access_replace(sessions->users.rules);
    access_unref(sessions->users.rules);
    sessions->users.rules = access_ref(rules);
    LIST_FOREACH (link, &sessions->all) {
        struct session *session = LIST_ITEM(link, struct session, link);
        list_remove(&session->review_link);
        if (session->group->role != ROLE_ADMIN && !session->is_refused)
            list_push_back(&sessions->users.unreviewed, &session->review_link);
    }
}

/* ---- whose connection it is ---- */

/* The groups of the process that connected, as they were then: the kernel keeps them with the socket. In `usual`, or
 * else to be freed. NULL: there are none, or no memory. */
static gid_t *groups_of(const struct session *session, gid_t usual[GROUPS_USUAL], size_t *ret_n)
{
    gid_t *groups = usual;
    socklen_t size = GROUPS_USUAL * sizeof usual[0];
    uv_os_fd_t fd;
    *ret_n = 0;
    if (uv_fileno((const uv_handle_t *)&session->pipe, &fd) != 0) return NULL;
    int status = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
    if (status != 0 && size > GROUPS_USUAL * sizeof usual[0]) { /* it says how many there are */
        groups = mem_alloc(size);
        if (groups == NULL) return NULL;
        status = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
    }
    if (status == 0) *ret_n = size / sizeof groups[0];
    return groups;
}

/* Rules that no reload replaces: of the control socket's connections, and of a refused one. */
static struct access fixed = {.n_refs = 1};
static const struct access_rule of_control = {
    .access = &fixed, .subject = ACCESS_OTHERS, .role = ROLE_ADMIN, .grants_inline = true, .may = ~(method_set)0};
static const struct access_rule of_refused = {.access = &fixed, .subject = ACCESS_OTHERS, .role = ROLE_NONE};

const char *access_session_rule(const struct session *session, char out[ACCESS_PATH_MAX])
{
    if (session->rule == &of_control) return "control";
    if (session->rule == &of_refused) return "refused";
    return access_rule_path(session->rule, out);
}

static void use_rule(struct session *session, const struct access_rule *rule)
{
    struct access *before = session->rule != NULL ? session->rule->access : NULL;
    session->rule = rule;
    session->role = (enum role)rule->role;
    session->last_policy = NULL; /* it may not be allowed any more */
    access_ref(session->rule->access);
    access_unref(before);
}

static void set_rule(struct session *session)
{
    if (session->group->role == ROLE_ADMIN) {
        use_rule(session, &of_control);
        return;
    }

    const struct access *access = session->sessions->users.rules;
    struct access_peer peer = {.uid = session->peer.uid, .gid = session->peer.gid};
    gid_t usual[GROUPS_USUAL], *groups = NULL;
    if (access->has_groups) groups = groups_of(session, usual, &peer.n_groups);
    peer.groups = groups;
    use_rule(session, access_match(access, &peer, geteuid()));
    if (groups != usual) mem_free(groups);
}

void access_refresh(struct session *session)
{
    if (session->rule->access->is_replaced) set_rule(session);
}

/* Those of the control socket have a cap of their own, and count as one. NULL without memory. */
static struct access_user *user_of(struct session *session)
{
    struct sessions *sessions = session->sessions;
    uid_t uid = session->peer.uid;
    if (session->group->role == ROLE_ADMIN) return &sessions->users.control;
    uint64_t hash = hash_keyed(&uid, sizeof uid);
    for (struct map_node *node = map_first(&sessions->users.by_uid, hash); node != NULL; node = map_next_same(node)) {
        struct access_user *known = CONTAINER_OF(node, struct access_user, node);
        if (known->uid == uid) return known;
    }

    struct access_user *user = mem_zalloc(sizeof *user);
    if (user == NULL) return NULL;
    user->uid = uid;
    snprintf(user->text, sizeof user->text, "%" PRIu32, (uint32_t)uid);
    map_insert(&sessions->users.by_uid, &user->node, hash);
    return user;
}

int access_begin(struct session *session)
{
    CHECK(session->user == NULL);
    struct access_user *user = user_of(session);
    if (user == NULL) return -1;
    session->user = user;
    session->slots.n_shared = &user->n_slots;
    set_rule(session);

    int64_t max = session->rule->max_connections;
    session->is_refused = session->rule->role == ROLE_NONE || (max > 0 && user->n_connections >= max);
    if (!session->is_refused) {
        user->n_connections++;
        return 0;
    }
    user->n_refused++;
    use_rule(session, &of_refused);
    return user->n_refused > REFUSED_MAX ? -1 : 0;
}

void access_end(struct session *session)
{
    struct access_user *user = session->user;
    if (user == NULL) return; /* it has not begun */
    if (session->is_refused)
        user->n_refused--;
    else
        user->n_connections--;
    user->n_inflight -= session->n_inflight;
    CHECK(session->slots.n == 0);
    session->slots.n_shared = NULL;
    session->user = NULL;

    struct users *users = &session->sessions->users;
    if (user != &users->control && user->n_connections + user->n_refused == 0) {
        CHECK(user->n_inflight == 0 && user->n_slots == 0);
        map_remove(&users->by_uid, &user->node);
        mem_free(user);
    }
    access_unref(session->rule->access);
    session->rule = NULL;
}

/* ---- what a reload takes away ---- */

/* What is under way is answered, if that is soon; it is closed like a new connection of a user that may have none. */
static void turn_away(struct session *session)
{
    struct access_user *user = session->user;
    user->n_connections--;
    user->n_refused++;
    session->is_refused = true;
    session->why_ended = ACCESS_REFUSED;
    session->taken_us = session->sessions->clock->mono_us;
    use_rule(session, &of_refused);
    slots_end(&session->slots);
    list_remove(&session->stall_link);
    list_push_back(&session->sessions->output.stalled, &session->stall_link);
    if (user->n_refused > REFUSED_MAX) session_fail(session, ACCESS_REFUSED);
}

void access_review(struct sessions *sessions)
{
    struct list *link;
    for (int n = 0; n < REVIEWED_MAX && (link = list_pop_front(&sessions->users.unreviewed)) != NULL; n++) {
        struct session *session = LIST_ITEM(link, struct session, review_link);
        access_refresh(session);
        if (session->rule->role == ROLE_NONE) {
            turn_away(session);
        } else if (session->slots.n > 0) { /* held, or asked for */
            session->revoked_us = sessions->clock->mono_us;
            list_push_back(&sessions->users.revoked, link);
        }
    }
}

void access_revoke(struct sessions *sessions)
{
    LIST_FOREACH (link, &sessions->users.revoked) {
        struct session *session = LIST_ITEM(link, struct session, review_link);
        uint32_t n = 0, n_held = 0;
        if (sessions->clock->mono_us - session->revoked_us < REVOKE_US) return;
        LIST_FOREACH (it, &session->slots.held) {
            struct slot *slot = LIST_ITEM(it, struct slot, link);
            n_held++;

            /* A slot of an inline policy, or of one of the configuration; one whose policy is gone stays until it is
             * released. */
            const struct access_rule *rule = session->rule;
            const char *name = slot->policy->name;
            const struct policy *policy = policy_find(engine_policies(session->sessions->engine), slice_of(name));
            bool is_granted = policy == NULL || access_rule_grants(rule, policy);
            if (inline_is_name(name)) is_granted = rule->grants_inline;
            if (is_granted && (rule->may >> METHOD_acquire & 1) != 0 && access_takes_key(session, slot->key)) continue;
            slot_take_back(slot);
            n++;
        }
        if (session->slots.n + n == n_held) list_remove(link); /* else some are still being acquired */
        if (n > 0)
            log_sampled(LOG_LEVEL_WARNING,
                        "%" PRIu32 " slots of uid %s pid %d are given back: its rule does not allow them", n,
                        session->user->text, (int)session->peer.pid);
    }
}

/* ---- what it may not ---- */

static int fail(struct request_fault *fault, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct request_fault *fault, enum error_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    fault->code = code;
    return -1;
}

/* Whom a message is about, and the rule's place in the configuration. By name only if the rule has it, because a
 * look-up may wait for the network. */
struct refused {
    char name[65];
    char path[ACCESS_PATH_MAX];
};

static struct refused refused(const struct session *session)
{
    const struct access_rule *rule = session->rule;
    struct refused refused;
    snprintf(refused.name, sizeof refused.name, "%s", rule->subject == ACCESS_USER ? rule->user : session->user->text);
    access_rule_path(rule, refused.path);
    return refused;
}

/* The connection is one too many, or allowed nothing: a request learns so, and ends it. Not hello, whose error clients
 * take for that of an old daemon: what they ask behind it would be lost without a reason. */
static void end_refused(struct session *session, enum method method, struct request_fault *fault)
{
    const struct refused who = refused(session);
    int64_t max = session->rule->max_connections;
    if (session->rule->role == ROLE_NONE)
        fail(fault, ERROR_NOT_PERMITTED, "this daemon is not for user %s (%s)", who.name, who.path);
    else if (max == 0 ||
             session->user->n_connections < max) /* others have closed, or a reload has brought other rules */
        fail(fault, ERROR_OVERLOADED, "user %s may have more connections only since this one came; connect again",
             who.name);
    else
        fail(fault, ERROR_OVERLOADED,
             "user %s has as many connections as it may (%s.max_connections: %" PRId64
             "); close some, and connect again",
             who.name, who.path, max);
    if (session->is_refused) use_rule(session, &of_refused); /* what comes behind a hello is refused, too */
    if (method != METHOD_hello) session_fail(session, ACCESS_REFUSED);
}

bool access_refuses_method(struct session *session, enum method method, struct request_fault *fault)
{
    if (session->is_refused) set_rule(session); /* the one that says why */
    access_refresh(session);
    const struct access_rule *rule = session->rule;
    if (session->is_refused || rule->role == ROLE_NONE) {
        end_refused(session, method, fault);
        return true;
    }
    if (rule->may >> method & 1) return false;

    const struct refused who = refused(session);
    fail(fault, ERROR_NOT_PERMITTED, "method %s is not for user %s (%s.%s)", method_name(method), who.name, who.path,
         rule->role < (int64_t)method_role(method) ? "role" : "deny");
    return true;
}

int access_policy(const struct session *session, const struct policy *policy, struct request_fault *fault)
{
    if (access_rule_grants(session->rule, policy)) return 0;
    const struct refused who = refused(session);
    return fail(fault, ERROR_NOT_PERMITTED, "policy %s is not for user %s (%s)", policy->name, who.name, who.path);
}

int access_inline(const struct session *session, struct request_fault *fault)
{
    if (session->rule->grants_inline) return 0;
    const struct refused who = refused(session);
    return fail(fault, ERROR_NOT_PERMITTED, "policy " ACCESS_INLINE " is not for user %s (%s)", who.name, who.path);
}

int access_fail_key(const struct session *session, struct request_fault *fault)
{
    const struct access_rule *rule = session->rule;
    const struct refused who = refused(session);
    bool has_uid = rule->prefix[1] != NULL;
    return fail(fault, ERROR_NOT_PERMITTED, "key: of user %s must begin with %.64s%s%.64s (%s.key_prefix)", who.name,
                rule->prefix[0], has_uid ? session->user->text : "", has_uid ? rule->prefix[1] : "", who.path);
}

bool access_shows(const struct session *session, const struct kept_names *names, struct slice key)
{
    const struct access_rule *rule = session->rule;
    if (!access_takes_key(session, key)) return false;
    if (names->is_inline) return rule->grants_inline;
    if (rule->granted == NULL) return true;
    const struct policy *policy = policy_find(engine_policies(session->sessions->engine), slice_of(names->policy));
    return policy != NULL && access_rule_grants(rule, policy);
}

bool access_is_confined(const struct session *session)
{
    return session->rule->prefix[0] != NULL || session->rule->granted != NULL;
}

int access_counter(const struct session *session, const struct limit *limit, struct request_fault *fault)
{
    const struct access_rule *rule = session->rule;
    char start[ACCESS_START_MAX], path[LIMIT_PATH_MAX];
    if (rule->prefix[0] == NULL || !limit->shared) return 0;
    if (access_confines(access_rule_start(rule, session->user->text, start), limit)) return 0;

    const struct refused who = refused(session);
    return fail(fault, ERROR_NOT_PERMITTED,
                "policy: %s%s counts keys of others, too, so it is not for user %s to give back or reset "
                "(%s.key_prefix)%s",
                limit_path(limit, path), limit->policy->is_candidate ? " (candidate)" : "", who.name, who.path,
                limit->policy->n_limits > 1 ? "; name one limit of the policy" : "");
}

int access_quota(const struct session *session, uint32_t n, struct request_fault *fault)
{
    const struct access_user *user = session->user;
    int64_t max = session->rule->max_inflight;
    if (user->n_inflight + n <= (uint64_t)max) return 0;
    engine_decide_ahead(session->sessions->engine); /* those that only wait for a prefetch */
    if (user->n_inflight + n <= (uint64_t)max) return 0;

    const struct refused who = refused(session);
    return fail(fault, ERROR_OVERLOADED,
                "user %s may have %" PRId64 " checks in flight over all its connections (%s.max_inflight), and %s",
                who.name, max, who.path, n > max ? "this list has more; split it" : "has them; try again later");
}

int access_slot(const struct session *session, struct request_fault *fault)
{
    int64_t max = session->rule->max_slots;
    if (max == 0 || session->user->n_slots < max) return 0;
    const struct refused who = refused(session);
    return fail(fault, ERROR_OVERLOADED,
                "user %s holds as many slots over all its connections as it may (%s.max_slots: %" PRId64
                "); release some",
                who.name, who.path, max);
}
