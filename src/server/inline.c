#include "server/inline.h"

#include <sys/socket.h>
#include <unistd.h>

#include "server/session.h"

/* Asked of the kernel once for a connection: whose process opened it. */
static bool is_own_user(struct session *session)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    uv_os_fd_t fd;
    if (session->peer == PEER_UNKNOWN) {
        bool is_known = uv_fileno((const uv_handle_t *)&session->pipe, &fd) == 0 &&
                        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0;
        session->peer = is_known && peer.uid == geteuid() ? PEER_OWN_USER : PEER_OTHER_USER;
    }
    return session->peer == PEER_OWN_USER;
}

static int check_permitted(const struct params *params)
{
    switch (params->session->home->options.inline_access) {
    case INLINE_EVERYBODY: return 0;
    case INLINE_OWN_USER:
        if (is_own_user(params->session)) return 0;
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
    const struct server_options *options = &params->session->home->options;
    char text[FAULT_TEXT_MAX];
    const uint8_t *start = params->pull.at;
    if (check_permitted(params) != 0) return -1;
    CHECK(pull_skip(&params->pull) == 0); /* the scanner has found the message whole */
    const struct slice map = {start, (size_t)(params->pull.at - start)};
    enum error_code code = options->find_inline(options->find_inline_arg, map, ret_set, text, sizeof text);
    return code == ERROR_NONE ? 0 : params_fail(params, code, "%s", text);
}
