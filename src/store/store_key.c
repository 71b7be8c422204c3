/* store_key.c: writes the names of keys in Redis, for redis/ and for `explain` in server/. */
#include "store/store_key.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "policy/policy.h"

uint64_t store_key_hash(const struct op_member *member)
{
    const struct slice shard_id = member->shard_id.data != NULL ? member->shard_id : member->key;
    return hash_stable(member->limit->policy->name_hash, shard_id.data, shard_id.len);
}

void store_key_tag(uint64_t hash, uint32_t n_shards, char out[STORE_TAG_LEN])
{
    unsigned shard = (unsigned)(hash % n_shards);
    memcpy(out, ":{b000}:", STORE_TAG_LEN);
    out[3] = (char)('0' + shard / 100);
    out[4] = (char)('0' + shard / 10 % 10);
    out[5] = (char)('0' + shard % 10);
}

size_t store_key_pieces(const struct op_member *member, const struct view *view, const struct store_key_scheme *scheme,
                        struct store_key_space *space, struct slice ret[STORE_KEY_PIECES])
{
    const struct limit *limit = member->limit;
    const struct algo_ops *ops = limit_ops(limit);
    size_t n = 0;
    if (!ops->is_compat) {
        store_key_tag(store_key_hash(member), scheme->n_shards, space->tag);
        ret[n++] = slice_of(scheme->prefix);
        ret[n++] = (struct slice){(const uint8_t *)space->tag, sizeof space->tag};
    }
    ret[n++] = (struct slice){(const uint8_t *)limit->key_head, limit->key_head_len};
    ret[n++] = member->key;
    if (ops->name_window == NULL) return n;
    ops->name_window(view, space->window);
    ret[n++] = slice_of(space->window);
    return n;
}

const char *store_key_own(const char *prefix, uint32_t shard, const char *name, char out[STORE_OWN_KEY_MAX])
{
    char tag[STORE_TAG_LEN];
    store_key_tag(shard, STORE_SHARDS_MAX, tag);
    snprintf(out, STORE_OWN_KEY_MAX, "%s%.*s%s", prefix, STORE_TAG_LEN, tag, name);
    return out;
}
