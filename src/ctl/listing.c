/* listing.c: asks for the pages of `policies`, and makes one list of them, for ratelimitctl.c. */
#include "ctl/listing.h"

#include <stdio.h>
#include <string.h>

#include "client/blocking.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum { PAGE_POLICIES = 256, MESSAGE_SIZE = 512 };

struct listing {
    const char *only;       /* NULL: all */
    struct buffer policies; /* owned; packed, one after another */
    uint32_t n;             /* of them */
    bool is_whole;          /* nothing more is to be asked for */
    struct slice last;      /* the page's last policy of the configuration; in its answer */
    bool has_no_memory;
};

/* Takes what is asked for from an answer. A daemon that knows no pages answers with the whole. */
static void take_page(struct listing *listing, struct pull answer)
{
    uint32_t n = 0, n_configured = 0;
    pull_array(&answer, &n);

    for (; n > 0; n--) {
        const struct pull policy = answer;
        struct pull name = words_member(policy, "name"), is_inline = words_member(policy, "inline");
        bool is_configured = pull_type(&is_inline) != PULL_BOOL;
        if (is_configured && pull_text(&name, &listing->last) == 0) n_configured++;
        if (pull_skip(&answer) != 0) break;

        bool is_named = listing->only != NULL && words_is(policy, "name", listing->only);
        if (listing->only != NULL && !is_named && !words_is(policy, "label", listing->only)) continue;
        if (buffer_append(&listing->policies, policy.at, (size_t)(answer.at - policy.at)) < 0)
            listing->has_no_memory = true;
        listing->n++;
        listing->is_whole |= is_named;
    }
    listing->is_whole |= n_configured != PAGE_POLICIES;
}

static enum exit_code finish_listing(struct ratelimit *client, const struct listing *listing, struct buffer *ret)
{
    char text[MESSAGE_SIZE];
    struct packer packer = packer_of(ret);
    pack_array(&packer, listing->n);
    if (listing->has_no_memory || packer.failed ||
        buffer_append(ret, buffer_data(&listing->policies), buffer_len(&listing->policies)) < 0)
        return complain(blocking_link(client), RATELIMIT_NO_MEMORY, "", "no memory for the policies");
    if (listing->only == NULL || listing->n > 0) return EXIT_DONE;

    snprintf(text, sizeof text, "UNKNOWN_POLICY: no policy '%s'; ratelimitctl policies lists them", listing->only);
    return complain(blocking_link(client), RATELIMIT_REFUSED, "UNKNOWN_POLICY", text);
}

enum exit_code listing_ask(struct ratelimit *client, uint32_t timeout_ms, const char *only, struct buffer *ret)
{
    static const uint8_t no_parameters[] = {0x90};
    struct listing listing = {.only = only};
    struct buffer params = {0};
    const void *result;
    size_t len;
    enum exit_code code = EXIT_DONE;

    while (!listing.is_whole && !listing.has_no_memory) {
        struct packer packer = packer_of(&params);
        buffer_truncate(&params, 0);
        pack_array(&packer, 1);
        pack_map(&packer, listing.last.len > 0 ? 2 : 1);
        pack_int_field(&packer, "max", PAGE_POLICIES);
        if (listing.last.len != 0) {
            pack_text(&packer, "after");
            pack_str(&packer, listing.last);
        }

        enum ratelimit_status status =
            ratelimit_call(client, "policies", buffer_data(&params), buffer_len(&params), timeout_ms, &result, &len);
        bool is_refused = status == RATELIMIT_REFUSED && strcmp(ratelimit_error_code(client), "BAD_REQUEST") == 0;
        if (is_refused && listing.last.len == 0) /* by a daemon that is older than pages */
            status = ratelimit_call(client, "policies", no_parameters, sizeof no_parameters, timeout_ms, &result, &len);
        if (status != RATELIMIT_OK) {
            code = complain(blocking_link(client), status, ratelimit_error_code(client), ratelimit_error(client));
            goto out;
        }

        struct pull answer = pull_of(result, len);
        if (pull_type(&answer) != PULL_ARRAY) { /* to be shown or refused as it is */
            if (buffer_append(ret, result, len) < 0) code = usage_error("no memory", "");
            goto out;
        }
        take_page(&listing, answer);
    }
    code = finish_listing(client, &listing, ret);

out:
    buffer_fini(&params);
    buffer_fini(&listing.policies);
    return code;
}
