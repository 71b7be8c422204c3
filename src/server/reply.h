/*
 * reply.h: decisions on the wire, as a map for people or as an array for hot loops.
 *
 * The map leaves out what is at its default (PROTOCOL.md, "Decision"); the array is complete, in
 * the order that reply_fields() says.
 */
#ifndef RL_SERVER_REPLY_H
#define RL_SERVER_REPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "limit/decision.h"
#include "proto/pack.h"

struct check;
struct op_reservation;

/* What a connection has chosen with hello. */
struct decision_form {
    bool as_array;
    bool describes; /* with the limit that it speaks of */
};

/* `cost` is what was asked for: it decides whether `granted` is at its default. The caller packs n_more fields behind
 * it, a name and a value each: they end the map, or fill the map that ends the array. */
void reply_decision(struct packer *packer, const struct decision *decision, int64_t cost, struct decision_form form,
                    uint32_t n_more);
/* The answer of an acquire that is allowed; the slot's id has SLOT_ID_LEN bytes. */
void reply_slot(struct packer *packer, const struct decision *decision, const char *slot, struct decision_form form);
/* The answer of a reserve, with the reservation if it is allowed. */
void reply_reservation(struct packer *packer, const struct check *check, struct decision_form form);
/* The answer of a settlement. */
void reply_settled(struct packer *packer, const struct decision *decision, const struct op_reservation *reservation,
                   struct decision_form form);
void reply_flag(struct packer *packer, const char *name, bool value); /* the answer of release */
/* The decision has only source and reason: those of a reset in this daemon alone. */
void reply_reset(struct packer *packer, bool removed, const struct decision *decision);
void reply_fields(struct packer *packer, bool describes); /* the names of the array's places */

#endif
