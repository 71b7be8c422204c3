/* override.c: finds the variant of a key, by the key itself or by pattern, for policy.c. */
#include "policy/override.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/hash.h"
#include "policy/policy.h"

struct overrides *overrides_new(size_t cap)
{
    struct overrides *overrides = mem_zalloc(sizeof *overrides);
    if (overrides == NULL) return NULL;

    overrides->cap = cap;
    overrides->items = mem_zalloc(cap * sizeof *overrides->items);
    if (overrides->items == NULL) goto err_items;
    if (map_init(&overrides->by_text, cap) < 0) goto err_map;
    if (pattern_set_init(&overrides->patterns, cap) < 0) goto err_patterns;
    return overrides;

err_patterns:
    map_fini(&overrides->by_text);
err_map:
    mem_free(overrides->items);
err_items:
    mem_free(overrides);
    return NULL;
}

void overrides_free(struct overrides *overrides)
{
    if (overrides == NULL) return;

    for (size_t i = 0; i < overrides->n; i++) mem_free(overrides->items[i].text);
    map_fini(&overrides->by_text);
    pattern_set_fini(&overrides->patterns);
    network_set_fini(&overrides->networks);
    mem_free(overrides->items);
    mem_free(overrides);
}

int overrides_add(struct overrides *overrides, const char *text, enum override_kind kind, int part,
                  struct policy *variant)
{
    CHECK(overrides->n < overrides->cap);
    struct override *item = &overrides->items[overrides->n];
    *item = (struct override){.text = mem_strdup(text), .kind = kind, .part = part, .variant = variant};
    if (item->text == NULL) return -1;

    variant->override = item;
    overrides->n++;
    map_insert(&overrides->by_text, &item->node, hash_keyed(text, strlen(text)));
    if (kind == OVERRIDE_OF_PATTERN) pattern_set_add(&overrides->patterns, &item->pattern, slice_of(item->text));
    return 0;
}

const struct override *overrides_written(const struct overrides *overrides, struct slice text, enum override_kind kind,
                                         int part)
{
    struct map_node *node = map_first(&overrides->by_text, hash_keyed(text.data, text.len));
    for (; node != NULL; node = map_next_same(node)) {
        const struct override *item = CONTAINER_OF(node, struct override, node);
        if (item->kind == kind && item->part == part && slice_is(text, item->text)) return item;
    }
    return NULL;
}

const struct policy *overrides_find(const struct overrides *overrides, const struct key_format *format,
                                    struct slice key)
{
    const struct override *exact = overrides_written(overrides, key, OVERRIDE_OF_KEY, 0);
    if (exact != NULL) return exact->variant;

    struct network network;
    if (overrides->networks.n > 0 && network_set_find(&overrides->networks, format, key, &network))
        return overrides->items[network.override].variant;

    const struct pattern *pattern = pattern_set_find(&overrides->patterns, key);
    return pattern != NULL ? CONTAINER_OF(pattern, const struct override, pattern)->variant : NULL;
}

const char *override_counting(const struct override *override, struct slice key, char out[NETWORK_TEXT_MAX])
{
    const struct policy *base = override->variant->base;
    if (override->kind != OVERRIDE_OF_NETWORKS) return override->text;

    struct network network;
    CHECK(network_set_find(&base->overrides->networks, base->format, key, &network));
    return network_print(&network, out);
}
