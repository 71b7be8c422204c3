/*
 * secret.h: a password, or another secret, or a text such as a certificate, from its file.
 *
 * Secrets are never in the configuration or on the command line. The file may be a symbolic link
 * and readable by a group (Kubernetes and systemd mount it so); readable by everybody is a warning,
 * writable by everybody an error. `${CREDENTIALS_DIRECTORY}` at the start of the path is systemd's
 * directory of credentials.
 */
#ifndef RL_CONFIG_SECRET_H
#define RL_CONFIG_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/faults.h"

enum { SECRET_MAX = 4096, SECRET_TEXT_MAX = 1 << 20 };

/* The content without one newline at its end, for secret_free(); NULL with the fault recorded under `line` and `key`,
 * in which it is called a `what`, e.g. "password".
 * With `is_dry_run`, NULL without a fault (but a warning) if CREDENTIALS_DIRECTORY is not set. */
char *secret_read(const char *what, const char *path, bool is_dry_run, uint32_t line, const char *key,
                  struct faults *faults);
/* The same for a text of several lines, such as a key. is_public: everybody may read it, such as a certificate. */
char *secret_read_text(const char *what, const char *path, bool is_public, bool is_dry_run, uint32_t line,
                       const char *key, struct faults *faults);
/* The path with ${CREDENTIALS_DIRECTORY} replaced, into `out`; false: that is not set, or there is no space. */
bool secret_path(const char *path, char *out, size_t size);
void secret_free(char *secret); /* wipes it; NULL is fine */

#endif
