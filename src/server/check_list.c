/* check_list.c: a check_many in pieces: begun by methods.c, and run by sessions_tick.c in each tick until it is handed
 * over. */
#include "server/check_list.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "engine/engine_counters.h"
#include "server/access.h"
#include "server/members.h"
#include "server/session.h"
#include "server/session_output.h"

enum {
    MEMBERS_AT_ONCE = 64,   /* of a list that is done at once */
    MEMBERS_PER_PIECE = 64, /* of one list, before another one has its turn */
    UNITS_PER_TICK = 512,   /* of all lists together: members that are read or handed over, and what they cost more */
    HANDED_MAX = 1024,      /* of all lists together, without an answer: some milliseconds of a Redis at work */
};

struct check_list {
    struct long_work work;
    struct list link;        /* in sessions->lists.reading or ->handing */
    struct request *request; /* not owned; the session's */
    struct buffer text;      /* owned; the members as they came, until all are read */
    uint32_t n;
    uint32_t n_read;
    uint32_t n_submitted; /* to the engine, answered or not */
    enum { WAITING, READING, HANDING } state;
};

/* May the connection have so many more in flight? A list that never fits may go alone. */
static bool fits(const struct session *session, uint32_t n)
{
    uint32_t max = session->sessions->options.max_inflight_per_connection;
    return session->n_inflight == 0 || (uint64_t)session->n_inflight + n <= max;
}

bool check_list_is_long(const struct session *session, uint32_t n)
{
    return n > MEMBERS_AT_ONCE || !fits(session, n);
}

/* ---- its end ---- */

/* The session takes its next message after this; the request stays. */
static void drop(struct long_work *work)
{
    struct check_list *list = CONTAINER_OF(work, struct check_list, work);
    struct session *session = work->session;
    CHECK(session->work == work);
    session->work = NULL;
    if (list->state == READING) session->sessions->lists.n_promised -= list->n - list->n_read;

    list_remove(&list->link);
    buffer_fini(&list->text);
    mem_free(list);
    if (session->state == SESSION_LISTED || session->is_draining) session_wake(session);
}

static void refuse(struct long_work *work, const struct request_fault *fault)
{
    const struct check_list *list = CONTAINER_OF(work, struct check_list, work);
    struct session *session = work->session;
    struct request *request = list->request;
    uint32_t n_counted = list->state == WAITING ? 0 : list->n;

    drop(work);
    session_answer_error(session, request->msgid, fault->code, fault->text);
    request_drop(request);
    session_checks_ended(session, n_counted);
}

/* ---- its beginning ---- */

/* Once the connection may have that many more in flight. */
static void maybe_start(struct long_work *work)
{
    struct check_list *list = CONTAINER_OF(work, struct check_list, work);
    struct session *session = work->session;
    struct sessions *sessions = session->sessions;
    if (list->state != WAITING || !fits(session, list->n)) return;

    if (engine_n_available(sessions->engine) < sessions->lists.n_promised + list->n) {
        struct request_fault fault;
        struct params params = params_of(session, list->request->msgid, &fault);
        params_fail_overloaded(&params);
        engine_counters.overloaded++;
        refuse(&list->work, &fault);
        return;
    }

    struct request_fault fault;
    access_refresh(session);
    if (access_inflight(session, list->n, &fault) != 0) {
        refuse(&list->work, &fault);
        return;
    }

    list->state = READING;
    sessions->lists.n_promised += list->n;
    session_checks_began(session, list->n);
    list_push_back(&sessions->lists.reading, &list->link);
}

int check_list_begin(struct params *params, uint32_t n)
{
    struct session *session = params->session;
    CHECK(session->work == NULL);
    struct check_list *list = mem_zalloc(sizeof *list);
    if (list == NULL) return params_fail_overloaded(params);

    list->work = (struct long_work){.session = session, .run = maybe_start, .refuse = refuse, .drop = drop};
    list->n = n;
    list->state = WAITING;
    list_init(&list->link);
    buffer_init(&list->text, 0);
    if (buffer_append(&list->text, params->pull.at, (size_t)(params->pull.end - params->pull.at)) != 0) goto err;
    list->request = request_new(params, REQUEST_LONG);
    if (list->request == NULL) goto err_refused;

    session->work = &list->work;
    maybe_start(&list->work);
    return 0;

err:
    params_fail_overloaded(params);
err_refused: /* the fault is filled */
    buffer_fini(&list->text);
    mem_free(list);
    return -1;
}

/* ---- its work, a piece at a time ---- */

/* Up to `max` members become checks. If one of them is wrong, the list is refused and gone. */
static void read_piece(struct check_list *list, uint32_t max)
{
    struct request_fault fault;
    struct params params = params_of(list->work.session, list->request->msgid, &fault);
    params.pull = pull_of(buffer_data(&list->text), buffer_len(&list->text));
    access_refresh(list->work.session);

    for (; max > 0 && list->n_read < list->n; max--) {
        int status = members_add(list->request, &params, list->n_read);
        if (status == 0 && check_seal(list->request->last) < 0) status = params_fail_overloaded(&params);
        if (status != 0) {
            refuse(&list->work, &fault);
            return;
        }
        list->n_read++;
        list->work.session->sessions->lists.n_promised--;
    }

    buffer_consume(&list->text, (size_t)(params.pull.at - buffer_data(&list->text)));
    if (list->n_read < list->n) return;

    struct sessions *sessions = list->work.session->sessions;
    buffer_fini(&list->text);
    list->state = HANDING;
    list->work.goes_on = true;
    list_remove(&list->link);
    list_push_back(&sessions->lists.handing, &list->link);
}

/* The first list of a queue, which is not empty; the list goes to the queue's end. */
static struct check_list *next_of(struct list *queue)
{
    struct list *link = list_pop_front(queue);
    list_push_back(queue, link);
    return LIST_ITEM(link, struct check_list, link);
}

/* A list that is late does not wait for its answers: its members are with the store for a millisecond only. */
static bool may_hand(const struct sessions *sessions)
{
    if (list_empty(&sessions->lists.handing)) return false;
    const struct check_list *first = LIST_ITEM(sessions->lists.handing.next, struct check_list, link);
    return sessions->lists.n_handed < HANDED_MAX || first->request->is_late;
}

bool check_lists_have_work(const struct sessions *sessions)
{
    return !list_empty(&sessions->lists.reading) || may_hand(sessions);
}

void check_lists_run(struct sessions *sessions)
{
    const uint32_t end = sessions->schedule.spent + UNITS_PER_TICK;
    sessions_note_answers(sessions);
    while (sessions->schedule.spent < end && check_lists_have_work(sessions)) {
        if (may_hand(sessions)) {
            struct check_list *list = next_of(&sessions->lists.handing);
            struct request *request = list->request;
            sessions_spend(sessions, MEMBERS_PER_PIECE);
            list->n_submitted += MEMBERS_PER_PIECE;
            if (list->n_submitted >= list->n)
                drop(&list->work); /* the session's next message may be begun before the answers are here */
            request_hand_over(request, MEMBERS_PER_PIECE);
            sessions_spend_answers(sessions);
        }

        if (sessions->schedule.spent < end && !list_empty(&sessions->lists.reading)) {
            sessions_spend(sessions, MEMBERS_PER_PIECE);
            read_piece(next_of(&sessions->lists.reading), MEMBERS_PER_PIECE);
        }
    }
}
