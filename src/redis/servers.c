/* redis/servers.c: one server, or the nodes of a cluster, its hash slots, and ops that are sent on; for redis/store.c. */
#include "redis/servers.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/random.h"
#include "redis/cluster_watch.h"
#include "redis/counters.h"
#include "redis/sentinel.h"
#include "store/store_key.h"

enum {
    HOPS_MAX = 3,
    TRIES_MAX = UINT8_MAX,
    TRY_AGAIN_MS = 5, /* at least, and at most four times that */
    ALONE_US = 1000000,
    WANTED_US = 60 * 1000000, /* a node that only redirects name is kept for this time */
    DEAD_US = 1000000,        /* and one that cannot be reached for this time, */
    OWNER_US = 1000000,       /* or that still has hash slots */
    LEARN_US = 500000,        /* until all nodes know what one of them has said of a hash slot */
    RELEASED_MAX = 1024,      /* ops of slots that go on in one tick, and those of one slot */
    KEY_SPACE = 65536 + KEY_HEAD_MAX,
    STATUS_SIZE = 768,
};

struct redis_servers {
    uv_loop_t *loop; /* not owned, as the next two */
    struct clock *clock;
    const struct redis_options *options; /* the store's */
    struct redis_node_events events;     /* the store's */

    struct redis_node *only;     /* one server: it has all keys, and there are no slots and no watch; else NULL */
    struct cluster_slots *slots; /* owned, as the next two */
    struct cluster_watch *watch; /* NULL once it is closed */
    struct list nodes;           /* of struct redis_node */
    uint32_t n_nodes;            /* in `nodes` */
    uint32_t n_leaving;          /* of these no map names any more */
    uint32_t n_open;             /* not closed yet */
    size_t n_released;           /* ops of held slots that went on in this tick */
    uv_timer_t timer;            /* until the first held slot may go on */
    uint64_t random;
    uint64_t n_ops; /* submitted ever */
    uint16_t slot_of_shard[STORE_SHARDS_MAX];
    bool has_map;
    char fault[STATUS_SIZE]; /* why there is no map, printable */
    char status[STATUS_SIZE];

    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
    int n_parts; /* watch and timer, not yet closed */
};

static void maybe_closed(struct redis_servers *servers)
{
    if (!servers->is_closing || servers->n_open > 0 || servers->n_parts > 0) return;
    servers->on_closed(servers->on_closed_arg);
}

/* A node of the map does not serve. */
static void doubt_map(struct redis_servers *servers)
{
    if (servers->watch != NULL) cluster_watch_doubt(servers->watch);
}

/* ---- ops that go on ---- */

static void end_op(struct redis_servers *servers, struct op *op, enum op_outcome outcome)
{
    servers->events.batches.on_end(servers->events.batches.arg, op, outcome);
}

static void end_ops(struct redis_servers *servers, struct list *ops, enum op_outcome outcome)
{
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) end_op(servers, LIST_ITEM(it, struct op, link), outcome);
}

/* To a node, again. */
static void send_on(struct redis_servers *servers, struct redis_node *node, struct op *op)
{
    enum submit can = node != NULL ? redis_node_can_submit(node) : SUBMIT_DOWN;
    op->node = node;
    if (can == SUBMIT_PENDING && redis_batches_add_again(&node->batches, op) < 0) can = SUBMIT_OVERLOAD;
    if (can != SUBMIT_PENDING) end_op(servers, op, submit_outcome(can));
}

