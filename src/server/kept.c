/* kept.c: copies of names and keys, for check_ring.c and top_keys.c. */
#include "server/kept.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "policy/inline_policies.h"

struct slice kept_key_start(const struct kept_key *kept)
{
    return (struct slice){kept->bytes, kept->len < KEPT_KEY_BYTES ? kept->len : KEPT_KEY_BYTES};
}

void kept_key_take(struct kept_key *kept, struct slice key)
{
    CHECK(key.len > 0);
    kept->len = (uint32_t)key.len;
    memcpy(kept->bytes, key.data, kept_key_start(kept).len);
    log_key_hash(kept->hash, key);
}

bool kept_key_is(const struct kept_key *kept, struct slice key)
{
    char hash[LOG_KEY_HASH_MAX];
    if (key.len != kept->len || memcmp(key.data, kept->bytes, kept_key_start(kept).len) != 0) return false;
    return key.len <= KEPT_KEY_BYTES || strcmp(log_key_hash(hash, key), kept->hash) == 0;
}

struct slice kept_key_shown(const struct kept_key *kept, char space[KEPT_KEY_SHOWN_MAX])
{
    struct slice bytes = kept_key_start(kept);
    if (kept->len <= KEPT_KEY_BYTES) return log_key_in_view(bytes, kept->hash);

    memcpy(space, bytes.data, bytes.len);
    size_t n = (size_t)snprintf(space + bytes.len, KEPT_KEY_SHOWN_MAX - bytes.len, "...%s", kept->hash);
    return log_key_in_view((struct slice){(const uint8_t *)space, bytes.len + n}, kept->hash);
}

void kept_names_take(struct kept_names *kept, const struct policy *policy, const struct limit *limit)
{
    static const char no_name[sizeof kept->limit];
    CHECK(policy != NULL);
    kept->has_limit = limit != NULL;
    kept->is_inline = inline_is_name(policy->name);
    memcpy(kept->policy, policy->label, sizeof kept->policy);
    memcpy(kept->limit, limit != NULL ? limit->name : no_name, sizeof kept->limit);
}

const char *kept_limit_path(const struct kept_names *kept, char out[LIMIT_PATH_MAX])
{
    if (!kept->has_limit) return NULL;
    snprintf(out, LIMIT_PATH_MAX, "%s%s%s", kept->policy, kept->limit[0] != '\0' ? "/" : "", kept->limit);
    return out;
}
