#include "admin/routes.h"

#include <stdio.h>
#include <string.h>

#include "admin/admin_counters.h"
#include "admin/host.h"
#include "admin/metrics.h"
#include "admin/pages.h"
#include "base/log.h"

enum { PAGE_TEXT_MAX = 16384, HOST_SHOWN_MAX = 80, PIECE_BYTES = 4096 };

/* ---- an answer ---- */

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned status, const char *type,
                                     struct MHD_Response *response)
{
    if (response == NULL) return MHD_NO; /* no memory: the connection is closed */
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");

    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    if (result == MHD_YES) admin_counters.admin_requests++;
    return result;
}

#define TEXT_TYPE "text/plain; charset=utf-8"

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *type, const char *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    return send_response(connection, status, type, response);
}

/* ---- the paths ---- */

/* The page is made while it is sent, so a slow reader costs a piece of it and no more. libmicrohttpd asks for as much
 * as its buffer has space for. */
static ssize_t on_metrics_wanted(void *cls, uint64_t at, char *to, size_t max)
{
    (void)at;
    int64_t n = metrics_read(cls, to, max < PIECE_BYTES ? max : PIECE_BYTES);
    if (n == METRICS_FAILED) return MHD_CONTENT_READER_END_WITH_ERROR; /* the peer sees a page without its end */
    return n == METRICS_OVER ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static void on_metrics_over(void *cls)
{
    metrics_free(cls);
}

static enum MHD_Result send_metrics(const struct routes *routes, struct MHD_Connection *connection,
                                    const struct admin_view *view)
{
    struct metrics *metrics = metrics_new(view, routes->clock, routes->options.hiredis_version);
    if (metrics == NULL) return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE_BYTES, on_metrics_wanted, metrics, on_metrics_over);
    if (response == NULL) metrics_free(metrics);
    return send_response(connection, MHD_HTTP_OK, METRICS_TYPE, response);
}

static bool asks_for_store(struct MHD_Connection *connection)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "store");
    return value != NULL && strcmp(value, "1") == 0;
}

static enum MHD_Result answer_path(const struct routes *routes, struct MHD_Connection *connection, const char *path)
{
    struct admin_view view;
    char text[PAGE_TEXT_MAX];
    clock_update(routes->clock);
    routes->options.look(routes->options.arg, &view);

    if (strcmp(path, "/livez") == 0 || strcmp(path, "/healthz") == 0)
        return send_text(connection, MHD_HTTP_OK, TEXT_TYPE, "ok\n");
    if (strcmp(path, "/readyz") == 0) {
        bool is_ready = pages_ready(&view, asks_for_store(connection), text, sizeof text);
        return send_text(connection, is_ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, TEXT_TYPE, text);
    }
    if (strcmp(path, "/metrics") == 0) return send_metrics(routes, connection, &view);
    if (strcmp(path, "/status.json") == 0) {
        pages_status(&view, routes->clock->mono_us, text, sizeof text);
        return send_text(connection, MHD_HTTP_OK, "application/json", text);
    }
    if (strcmp(path, "/") == 0) {
        pages_links(&view, routes->clock->mono_us, text, sizeof text);
        return send_text(connection, MHD_HTTP_OK, "text/html; charset=utf-8", text);
    }
    return send_text(connection, MHD_HTTP_NOT_FOUND, TEXT_TYPE,
                     "no such page; there are /metrics, /livez, /healthz, /readyz, /status.json and /\n");
}

enum MHD_Result routes_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_len, void **request)
{
    static char seen; /* its address alone says that the header was taken before */
    struct visit *visit = cls;
    const struct routes *routes = visit->routes;
    (void)version, (void)body;
    if (*request == NULL) {
        *request = &seen;
        return MHD_YES;
    }
    if (*body_len > 0) { /* a body is read and dropped: else the peer would still be writing when the answer comes */
        *body_len = 0;
        return MHD_YES;
    }

    visit->is_answered = true;
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, TEXT_TYPE,
                         "only GET and HEAD; nothing changes here\n");
    if (!routes->options.is_local && host != NULL && !host_is_known(host, routes->allow_hosts)) {
        char shown[HOST_SHOWN_MAX], text[HOST_SHOWN_MAX + 160];
        snprintf(text, sizeof text,
                 "the name %s is not known here: use the address or localhost, or add the name to admin.allow_hosts\n",
                 log_escape(shown, sizeof shown, host, strlen(host)));
        return send_text(connection, MHD_HTTP_FORBIDDEN, TEXT_TYPE, text);
    }
    return answer_path(routes, connection, url);
}
