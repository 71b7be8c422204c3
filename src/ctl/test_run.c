/* test_run.c: runs files of tests, step by step, for ratelimitctl.c. */
#include "ctl/test_run.h"

#include <errno.h>
#include <inttypes.h>
#include <regex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/units.h"
#include "ctl/test_daemon.h"
#include "ctl/test_file.h"
#include "ctl/test_report.h"
#include "ctl/text.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum {
    WINDOW = 512, /* calls under way */
    MESSAGE_MAX = 1024,
    CODE_MAX = 48,
    EXPLAINED_MAX = 4,     /* of a list */
    PROGRESS_US = 1000000, /* a step that takes longer shows how far it is, */
    PROGRESS_CALLS = 4096, /* looked at after so many */
    PAGE_POLICIES = 1000,
    TIMEOUT_MS = 60000,
};

struct test_runner {
    const regex_t *only;        /* not owned; the names of the tests to run; NULL: all */
    struct test_report *report; /* not owned */
    uint32_t timeout_ms;
    bool shows_progress;
};

/* What has come back of a step. */
struct tally {
    int64_t n_allowed, n_denied;
    struct buffer last;           /* owned; the last answer, packed; empty: it was an error */
    char error[MESSAGE_MAX];      /* the last one, with its code; "" = none */
    char code[CODE_MAX];          /* of the last answer; "" = it was no error */
    char unexpected[MESSAGE_MAX]; /* the first error that is not expected */
    bool is_broken;               /* there is no daemon any more */
    enum ratelimit_status broken; /* how that showed */
};

struct run {
    const struct test_runner *runner;
    const struct test_file *file;
    struct test_daemon daemon;
    const struct test *test;
    const struct test_step *step;
    struct tally tally;
    char **ids;           /* owned, as are its members; what names stand for; NULL: nothing was granted */
    struct buffer params; /* owned; scratch */
};

/* ---- Answers ---- */

static void count_decisions(struct tally *tally, struct pull answer)
{
    uint32_t n;
    bool allowed;
    if (pull_array(&answer, &n) == 0) {
        for (; n > 0; n--) {
            count_decisions(tally, answer);
            if (pull_skip(&answer) != 0) return;
        }
        return;
    }
    struct pull value = words_member(answer, "allowed");
    if (pull_bool(&value, &allowed) != 0) return;
    tally->n_allowed += allowed;
    tally->n_denied += !allowed;
}

static void take_error(struct run *run, const struct ratelimit_answer *answer)
{
    struct tally *tally = &run->tally;
    const struct test_expectation *expected = &run->step->expects[TEST_ERROR];
    bool has_code = answer->code[0] != '\0';
    buffer_truncate(&tally->last, 0);
    snprintf(tally->error, sizeof tally->error, "%s",
             answer->message[0] != '\0' ? answer->message : ratelimit_status_text(answer->status));
    snprintf(tally->code, sizeof tally->code, "%s", has_code ? answer->code : "LOST");
    bool is_broken = answer->status != RATELIMIT_REFUSED && answer->status != RATELIMIT_BAD_ARGUMENT;
    if (is_broken && !tally->is_broken) tally->broken = answer->status;
    tally->is_broken |= is_broken;
    bool is_expected = expected->is_given && has_code && strcmp(expected->text, answer->code) == 0;
    if (!is_expected && tally->unexpected[0] == '\0')
        snprintf(tally->unexpected, sizeof tally->unexpected, "%s", tally->error);
}

/* What a reserve or acquire was granted has the step's name from now on. */
static void take_id(struct run *run)
{
    struct pull answer = pull_of(buffer_data(&run->tally.last), buffer_len(&run->tally.last));
    struct pull value = words_member(answer, run->step->method->names == TEST_NAMES_SLOT ? "slot" : "reservation");
    struct slice id;
    if (pull_text(&value, &id) != 0) return;

    char **named = &run->ids[run->step->as];
    mem_free(*named);
    *named = mem_alloc(id.len + 1);
    CHECK(*named != NULL);
    memcpy(*named, id.data, id.len);
    (*named)[id.len] = '\0';
}

