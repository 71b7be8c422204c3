/* sessions_tick.c: the order of a tick, for server.c: sessions that have work left over, then lists, late answers and
 * rules; at the end what is to be written and read. Also who is closed for silence. */
#include "server/sessions_tick.h"

#include "base/alloc.h"
#include "server/access.h"
#include "server/check_list.h"
#include "server/late_answer.h"
#include "server/request.h"
#include "server/session_input.h"
#include "server/session_output.h"

enum {
    SWEEP_MIN_MS = 10,
    SWEEP_MAX_MS = 1000,
    UNREAD_GRACE_US = 100000, /* a peer that took something so lately reads */
    NEAR_PER_SECOND = 10,     /* lines of the log */
    UNREAD_LOOKS = 64,        /* at peers, a tick */
};

/* How many links has the list? Counts up to `max`. */
static uint32_t count_links(const struct list *list, uint32_t max)
{
    uint32_t n = 0;
    for (const struct list *it = list->next; it != list && n < max; it = it->next) n++;
    return n;
}

/* The share of each session that waits: small enough that all have their turn in this tick, if they are not too many
 * for that. */
static uint32_t share_of_each(const struct sessions *sessions)
{
    const uint32_t most = TICK_UNITS / SHARE_MIN;
    uint32_t n = count_links(&sessions->schedule.fresh, most) + count_links(&sessions->schedule.rested, most) +
                 count_links(&sessions->schedule.waiting, most) + count_links(&sessions->schedule.runnable, most);
    if (n >= most) return SHARE_MIN;
    return n * SHARE_MAX < TICK_UNITS ? SHARE_MAX : TICK_UNITS / n;
}

/* All of `first` to the front of `list`; `first` is empty afterwards. */
static void put_before(struct list *list, struct list *first)
{
    list_append(first, list);
    list_append(list, first);
}

/* Until `end` of the tick's units. Sessions that come into `queue` meanwhile wait for the next tick; so do those left
 * over, before them. */
static void run_queue(struct sessions *sessions, struct list *queue, uint32_t end)
{
    struct list now, *link;
    list_init(&now);
    list_append(&now, queue);
    while (sessions->schedule.spent < end && (link = list_pop_front(&now)) != NULL)
        session_run(LIST_ITEM(link, struct session, run_link));
    put_before(queue, &now);
}

static void on_runner(uv_idle_t *handle)
{
    struct sessions *sessions = handle->data;
    clock_update(sessions->clock);

    struct list next; /* who comes to `runnable` from here on had a turn in this tick */
    list_init(&next);
    sessions->schedule.share = share_of_each(sessions);
    list_append(&next, &sessions->schedule.runnable);

    run_queue(sessions, &sessions->schedule.rested, RESTED_UNITS);
    run_queue(sessions, &sessions->schedule.fresh, TICK_UNITS);
    run_queue(sessions, &sessions->schedule.waiting, TICK_UNITS);
    if (list_empty(&sessions->schedule.waiting)) {
        list_append(&sessions->schedule.waiting, &next);
        sessions->schedule.round++;
        run_queue(sessions, &sessions->schedule.waiting, TICK_UNITS);
    }
    run_queue(sessions, &sessions->schedule.rested, TICK_UNITS);
    put_before(&sessions->schedule.runnable, &next);

    sessions->schedule.share = SHARE_MAX; /* of those that are read */
    check_lists_run(sessions);
    late_answers_run(sessions);
    access_review(sessions);
}

static void on_sweeper(uv_timer_t *timer)
{
    struct sessions *sessions = timer->data;
    clock_update(sessions->clock);
    sessions_sweep(sessions);
}

int sessions_init(struct sessions *sessions, uv_loop_t *loop, struct clock *clock, struct engine *engine,
                  const struct server_options *options)
{
    sessions->read_buffer = mem_alloc(READ_BUFFER_SIZE);
    if (sessions->read_buffer == NULL) return -1;
    if (watch_set(&sessions->watch, &options->watch) != 0) goto err_free_watch;
    if (access_users_init(sessions, options->access) != 0) goto err_free_watch;

    sessions->loop = loop;
    sessions->clock = clock;
    sessions->started_us = clock->mono_us;
    sessions->engine = engine;
    sessions->options = *options;
    sessions->near.what = "near";
    denial_log_set(&sessions->near, DENIALS_FIRST, NEAR_PER_SECOND);
    denial_log_set(&sessions->denials, options->denials, options->denials_per_second);
    sessions->schedule.share = SHARE_MAX;

    list_init(&sessions->idle_requests);
    list_init(&sessions->all);
    list_init(&sessions->output.dirty);
    list_init(&sessions->schedule.fresh);
    list_init(&sessions->schedule.rested);
    list_init(&sessions->schedule.waiting);
    list_init(&sessions->schedule.runnable);
    list_init(&sessions->reads.waiting);
    list_init(&sessions->users.unreviewed);
    list_init(&sessions->users.revoked);
    list_init(&sessions->lists.reading);
    list_init(&sessions->lists.handing);
    list_init(&sessions->output.stalled);
    list_init(&sessions->late.asked);
    list_init(&sessions->late.due);

    uv_idle_init(loop, &sessions->runner);
    uv_timer_init(loop, &sessions->sweeper);
    sessions->runner.data = sessions->sweeper.data = sessions;
    return 0;

err_free_watch:
    watch_fini(&sessions->watch);
    mem_free(sessions->read_buffer);
    return -1;
}

