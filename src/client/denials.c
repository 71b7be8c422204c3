/* denials.c: denials by age and by their packed check: exchange.c keeps them, call.c repeats and forgets them. */
#include "client/denials.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "client/flow.h"
#include "client/long_key.h"

enum { MS_US = 1000 };

struct denial {
    struct list link;
    struct map_node by_check;
    struct buffer check; /* owned; the packed one */
    int64_t since_us;
    int64_t until_us;
    size_t n_members;
    struct ratelimit_decision *decisions; /* owned; the members', then that on all */
    size_t decisions_cap;
};

void denials_init(struct denials *denials)
{
    *denials = (struct denials){0};
    list_init(&denials->by_age);
    list_init(&denials->unused);
}

void denials_fini(struct denials *denials)
{
    if (denials->all == NULL) return;
    for (size_t i = 0; i < DENIALS_MAX; i++) {
        buffer_fini(&denials->all[i].check);
        mem_free(denials->all[i].decisions);
    }
    map_fini(&denials->by_check);
    mem_free(denials->all);
    denials->all = NULL;
}

int denials_set(struct denials *denials, int64_t lasts_us)
{
    struct denials next = {
        .lasts_us = lasts_us, .n_forgets = denials->n_forgets + 1, .n_repeated = denials->n_repeated};
    if (getrandom(next.hash_key, sizeof next.hash_key, GRND_NONBLOCK) != sizeof next.hash_key)
        next.hash_key[0] = (uint64_t)clock_mono_us() << 20 ^ (uint64_t)getpid();
    if (lasts_us > 0) {
        next.all = mem_zalloc(DENIALS_MAX * sizeof *next.all);
        if (next.all == NULL) return -1;
        if (map_init(&next.by_check, DENIALS_MAX) != 0) {
            mem_free(next.all);
            return -1;
        }
    }

    denials_fini(denials);
    *denials = next;
    list_init(&denials->by_age);
    list_init(&denials->unused);
    for (size_t i = 0; next.all != NULL && i < DENIALS_MAX; i++) list_push_back(&denials->unused, &next.all[i].link);
    return 0;
}

static void drop_denial(struct denials *denials, struct denial *denial)
{
    map_remove(&denials->by_check, &denial->by_check);
    list_remove(&denial->link);
    list_push_back(&denials->unused, &denial->link);
}

/* ---- What is the same check ---- */

/* max_wait_ms, "is it a check_all?", and policy, key and cost of each item. 0, or -1: it is not to be remembered. */
static int pack_check(const struct question *question, struct buffer *check)
{
    const struct ratelimit_options *options = question->options;
    struct packer packer = packer_of(check);
    uint8_t key[LONG_KEY_SIZE];
    const char *at;
    bool is_own = options != NULL && (options->request_id != NULL || options->at_most > 0);
    if (is_own || question->n_items > REQUEST_MEMBERS_MAX) return -1;

    pack_int(&packer, options != NULL ? options->max_wait_ms : -1);
    pack_bool(&packer, question->about == ABOUT_LIST);
    for (size_t i = 0; i < question->n_items; i++) {
        const struct ratelimit_item *item = &question->items[i];
        if (flow_pack(&packer, item->policy, NULL, &at) != NULL) return -1;
        pack_str(&packer, long_key_shortened((struct slice){item->key, item->key_len}, key));
        pack_int(&packer, question->about == ABOUT_LIST ? item->cost : question->granted);
    }
    return packer.failed || buffer_len(check) > DENIALS_CHECK_MAX ? -1 : 0;
}

static struct denial *find_same(const struct denials *denials, const struct buffer *check, uint64_t hash)
{
    size_t len = buffer_len(check);
    for (struct map_node *node = map_first(&denials->by_check, hash); node != NULL; node = map_next_same(node)) {
        struct denial *denial = CONTAINER_OF(node, struct denial, by_check);
        if (buffer_len(&denial->check) == len && memcmp(buffer_data(&denial->check), buffer_data(check), len) == 0)
            return denial;
    }
    return NULL;
}

static uint64_t hash_of(const struct denials *denials, const struct buffer *check)
{
    return hash_with(denials->hash_key, buffer_data(check), buffer_len(check));
}

/* ---- Repeating ---- */

static void shorten_time(int64_t *ms, int64_t passed_ms, int64_t least_ms)
{
    if (*ms > 0) *ms = *ms - passed_ms > least_ms ? *ms - passed_ms : least_ms;
}

