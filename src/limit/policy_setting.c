#include "limit/policy_setting.h"

#include "limit/limit.h"

#define BIT(algo)     (1u << ALGO_##algo)
#define SHAPERS       BIT(LEAKY_BUCKET)
#define BUCKETS       (BIT(BUCKET) | SHAPERS)
#define FIXED_WINDOWS (BIT(FIXED_WINDOW) | BIT(FIRST_HIT))
#define COUNTERS      (FIXED_WINDOWS | BIT(SLIDING_LOG))
#define CALENDARS     BIT(CALENDAR_WINDOW)
#define SLOTTED       BIT(CONCURRENCY)
#define NATIVES       (COUNTERS | BUCKETS | CALENDARS | BIT(SLIDING_COUNTER) | SLOTTED)
#define COMPATS       (EVERY & ~NATIVES)
#define WINDOWED      (EVERY & ~SLOTTED)
#define EVERY         ((1u << N_ALGOS) - 1)

const struct policy_setting policy_settings[N_POLICY_FIELDS] = {
#define POLICY_SETTING(NAME, name, algos, takers, help) {name, algos, takers},
#include "limit/policy_settings.def"
#undef POLICY_SETTING
};
