/* counters.c: the list of all groups, and instances of them, for `stats`, the page of metrics and redis/node.c. */
#include "base/counters.h"

static struct counter_group *const none[] = {NULL};
struct counter_group *const *counters_groups = none;
static const struct counter_family *const no_families[] = {NULL};
const struct counter_family *const *counters_families = no_families;

size_t counters_n(void)
{
    size_t n = 0;
    for (struct counter_group *const *group = counters_groups; *group != NULL; group++) n += (*group)->n;
    return n;
}

uint64_t counters_value(const struct counter_group *group, size_t i)
{
    uint64_t sum = 0;
    for (; group != NULL; group = group->other) sum += group->values[i];
    return sum;
}

void counters_add(struct counter_group *group, struct counter_group *instance, uint64_t *values, const char *labels)
{
    *instance = (struct counter_group){
        .rows = group->rows, .values = values, .n = group->n, .labels = labels, .other = group->other};
    group->other = instance;
}

void counters_remove(struct counter_group *group, const struct counter_group *instance)
{
    while (group->other != instance) {
        CHECK(group->other != NULL);
        group = group->other;
    }
    group->other = instance->other;
}