bool denials_find(struct denials *denials, const struct question *question, struct request *request, int64_t now_us)
{
    if (denials->all == NULL || !question->is_check) return false;
    request->n_forgets = denials->n_forgets;
    if (pack_check(question, &request->check) != 0) {
        buffer_truncate(&request->check, 0);
        return false;
    }

    struct denial *denial = find_same(denials, &request->check, hash_of(denials, &request->check));
    if (denial != NULL && now_us >= denial->until_us) {
        drop_denial(denials, denial);
        denial = NULL;
    }
    if (denial == NULL || request_reserve_members(request, denial->n_members + 1) != 0) return false;

    request->n_members = denial->n_members;
    memcpy(request->members, denial->decisions, (denial->n_members + 1) * sizeof *request->members);
    int64_t passed_ms = (now_us - denial->since_us) / MS_US;
    for (size_t i = 0; i <= denial->n_members; i++) {
        struct ratelimit_decision *decision = &request->members[i];
        if (!decision->allowed) decision->source = RATELIMIT_SOURCE_DENY_CACHE;
        shorten_time(&decision->retry_after_ms, passed_ms, 1);
        shorten_time(&decision->reset_after_ms, passed_ms, 0);
        shorten_time(&decision->of_reset_ms, passed_ms, 0);
    }
    denials->n_repeated++;
    return true;
}

/* ---- Remembering ---- */

/* 0, or -1 without memory. */
static int fill_denial(struct denial *denial, const struct request *request, const struct ratelimit_decision *decision)
{
    size_t n = request->n_members;
    if (n + 1 > denial->decisions_cap) {
        struct ratelimit_decision *decisions = mem_realloc(denial->decisions, (n + 1) * sizeof *decisions);
        if (decisions == NULL) return -1;
        denial->decisions = decisions;
        denial->decisions_cap = n + 1;
    }

    denial->n_members = n;
    if (n > 0) memcpy(denial->decisions, request->members, n * sizeof *decision);
    denial->decisions[n] = *decision;
    buffer_truncate(&denial->check, 0);
    return buffer_append(&denial->check, buffer_data(&request->check), buffer_len(&request->check));
}

void denials_put(struct denials *denials, const struct request *request, const struct ratelimit_decision *decision,
                 int64_t now_us)
{
    bool is_to_be = denials->all != NULL && buffer_len(&request->check) > 0 && request->n_forgets == denials->n_forgets;
    if (!is_to_be || decision->allowed || decision->source == RATELIMIT_SOURCE_DENY) return;

    int64_t lasts_us = denials->lasts_us, retry_ms = decision->retry_after_ms;
    if (retry_ms >= 0 && retry_ms < lasts_us / MS_US) lasts_us = retry_ms * MS_US;
    if (lasts_us == 0) return;

    uint64_t hash = hash_of(denials, &request->check);
    struct denial *denial = find_same(denials, &request->check, hash);
    if (denial == NULL && list_empty(&denials->unused)) denial = LIST_ITEM(denials->by_age.next, struct denial, link);
    if (denial != NULL) drop_denial(denials, denial);

    denial = LIST_ITEM(denials->unused.prev, struct denial, link);
    if (fill_denial(denial, request, decision) != 0) return;
    denial->since_us = now_us;
    denial->until_us = now_us + lasts_us;
    list_remove(&denial->link);
    list_push_back(&denials->by_age, &denial->link);
    map_insert(&denials->by_check, &denial->by_check, hash);
}

/* ---- Forgetting ---- */

/* May it change what counts for `own`? Settings may also be called by their name, or by the one that the daemon made:
 * to forget too many costs a question each. */
static bool is_same_policy(struct pull own, struct pull named)
{
    struct slice own_name, name;
    if (pull_text(&own, &own_name) != 0) return true;
    if (pull_text(&named, &name) != 0) return false;
    const uint8_t *slash = memchr(name.data, '/', name.len); /* one limit of the policy */
    if (slash != NULL) name.len = (size_t)(slash - name.data);
    return slice_eq(own_name, name);
}

static bool has_item(const struct denial *denial, struct pull policy, struct slice key)
{
    struct pull at = pull_of(buffer_data(&denial->check), buffer_len(&denial->check));
    struct slice own_key;
    CHECK(pull_skip(&at) == 0 && pull_skip(&at) == 0); /* max_wait_ms, is it a check_all? */
    while (at.at < at.end) {
        struct pull own = at;
        CHECK(pull_skip(&at) == 0 && pull_text(&at, &own_key) == 0 && pull_skip(&at) == 0);
        if (slice_eq(own_key, key) && is_same_policy(own, policy)) return true;
    }
    return false;
}

void denials_forget(struct denials *denials, struct pull params)
{
    struct pull policy = params;
    struct slice key;
    denials->n_forgets++;
    if (denials->all == NULL || pull_skip(&params) != 0 || pull_text(&params, &key) != 0) return;
    LIST_FOREACH (link, &denials->by_age) {
        struct denial *denial = LIST_ITEM(link, struct denial, link);
        if (has_item(denial, policy, key)) drop_denial(denials, denial);
    }
}
