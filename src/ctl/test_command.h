/*
 * test_command.h: ratelimitctl test: runs files of tests for limits, each on a private daemon.
 */
#ifndef RL_CTL_TEST_COMMAND_H
#define RL_CTL_TEST_COMMAND_H

#include "ctl/complain.h"
#include "ctl/options.h"

enum exit_code test_command_run(const struct options *options, int n, char **files);

#endif