/* All ops of held slots that wait at a node wait with their slots from now on: one pass, however many are held. */
static void sweep_held(struct redis_servers *servers)
{
    if (!servers->slots->must_sweep) return;
    servers->slots->must_sweep = false;

    bool is_held[HASH_SLOTS] = {false};
    struct list ops;
    list_init(&ops);
    LIST_FOREACH (it, &servers->slots->held)
        is_held[cluster_slots_number(servers->slots, LIST_ITEM(it, struct cluster_slot, link))] = true;
    LIST_FOREACH (it, &servers->nodes)
        redis_batches_take_slots(&LIST_ITEM(it, struct redis_node, link_of_nodes)->batches, is_held, &ops);
    for (struct list *it; (it = list_pop_front(&ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        cluster_slots_add(&servers->slots->of[op->hash_slot], op);
    }
}

static bool is_drained(const struct redis_servers *servers, const struct cluster_slot *slot)
{
    return slot->n_calls == 0 && servers->clock->mono_us >= slot->held_until_us;
}

/* Nothing of it is on its way, and its time has come: its ops go on. */
static void release(struct redis_servers *servers, struct cluster_slot *slot)
{
    struct list ops;
    list_init(&ops);
    sweep_held(servers);
    cluster_slots_release(servers->slots, slot, &ops);
    if (slot->new_owner != NULL) slot->owner = slot->new_owner;

    for (struct list *it; (it = list_pop_front(&ops)) != NULL; servers->n_released++) {
        struct op *op = LIST_ITEM(it, struct op, link);
        bool is_back = op->is_asking && op->n_hops > 0;
        if (is_back && op->n_tries < TRIES_MAX) { /* it was not sent where the redirect named, and was no hop */
            op->n_hops--;
            op->n_tries++;
        }
        op->is_asking = false;
        send_on(servers, slot->owner, op);
    }
}

static void on_time(uv_timer_t *timer);

/* All that may go on, but no more ops in a tick than that: the others with the next one. */
static void release_all(struct redis_servers *servers)
{
    int64_t now_us = servers->clock->mono_us, first_us = INT64_MAX;
    LIST_FOREACH (it, &servers->slots->held) {
        struct cluster_slot *slot = LIST_ITEM(it, struct cluster_slot, link);
        bool may_go = is_drained(servers, slot);
        if (may_go && servers->n_released < RELEASED_MAX) {
            release(servers, slot);
            continue;
        }
        int64_t next_us = may_go ? now_us : slot->held_until_us;
        if (!may_go && next_us <= now_us) continue; /* it goes on with the end of its last call */
        if (next_us < first_us) first_us = next_us;
    }
    if (first_us < INT64_MAX) uv_timer_start(&servers->timer, on_time, (uint64_t)(first_us - now_us) / 1000 + 1, 0);
}

static void on_time(uv_timer_t *timer)
{
    struct redis_servers *servers = timer->data;
    clock_update(servers->clock);
    release_all(servers);
}

static struct redis_servers *servers_of(const struct redis_batches *batches)
{
    return CONTAINER_OF(batches, struct redis_node, batches)->events.arg;
}

static void on_call_over(struct redis_batches *batches, uint16_t hash_slot)
{
    struct redis_servers *servers = servers_of(batches);
    struct cluster_slot *slot = &servers->slots->of[hash_slot];
    if (!slot->is_held || servers->is_closing || !is_drained(servers, slot)) return;
    if (servers->n_released < RELEASED_MAX)
        release(servers, slot);
    else
        uv_timer_start(&servers->timer, on_time, 0, 0);
}

/* ---- nodes ---- */

static struct redis_node *find_node(const struct redis_servers *servers, const char *address)
{
    LIST_FOREACH (it, &servers->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (strcmp(node->address, address) == 0) return node;
    }
    return NULL;
}

static void on_doubt(struct redis_batches *batches)
{
    doubt_map(servers_of(batches));
}

static void on_down(void *arg)
{
    struct redis_servers *servers = arg;
    doubt_map(servers);
    servers->events.on_down(servers->events.arg);
}

static void on_attempt(void *arg)
{
    struct redis_servers *servers = arg;
    bool had_all = true;
    LIST_FOREACH (it, &servers->nodes) {
        const struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        had_all &= node->had_attempt;
        if (node->had_attempt && !redis_node_is_ready(node)) doubt_map(servers);
    }
    if (had_all) servers->events.on_attempt(servers->events.arg);
}

static void on_redirect(struct redis_batches *batches, uint16_t hash_slot, struct slice error, bool is_try_again,
                        struct list *ops);
static void on_away(struct redis_batches *batches, struct list *ops);

/* address NULL: one server, which the settings name. NULL without memory. */
static struct redis_node *add_node(struct redis_servers *servers, const char *address)
{
    const struct redis_node_events events = {
        .arg = servers,
        .batches = {.arg = servers->events.batches.arg,
                    .on_answers = servers->events.batches.on_answers,
                    .on_end = servers->events.batches.on_end,
                    .on_away = on_away,
                    .on_redirect = on_redirect,
                    .on_call_over = on_call_over,
                    .on_doubt = on_doubt},
        .on_down = on_down,
        .on_attempt = on_attempt,
    };
    struct redis_node *node = mem_zalloc(sizeof *node);
    if (node == NULL) return NULL;
    if (redis_node_init(node, servers->loop, servers->clock, servers->options, address, servers->slots, &events) < 0) {
        mem_free(node);
        return NULL;
    }
    if (address != NULL) node->batches.shard = node->batches.other_shard = -1; /* the map has them */
    list_push_back(&servers->nodes, &node->link_of_nodes);
    servers->n_nodes++;
    servers->n_open++;
    return node;
}

static void on_node_closed(void *arg)
{
    struct redis_node *node = arg;
    struct redis_servers *servers = node->events.arg;
    mem_free(node);
    servers->n_open--;
    maybe_closed(servers);
}

static void close_node(struct redis_servers *servers, struct redis_node *node)
{
    list_remove(&node->link_of_nodes);
    servers->n_nodes--;
    redis_node_close(node, on_node_closed, node);
}

static bool is_owner(const struct redis_servers *servers, const struct redis_node *node)
{
    for (size_t i = 0; i < HASH_SLOTS; i++) {
        const struct cluster_slot *slot = &servers->slots->of[i];
        if (slot->owner == node || (slot->is_held && slot->new_owner == node)) return true;
    }
    return false;
}

/* Those that are not needed any more. */
static void close_leaving(struct redis_servers *servers)
{
    if (servers->n_leaving == 0) return;
    servers->n_leaving = 0;
    LIST_FOREACH (it, &servers->nodes) {
        struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (node->is_in_map) continue;
        int64_t now_us = servers->clock->mono_us;
        bool is_dead = node->had_attempt && !redis_node_is_ready(node); /* as that of a false redirect */
        if (is_dead && node->wanted_until_us > now_us + DEAD_US) node->wanted_until_us = now_us + DEAD_US;
        bool is_wanted = now_us < node->wanted_until_us || !redis_node_is_idle(node);
        if (!is_wanted && is_owner(servers, node)) { /* no map has come since: not to be found out each tick */
            node->wanted_until_us = now_us + OWNER_US;
            is_wanted = true;
        }
        servers->n_leaving += is_wanted;
        if (!is_wanted) close_node(servers, node);
    }
}

/* ---- redirects ---- */

/* The nodes need some time: the slot's ops wait for it. */
static void hold_for_a_while(struct redis_servers *servers, struct cluster_slot *slot)
{
    uint64_t wait_ms = TRY_AGAIN_MS + random_below(&servers->random, 3 * TRY_AGAIN_MS + 1);
    cluster_slots_hold(servers->slots, slot, servers->clock->mono_us + (int64_t)wait_ms * 1000);
    if (!uv_is_active((uv_handle_t *)&servers->timer)) uv_timer_start(&servers->timer, on_time, wait_ms, 0);
}

/* The op waits with its hash slot, and goes alone then, its keys declared: the node itself redirects it. One that has
 * been tried too often goes to `ended`. */
static void hold_alone(struct redis_servers *servers, struct op *op, struct list *ended)
{
    struct cluster_slot *slot = &servers->slots->of[op->hash_slot];
    cluster_slots_hold(servers->slots, slot, 0);
    slot->alone_until_us = servers->clock->mono_us + ALONE_US;
    if (op->n_tries == TRIES_MAX) {
        list_push_back(ended, &op->link);
        return;
    }
    op->n_tries++;
    cluster_slots_add(slot, op);
}

static void try_again(struct redis_servers *servers, struct redis_batches *batches, struct cluster_slot *slot,
                      struct list *ops)
{
    struct list ended;
    list_init(&ended);
    hold_for_a_while(servers, slot);
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        op->n_hops = 0; /* it has not found its place yet */
        hold_alone(servers, op, &ended);
    }
    if (!list_empty(&ended))
        redis_batches_end_refused(batches, &ended, "TRYAGAIN: the keys are on their way for too long");
}

/* They were not executed: some key of each has left the node. */
static void on_away(struct redis_batches *batches, struct list *ops)
{
    struct redis_servers *servers = servers_of(batches);
    struct list ended;
    list_init(&ended);
    LIST_FOREACH (it, ops) {
        redis_counters.redis_away++;
        LIST_ITEM(it, struct op, link)->sent = false;
    }
    if (servers->is_closing) {
        end_ops(servers, ops, OP_DOWN);
        return;
    }

    for (struct list *it; (it = list_pop_front(ops)) != NULL;)
        hold_alone(servers, LIST_ITEM(it, struct op, link), &ended);
    cluster_watch_ask(servers->watch);
    if (!list_empty(&ended)) redis_batches_end_refused(batches, &ended, "the keys are on their way for too long");
}

static void go_on(struct redis_servers *servers, struct redis_batches *batches, struct cluster_slot *slot, bool is_ask,
                  struct redis_node *node, struct list *ops)
{
    struct list ended;
    list_init(&ended);
    if (is_ask) {
        slot->alone_until_us = servers->clock->mono_us + ALONE_US;
    } else {
        cluster_slots_hold(servers->slots, slot, 0);
        slot->new_owner = node;
        slot->moved_us = servers->clock->mono_us;
    }
    for (struct list *it; (it = list_pop_front(ops)) != NULL;) {
        struct op *op = LIST_ITEM(it, struct op, link);
        if (op->n_hops == HOPS_MAX) {
            list_push_back(&ended, it);
            continue;
        }
        op->n_hops++;
        op->is_asking = is_ask;
        if (!is_ask && op->n_hops > 1) hold_for_a_while(servers, slot); /* they do not agree yet whose it is */
        if (slot->is_held)
            cluster_slots_add(slot, op);
        else
            send_on(servers, node, op);
    }
    if (!list_empty(&ended)) redis_batches_end_refused(batches, &ended, "MOVED: sent from node to node three times");
}

static void on_redirect(struct redis_batches *batches, uint16_t hash_slot, struct slice error, bool is_try_again,
                        struct list *ops)
{
    struct redis_servers *servers = servers_of(batches);
    struct cluster_slot *slot = &servers->slots->of[hash_slot];
    if (servers->is_closing) {
        end_ops(servers, ops, OP_DOWN);
        return;
    }
    if (is_try_again) {
        try_again(servers, batches, slot, ops);
        return;
    }

    struct redis_address own;
    struct cluster_redirect redirect;
    struct redis_node *from = CONTAINER_OF(batches, struct redis_node, batches), *to = NULL;
    const char *fault = redis_address_parse(from->address, &own);
    const struct cluster_sender sender = {.host = own.host, .is_tls = servers->options->tls != NULL};
    if (fault == NULL) fault = cluster_redirect_read(error, &sender, &redirect);
    if (fault == NULL && redirect.hash_slot != hash_slot) fault = "it is of another hash slot than was asked for";
    cluster_watch_ask(servers->watch);

    if (fault == NULL) to = find_node(servers, redirect.address);
    if (fault == NULL && to == NULL && servers->n_leaving < REDIS_SERVERS_STRANGERS_MAX) {
        to = add_node(servers, redirect.address);
        servers->n_leaving += to != NULL;
    }
    if (to != NULL) {
        to->wanted_until_us = servers->clock->mono_us + WANTED_US;
        go_on(servers, batches, slot, redirect.is_ask, to, ops);
        return;
    }

    if (fault == NULL) fault = "too many nodes that are on no map"; /* or no memory for one */
    char text[REDIS_TEXT_MAX];
    snprintf(text, sizeof text, "%.*s: %s", (int)(error.len < REDIS_TEXT_MAX / 2 ? error.len : REDIS_TEXT_MAX / 2),
             (const char *)error.data, fault);
    redis_batches_end_refused(batches, ops, text);
}

/* ---- maps ---- */

/* As the map says that was asked for at that time. has_waiting: ops of it, at any node. True if that changes who has
 * it, or a node has said otherwise since. */
static bool set_owner(struct redis_servers *servers, struct cluster_slot *slot, struct redis_node *node,
                      bool has_waiting, int64_t asked_us)
{
    bool is_known = slot->is_held && slot->new_owner != NULL;
    bool is_other = node != (is_known ? slot->new_owner : slot->owner);
    if (is_other && slot->moved_us > 0 && asked_us < slot->moved_us + LEARN_US) return true;
    bool is_first = node == NULL && is_other && !slot->is_nobodys;
    slot->is_nobodys = node == NULL;
    if (is_first) return true; /* as in the middle of a failover: only the next map's word counts */

    if (is_other || slot->moved_us > 0) slot->alone_until_us = 0; /* it has moved, and is known to have */
    slot->moved_us = 0;
    if (!is_other || is_known) return is_other;
    if (!slot->is_held && (node == NULL || (slot->n_calls == 0 && !has_waiting))) {
        slot->owner = node;
        return true;
    }
    /* its owner, or the one that it had before it had none, has some of it */
    cluster_slots_hold(servers->slots, slot, 0);
    slot->new_owner = node;
    return true;
}

static void find_shards(struct redis_servers *servers)
{
    LIST_FOREACH (it, &servers->nodes) {
        struct redis_batches *batches = &LIST_ITEM(it, struct redis_node, link_of_nodes)->batches;
        batches->shard = batches->other_shard = -1;
    }
    for (uint32_t i = 0; i < servers->options->n_shards; i++) {
        struct redis_node *node = servers->slots->of[servers->slot_of_shard[i]].owner;
        if (node == NULL) continue;
        struct redis_batches *batches = &node->batches;
        if (batches->shard < 0)
            batches->shard = (int32_t)i;
        else if (batches->other_shard < 0 && servers->slot_of_shard[i] != servers->slot_of_shard[batches->shard])
            batches->other_shard = (int32_t)i;
    }
}

/* Other addresses may be those of the same cluster; a map without any node of the one before is another's. */
static bool is_other_cluster(const struct redis_servers *servers, const struct cluster_map *map)
{
    if (!servers->has_map || map->n_nodes == 0) return false;
    for (uint32_t i = 0; i < map->n_nodes; i++) {
        const struct redis_node *node = find_node(servers, map->address[i]);
        if (node != NULL && node->is_in_map) return false;
    }
    return true;
}

static void on_map(void *arg, const struct cluster_map *map)
{
    struct redis_servers *servers = arg;
    struct redis_node *nodes[CLUSTER_NODES_MAX];
    if (is_other_cluster(servers, map)) servers->events.on_moved(servers->events.arg);
    LIST_FOREACH (it, &servers->nodes) LIST_ITEM(it, struct redis_node, link_of_nodes)->is_in_map = false;
    for (uint32_t i = 0; i < map->n_nodes; i++) {
        nodes[i] = find_node(servers, map->address[i]);
        if (nodes[i] == NULL) nodes[i] = add_node(servers, map->address[i]); /* NULL: until the next map */
        if (nodes[i] == NULL) continue;
        nodes[i]->is_in_map = true;
        nodes[i]->wanted_until_us = 0; /* from now on the maps decide whether it is */
    }

    bool has_waiting[HASH_SLOTS] = {false};
    LIST_FOREACH (it, &servers->nodes)
        redis_batches_mark_slots(&LIST_ITEM(it, struct redis_node, link_of_nodes)->batches, has_waiting);
    int64_t asked_us = cluster_watch_asked_us(servers->watch);
    bool has_changed = false, was_first = !servers->has_map;
    servers->has_map = true;
    for (size_t i = 0; i < HASH_SLOTS; i++) {
        uint16_t owner = map->owner[i];
        struct redis_node *node = owner != CLUSTER_NONE ? nodes[owner] : NULL;
        has_changed |= set_owner(servers, &servers->slots->of[i], node, has_waiting[i], asked_us);
    }
    if (has_changed && !was_first) cluster_watch_ask(servers->watch); /* slots are moving: there may be more */
    release_all(servers);
    find_shards(servers);
    LIST_FOREACH (it, &servers->nodes) redis_reach_ask(&LIST_ITEM(it, struct redis_node, link_of_nodes)->batches);

    servers->n_leaving = 0;
    LIST_FOREACH (it, &servers->nodes)
        servers->n_leaving += !LIST_ITEM(it, struct redis_node, link_of_nodes)->is_in_map;
    close_leaving(servers);
    if (map->n_nodes == 0) on_attempt(servers);
}

static void on_no_map(void *arg, const char *why)
{
    struct redis_servers *servers = arg;
    log_escape(servers->fault, sizeof servers->fault, why, strlen(why));
    if (!servers->has_map) servers->events.on_attempt(servers->events.arg);
}

/* ---- ops ---- */

/* A foreign key has no shard of ours: the whole key decides. */
static __attribute__((noinline)) uint16_t slot_of_whole(const struct op_member *member)
{
    const struct limit *limit = member->limit;
    uint8_t key[KEY_SPACE];
    size_t len = limit->key_head_len + member->key.len;
    CHECK(len <= sizeof key);
    memcpy(key, limit->key_head, limit->key_head_len);
    if (member->key.len > 0) memcpy(key + limit->key_head_len, member->key.data, member->key.len);
    return hash_slot_of(key, len);
}

uint16_t redis_servers_slot_of(const struct redis_servers *servers, const struct op_member *member)
{
    if (servers->only != NULL) return 0;
    if (limit_ops(member->limit)->is_compat) return slot_of_whole(member);
    return servers->slot_of_shard[store_key_hash(member) % servers->options->n_shards];
}

enum submit redis_servers_can_submit(struct redis_servers *servers, struct op *op)
{
    if (servers->only != NULL) return redis_node_can_submit(servers->only);
    op->hash_slot = redis_servers_slot_of(servers, &op->members[0]);
    for (uint16_t i = 1; i < op->n_members; i++)
        CHECK(redis_servers_slot_of(servers, &op->members[i]) == op->hash_slot);
    const struct cluster_slot *slot = &servers->slots->of[op->hash_slot];
    if (slot->is_held) return SUBMIT_PENDING;
    return slot->owner != NULL ? redis_node_can_submit(slot->owner) : SUBMIT_DOWN;
}

int redis_servers_add(struct redis_servers *servers, struct op *op)
{
    op->node = servers->only;
    if (servers->only != NULL) return redis_batches_add(&servers->only->batches, op);

    struct cluster_slot *slot = &servers->slots->of[op->hash_slot];
    CHECK(slot->is_held || slot->owner != NULL);
    op->node = slot->owner;
    op->number = ++servers->n_ops;
    op->is_asking = op->is_held = false;
    op->n_hops = op->n_tries = 0;
    if (!slot->is_held) return redis_batches_add(&slot->owner->batches, op);
    redis_batches_prepare(op, servers->clock->mono_us);
    cluster_slots_add(slot, op);
    return 0;
}

bool redis_servers_withdraw(struct redis_servers *servers, struct op *op)
{
    if (op->is_held) {
        cluster_slots_withdraw(&servers->slots->of[op->hash_slot], op);
        return true;
    }
    if (!op->is_queued) return false;
    op_queue_take(&op->node->batches.waiting, op);
    return true;
}

void redis_servers_flush(struct redis_servers *servers)
{
    servers->n_released = 0;
    LIST_FOREACH (it, &servers->nodes) redis_node_flush(LIST_ITEM(it, struct redis_node, link_of_nodes));
    close_leaving(servers);
}

/* ---- for people ---- */

struct list *redis_servers_nodes(struct redis_servers *servers)
{
    return &servers->nodes;
}

struct redis_node *redis_servers_only(const struct redis_servers *servers)
{
    return servers->only;
}

struct redis_node *redis_servers_first(const struct redis_servers *servers)
{
    if (servers->is_closing || servers->only != NULL) return servers->only; /* the others may be gone already */
    return servers->slots->of[servers->slot_of_shard[0]].owner;
}

/* Nodes of the map; *ret_n_ready of them are ready, and *ret_other is one that is not. */
static uint32_t count_nodes(const struct redis_servers *servers, uint32_t *ret_n_ready,
                            const struct redis_node **ret_other)
{
    uint32_t n = 0;
    *ret_n_ready = 0;
    *ret_other = NULL;
    LIST_FOREACH (it, &servers->nodes) {
        const struct redis_node *node = LIST_ITEM(it, struct redis_node, link_of_nodes);
        if (!node->is_in_map) continue;
        n++;
        *ret_n_ready += redis_node_is_ready(node);
        if (*ret_other == NULL && !redis_node_is_ready(node)) *ret_other = node;
    }
    return n;
}

bool redis_servers_is_ready(const struct redis_servers *servers)
{
    uint32_t n_ready;
    const struct redis_node *other;
    return count_nodes(servers, &n_ready, &other) > 0 && other == NULL;
}

const char *redis_servers_status(struct redis_servers *servers)
{
    if (servers->is_closing) return "closed";
    if (servers->only != NULL) return redis_node_status(servers->only);
    uint32_t n_ready;
    const struct redis_node *other;
    uint32_t n = count_nodes(servers, &n_ready, &other);
    if (!servers->has_map) return servers->fault[0] != '\0' ? servers->fault : "connecting";
    if (n == 0) return "no node of the cluster has a hash slot";
    if (other == NULL) return "ready";
    snprintf(servers->status, sizeof servers->status, "%u of %u nodes ready; %.640s", n_ready, n,
             redis_node_status(other));
    return servers->status;
}

const char *redis_servers_passed(const struct redis_servers *servers, uint32_t nth)
{
    if (servers->only != NULL) return redis_sentinel_passed(redis_link_sentinel(servers->only->link), nth);
    return servers->watch != NULL ? cluster_watch_passed(servers->watch, nth) : NULL;
}

/* ---- init and close ---- */

void redis_servers_options_changed(struct redis_servers *servers, bool is_other_server, bool is_other_login)
{
    bool is_other = servers->only != NULL ? is_other_server : is_other_login; /* a cluster's nodes are on the map */
    LIST_FOREACH (it, &servers->nodes)
        redis_node_options_changed(LIST_ITEM(it, struct redis_node, link_of_nodes), is_other);
    if (is_other_server && servers->watch != NULL) cluster_watch_options_changed(servers->watch);
}

static int open_map(struct redis_servers *servers)
{
    for (uint32_t i = 0; i < servers->options->n_shards; i++) {
        char key[STORE_OWN_KEY_MAX];
        store_key_own(servers->options->key_prefix, i, "", key);
        servers->slot_of_shard[i] = hash_slot_of((const uint8_t *)key, strlen(key));
    }

    servers->slots = cluster_slots_new();
    if (servers->slots == NULL) return -1;
    const struct cluster_watch_events of_watch = {.arg = servers, .on_map = on_map, .on_none = on_no_map};
    servers->watch = cluster_watch_new(servers->loop, servers->clock, servers->options, &of_watch);
    if (servers->watch != NULL) return 0;
    cluster_slots_free(servers->slots);
    return -1;
}

static int open_only(struct redis_servers *servers)
{
    servers->only = add_node(servers, NULL);
    if (servers->only == NULL) return -1;
    servers->only->is_in_map = servers->has_map = true;
    return 0;
}

struct redis_servers *redis_servers_new(uv_loop_t *loop, struct clock *clock, const struct redis_options *options,
                                        const struct redis_node_events *events)
{
    struct redis_servers *servers = mem_zalloc(sizeof *servers);
    if (servers == NULL) return NULL;
    servers->loop = loop;
    servers->clock = clock;
    servers->options = options;
    servers->events = *events;
    servers->random = options->random_seed;
    list_init(&servers->nodes);
    if ((options->topology == TOPOLOGY_CLUSTER ? open_map(servers) : open_only(servers)) < 0) {
        mem_free(servers);
        return NULL;
    }

    uv_timer_init(loop, &servers->timer);
    servers->timer.data = servers;
    servers->n_parts = 1 + (servers->watch != NULL);
    return servers;
}

static void on_part_closed(void *arg)
{
    struct redis_servers *servers = arg;
    servers->n_parts--;
    maybe_closed(servers);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data);
}

void redis_servers_close(struct redis_servers *servers, void (*on_closed)(void *arg), void *arg)
{
    CHECK(!servers->is_closing);
    servers->is_closing = true;
    servers->on_closed = on_closed;
    servers->on_closed_arg = arg;
    servers->only = NULL;

    while (servers->slots != NULL && !list_empty(&servers->slots->held)) {
        struct list ops;
        list_init(&ops);
        cluster_slots_release(servers->slots, LIST_ITEM(servers->slots->held.next, struct cluster_slot, link), &ops);
        end_ops(servers, &ops, OP_DOWN);
    }
    while (!list_empty(&servers->nodes))
        close_node(servers, LIST_ITEM(servers->nodes.next, struct redis_node, link_of_nodes));
    if (servers->watch != NULL) cluster_watch_close(servers->watch, on_part_closed, servers);
    servers->watch = NULL;
    uv_close((uv_handle_t *)&servers->timer, on_timer_closed);
}

void redis_servers_free(struct redis_servers *servers)
{
    CHECK(servers->is_closing && servers->n_open == 0);
    cluster_slots_free(servers->slots);
    mem_free(servers);
}
