/*
 * request.h: one client's message that asks the engine: a check (or peek, reset, reserve, acquire ...), or the list of
 * a check_many or check_all. It is answered exactly once.
 *
 *   request_new ─ request_add ... (params.h fills each check) ─ request_go ──▶ each check's done ──▶ the last one
 * writes the answer
 *
 * Each member of a check_many is a check. The members of a check_all are the parts of one check; those of shadow
 * policies are checks of their own, that deny the others nothing.
 *
 * The checks of a long list go to the engine in pieces (check_list.h). Each answer is packed and its check released as
 * soon as those before it are, so that this work is spread over the ticks too.
 *
 *   request_new ─ request_add ... ─ request_begin_pieces ─ request_hand_over ... ─ request_handed_over
 *
 * Until request_go() or request_begin_pieces() nothing is charged: a request refused half-way is dropped. A session
 * that closes drops its requests; their checks never call back then.
 */
#ifndef RL_SERVER_REQUEST_H
#define RL_SERVER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "engine/engine.h"
#include "server/session.h"

enum request_form {
    REQUEST_ONE,
    REQUEST_MANY,    /* the answer is a list, whatever its length */
    REQUEST_ALL,     /* one answer of all, with theirs as its members */
    REQUEST_EXPLAIN, /* one, with all that led to it; the second check asks the policy's candidate */
    REQUEST_SETTLE,  /* one, a peek, as the answer to a settlement */
};

struct params;

struct request {
    struct list link;        /* in session->requests, or in the pool */
    struct session *session; /* not owned */
    struct check *first;     /* owned until answered, chained by check->next */
    struct check *last;
    uint64_t msgid;
    uint32_t n;      /* parts: members of the list */
    uint32_t n_open; /* checks without an answer; of one in pieces one more until all are handed over */
    enum request_form form;
    bool key_is_bin;                /* of a REQUEST_EXPLAIN */
    struct decision_form decisions; /* their form when the request came */

    /* of one in pieces */
    bool in_pieces;
    bool pack_failed;      /* no memory for `packed` */
    bool is_late;          /* the store did not decide one of them, or not in time */
    uint32_t n_handed;     /* checks that the engine has and has not answered */
    struct check *unasked; /* the first that is not the engine's yet */
    struct buffer packed;  /* owned */
};

struct request *request_new(struct session *session, uint64_t msgid, enum request_form form); /* NULL without memory */
/* A REQUEST_ONE with one check of this kind; check->owner is the request. NULL: overloaded; the fault is filled. */
struct check *request_begin(struct session *session, uint64_t msgid, const struct params *params, enum op_kind kind);
/* One more check, at the end, with one part. NULL: overloaded. */
struct check *request_add(struct request *request, enum op_kind kind);
/* One more part of `check`, of a check_all. NULL: overloaded. */
struct part *request_add_part(struct request *request, struct check *check);
/* With status 0, seals the checks and submits them to the engine: the request may be over when this returns. Otherwise,
 * or without memory, drops the request. Returns `status`, or -1 with the fault filled. */
int request_go(struct request *request, const struct params *params, int status);

/* In pieces: begin; hand over up to `max` checks at a time, until it returns true (all are handed over); then
 * request_handed_over(), after which the request may be over. The checks must be sealed. */
void request_begin_pieces(struct request *request);
bool request_hand_over(struct request *request, uint32_t max);
void request_handed_over(struct request *request);

void request_drop(struct request *request); /* nothing is answered */
void request_pool_fini(struct list *idle);

#endif
