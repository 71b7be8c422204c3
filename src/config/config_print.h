/*
 * config_print.h: a configuration as the YAML that would make it, every setting said.
 *
 * What is not set stands there as a comment. Secrets are never in it: only the names of their files.
 */
#ifndef RL_CONFIG_CONFIG_PRINT_H
#define RL_CONFIG_CONFIG_PRINT_H

#include <stdio.h>

#include "config/config.h"

void config_print(FILE *out, const struct config *config);

#endif
