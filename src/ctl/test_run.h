/*
 * test_run.h: runs the tests of a file on their private daemon, and compares what it answers with what is expected.
 *
 * One daemon serves all tests of a file: before each it forgets everything (test_store clear). One that has ended is
 * started again for the next test. The calls of a step are under way together, as many as WINDOW.
 */
#ifndef RL_CTL_TEST_RUN_H
#define RL_CTL_TEST_RUN_H

#include <regex.h>

#include "ctl/test_daemon.h"
#include "ctl/test_file.h"
#include "ctl/test_report.h"

struct test_runner {
    const regex_t *only;        /* not owned; the names of the tests to run; NULL: all */
    struct test_report *report; /* not owned */
    uint32_t timeout_ms;
    bool shows_progress;
};

/* Reads the file, and runs its tests. What is wrong with the file is in the report, too. */
void test_run_file(const struct test_runner *runner, const char *path);

#endif
