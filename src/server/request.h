/*
 * request.h: one client's message that asks the engine: a check (or peek, reset, reserve, acquire ...), or the list of
 * a check_many or check_all. It is answered exactly once.
 *
 *   request_new ─ request_add ... (params.h fills each check) ─ request_go ──▶ each check's done
 *                                                                          ──▶ the last one writes the answer
 *
 * Each member of a list is a check, in the order of the list. Those of a check_all are joined (check.h), but for those
 * of shadow policies, that deny the others nothing.
 *
 * A long check_many (check_list.h) calls request_hand_over() for one piece of its checks after another, in place of
 * request_go(). Each answer is packed and its check released as soon as those before it are, so that this work is
 * spread over the ticks too.
 *
 * Until request_go() or request_hand_over() nothing is charged: a request refused half-way is dropped. A session that
 * closes drops its requests; their checks never call back then.
 */
#ifndef RL_SERVER_REQUEST_H
#define RL_SERVER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "engine/engine.h"
#include "server/session.h"

enum request_kind {
    REQUEST_ONE,     /* a reset may have a second check: of the policy's candidate */
    REQUEST_MANY,    /* the answer is a list, whatever its length */
    REQUEST_LONG,    /* the same, of a list that goes in pieces (check_list.h) */
    REQUEST_ALL,     /* one answer of all, with theirs as its members */
    REQUEST_EXPLAIN, /* one, with all that led to it; the second check asks the policy's candidate */
    REQUEST_SETTLE,  /* one, a peek, as the answer to a settlement */
};

struct params;

struct request {
    struct list link;        /* in session->requests, or in the pool */
    struct session *session; /* not owned */
    struct check *first;     /* owned until the answer is packed, chained by check->next */
    struct check *last;
    uint64_t msgid;
    uint32_t n;      /* checks */
    uint32_t n_open; /* that are answered apart, and are not */
    enum request_kind kind;
    bool key_is_bin;                /* of a REQUEST_EXPLAIN */
    struct decision_form decisions; /* their form when the request came */

    /* of a REQUEST_LONG */
    bool pack_failed;      /* no memory for `packed` */
    bool is_late;          /* the store did not decide one of them, or not in time */
    uint32_t n_handed;     /* checks that the engine has and has not answered */
    struct check *unasked; /* the first that is not the engine's yet */
    struct buffer packed;  /* owned; the answers before that of `first` */
};

/* The request whose parameters these are. NULL: overloaded; the fault is filled. */
struct request *request_new(const struct params *params, enum request_kind kind);
/* The same, a REQUEST_ONE with one check of this kind, its first. */
struct request *request_begin(const struct params *params, enum op_kind kind);
/* One more check, at the end. NULL: overloaded. */
struct check *request_add(struct request *request, enum op_kind kind);
/* In a check_all: the last one, which is enforced, is decided together with those before it. */
void request_join(struct request *request, struct check *check);
/* Seals the checks that are not. 0, or -1 with the fault filled. */
int request_seal(const struct request *request, const struct params *params);
/* Seals the one check, an OP_ACQUIRE or OP_RESERVE, and takes a slot for its session. 0, or -1 with the fault filled. */
int request_take_slot(struct request *request, const struct params *params);

/* With status 0, seals the checks and submits them to the engine: the request may be over when this returns. Otherwise,
 * or without memory, drops the request. Returns `status`, or -1 with the fault filled. */
int request_go(struct request *request, const struct params *params, int status);
/* Submits the next `max` checks of a REQUEST_LONG, which are sealed; with the last one the request may be over. */
void request_hand_over(struct request *request, uint32_t max);

void request_drop(struct request *request); /* nothing is answered */
void request_pool_fini(struct list *idle);

#endif
