#include "base/counters.h"

struct counters counters;

const struct counter_info counter_table[] = {
#define COUNTER(name, help) {#name, offsetof(struct counters, name)},
#define GAUGE(name, help)   {#name, offsetof(struct counters, name)},
#include "base/counters.def"
#undef COUNTER
#undef GAUGE
};

const size_t n_counters = sizeof counter_table / sizeof counter_table[0];
