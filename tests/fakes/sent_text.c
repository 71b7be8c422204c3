#include "fakes/sent_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void show_entries(struct pull *pull, uint32_t n, bool is_map, char *out)
{
    strcat(out, is_map ? "{" : "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) strcat(out, ", ");
        sent_text_show(pull, out);
        if (!is_map) continue;
        strcat(out, ": ");
        sent_text_show(pull, out);
    }
    strcat(out, is_map ? "}" : "]");
}

void sent_text_show(struct pull *pull, char *out)
{
    char number[32];
    struct slice text;
    int64_t value;
    uint32_t n;
    assert_true(strlen(out) < SENT_TEXT_SIZE / 2);
    if (pull_nil(pull) == 0) {
        strcat(out, "null");
    } else if (pull_int(pull, &value) == 0) {
        snprintf(number, sizeof number, "%lld", (long long)value);
        strcat(out, number);
    } else if (pull_text(pull, &text) == 0) {
        strcat(out, "'");
        strncat(out, (const char *)text.data, text.len);
        strcat(out, "'");
    } else if (pull_map(pull, &n) == 0) {
        show_entries(pull, n, true, out);
    } else {
        assert_int_equal(pull_array(pull, &n), 0);
        show_entries(pull, n, false, out);
    }
}

const char *sent_text(struct scripted_daemon *daemon)
{
    static char text[SENT_TEXT_SIZE];
    struct rpc_request request;
    assert_true(daemon_read(daemon, &request));
    snprintf(text, sizeof text, "%.*s ", (int)request.method.len, (const char *)request.method.data);
    for (uint32_t i = 0; i < request.n_params; i++) {
        if (i > 0) strcat(text, ", ");
        sent_text_show(&request.params, text);
    }
    return text;
}
