/* http.c: reads one request, and writes its answer, in pieces; for admin.c. */
#include "admin/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "admin/admin_counters.h"
#include "base/alloc.h"
#include "base/assert.h"

enum {
    HEAD_BYTES = 32 * 1024, /* of the request line and the fields */
    PIECE_BYTES = 4096,     /* that are read, or made of a page, in one piece of work */
    FIELDS_MAX = 1024,      /* bytes of an answer's head */
};

/* ---- the answer ---- */

static void drop_metrics(struct http *http)
{
    metrics_free(http->metrics);
    http->metrics = NULL;
}

/* The page, from its status line on: all of it, but for the metrics. */
static enum http_next answer(struct http *http, const struct page *page)
{
    char fields[FIELDS_MAX], date[64], length[64] = "";
    struct tm utc;
    const time_t now = time(NULL);
    bool is_refused_method = strncmp(page->status, "405", 3) == 0;
    bool has_text = page->metrics == NULL && !http->visit.is_head;
    CHECK(http->state <= HTTP_IN_BODY && buffer_len(&http->out) == 0);
    http->state = HTTP_ANSWERING;

    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &utc));
    if (page->metrics == NULL)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(page->text));
    else if (!http->visit.is_old) /* one that is old reads until the end of the connection */
        snprintf(length, sizeof length, "Transfer-Encoding: chunked\r\n");
    int n = snprintf(fields, sizeof fields,
                     "HTTP/1.1 %s\r\nDate: %s\r\nContent-Type: %s\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
                     "Cache-Control: no-store\r\nConnection: close\r\n%s%s\r\n",
                     page->status, date, page->type, is_refused_method ? "Allow: GET, HEAD\r\n" : "", length);
    CHECK(n > 0 && n < FIELDS_MAX);

    http->metrics = page->metrics;
    if (http->visit.is_head) drop_metrics(http);
    if (buffer_append(&http->out, fields, (size_t)n) != 0 ||
        buffer_append(&http->out, page->text, has_text ? strlen(page->text) : 0) != 0)
        return HTTP_OVER;
    admin_counters.admin_requests++;
    return HTTP_GOES_ON;
}

/* Puts the next bytes of the metrics into the empty buffer, perhaps none yet. False: no memory; the peer sees a page
 * without its end. */
static bool make_more(struct http *http)
{
    char text[PIECE_BYTES], size[16];
    int64_t n = metrics_read(http->metrics, text, sizeof text);
    bool is_chunked = !http->visit.is_old;
    if (n == METRICS_FAILED) return false;
    if (n == METRICS_OVER) {
        drop_metrics(http);
        return !is_chunked || buffer_append(&http->out, "0\r\n\r\n", 5) == 0;
    }
    if (n == 0) return true; /* a chunk of no bytes would be the last one */
    if (!is_chunked) return buffer_append(&http->out, text, (size_t)n) == 0;
    int size_len = snprintf(size, sizeof size, "%zx\r\n", (size_t)n);
    return buffer_append(&http->out, size, (size_t)size_len) == 0 && buffer_append(&http->out, text, (size_t)n) == 0 &&
           buffer_append(&http->out, "\r\n", 2) == 0;
}

static enum http_next send_piece(struct http *http)
{
    if (buffer_len(&http->out) == 0 && http->metrics != NULL && !make_more(http)) return HTTP_OVER;
    if (buffer_len(&http->out) > 0) {
        ssize_t n = send(http->fd, buffer_data(&http->out), buffer_len(&http->out), MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR ? HTTP_WRITES : HTTP_OVER;
        buffer_consume(&http->out, (size_t)n);
    }
    if (buffer_len(&http->out) > 0 || http->metrics != NULL) return HTTP_GOES_ON;
    if (http->is_whole) return HTTP_OVER;

    http->state = HTTP_DRAINING;
    shutdown(http->fd, SHUT_WR);
    return HTTP_READS;
}

/* ---- the request ---- */

/* llhttp gives a text in pieces, but what was read stays where it is, so they are one. */
static void extend(struct slice *text, const char *at, size_t len)
{
    if (text->data == NULL) text->data = (const uint8_t *)at;
    text->len = (size_t)((const uint8_t *)at - text->data) + len;
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct http *http = parser->data;
    extend(&http->visit.url, at, len);
    return 0;
}

static int on_url_end(llhttp_t *parser)
{
    struct http *http = parser->data;
    http->has_url = true;
    return 0;
}

static int on_name(llhttp_t *parser, const char *at, size_t len)
{
    struct http *http = parser->data;
    if (http->state == HTTP_IN_HEAD) extend(&http->name, at, len); /* the fields after a body are not kept */
    return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    struct http *http = parser->data;
    if (http->state == HTTP_IN_HEAD) extend(&http->value, at, len);
    return 0;
}

static bool is_text(struct slice slice, const char *text)
{
    return slice.len == strlen(text) && strncasecmp((const char *)slice.data, text, slice.len) == 0;
}

static int on_field(llhttp_t *parser)
{
    struct http *http = parser->data;
    struct slice *value = &http->value;
    while (value->len > 0 && strchr(" \t", value->data[value->len - 1]) != NULL) value->len--;
    if (is_text(http->name, "Host")) {
        http->visit.host = *value;
        http->visit.n_hosts++;
    }
    if (is_text(http->name, "Expect")) http->expects = is_text(*value, "100-continue");
    http->name = *value = (struct slice){0};
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct http *http = parser->data;
    http->state = HTTP_IN_BODY;
    http->visit.is_get = parser->method == HTTP_GET;
    http->visit.is_head = parser->method == HTTP_HEAD;
    http->visit.is_old = parser->http_major == 1 && parser->http_minor == 0;
    return http->expects ? HPE_PAUSED : 0;
}

static int on_end(llhttp_t *parser)
{
    struct http *http = parser->data;
    http->is_whole = true;
    return HPE_PAUSED; /* a connection is for one request */
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_url_complete = on_url_end,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_header_value_complete = on_field,
    .on_headers_complete = on_head,
    .on_message_complete = on_end,
};

/* It breaks the format, or a bound. */
static enum http_next refuse(struct http *http, llhttp_errno_t error, struct page *page)
{
    size_t n_letters = 0;
    while (n_letters < http->len && http->head[n_letters] >= 'A' && http->head[n_letters] <= 'Z') n_letters++;

