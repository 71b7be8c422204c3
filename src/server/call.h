/*
 * call.h: one request that asks the engine: one question about a key (check, peek, reset, reserve, acquire ...), or the
 * list of a check_many or check_all. The checks of a check_all are one to the engine: the first stands for them
 * (check.h). Those of shadow policies among them are asked apart, and only told beside the others.
 *
 *   call_new ─ call_add ... ─ call_submit ──▶ each check's done ──▶ the last one writes the answer
 *
 * The checks of a long list go to the engine in pieces (check_list.h), and each answer is packed, and its check let go,
 * as soon as those before it are: neither is left for one tick.
 *
 *   call_new ─ call_add ... ─ call_begin_pieces ─ call_hand_over ... ─ call_handed_over
 *
 * Until call_submit() or call_begin_pieces() nothing is charged: a request refused half-way is call_drop()ped. A
 * session that closes drops its calls; their checks never call back then.
 */
#ifndef RL_SERVER_CALL_H
#define RL_SERVER_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "engine/engine.h"
#include "server/session.h"

enum call_form {
    CALL_ONE,
    CALL_MANY,    /* the answer is a list, whatever its length */
    CALL_ALL,     /* one answer of all, with theirs as its members */
    CALL_EXPLAIN, /* one, with all that led to it; the second check asks the policy's candidate */
    CALL_SETTLE,  /* one, a peek, as the answer to a settlement */
};

struct call {
    struct list link;        /* in session->calls, or in the pool */
    struct session *session; /* not owned */
    struct check *first;     /* owned until answered, chained by check->next */
    struct check *last;
    struct check *enforced; /* of a check_all under way: the first of those that can deny, standing for them; or NULL */
    uint64_t msgid;
    uint32_t n;      /* checks */
    uint32_t n_open; /* questions without an answer, and one more while they are being submitted */
    enum call_form form;
    uint32_t deadline_ms; /* of a check_all; 0 = the policies' */
    bool key_is_bin;      /* of a CALL_EXPLAIN */
    bool as_arrays;       /* the form of decisions when the call came */

    /* of one in pieces */
    bool in_pieces;
    bool pack_failed;      /* no memory for `packed` */
    bool is_late;          /* the store did not decide one of them, or not in time */
    uint32_t n_handed;     /* checks that the engine has and has not answered */
    uint32_t n_packed;     /* answers in `packed`; their checks are gone */
    struct check *unasked; /* the first that is not the engine's yet */
    struct buffer packed;  /* owned */
};

struct call *call_new(struct session *session, uint64_t msgid, enum call_form form); /* NULL without memory */
/* One more question, at the end; the caller sets policy, cost and deadline_ms. NULL: overloaded. */
struct check *call_add(struct call *call, enum op_kind kind, struct slice key);
void call_submit(struct call *call); /* the call is the engine's now, and may be over */
/* In pieces: begin, hand over up to `max` checks until it says that all are, and say so: then it may be over. */
void call_begin_pieces(struct call *call);
bool call_hand_over(struct call *call, uint32_t max);
void call_handed_over(struct call *call);
void call_drop(struct call *call);
/* Submits it; or drops it where `status`, which is returned, is not 0: something about the request was refused. */
int call_go_or_drop(struct call *call, int status);

void call_pool_fini(struct list *idle_calls);

#endif
