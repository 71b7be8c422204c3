#include "config/policy_print.h"

#include <inttypes.h>

#include "base/units.h"

/* Where a line of a limit begins: of one that stands straight in its policy, and of one in a list. */
#define STRAIGHT "    "
#define IN_LIST  "        "

static bool is_fixed_window(const struct limit *limit)
{
    return limit->algo == ALGO_FIXED_WINDOW || limit->algo == ALGO_FIRST_HIT;
}

static bool is_bucket(const struct limit *limit)
{
    return limit->algo == ALGO_BUCKET || limit->algo == ALGO_LEAKY_BUCKET;
}

static void print_algorithm(FILE *out, const struct limit *limit, const char *indent)
{
    if (limit_ops(limit)->is_compat) {
        fprintf(out, "%scompat: %s\n", indent, limit_ops(limit)->name);
        fprintf(out, "%skey_prefix: \"%.*s\"\n", indent, (int)limit->key_head_len - 1, limit->key_head);
        return;
    }
    fprintf(out, "%salgorithm: %s\n", indent, limit_ops(limit)->name);
    if (is_fixed_window(limit))
        fprintf(out, "%sstart: %s\n", indent, limit->algo == ALGO_FIRST_HIT ? "first_hit" : "aligned");
    if (is_fixed_window(limit) || limit->algo == ALGO_SLIDING_LOG)
        fprintf(out, "%scount_denied: %s\n", indent, limit->count_denied ? "true" : "false");
}

static void print_limit(FILE *out, const struct limit *limit, const char *indent)
{
    char text[UNITS_TEXT_MAX];
    print_algorithm(out, limit, indent);
    fprintf(out, "%slimit: %" PRId64 "\n", indent, limit->limit);
    fprintf(out, "%swindow: %s\n", indent, units_print_duration(text, limit->window_us));
    if (is_bucket(limit) && limit->limit > 0) fprintf(out, "%sburst: %" PRId64 "\n", indent, limit->burst);
    if (limit->algo == ALGO_LEAKY_BUCKET)
        fprintf(out, "%smax_wait: %s\n", indent, units_print_duration(text, limit->max_wait_us));
}

static void print_limits(FILE *out, const struct policy *policy)
{
    if (policy->limits[0].name[0] == '\0') {
        print_limit(out, &policy->limits[0], STRAIGHT);
        return;
    }
    fprintf(out, "    limits:\n");
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        fprintf(out, "      - name: \"%s\"\n", policy->limits[i].name);
        print_limit(out, &policy->limits[i], IN_LIST);
    }
}

static bool has_phase(const struct policy *policy)
{
    for (uint16_t i = 0; i < policy->n_limits; i++)
        if (policy->limits[i].phase) return true;
    return false;
}

void policy_print(FILE *out, const struct policy *policy)
{
    char text[UNITS_TEXT_MAX];
    fprintf(out, "  \"%s\":\n", policy->name);
    print_limits(out, policy);
    if (has_phase(policy)) fprintf(out, "    phase: true\n");
    fprintf(out, "    on_failure: %s\n", on_failure_name(policy->on_failure));
    fprintf(out, "    deadline: %s\n", units_print_duration(text, (int64_t)policy->deadline_ms * 1000));
    fprintf(out, "    shadow: %s\n", policy->shadow ? "true" : "false");
}
