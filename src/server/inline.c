#include "server/inline.h"

#include <unistd.h>

#include "server/session.h"

static int check_permitted(const struct params *params)
{
    switch (params->session->sessions->options.inline_access) {
    case INLINE_EVERYBODY: return 0;
    case INLINE_OWN_USER:
        if (session_peer(params->session)->uid == geteuid()) return 0;
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "policy: without a configuration inline policies are for the daemon's own user; write the "
                           "name of one that 'policies' lists");
    default:
        return params_fail(params, ERROR_NOT_PERMITTED,
                           "policy: inline policies are not allowed here (inline.allow); write the name of one that "
                           "'policies' lists");
    }
}

int inline_read(struct params *params, struct policy_set **ret_set)
{
    const struct server_options *options = &params->session->sessions->options;
    char text[FAULT_TEXT_MAX];
    const uint8_t *start = params->pull.at;
    if (check_permitted(params) != 0) return -1;
    CHECK(pull_skip(&params->pull) == 0); /* the scanner has found the message whole */
    const struct slice map = {start, (size_t)(params->pull.at - start)};
    enum error_code code = options->find_inline(options->find_inline_arg, map, ret_set, text, sizeof text);
    return code == ERROR_NONE ? 0 : params_fail(params, code, "%s", text);
}