static void on_answer(const struct ratelimit_answer *answer, void *arg)
{
    struct run *run = arg;
    struct tally *tally = &run->tally;
    if (answer->status != RATELIMIT_OK) {
        take_error(run, answer);
        return;
    }
    tally->code[0] = '\0';
    buffer_truncate(&tally->last, 0);
    if (buffer_append(&tally->last, answer->result, answer->result_len) < 0)
        snprintf(tally->unexpected, sizeof tally->unexpected, "no memory to keep the answer");
    if (run->step->as != NO_NAME) take_id(run);
    if (run->step->method->answer == TEST_ANSWER_DECISION)
        count_decisions(tally, pull_of(answer->result, answer->result_len));
}

/* The answer to what must work: the clock, the store. */
static void on_set(const struct ratelimit_answer *answer, void *arg)
{
    struct run *run = arg;
    if (answer->status != RATELIMIT_OK) take_error(run, answer);
}

/* ---- Asking ---- */

static void call(struct run *run, const char *method, const struct buffer *params, ratelimit_answer_fn *callback)
{
    enum ratelimit_status status = test_daemon_call(&run->daemon, method, params, callback, run);
    if (status == RATELIMIT_OK) return;
    const char *fault = status == RATELIMIT_BAD_ARGUMENT ? run->daemon.client->fault : ratelimit_status_text(status);
    callback(&(struct ratelimit_answer){.status = status, .code = "", .message = fault}, run);
}

static void set_clock(struct run *run, int64_t at_us)
{
    struct packer packer = packer_of(&run->params);
    buffer_truncate(&run->params, 0);
    pack_array(&packer, 1);
    pack_int(&packer, at_us);
    call(run, "test_clock", &run->params, on_set);
}

static void set_store(struct run *run, const char *state)
{
    struct packer packer = packer_of(&run->params);
    buffer_truncate(&run->params, 0);
    pack_array(&packer, 1);
    pack_text(&packer, state);
    call(run, "test_store", &run->params, on_set);
}

/* A terminal learns how far a long step is. */
static void show_progress(const struct run *run, int64_t n_sent, int64_t n, int64_t begin_us, bool is_over)
{
    static const char clear_line[] = "\r\033[K";
    bool is_long = clock_mono_us() - begin_us > PROGRESS_US;
    if (!run->runner->shows_progress || !is_long) return;
    if (is_over)
        fputs(clear_line, stderr);
    else
        fprintf(stderr, "%s%s:%" PRIu32 ": %" PRId64 " of %" PRId64 " calls", clear_line, run->file->path,
                run->step->line, n_sent, n);
}

/* With the parameters of a step whose name stands for something now. False: that was not granted. */
static bool fill_name(struct run *run, struct buffer *ret)
{
    const struct test_step *step = run->step;
    const char *id = run->ids[step->uses];
    struct packer packer = packer_of(ret);
    if (id == NULL) return false;
    pack_array(&packer, buffer_len(&step->params) > 0 ? 2 : 1);
    pack_text(&packer, id);
    return buffer_append(ret, buffer_data(&step->params), buffer_len(&step->params)) == 0;
}

static void make_calls(struct run *run, const struct buffer *params)
{
    const struct test_step *step = run->step;
    int64_t n = step->n_ticks * step->times, begin_us = clock_mono_us();
    for (int64_t i = 0; i < n && !run->tally.is_broken; i++) {
        if (i % step->times == 0) set_clock(run, step->at_us + i / step->times * step->every_us);
        call(run, step->method->name, params, on_answer);
        if (ratelimit_async_pending(run->daemon.client) >= WINDOW) test_daemon_wait(&run->daemon, WINDOW / 2);
        if (i % PROGRESS_CALLS == PROGRESS_CALLS - 1) show_progress(run, i, n, begin_us, false);
    }
    test_daemon_wait(&run->daemon, 0);
    show_progress(run, n, n, begin_us, true);
}

/* ---- Comparing ---- */

struct last_answer {
    struct pull decision; /* of a list the last member; at its end: there is none */
    bool allowed;
    int64_t cost;
};

static struct last_answer last_of(const struct run *run)
{
    const struct test_step *step = run->step;
    struct pull answer = pull_of(buffer_data(&run->tally.last), buffer_len(&run->tally.last));
    struct last_answer last = {.decision = answer};
    uint32_t n;
    if (pull_array(&answer, &n) == 0) {
        for (; n > 1; n--) pull_skip(&answer);
        last.decision = answer;
    }
    last.allowed = words_true(last.decision, "allowed");