void sessions_fini(struct sessions *sessions)
{
    CHECK(sessions->n == 0 && sessions->output.n_unread == 0 && sessions->lists.n_promised == 0 &&
          sessions->lists.n_handed == 0);
    CHECK(sessions->gathering == NULL && list_empty(&sessions->late.asked) && list_empty(&sessions->late.due));
    CHECK(list_empty(&sessions->reads.waiting));
    CHECK(list_empty(&sessions->lists.reading) && list_empty(&sessions->lists.handing));
    access_users_fini(sessions);
    watch_fini(&sessions->watch);
    places_fini(&sessions->places);
    request_pool_fini(&sessions->idle_requests);
    buffer_pool_fini(&sessions->buffer_pool);
    mem_free(sessions->read_buffer);
}

/* Too much is unread in all: who took nothing for the longest time is closed, until it is not. */
static void close_longest_stalled(struct sessions *sessions)
{
    int looks = 0;
    LIST_FOREACH (link, &sessions->output.stalled) {
        struct session *session = LIST_ITEM(link, struct session, stall_link);
        if (sessions->output.n_unread <= sessions->options.max_output_total || looks++ == UNREAD_LOOKS) return;
        if (session->n_counted == 0 || session_stalled_us(session) < UNREAD_GRACE_US) continue;
        ++*session->group->counts->closed_unread;
        session_close(session, "too much is unread in all (listen.max_output_total), and it took nothing for longest");
    }
}

static bool may_fall_idle(const struct sessions *sessions)
{
    return sessions->options.idle_timeout_ms > 0 && !list_empty(&sessions->all);
}

static bool needs_sweep(const struct sessions *sessions)
{
    return !list_empty(&sessions->output.stalled) || !list_empty(&sessions->users.revoked) || may_fall_idle(sessions);
}

/* In a quarter of the shorter timeout: no session is closed more than that late. */
void sessions_arm_sweep(struct sessions *sessions)
{
    const struct server_options *options = &sessions->options;
    if (uv_is_active((uv_handle_t *)&sessions->sweeper) || uv_is_closing((uv_handle_t *)&sessions->sweeper)) return;

    uint64_t interval = SWEEP_MAX_MS;
    if (options->write_stall_ms > 0) interval = options->write_stall_ms / 4;
    if (may_fall_idle(sessions) && options->idle_timeout_ms / 4 < interval) interval = options->idle_timeout_ms / 4;
    if (interval < SWEEP_MIN_MS) interval = SWEEP_MIN_MS;
    if (interval > SWEEP_MAX_MS) interval = SWEEP_MAX_MS;
    uv_timer_start(&sessions->sweeper, on_sweeper, interval, interval);
}

void sessions_tick_end(struct sessions *sessions)
{
    for (struct list *link; (link = list_pop_front(&sessions->output.dirty)) != NULL;)
        session_end_tick(LIST_ITEM(link, struct session, dirty_link));
    if (sessions->output.n_unread > sessions->options.max_output_total) close_longest_stalled(sessions);
    sessions_note_answers(sessions);
    sessions->schedule.spent =
        sessions->schedule.answers < ENGINE_EXPIRED_UNITS ? sessions->schedule.answers : ENGINE_EXPIRED_UNITS;
    sessions->schedule.answers = 0;

    bool is_awaited = sessions_have_waiting(sessions);
    if (!is_awaited) sessions->schedule.round++;

    struct list *link;
    sessions->reads.n = sessions->reads.n_resumed = 0;
    while (sessions->reads.n_resumed < RESUMED_MAX && (link = list_pop_front(&sessions->reads.waiting)) != NULL) {
        sessions->reads.n_resumed++;
        session_read_again(LIST_ITEM(link, struct session, unread_link));
    }
    sessions->reads.n = sessions->reads.n_resumed;

    bool is_late = !list_empty(&sessions->late.due), is_new = !list_empty(&sessions->users.unreviewed);
    bool has_work = is_late || is_new || sessions->reads.n_resumed > 0 || check_lists_have_work(sessions);
    if (is_awaited || has_work)
        uv_idle_start(&sessions->runner, on_runner);
    else
        uv_idle_stop(&sessions->runner);
    if (needs_sweep(sessions)) sessions_arm_sweep(sessions);
}

void sessions_sweep(struct sessions *sessions)
{
    LIST_FOREACH (link, &sessions->output.stalled) {
        struct session *session = LIST_ITEM(link, struct session, stall_link);
        if (!session_has_stalled(session)) continue;
        bool lingers = session->state == SESSION_LINGERING || session->is_refused;
        *session->group->counts->closed_slow += !lingers;
        session_close(session, lingers ? session->why_ended : "it took no answers for listen.write_stall");
    }

    if (may_fall_idle(sessions)) {
        int64_t since_us = sessions->clock->mono_us - (int64_t)sessions->options.idle_timeout_ms * 1000;
        LIST_FOREACH (link, &sessions->all) {
            struct session *session = LIST_ITEM(link, struct session, link);
            if (session->asked_us > since_us) break;
            if (session_is_busy(session) || session->slots.n > 0) continue;
            ++*session->group->counts->closed_idle;
            session_close(session, "it asked nothing for listen.idle_timeout");
        }
    }
    access_revoke(sessions);
    if (!needs_sweep(sessions)) uv_timer_stop(&sessions->sweeper);
}
