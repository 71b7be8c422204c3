/*
 * config_text.h: configurations from the text of a file, and back.
 */
#ifndef RL_TESTS_CONFIG_TEXT_H
#define RL_TESTS_CONFIG_TEXT_H

#include "config/config.h"

/* config_parse() of a text, for use; `faults` begins empty, and is the caller's to fini. */
struct config *config_from(const char *text, struct faults *faults);
/* Of a text that must be correct, without a warning; config_free() it. */
struct config *config_of(const char *text);
/* Its printed form; free() it. */
char *text_of(const struct config *config);

/* The policy of this name, and its first limit. Fails the test if there is none. */
const struct policy *config_policy(const struct config *config, const char *name);
const struct limit *config_limit(const struct config *config, const char *name);

#endif