    bool is_all = strcmp(step->method->name, "check_all") == 0;
    for (size_t i = 0; i < step->n_targets; i++)
        last.cost = is_all ? last.cost + step->targets[i].cost : step->targets[i].cost;
    if (strcmp(step->method->name, "refund") == 0) last.cost = 0;
    return last;
}

static void print_number(FILE *out, enum test_kind kind, int64_t number)
{
    char text[UNITS_TEXT_MAX];
    if (kind == TEST_KIND_DURATION && number < 0)
        fputs("never", out);
    else if (kind == TEST_KIND_DURATION)
        fputs(units_print_duration(text, number * MS_US), out);
    else
        fprintf(out, "%" PRId64, number);
}

/* Prints what was seen of a field. True: it is as expected. */
static bool compare(const struct run *run, const struct last_answer *last, enum test_field field, FILE *seen)
{
    const struct test_expectation *expected = &run->step->expects[field];
    const struct tally *tally = &run->tally;
    const struct test_field_row *row = &test_fields[field];
    struct slice text = {0};
    int64_t number;

    if (row->scope == TEST_SCOPE_ERROR) {
        fputs(tally->code[0] != '\0' ? tally->code : "none", seen);
        return strcmp(expected->text, tally->code) == 0;
    }
    if (row->scope == TEST_SCOPE_DECISION && last->decision.at == last->decision.end) {
        fputs("no decision", seen);
        return false;
    }
    if (row->kind == TEST_KIND_WORD) {
        struct pull value = words_member(last->decision, row->wire);
        (void)pull_text(&value, &text);
        text_print(seen, text.len > 0 ? text : slice_of("null"));
        return slice_is(text, expected->text);
    }
    if (row->kind == TEST_KIND_TRUTH) {
        bool truth = words_true(last->decision, row->wire);
        fputs(truth ? "true" : "false", seen);
        return truth == (expected->low != 0);
    }

    if (field == TEST_ALLOWED)
        number = tally->n_allowed;
    else if (field == TEST_DENIED)
        number = tally->n_denied;
    else /* what a decision leaves out has its default */
        number = words_number(last->decision, row->wire, field == TEST_GRANTED && last->allowed ? last->cost : 0);
    print_number(seen, row->kind, number);
    return number >= expected->low && number <= expected->high;
}

/* The message about a step that is not as expected, allocated; NULL: it is. */
static char *compare_all(const struct run *run)
{
    const struct last_answer last = last_of(run);
    char *message = NULL, *seen_text = NULL;
    size_t size;
    const char *between = "";
    bool is_right = true;
    FILE *out = open_memstream(&message, &size), *seen = open_memstream(&seen_text, &size);
    if (out == NULL || seen == NULL) abort();

    fputs("expected ", out);
    for (enum test_field field = 0; field < N_TEST_FIELDS; field++) {
        char *value = NULL;
        size_t len;
        const struct test_expectation *expected = &run->step->expects[field];
        FILE *one = expected->is_given ? open_memstream(&value, &len) : NULL;
        if (one == NULL) continue;
        bool is_as_expected = compare(run, &last, field, one);
        fclose(one);
        if (!is_as_expected) {
            fprintf(out, "%s%s %s", between, test_fields[field].name, expected->before);
            fprintf(seen, "%s%s %s", between, test_fields[field].name, value);
            between = ", ";
            is_right = false;
        }
        free(value);
    }
    fclose(seen);
    fprintf(out, "; seen %s", seen_text);
    fclose(out);
    free(seen_text);
    if (!is_right) return message;
    free(message);
    return NULL;
}

/* ---- Why ---- */

struct explanation {
    const struct run *run;
    const struct test_target *target;
    bool names_target; /* it is one of several */
    FILE *out;
};

static void on_explained(const struct ratelimit_answer *answer, void *arg)
{
    const struct explanation *explanation = arg;
    FILE *out = explanation->out;
    bool is_known = answer->status != RATELIMIT_OK && strcmp(answer->code, explanation->run->tally.code) == 0;
    if (is_known) return; /* the step has seen the same error */

    fputs("  why: ", out);
    if (explanation->names_target) {
        fprintf(out, "%s ", explanation->target->policy->text);
        text_print(out, slice_of(explanation->target->key));
        fputs(": ", out);
    }
    if (answer->status == RATELIMIT_OK)
        words_text(out, pull_of(answer->result, answer->result_len), "why", "", "");
    else
        text_print_sentence(out, slice_of(answer->message));
    fputc('\n', out);
}

