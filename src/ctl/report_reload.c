/*
 * report_reload.c: what a reload has done, and the configuration in force.
 */
#include <inttypes.h>
#include <string.h>

#include "ctl/complain.h"
#include "ctl/report.h"
#include "ctl/text.h"
#include "ctl/words.h"

/* The `text` of each map in the list `name`, a line each. Returns how many. */
static uint32_t print_lines(FILE *out, struct pull answer, const char *name)
{
    uint32_t n = 0;
    struct pull list = words_member(answer, name);
    if (pull_array(&list, &n) != 0) return 0;
    for (uint32_t i = 0; i < n; i++) {
        words_text(out, list, "text", "", "\n");
        if (pull_skip(&list) != 0) return i;
    }
    return n;
}

/* "store.type, listen.socket" */
static void print_names(FILE *out, struct pull list)
{
    uint32_t n = 0;
    const char *between = "";
    struct slice name;
    if (pull_array(&list, &n) != 0) return;
    for (; n > 0 && pull_text(&list, &name) == 0; n--, between = ", ") {
        fputs(between, out);
        text_print(out, name);
    }
}

int report_reload(FILE *out, struct pull answer, const struct asked *asked)
{
    struct slice file, state;
    bool is_dry_run = words_true(answer, "dry_run");
    struct pull value = words_member(answer, "file"), state_value = words_member(answer, "state");
    (void)asked;
    if (pull_text(&value, &file) != 0 || pull_text(&state_value, &state) != 0) return -1;

    print_lines(out, answer, "faults");
    uint32_t n = print_lines(out, answer, "changes");
    int64_t n_more = words_number(answer, "more_changes", 0);
    if (n_more > 0) fprintf(out, "and %" PRId64 " more changes\n", n_more);
    bool is_refused = slice_is(state, "refused");
    uint32_t n_notes = print_lines(out, answer, "notes");
    if (n == 0 && n_notes == 0 && !is_refused) fputs("nothing has changed\n", out);

    text_print(out, file);
    if (is_refused) {
        fputs(is_dry_run ? ": would be refused\n" : ": refused; the configuration stays as it was\n", out);
        return 0;
    }
    int64_t n_policies = words_number(answer, "policies", 0);
    fprintf(out, ": %s, %" PRId64 " %s", is_dry_run ? "would be in effect" : "in effect", n_policies,
            n_policies == 1 ? "policy" : "policies");
    if (slice_is(state, "restart_needed")) {
        fputs("; a restart is needed for ", out);
        print_names(out, words_member(answer, "restart"));
    }
    fputc('\n', out);
    return 0;
}

int report_reload_code(struct pull answer)
{
    if (words_is(answer, "state", "in_effect")) return EXIT_DONE;
    return words_is(answer, "state", "restart_needed") ? EXIT_RESTART : EXIT_REFUSED;
}

int report_config(FILE *out, struct pull answer, const struct asked *asked)
{
    struct slice yaml;
    struct pull value = words_member(answer, "yaml");
    (void)asked;
    if (pull_text(&value, &yaml) != 0) return -1;
    words_text(out, answer, "file", "# ", "\n");
    words_text(out, answer, "hash", "# hash ", "\n");
    for (const uint8_t *end; yaml.len > 0; yaml = (struct slice){end, yaml.len - (size_t)(end - yaml.data)}) {
        end = memchr(yaml.data, '\n', yaml.len);
        text_print(out, (struct slice){yaml.data, end != NULL ? (size_t)(end - yaml.data) : yaml.len});
        fputc('\n', out);
        if (end++ == NULL) break;
    }
    return 0;
}
