#include "ctl/test_command.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ctl/test_run.h"

enum { TIMEOUT_MS = 60000 };

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

enum exit_code test_command_run(const struct options *options, int n, char **files)
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
        for (int i = 0; i < n; i++) test_run_file(&runner, files[i]);
        code = finish(options, &report);
    } else {
        usage_error("no memory", "");
    }
    test_report_fini(&report);
    if (options->run != NULL) regfree(&only);
    return code;
}
