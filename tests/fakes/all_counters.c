#include "fakes/all_counters.h"

#include <string.h>

#include "base/log.h"
#include "engine/engine_counters.h"
#include "engine/slots.h"
#include "policy/inline_policies.h"
#include "redis/counters.h"
#include "server/server_counters.h"
#include "store/memory_counters.h"

void all_counters_reset(void)
{
    static struct counter_group *const groups[] = {&log_counter_group,    &server_counter_group, &control_counter_group,
                                                   &inline_counter_group, &engine_counter_group, &slots_counter_group,
                                                   &memory_counter_group, &redis_counter_group,  NULL};
    counters_groups = groups;
    for (size_t i = 0; groups[i] != NULL; i++) memset(groups[i]->values, 0, groups[i]->n * sizeof groups[i]->values[0]);
}
