/*
 * fuzz_inline.c: whatever settings a peer writes in place of a policy's name, they are a policy or refused with a text,
 * found again by the same bytes, and never more than are allowed are kept.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "policy/inline_policies.h"
#include "proto/pull.h"
#include "proto/scan.h"

enum { MAX_FRAME = 65536, MAX_DEPTH = 32, KEPT = 3, LIST_OF_ONE = 0x91 };

/* As the scanner lets messages through: the value as the one member of a list. The value's length, or 0. */
static size_t scanned(const uint8_t *data, size_t size)
{
    static uint8_t message[MAX_FRAME];
    struct scanner scanner;
    if (size >= sizeof message) return 0;
    message[0] = LIST_OF_ONE;
    if (size > 0) memcpy(message + 1, data, size);
    scanner_init(&scanner, MAX_FRAME, MAX_DEPTH);
    int64_t len = scanner_next(&scanner, message, size + 1);
    return len > 0 ? (size_t)len - 1 : 0;
}

static void ask_twice(struct inline_policies *policies, struct slice map)
{
    char text[256] = "";
    struct policy_set *set = NULL, *again = NULL;
    enum error_code code = inline_policies_find(policies, map, &set, text, sizeof text);
    CHECK((code == ERROR_NONE) == (text[0] == '\0'));
    CHECK(inline_policies_find(policies, map, &again, text, sizeof text) == code && again == set);
    CHECK(code != ERROR_NONE || (set->n == 1 && strlen(set->in_order[0]->name) == strlen("inline-") + 16));
    CHECK(inline_counters.inline_policies <= KEPT);
    if (code != ERROR_NONE) return;

    /* Its name finds it, or the same settings under another label; its label finds it, or is that of several. */
    const struct policy *policy = set->in_order[0];
    CHECK(inline_policies_named(policies, slice_of(policy->name), &again, text, sizeof text) == ERROR_NONE);
    CHECK(policy_is_same(again->in_order[0], policy));
    code = inline_policies_named(policies, slice_of(policy->label), &again, text, sizeof text);
    CHECK(code == ERROR_NONE || text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct policy_defaults defaults = {.deadline_ms = 20};
    struct inline_policies policies;
    inline_policies_init(&policies);
    CHECK(inline_policies_configure(&policies, KEPT, defaults) == 0);
    for (size_t len; (len = scanned(data, size)) > 0; data += len, size -= len) {
        struct pull pull = pull_of(data, len);
        if (pull_type(&pull) == PULL_MAP) ask_twice(&policies, (struct slice){data, len});
    }
    inline_policies_fini(&policies);
    return 0;
}
