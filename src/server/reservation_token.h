/*
 * reservation_token.h: the text of a reservation on the wire.
 *
 * It carries everything that settling needs, so that any daemon on the same store can do it: where the units are held,
 * of which policy and key, how many, since when and for how long. It is no secret and no proof: a client that may ask
 * for a policy may settle its reservations. A checksum shows a damaged one.
 */
#ifndef RL_SERVER_RESERVATION_TOKEN_H
#define RL_SERVER_RESERVATION_TOKEN_H

#include "base/slice.h"
#include "limit/decision.h"
#include "proto/pack.h"
#include "store/store.h"

struct reservation_token {
    enum source source;                /* whose decision made it */
    enum reason reason;                /* of a failure answer */
    struct op_reservation reservation; /* id 0: nothing is held */
    struct slice policy;               /* its name; with the key in `bytes` */
    struct slice key;
    uint8_t *bytes; /* owned; NULL if it was not read */
};

void reservation_token_pack(struct packer *packer, const struct reservation_token *token); /* as a str */
/* 0; -1 if the text is no reservation; -2 without memory. */
int reservation_token_read(struct slice text, struct reservation_token *ret);
void reservation_token_fini(struct reservation_token *token);

#endif
