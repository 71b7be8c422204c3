/*
 * reserve.h: the methods for costs that are known later: reserve, settle, cancel.
 */
#ifndef RL_SERVER_RESERVE_H
#define RL_SERVER_RESERVE_H

#include "proto/pack.h"
#include "server/params.h"

/* As in the table of methods. */
int reserve_run(struct session *session, uint64_t msgid, struct params *params);
int settle_run(struct session *session, uint64_t msgid, struct params *params);
int cancel_run(struct session *session, uint64_t msgid, struct params *params);

/* The answers of an OP_RESERVE, and of a settlement. */
void reserve_pack(struct packer *packer, const struct check *check, struct decision_form form);
void settle_pack(struct packer *packer, const struct decision *decision, const struct op_reservation *reservation,
                 struct decision_form form);

#endif
