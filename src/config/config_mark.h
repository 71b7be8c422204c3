/*
 * config_mark.h: have the files of a configuration changed?
 *
 * A mark follows each path through its links, so that it sees a mounted ConfigMap, whose links are swapped. It reads
 * directories, and if asked to the files: not on the event loop.
 */
#ifndef RL_CONFIG_CONFIG_MARK_H
#define RL_CONFIG_CONFIG_MARK_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* A hash of device, inode, size and times of the file at `path` and of all files that `config` names; with `reads`,
 * also of what they hold: over a network, size and times may be those of a moment ago. */
uint64_t config_mark(const char *path, const struct config *config, bool reads);
/* Does the setting name a file that is read with the configuration? */
bool config_names_file(const struct setting *setting);
/* Do both name the same files? */
bool config_same_files(const struct config *a, const struct config *b);

#endif
