/*
 * origin.h: is this the process that the client belongs to, or a child that fork() made of it?
 *
 * This is asked at each call and each answer, so it must be cheap: the mark is on a page that the kernel fills with
 * zeros for a child (MADV_WIPEONFORK). With a kernel without such pages, it compares process numbers.
 */
#ifndef RL_CLIENT_ORIGIN_H
#define RL_CLIENT_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct origin {
    uint8_t *mark; /* owned page; NULL: there are no such pages */
    pid_t pid;     /* without a mark */
};

int origin_init(struct origin *origin); /* 0, or -1 without memory */
void origin_fini(struct origin *origin);

bool origin_is_here(const struct origin *origin);
void origin_move_here(struct origin *origin); /* from now on the client is this process's */

#endif