/* Why the daemon answers as it does, in its words: lines, allocated, or NULL. */
static char *explain(struct run *run)
{
    const struct test_step *step = run->step;
    if (step->uses != NO_NAME) step = run->test->names[step->uses].step;
    char *why = NULL;
    size_t size;
    FILE *out = open_memstream(&why, &size);
    if (out == NULL) return NULL;

    for (size_t i = 0; i < step->n_targets && i < EXPLAINED_MAX; i++) {
        struct explanation explanation = {run, &step->targets[i], step->n_targets > 1, out};

        struct packer packer = packer_of(&run->params);
        const char *name = explanation.target->policy->text;
        buffer_truncate(&run->params, 0);
        if (explanation.target->policy->kind != TREE_TEXT) continue;
        pack_array(&packer, 3);
        pack_str(&packer, (struct slice){(const uint8_t *)name, strcspn(name, "/")});
        pack_text(&packer, explanation.target->key);
        pack_int(&packer, explanation.target->cost > 0 ? explanation.target->cost : 1);
        if (packer.failed) continue;
        if (test_daemon_call(&run->daemon, "explain", &run->params, on_explained, &explanation) == RATELIMIT_OK)
            test_daemon_wait(&run->daemon, 0);
    }
    fclose(out);
    return why;
}

/* ---- Steps and tests ---- */

static char *message_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Allocated. */
static char *message_of(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    CHECK(text != NULL);
    return text;
}

/* The step, without what is expected of it. NULL, or the message about what went wrong, allocated. */
static char *do_step(struct run *run)
{
    const struct test_step *step = run->step;
    struct buffer params = {0};
    if (step->method == NULL) {
        set_clock(run, step->at_us);
        set_store(run, step->store == TEST_STORE_DOWN ? "down" : "up");
        test_daemon_wait(&run->daemon, 0);
    } else if (step->uses == NO_NAME) {
        make_calls(run, &step->params);
    } else if (fill_name(run, &params)) {
        make_calls(run, &params);
    } else {
        const struct test_name *name = &run->test->names[step->uses];
        return message_of("%s names nothing: what was to give it was not allowed", name->text);
    }
    buffer_fini(&params);

    struct tally *tally = &run->tally;
    if (tally->is_broken) {
        test_daemon_end(&run->daemon, tally->broken);
        return message_of("the private daemon %s in between; its messages are on standard error", run->daemon.words);
    }
    const struct test_expectation *error = &step->expects[TEST_ERROR];
    if (tally->unexpected[0] != '\0')
        return message_of("expected %s%s; seen %s", error->is_given ? "error " : "no error",
                          error->is_given ? error->text : "", tally->unexpected);
    return NULL;
}

static void run_test(struct run *run, const struct test *test)
{
    int64_t begin_us = clock_mono_us();
    char *message = NULL, *why = NULL;
    uint32_t line = test->line;
    static const struct test_step anew = {.n_ticks = 1};
    run->test = test;
    run->ids = mem_zalloc((test->n_names + 1) * sizeof *run->ids);
    CHECK(run->ids != NULL);
    run->step = &anew;
    run->tally = (struct tally){.last = run->tally.last};
    set_store(run, "clear");

    for (size_t i = 0; i < test->n_steps && message == NULL; i++) {
        buffer_truncate(&run->tally.last, 0);
        run->tally = (struct tally){.last = run->tally.last};
        run->step = &test->steps[i];
        line = run->step->line;
        message = do_step(run);
        if (message == NULL && run->step->method != NULL) message = compare_all(run);
    }
    if (message != NULL && run->daemon.pid > 0) why = explain(run);
    for (size_t i = 0; i < test->n_names; i++) mem_free(run->ids[i]);
    mem_free(run->ids);
    run->ids = NULL;

    double seconds = (double)(clock_mono_us() - begin_us) / SECOND_US;
    if (message != NULL)
        test_report_failed(run->runner->report, run->file->path, test, line, message, why != NULL ? why : "", seconds);
    else
        test_report_passed(run->runner->report, run->file->path, test, seconds);
    free(message);
    free(why);
}

