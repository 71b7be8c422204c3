/*
 * reload_answer.h: the answers of `reload` and `config` (PROTOCOL.md), packed in the thread that did the work.
 */
#ifndef RL_DAEMON_RELOAD_ANSWER_H
#define RL_DAEMON_RELOAD_ANSWER_H

#include "base/buffer.h"
#include "config/config.h"

struct reload;

enum { RELOAD_ANSWER_MAX = 3 << 20 }; /* bytes; a client takes 4 MiB */

/* `out` stays empty without memory. */
void reload_answer_pack(struct buffer *out, const struct reload *reload, const char *path);
/* And if there is more of it than RELOAD_ANSWER_MAX. `path` may be NULL: no file. */
void reload_answer_pack_config(struct buffer *out, const struct config *config, const struct config *started,
                               const char *path);

#endif
