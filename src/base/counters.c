#include "base/counters.h"

static struct counter_group *first;
static struct counter_group **end = &first;

void counters_register(struct counter_group *group)
{
    if (group->is_registered) return;
    group->is_registered = true;
    *end = group;
    end = &group->next;
}

const struct counter_group *counters_first(void)
{
    return first;
}

size_t counters_n(void)
{
    size_t n = 0;
    for (const struct counter_group *group = first; group != NULL; group = group->next) n += group->n;
    return n;
}
