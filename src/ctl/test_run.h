/*
 * test_run.h: ratelimitctl test: runs the tests of files, each file on a private daemon, and compares what that answers
 * with what is expected.
 *
 * One daemon serves all tests of a file: before each it forgets everything (test_store clear). One that has ended is
 * started again for the next test. The calls of a step are under way together, as many as WINDOW.
 */
#ifndef RL_CTL_TEST_RUN_H
#define RL_CTL_TEST_RUN_H

#include "ctl/complain.h"
#include "ctl/options.h"

enum exit_code test_run(const struct options *options, int n, char **files);

#endif
