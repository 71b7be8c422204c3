/* routes.c: the pages, which of them a request gets, and whom it is refused to; for http.c. */
#include "admin/routes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/counters.h"
#include "base/log.h"
#include "base/units.h"

enum {
    STATUS_TEXT_MAX = 256,
    READY_TEXT_MAX = 1536,
    HOST_MAX = 255,
    HOST_SHOWN_MAX = 80,
    WORD_SIZE = 16, /* of a path or a value that means something here, with its end */
};

/* ---- health, status.json, the page of links ---- */

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

/* One line: is the daemon ready? With `needs_store`, only if the store decides. */
static bool print_ready(const struct admin_view *view, int64_t now_us, bool needs_store, char *out, size_t size)
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

static void print_status(const struct admin_view *view, int64_t now_us, char *out, size_t size)
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

static void print_links(const struct admin_view *view, int64_t now_us, char *out, size_t size)
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

/* ---- a Host ---- */

static bool is_listed(const char *name, size_t len, const char *allowed)
{
    while (allowed != NULL && *allowed != '\0') {
        size_t n = strcspn(allowed, "\n");
        if (n == len && strncasecmp(allowed, name, len) == 0) return true;
        allowed += n + (allowed[n] == '\n');
    }
    return false;
}

bool host_is_known(const char *host, const char *allowed)
{
    char name[HOST_MAX + 1];
    struct in6_addr address;
    bool in_brackets = host[0] == '[';
    size_t len = in_brackets ? strcspn(host, "]") : strcspn(host, ":");
    const char *port = host + len + (in_brackets && host[len] == ']');
    if (len > HOST_MAX || (*port != '\0' && (*port != ':' || port[1 + strspn(port + 1, "0123456789")] != '\0')))
        return false;

    memcpy(name, host, len);
    name[len] = '\0';
    if (in_brackets) return host[len] == ']' && inet_pton(AF_INET6, name + 1, &address) == 1;
    return inet_pton(AF_INET, name, &address) == 1 || is_listed(name, len, "localhost") ||
           is_listed(name, len, allowed);
}

/* RFC 9112, 3.2: exactly one, but none in HTTP/1.0, which old probes speak. An empty one is for targets without a host,
 * and http: has none of these; through a Unix socket there may be no name to send. */
static bool has_wrong_host(const struct routes *routes, const struct visit *visit)
{
    if (visit->n_hosts != 1) return visit->n_hosts > 0 || !visit->is_old;
    return visit->host.len == 0 && !routes->options.is_local;
}

/* May this name be asked for? */
static bool has_known_host(const struct routes *routes, const struct visit *visit)
{
    char host[HOST_MAX + sizeof "[]:65535"];
    if (routes->options.is_local || visit->n_hosts == 0) return true;
    if (visit->host.len >= sizeof host) return false;
    memcpy(host, visit->host.data, visit->host.len);
    host[visit->host.len] = '\0';
    return host_is_known(host, routes->allow_hosts);
}

/* ---- a path ---- */

/* With %41 as A. A %00 stays as it was sent: it would end the text where it stands, and /metrics%00 is another path. So
 * does all that is too long; neither is the name of anything here. */
static const char *decode(struct slice from, char out[WORD_SIZE])
{
    size_t n = 0;
    for (size_t i = 0; i < from.len; i++) {
        char c = (char)from.data[i];
        if (n == WORD_SIZE - 1) return "";
        if (c == '%' && i + 2 < from.len && isxdigit(from.data[i + 1]) && isxdigit(from.data[i + 2])) {
            const char hex[] = {(char)from.data[i + 1], (char)from.data[i + 2], '\0'};
            char byte = (char)strtoul(hex, NULL, 16);
            if (byte != '\0') i += 2, c = byte;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return out;
}

/* The bytes before the first `end`, which are taken from *rest together with it. */
static struct slice take_until(struct slice *rest, char end)
{
    const uint8_t *found = rest->len > 0 ? memchr(rest->data, end, rest->len) : NULL;
    struct slice taken = {rest->data, found != NULL ? (size_t)(found - rest->data) : rest->len};
    size_t n = taken.len + (found != NULL);
    *rest = (struct slice){rest->data != NULL ? rest->data + n : NULL, rest->len - n};
    return taken;
}

/* Does the query have store=1, the first time that it names it? */
static bool asks_for_store(struct slice query)
{
    char name[WORD_SIZE], value[WORD_SIZE];
    while (query.len > 0) {
        struct slice pair = take_until(&query, '&');
        if (strcmp(decode(take_until(&pair, '='), name), "store") == 0) return strcmp(decode(pair, value), "1") == 0;
    }
    return false;
}

/* ---- a request ---- */

#define TEXT_TYPE "text/plain; charset=utf-8"

void routes_say(struct page *page, const char *status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    page->status = status;
    page->type = TEXT_TYPE;
    page->metrics = NULL;
    vsnprintf(page->text, sizeof page->text, format, args);
    va_end(args);
}

static bool answer_path(const struct routes *routes, const struct visit *visit, struct page *page)
{
    struct admin_view view;
    char word[WORD_SIZE];
    struct slice query = visit->url;
    const char *path = decode(take_until(&query, '?'), word);
    clock_update(routes->clock);
    routes->options.look(routes->options.arg, &view);
    int64_t now_us = routes->clock->mono_us;

    routes_say(page, "200 OK", "ok\n");
    if (strcmp(path, "/livez") == 0 || strcmp(path, "/healthz") == 0) return true;
    if (strcmp(path, "/readyz") == 0) {
        if (!print_ready(&view, now_us, asks_for_store(query), page->text, sizeof page->text))
            page->status = "503 Service Unavailable";
    } else if (strcmp(path, "/metrics") == 0) {
        page->type = METRICS_TYPE;
        page->metrics = metrics_new(&view, routes->clock, routes->options.hiredis_version);
        return page->metrics != NULL;
    } else if (strcmp(path, "/status.json") == 0) {
        page->type = "application/json";
        print_status(&view, now_us, page->text, sizeof page->text);
    } else if (strcmp(path, "/") == 0) {
        page->type = "text/html; charset=utf-8";
        print_links(&view, now_us, page->text, sizeof page->text);
    } else {
        routes_say(page, "404 Not Found",
                   "no such page; there are /metrics, /livez, /healthz, /readyz, /status.json and /\n");
    }
    return true;
}

bool routes_answer(const struct routes *routes, const struct visit *visit, struct page *ret_page)
{
    if (has_wrong_host(routes, visit)) {
        routes_say(ret_page, "400 Bad Request",
                   "a request names its host in one Host field, such as Host: localhost\n");
    } else if (!visit->is_get && !visit->is_head) {
        routes_say(ret_page, "405 Method Not Allowed", "only GET and HEAD; nothing changes here\n");
    } else if (!has_known_host(routes, visit)) {
        char shown[HOST_SHOWN_MAX];
        routes_say(
            ret_page, "403 Forbidden",
            "the name %s is not known here: use the address or localhost, or add the name to admin.allow_hosts\n",
            log_escape(shown, sizeof shown, (const char *)visit->host.data, visit->host.len));
    } else {
        return answer_path(routes, visit, ret_page);
    }
    return true;
}
