#include "fakes/link_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/all_counters.h"

#define SCRIPT "return {7, tonumber(ARGV[#ARGV])}"

struct link_fixture *fixture;

static size_t canary(void *arg, const struct slice **ret_args)
{
    (void)arg;
    static struct slice args[2];
    args[0] = slice_of("0");
    args[1] = slice_of("42");
    *ret_args = args;
    return 2;
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    (void)arg;
    return redis_reader_is_integers(reply) && reply->n_integers == 2 && reply->integers[1] == 42;
}

static void on_ready(void *arg)
{
    ((struct link_fixture *)arg)->n_ready++;
}

static void on_down(void *arg)
{
    ((struct link_fixture *)arg)->n_down++;
}

static void on_attempt(void *arg)
{
    ((struct link_fixture *)arg)->n_attempts++;
}

static void flush(void *arg)
{
    struct link_fixture *w = arg;
    if (w->link != NULL) redis_link_flush(w->link);
}

static void on_closed(void *arg)
{
    ((struct link_fixture *)arg)->is_closed = true;
}

void link_fixture_close(void)
{
    struct redis_link *link = fixture->link;
    fixture->link = NULL;
    redis_link_close(link, on_closed, fixture);
}

int link_fixture_setup(void **state)
{
    fixture = calloc(1, sizeof(*fixture));
    all_counters_reset();
    patient_loop_init(&fixture->patient);
    fixture->patient.on_tick_end = flush;
    fixture->patient.arg = fixture;
    clock_update(&fixture->clock);
    fixture->options = (struct redis_options){
        .stall_ms = 30000, .backoff_min_ms = 1, .backoff_max_ms = 10, .refused_max_ms = 20, .random_seed = 7};
    fixture->script = (struct redis_script){.text = slice_of(SCRIPT),
                                            .sha1 = slice_of(LINK_FIXTURE_SHA1),
                                            .canary = canary,
                                            .is_canary_good = is_canary_good};
    *state = fixture;
    return 0;
}

bool is_closed(void *arg)
{
    return ((struct link_fixture *)arg)->is_closed;
}

int link_fixture_teardown(void **state)
{
    (void)state;
    if (fixture->link != NULL) link_fixture_close();
    patient_loop_until(&fixture->patient, is_closed, fixture);
    assert_int_equal(fixture->n_made, fixture->n_answered);
    patient_loop_fini(&fixture->patient);
    free(fixture);
    return 0;
}

void link_fixture_open(const char *address)
{
    fixture->options.address = address;
    const struct redis_link_events events = {
        .arg = fixture, .on_ready = on_ready, .on_down = on_down, .on_attempt = on_attempt};
    fixture->link =
        redis_link_new(&fixture->patient.loop, &fixture->clock, &fixture->options, NULL, &fixture->script, &events);
    assert_non_null(fixture->link);
}

bool is_ready(void *arg)
{
    (void)arg;
    return redis_link_is_ready(fixture->link);
}

bool is_down(void *arg)
{
    (void)arg;
    return fixture->n_down > 0;
}

bool all_answered(void *arg)
{
    (void)arg;
    return fixture->n_answered == fixture->n_made;
}

bool had_attempt(void *arg)
{
    (void)arg;
    return fixture->n_attempts >= 1;
}

bool had_three_attempts(void *arg)
{
    (void)arg;
    return fixture->n_attempts >= 3;
}

void link_fixture_until(bool (*is_true)(void *arg))
{
    patient_loop_until(&fixture->patient, is_true, fixture);
}

static void on_probe_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct probe *probe = CONTAINER_OF(call, struct probe, call);
    probe->n_replies++;
    fixture->n_answered++;
    probe->is_lost = reply == NULL;
    probe->is_good = reply != NULL && redis_reader_is_integers(reply) && reply->n_integers == 2 &&
                     reply->integers[1] == (int64_t)probe->nonce;
    if (fixture->closes_in_reply && fixture->link != NULL) link_fixture_close();
}

struct probe *link_fixture_command(const struct slice *args, size_t n)
{
    assert_true(fixture->n_made < MAX_PROBES);
    struct probe *made = &fixture->probes[fixture->n_made];
    *made = (struct probe){.call = {.on_reply = on_probe_reply}, .nonce = FIRST_NONCE + fixture->n_made};
    assert_int_equal(redis_link_send(fixture->link, &made->call, args, n), 0);
    fixture->n_made++;
    return made;
}

struct probe *link_fixture_probe(void)
{
    char nonce[16];
    snprintf(nonce, sizeof(nonce), "%u", FIRST_NONCE + fixture->n_made);
    const struct slice args[] = {slice_of("EVALSHA"), slice_of(LINK_FIXTURE_SHA1), slice_of("0"), slice_of(nonce)};
    return link_fixture_command(args, 4);
}

void link_fixture_status_has(const char *part)
{
    const char *status = redis_link_status(fixture->link);
    if (strstr(status, part) == NULL) fail_msg("status \"%s\" does not contain \"%s\"", status, part);
}
