/*
 * test_report.h: what became of the tests: failures on standard output, wrong files on standard error, and all of it as
 * JUnit's XML if that is wanted.
 */
#ifndef RL_CTL_TEST_REPORT_H
#define RL_CTL_TEST_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/test_file.h"
#include "policy/faults.h"

struct test_report {
    FILE *cases; /* owned; the testcases of JUnit so far, in memory; NULL: they are not wanted */
    char *text;  /* owned; of `cases` */
    size_t text_len;
    uint64_t n_tests, n_failed, n_wrong_files;
};

/* 0, or -1 without memory. */
int test_report_init(struct test_report *report, bool wants_junit);
void test_report_fini(struct test_report *report);

/* `why`: lines of reasons, each with its newline; "" = none. */
void test_report_failed(struct test_report *report, const char *path, const struct test *test, uint32_t line,
                        const char *message, const char *why, double seconds);
void test_report_passed(struct test_report *report, const char *path, const struct test *test, double seconds);
/* Prints each fault. */
void test_report_wrong(struct test_report *report, const char *path, const struct faults *faults);
/* The daemon of the file does not start, or not end; `words` have the reason. */
void test_report_no_daemon(struct test_report *report, const struct test_file *file, const char *words);

/* Writes the file of JUnit. 0, or -1 with errno set. */
int test_report_write(struct test_report *report, const char *path);

#endif
