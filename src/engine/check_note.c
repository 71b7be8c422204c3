#include "engine/check_note.h"

#include <stdio.h>

#include "base/alloc.h"

enum { NUMBER_MAX = 20 };

#define CANDIDATE "+candidate" /* as in the keys of its limits: no policy's name has a plus */

static uint8_t *append(uint8_t *to, const void *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

static uint8_t *append_number(uint8_t *to, size_t number)
{
    char text[NUMBER_MAX + 1];
    int len = snprintf(text, sizeof text, "%zu", number);
    return append(to, text, (size_t)len);
}

static size_t longest(const struct check *first)
{
    size_t len = strlen("notes1:") + NUMBER_MAX + 1 + first->request_id_len;
    for (const struct check *one = first; one != NULL; one = check_after(first, one))
        len += strlen(one->policy->name) + sizeof CANDIDATE + NUMBER_MAX + 1 + one->key.len + 1;
    return len;
}

static int reserve(struct check *first, size_t len)
{
    if (len <= first->note_cap) return 0;
    uint8_t *bytes = mem_realloc(first->note_bytes, len);
    if (bytes == NULL) return -1;
    first->note_bytes = bytes;
    first->note_cap = len;
    return 0;
}

int check_name_note(struct check *first)
{
    if (first->request_id_len == 0 || first->note.len > 0) return 0;
    if (reserve(first, longest(first)) < 0) return -1;
    uint8_t *to = first->note_bytes;
    uint32_t n = check_count(first);
    to = append(to, n > 1 ? "notes1:" : "note1:", n > 1 ? strlen("notes1:") : strlen("note1:"));
    if (n > 1) to = append(append_number(to, n), ":", 1);
    for (const struct check *one = first; one != NULL; one = check_after(first, one)) {
        to = append(to, one->policy->name, strlen(one->policy->name));
        to = append(to, one->policy->is_candidate ? CANDIDATE ":" : ":",
                    one->policy->is_candidate ? sizeof CANDIDATE : 1);
        to = append(append_number(to, one->key.len), ":", 1);
        to = append(append(to, one->key.data, one->key.len), ":", 1);
    }
    to = append(to, first->request_id, first->request_id_len);
    first->note = (struct slice){first->note_bytes, (size_t)(to - first->note_bytes)};
    return 0;
}