/* ---- The policies that there are ---- */

struct names {
    struct buffer texts; /* owned; each with a NUL */
    size_t n, n_page;
    bool is_broken;
};

static void on_policies(const struct ratelimit_answer *answer, void *arg)
{
    struct names *names = arg;
    uint32_t n = 0;
    struct slice text;
    struct pull list = pull_of(answer->result, answer->result_len);
    names->is_broken = answer->status != RATELIMIT_OK || pull_array(&list, &n) != 0;
    names->n_page = 0;
    for (; n > 0 && !names->is_broken; n--) {
        struct pull name = words_member(list, "name");
        if (pull_text(&name, &text) != 0 || buffer_append(&names->texts, text.data, text.len) < 0 ||
            buffer_append(&names->texts, "", 1) < 0 || pull_skip(&list) != 0)
            names->is_broken = true;
        names->n_page++;
    }
    names->n += names->n_page;
}

/* 0, or -1 if the daemon did not answer. */
static int ask_names(struct run *run, struct names *names)
{
    size_t last = 0; /* where the last name begins */
    do {
        struct packer packer = packer_of(&run->params);
        buffer_truncate(&run->params, 0);
        pack_array(&packer, 1);
        pack_map(&packer, names->n > 0 ? 2 : 1);
        pack_int_field(&packer, "max", PAGE_POLICIES);
        if (names->n > 0) pack_text_field(&packer, "after", (const char *)buffer_data(&names->texts) + last);
        names->is_broken = true;
        (void)test_daemon_call(&run->daemon, "policies", &run->params, on_policies, names);
        test_daemon_wait(&run->daemon, 0);

        size_t len = buffer_len(&names->texts);
        for (last = len; last > 1 && buffer_data(&names->texts)[last - 2] != '\0';) last--;
        if (last > 0) last--;
    } while (names->n_page == PAGE_POLICIES && !names->is_broken);
    return names->is_broken ? -1 : 0;
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void check_target(const struct test_step *step, const struct test_target *target, const char **sorted, size_t n,
                         struct faults *faults)
{
    char name[256], shown[FAULTS_SHOWN_MAX];
    const char *key = name;
    const struct test_expectation *error = &step->expects[TEST_ERROR];
    if (target->policy->kind != TREE_TEXT) return;
    if (error->is_given && strcmp(error->text, "UNKNOWN_POLICY") == 0) return;

    snprintf(name, sizeof name, "%s", target->policy->text);
    bool has_limit = strcmp(step->method->name, "reset") == 0 || strcmp(step->method->name, "refund") == 0;
    if (has_limit) name[strcspn(name, "/")] = '\0';
    if (n > 0 && bsearch(&key, sorted, n, sizeof *sorted, by_text) != NULL) return;

    struct nearest nearest = nearest_to(name);
    for (size_t i = 0; i < n; i++) nearest_offer(&nearest, sorted[i]);
    faults_shown(shown, name);
    if (nearest.name != NULL)
        faults_add(faults, target->line, step->method->name, "there is no policy %s; did you mean %s?", shown,
                   nearest.name);
    else
        faults_add(faults, target->line, step->method->name, "there is no policy %s; write one of the configuration",
                   shown);
}

/* Records a fault for each policy that the configuration does not have. */
static void check_policies(const struct test_file *file, const struct names *names, struct faults *faults)
{
    const char **sorted = mem_alloc((names->n + 1) * sizeof *sorted);
    const char *at = (const char *)buffer_data(&names->texts);
    CHECK(sorted != NULL);
    for (size_t i = 0; i < names->n; i++, at += strlen(at) + 1) sorted[i] = at;
    if (names->n > 0) qsort(sorted, names->n, sizeof *sorted, by_text);

    for (const struct test *test = file->tests; test < file->tests + file->n_tests; test++)
        for (const struct test_step *step = test->steps; step < test->steps + test->n_steps; step++)
            for (size_t i = 0; i < step->n_targets; i++)
                check_target(step, &step->targets[i], sorted, names->n, faults);
    mem_free(sorted);
}

/* ---- Files ---- */

/* False: it cannot be started, and this is reported. */
static bool start(struct run *run)
{
    char words[TEST_WORDS_MAX + 64];
    const struct test_file *file = run->file;
    enum test_started started = test_daemon_start(&run->daemon, file->config);
    if (started == TEST_STARTED) return true;
    if (started == TEST_WRONG_CONFIG)
        snprintf(words, sizeof words, "config: %.256s does not load, as said above; correct it", file->config);
    else
        snprintf(words, sizeof words, "ratelimitd %s", run->daemon.words);
    test_report_no_daemon(run->runner->report, file, words);
    return false;
}

static bool is_wanted(const struct test_runner *runner, const struct test *test)
{
    return runner->only == NULL || regexec(runner->only, test->name, 0, NULL, 0) == 0;
}

static void run_tests(struct run *run, struct faults *faults)
{
    struct names names = {0};
    const struct test_file *file = run->file;
    if (!start(run)) return;
    if (ask_names(run, &names) == 0) check_policies(file, &names, faults);
    buffer_fini(&names.texts);

    for (size_t i = 0; i < file->n_tests && faults->n_errors == 0; i++) {
        if (!is_wanted(run->runner, &file->tests[i])) continue;
        if (run->daemon.pid == 0 && !start(run)) return;
        run_test(run, &file->tests[i]);
    }
    char words[TEST_WORDS_MAX + 64];
    if (test_daemon_stop(&run->daemon)) return;
    snprintf(words, sizeof words, "ratelimitd %s when it was to end", run->daemon.words);
    test_report_no_daemon(run->runner->report, file, words);
}

/* What is wrong with the file is in the report, too. */
static void run_file(const struct test_runner *runner, const char *path)
{
    struct test_file file;
    struct faults faults;
    struct run run = {.runner = runner, .file = &file, .daemon = {.timeout_ms = runner->timeout_ms}};
    bool is_any = false;
    faults_init(&faults);
    int status = test_file_read(&file, path, &faults);
    for (size_t i = 0; i < file.n_tests && status == 0; i++) is_any |= is_wanted(runner, &file.tests[i]);
    if (is_any) run_tests(&run, &faults);

    faults_sort(&faults);
    if (faults.n_errors > 0) test_report_wrong(runner->report, path, &faults);
    faults_fini(&faults);
    test_file_fini(&file);
    buffer_fini(&run.params);
    buffer_fini(&run.tally.last);
}

/* ---- The command ---- */

static enum exit_code finish(const struct options *options, struct test_report *report)
{
    bool matched = report->n_tests > 0 || report->n_wrong_files > 0;
    if (!matched && options->run != NULL) return complain_usage("--run %s: no test has such a name", options->run);
    printf("%" PRIu64 " tests, %" PRIu64 " failed\n", report->n_tests, report->n_failed);
    if (options->junit != NULL && test_report_write(report, options->junit) != 0) {
        fprintf(stderr, "ratelimitctl: --junit %s: cannot be written: %s\n", options->junit, strerror(errno));
        return EXIT_OUTPUT;
    }
    if (report->n_wrong_files > 0) return EXIT_USAGE;
    return report->n_failed > 0 ? EXIT_DENIED : EXIT_DONE;
}

enum exit_code test_run(const struct options *options, int n, char **files)
{
    regex_t only;
    struct test_report report;
    char fault[128];
    if (options->json) return complain_usage("test has no --json; --junit FILE writes the results for programs");
    if (options->socket != NULL) return complain_usage("test has no --socket; it starts a daemon of its own");
    int wrong = options->run != NULL ? regcomp(&only, options->run, REG_EXTENDED | REG_NOSUB) : 0;
    if (wrong != 0) {
        regerror(wrong, &only, fault, sizeof fault);
        return complain_usage("--run %s: not a regular expression: %s", options->run, fault);
    }

    enum exit_code code = EXIT_USAGE;
    const struct test_runner runner = {
        .only = options->run != NULL ? &only : NULL,
        .report = &report,
        .timeout_ms = options->timeout_ms > 0 ? (uint32_t)options->timeout_ms : TIMEOUT_MS,
        .shows_progress = isatty(STDERR_FILENO) != 0,
    };
    if (test_report_init(&report, options->junit != NULL) == 0) {
        for (int i = 0; i < n; i++) run_file(&runner, files[i]);
        code = finish(options, &report);
    } else {
        usage_error("no memory", "");
    }
    test_report_fini(&report);
    if (options->run != NULL) regfree(&only);
    return code;
}
