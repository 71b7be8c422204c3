#include "admin/routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

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
        bool is_ready = pages_ready(&view, routes->clock->mono_us, asks_for_store(connection), text, sizeof text);
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

/* ---- a request ---- */

/* A %00 would end a path or a value where it stands: /metrics%00 is another path. Such text stays as it was sent, which
 * is no name of anything here. */
size_t routes_unescape(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls, (void)connection;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

struct hosts {
    const char *last; /* NULL: none */
    size_t n;
};

static enum MHD_Result on_field(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct hosts *hosts = cls;
    (void)kind;
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        hosts->last = value != NULL ? value : "";
        hosts->n++;
    }
    return MHD_YES;
}

/* RFC 9112, 3.2: exactly one, but none in HTTP/1.0, which old probes speak. An empty one is for targets without a host,
 * and http: has none of these; through a Unix socket there may be no name to send. */
static bool has_wrong_host(const struct routes *routes, const struct hosts *hosts, const char *version)
{
    if (hosts->n != 1) return hosts->n > 0 || version == NULL || strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
    return hosts->last[0] == '\0' && !routes->options.is_local;
}

static enum MHD_Result refuse_name(struct MHD_Connection *connection, const char *host)
{
    char shown[HOST_SHOWN_MAX], text[HOST_SHOWN_MAX + 160];
    snprintf(text, sizeof text,
             "the name %s is not known here: use the address or localhost, or add the name to admin.allow_hosts\n",
             log_escape(shown, sizeof shown, host, strlen(host)));
    return send_text(connection, MHD_HTTP_FORBIDDEN, TEXT_TYPE, text);
}

enum MHD_Result routes_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_len, void **request)
{
    static char seen; /* its address alone says that the header was taken before */
    struct visit *visit = cls;
    const struct routes *routes = visit->routes;
    (void)body;
    if (*request == NULL) {
        *request = &seen;
        return MHD_YES;
    }
    if (*body_len > 0) { /* a body is read and dropped: else the peer would still be writing when the answer comes */
        *body_len = 0;
        return MHD_YES;
    }

    visit->is_answered = true;
    struct hosts hosts = {0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, on_field, &hosts);
    if (has_wrong_host(routes, &hosts, version))
        return send_text(connection, MHD_HTTP_BAD_REQUEST, TEXT_TYPE,
                         "a request names its host in one Host field, such as Host: localhost\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, TEXT_TYPE,
                         "only GET and HEAD; nothing changes here\n");
    if (!routes->options.is_local && hosts.last != NULL && !host_is_known(hosts.last, routes->allow_hosts))
        return refuse_name(connection, hosts.last);
    return answer_path(routes, connection, url);
}
