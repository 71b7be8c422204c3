/*
 * request.h: one call of a client: its packed bytes until they have left, then its place among those that wait for an
 * answer. exchange.c moves requests between its lists; this module makes them, packs them and keeps the used ones.
 *
 * One that ended goes back to the pool with its storage, so a warmed-up client allocates nothing.
 */
#ifndef RL_CLIENT_REQUEST_H
#define RL_CLIENT_REQUEST_H

#include "base/buffer.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "client/ratelimit.h"
#include "proto/rpc.h"

/* What a request is answered with. */
enum request_kind {
    REQUEST_HELLO,
    REQUEST_DECISION,
    REQUEST_ID,   /* a decision, and an id if it allows */
    REQUEST_MANY, /* a list of decisions */
    REQUEST_ALL,  /* a decision with members */
    REQUEST_FLAG, /* a map with a bool, `flag` */
    REQUEST_OTHER,
    REQUEST_ABANDON, /* nothing: a notification */
    REQUEST_REPEAT,  /* by the client: with `members`, and the decision behind them */
    REQUEST_VERIFY,  /* a list of policies, for those in `names` */
};

/* What a yes leaves with the daemon until it is ended, or ends there. */
enum request_effect {
    EFFECT_NONE,
    EFFECT_SLOT,        /* acquire */
    EFFECT_RESERVATION, /* reserve */
    EFFECT_SLOT_ENDED,  /* release */
    EFFECT_ENDED,       /* settle, cancel */
    EFFECT_FREED,       /* reset, refund: denied units are there again */
};

enum { REQUEST_MEMBERS_MAX = 16 }; /* of a check_all */

struct request {
    struct list link;          /* in one of the client's lists, or in the pool */
    struct map_node by_msgid;  /* while `sent` */
    struct heap_node deadline; /* until it ends; hello has none */
    uint64_t msgid;
    enum request_kind kind;
    enum request_effect effect;
    const char *flag;  /* static; REQUEST_FLAG */
    int64_t cost;      /* REQUEST_DECISION, and of all together for REQUEST_ALL */
    const char *wrong; /* static; why a policy's settings cannot be read; NULL: they can */
    size_t n_members;
    size_t n_names;      /* in `names` */
    uint64_t n_forgets;  /* of the client's denials, when it was made */
    size_t n_written;    /* of `bytes` that the socket took */
    bool sent;           /* all of them: the daemon may act on it */
    bool ended;          /* its deadline came, and its caller waits no more; half written, the rest must follow */
    bool probes;         /* the breaker waits for its end */
    bool orphan;         /* it ended so, and a yes in its answer is taken back: of a slot or a reservation */
    bool sends_names;    /* inline policies' names are in `bytes` */
    uint32_t timeout_ms; /* until its deadline, from when it is submitted */
    ratelimit_answer_fn *callback;
    void *arg; /* the caller's */

    /* Storage, which stays with the request in the pool: */
    struct buffer bytes;                /* owned; packed */
    struct buffer names;                /* owned; of the first items' inline policies, each with a NUL; see names.h */
    struct buffer check;                /* owned; what a denial is remembered by; empty: it is not */
    struct ratelimit_decision *members; /* owned; for the answer; until then only `granted` is set: the cost */
    size_t members_cap;
};

/* What a call asks, as a row of methods.def; its parameters in their order. */
struct question {
    const char *method;
    enum request_kind kind;
    enum request_effect effect;
    const char *flag; /* static; REQUEST_FLAG */
    enum { ABOUT_ITEM, ABOUT_LIST, ABOUT_ID } about;
    const char *id;                     /* of a reservation or slot; or in its place: */
    const struct ratelimit_item *items; /* policy and key; of a list [[policy, key, cost], ...] */
    size_t n_items;
    const int64_t *units; /* NULL: none */
    bool has_options;
    const struct ratelimit_options *options; /* NULL: their defaults */
    int64_t granted;                         /* by a yes to one item that does not say so */
    bool is_check;                           /* check, check_all: a denial may be remembered */
};

/* Is the cost one of the options? */
static inline bool question_has_cost(const struct question *question)
{
    return question->about == ABOUT_ITEM && question->units == NULL;
}

struct request_pool {
    struct list free;
    size_t n;
};

void request_pool_init(struct request_pool *pool);
void request_pool_fini(struct request_pool *pool);

void request_init(struct request *request, enum request_kind kind);
void request_fini(struct request *request);

struct request *request_new(struct request_pool *pool); /* REQUEST_OTHER, without an effect; NULL without memory */
void request_release(struct request_pool *pool, struct request *request); /* must be in no list, map or heap */

int request_reserve_members(struct request *request, size_t n); /* space for so many; 0, or -1 without memory */

/* Each packs a whole request, with its `msgid`. 0, or -1 without memory; `wrong` is set if a policy's settings cannot
 * be read. `features`: a set of FEATURE_*, of the daemon that it is for. */
int request_pack(struct request *request, const struct question *question, unsigned features);
/* `params` are a whole packed array, or empty */
int request_pack_other(struct request *request, const char *method, struct slice params);
int request_pack_hello(struct request *request, bool as_maps, bool describes);
int request_pack_abandon(struct request *request); /* the notification that gives up the request itself */

/* For a daemon that may not take them: the names of inline policies are no longer in its bytes. */
void request_drop_names(struct request *request);

#endif
