#include "admin/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/counters.h"
#include "base/log.h"
#include "base/units.h"

enum { STATUS_TEXT_MAX = 256, READY_TEXT_MAX = 1536 };

/* Seconds since a time. */
static int64_t age_s(int64_t now_us, int64_t since_us)
{
    return (now_us - since_us) / 1000000;
}

static const char *phase_name(enum admin_phase phase)
{
    static const char *const names[] = {
        [ADMIN_STARTING] = "starting", [ADMIN_READY] = "ready", [ADMIN_DRAINING] = "draining"};
    return names[phase];
}

/* The words of the store for a page. Redis may have sent any bytes: they must not end a JSON text, or begin a tag. */
static const char *clean(const char *text, char out[STATUS_TEXT_MAX])
{
    size_t n = 0;
    for (; n < STATUS_TEXT_MAX - 1 && text[n] != '\0'; n++) {
        bool is_plain = text[n] >= ' ' && text[n] < 0x7f && strchr("\"\\<>&", text[n]) == NULL;
        out[n] = is_plain ? text[n] : '\'';
    }
    out[n] = '\0';
    return out;
}

bool pages_ready(const struct admin_view *view, int64_t now_us, bool needs_store, char *out, size_t size)
{
    char status[READY_TEXT_MAX], since[UNITS_TEXT_MAX]; /* plain text: no tag can begin in it */
    bool is_well = view->is_store_up && strcmp(view->store_status, "ready") == 0;
    bool is_ready = view->phase == ADMIN_READY && (view->is_store_up || !needs_store);
    if (view->phase != ADMIN_READY)
        snprintf(out, size, "not ready; %s\n", phase_name(view->phase));
    else if (is_well)
        snprintf(out, size, "ready\n");
    else
        snprintf(out, size, "%s; redis: %s, answering by on_failure (for %s: %s)\n", is_ready ? "ready" : "not ready",
                 view->is_store_up ? "does not decide some checks" : "down",
                 units_print_wait(since, (age_s(now_us, view->store_since_us) + 1) * INT64_C(1000)),
                 log_escape(status, sizeof status, view->store_status, strlen(view->store_status)));
    return is_ready;
}

void pages_status(const struct admin_view *view, int64_t now_us, char *out, size_t size)
{
    char status[STATUS_TEXT_MAX];
    size_t n = (size_t)snprintf(
        out, size,
        "{\"version\": \"%s\", \"state\": \"%s\", \"uptime_seconds\": %" PRId64
        ", \"store\": {\"type\": \"%s\", \"up\": %s, \"status\": \"%s\"}, \"policies\": %zu, "
        "\"configuration\": {\"age_seconds\": %" PRId64 ", \"last_reload_successful\": %s}, \"stats\": {",
        RL_VERSION, phase_name(view->phase), age_s(now_us, view->started_us), view->store,
        view->is_store_up ? "true" : "false", clean(view->store_status, status), view->policies->n,
        age_s(now_us, view->configured_us), view->reload_failed ? "false" : "true");

    const char *between = "";
    for (struct counter_group *const *group = counters_groups; *group != NULL; group++) {
        for (size_t i = 0; i < (*group)->n && n < size; i++) {
            n += (size_t)snprintf(out + n, size - n, "%s\"%s\": %" PRIu64, between, (*group)->rows[i].name,
                                  counters_value(*group, i));
            between = ", ";
        }
    }
    if (n < size) snprintf(out + n, size - n, "}}\n");
}

void pages_links(const struct admin_view *view, int64_t now_us, char *out, size_t size)
{
    char status[STATUS_TEXT_MAX], up[UNITS_TEXT_MAX];
    snprintf(
        out, size,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>ratelimitd</title></head>\n<body>\n"
        "<h1>ratelimitd</h1>\n<p>ratelimitd %s: %s, up %s; store: %s, %s; %zu %s%s</p>\n<ul>\n"
        "<li><a href=\"/metrics\">/metrics</a>: all numbers, for Prometheus</li>\n"
        "<li><a href=\"/status.json\">/status.json</a>: state and counters, as JSON</li>\n"
        "<li><a href=\"/readyz\">/readyz</a>: are checks answered? "
        "<a href=\"/readyz?store=1\">/readyz?store=1</a>: by the store?</li>\n"
        "<li><a href=\"/livez\">/livez</a>, <a href=\"/healthz\">/healthz</a>: is the process alive?</li>\n"
        "</ul>\n</body>\n</html>\n",
        RL_VERSION, phase_name(view->phase), units_print_wait(up, age_s(now_us, view->started_us) * INT64_C(1000)),
        view->store, view->is_store_up ? "up" : clean(view->store_status, status), view->policies->n,
        view->policies->n == 1 ? "policy" : "policies", view->reload_failed ? "; the last reload was refused" : "");
}
