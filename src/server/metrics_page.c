#include "server/metrics_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/params.h"
#include "server/session.h"

enum { NEXT_MAX = 48 };

/* *ret_from, 0 for the page's beginning. 0, or -1 with the fault filled. */
static int read_next(struct params *params, int64_t configured_us, uint64_t *ret_from)
{
    char text[NEXT_MAX], again[NEXT_MAX];
    struct slice next;
    char *end = NULL;
    int64_t of_us = 0;
    uint64_t from = 0;
    *ret_from = 0;
    if (params->n == 0 || pull_nil(&params->pull) == 0) return 0;

    bool is_text = pull_text(&params->pull, &next) == 0 && next.len > 0 && next.len < sizeof text;
    if (is_text) snprintf(text, sizeof text, "%.*s", (int)next.len, (const char *)next.data);
    if (is_text) of_us = strtoll(text, &end, 10);
    if (is_text && *end == '.') from = strtoull(end + 1, &end, 10);
    snprintf(again, sizeof again, "%" PRId64 ".%" PRIu64, of_us, from);
    if (!is_text || !slice_is(next, again)) /* in this form alone */
        return params_fail(params, ERROR_BAD_REQUEST, "next: must be the str `next` of the answer before");
    if (of_us == configured_us) *ret_from = from;
    return 0;
}

int metrics_page_run(struct params *params)
{
    struct session *session = params->session;
    const struct sessions *sessions = session->sessions;
    int64_t configured_us = sessions->options.configured_us;
    struct buffer text = {0};
    uint64_t from;
    char next[NEXT_MAX];
    if (sessions->metrics_part == NULL)
        return params_fail(params, ERROR_UNKNOWN_METHOD, "there is no method 'metrics'");
    if (read_next(params, configured_us, &from) != 0) return -1;

    bool is_first = from == 0;
    int more = sessions->metrics_part(sessions->metrics_arg, &from, &text);
    if (more < 0) {
        buffer_fini(&text);
        return params_fail_overloaded(params);
    }

    struct packer *packer = session_begin_answer(session, params->msgid);
    snprintf(next, sizeof next, "%" PRId64 ".%" PRIu64, configured_us, from);
    pack_map(packer, 1U + is_first + (uint32_t)more);
    if (is_first) pack_bool_field(packer, "first", true);
    pack_text(packer, "text");
    pack_str(packer, buffer_len(&text) > 0 ? (struct slice){buffer_data(&text), buffer_len(&text)} : slice_of(""));
    if (more) pack_text_field(packer, "next", next);
    buffer_fini(&text);
    session_end_answer(session);
    return 0;
}