    if (error == HPE_OK && !http->has_url)
        routes_say(page, "414 URI Too Long", "the path is too long; a request has %d bytes at most\n", HEAD_BYTES);
    else if (error == HPE_OK)
        routes_say(page, "431 Request Header Fields Too Large",
                   "the fields are too long; a request has %d bytes at most\n", HEAD_BYTES);
    else if (error == HPE_INVALID_METHOD && n_letters > 0 && n_letters < http->len && http->head[n_letters] == ' ')
        routes_say(page, "405 Method Not Allowed", "only GET and HEAD; nothing changes here\n");
    else if (error == HPE_INVALID_VERSION && (http->parser.http_major != 1 || http->parser.http_minor > 1))
        routes_say(page, "505 HTTP Version Not Supported", "only HTTP/1.1 and HTTP/1.0\n");
    else
        routes_say(
            page, "400 Bad Request",
            "this is no request of HTTP/1.1 (%s); a whole one is GET /livez HTTP/1.1, Host: localhost and an empty "
            "line\n",
            http->parser.reason != NULL ? http->parser.reason : llhttp_errno_name(error));
    return answer(http, page);
}

static enum http_next read_piece(struct http *http)
{
    static char body[PIECE_BYTES];
    struct page page;
    bool in_head = http->state == HTTP_IN_HEAD;
    size_t space = in_head ? HEAD_BYTES - http->len : sizeof body;
    char *to = in_head ? http->head + http->len : body;
    ssize_t n = recv(http->fd, to, space < PIECE_BYTES ? space : PIECE_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return HTTP_READS;
    if (n <= 0) return HTTP_OVER; /* half a request has no answer */

    if (in_head) http->len += (size_t)n;
    llhttp_errno_t error = llhttp_execute(&http->parser, to, (size_t)n);
    bool is_read = http->is_whole || (http->expects && error == HPE_PAUSED);
    bool is_full = http->state == HTTP_IN_HEAD && http->len == HEAD_BYTES;
    if (!is_read && error == HPE_OK && !is_full) return HTTP_READS;

    if (!is_read) return refuse(http, error, &page);
    if (http->parser.http_major != 1) return refuse(http, HPE_INVALID_VERSION, &page);
    return routes_answer(http->routes, &http->visit, &page) ? answer(http, &page) : HTTP_OVER;
}

/* What still comes, until the peer ends its side. */
static enum http_next drain(struct http *http)
{
    static char rest[PIECE_BYTES];
    ssize_t n = recv(http->fd, rest, sizeof rest, 0);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? HTTP_READS : HTTP_OVER;
}

enum http_next http_run(struct http *http)
{
    switch (http->state) {
    case HTTP_ANSWERING: return send_piece(http);
    case HTTP_DRAINING: return drain(http);
    default: return read_piece(http);
    }
}

/* ---- beginning and end ---- */

int http_init(struct http *http, const struct routes *routes, int fd)
{
    *http = (struct http){.routes = routes, .fd = fd, .head = mem_alloc(HEAD_BYTES)};
    if (http->head == NULL) return -1;
    buffer_init(&http->out, 0);
    llhttp_init(&http->parser, HTTP_REQUEST, &settings);
    http->parser.data = http;
    return 0;
}

void http_fini(struct http *http)
{
    metrics_free(http->metrics);
    buffer_fini(&http->out);
    mem_free(http->head);
}
