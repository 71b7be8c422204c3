/*
 * reserve.h: the methods for costs that are known later: reserve, settle, cancel.
 */
#ifndef RL_SERVER_RESERVE_H
#define RL_SERVER_RESERVE_H

#include "server/params.h"

/* As in the table of methods. */
int reserve_run(struct params *params);
int settle_run(struct params *params);
int cancel_run(struct params *params);

#endif
