/*
 * scripted_daemon.h: the other end of a client's socket, for behaviour that no real daemon shows: it answers late,
 * twice, in pieces or with nonsense, does not accept, or closes in the middle.
 *
 * Everything is non-blocking and runs in the test's thread. A read fails the test if the bytes are not there yet: a
 * Unix socket delivers them at once.
 */
#ifndef RL_FAKES_SCRIPTED_DAEMON_H
#define RL_FAKES_SCRIPTED_DAEMON_H

#include "base/buffer.h"
#include "proto/rpc.h"
#include "proto/scan.h"

struct scripted_daemon {
    char directory[32];
    char path[64];
    int listener;
    int fd; /* the connection; -1 without one */
    struct buffer in;
    struct scanner scanner;
    size_t consume;      /* bytes of the last request, which is valid until the next read */
    bool lists_features; /* in its hello; an older daemon does not */
};

void daemon_start(struct scripted_daemon *daemon, int backlog);
void daemon_stop(struct scripted_daemon *daemon);    /* also removes the socket's path */
void daemon_accept(struct scripted_daemon *daemon);  /* a connection must be waiting */
void daemon_hang_up(struct scripted_daemon *daemon); /* close the connection */

/* The next request; false if no complete one has arrived. Valid until the next call. */
bool daemon_read(struct scripted_daemon *daemon, struct rpc_request *ret);
/* The next request, which must be there and call `method`. Returns its msgid. */
uint64_t daemon_expect(struct scripted_daemon *daemon, const char *method);

void daemon_send(struct scripted_daemon *daemon, const void *bytes, size_t len);
void daemon_answer_hello(struct scripted_daemon *daemon, uint64_t msgid);
/* A decision in array form, of a limit of 5, that allows and leaves `remaining`. */
void daemon_answer_allowed(struct scripted_daemon *daemon, uint64_t msgid, int64_t remaining);
void daemon_answer_error(struct scripted_daemon *daemon, uint64_t msgid, enum error_code code, const char *message);
void daemon_answer_text(struct scripted_daemon *daemon, uint64_t msgid, const char *text);
/* Accept, read hello and answer it. */
void daemon_greet(struct scripted_daemon *daemon);

/* The array form of a decision, and the fields it has. */
extern const char *const daemon_fields[];
enum { DAEMON_N_FIELDS = 11 };
void daemon_pack_decision(struct packer *packer, bool allowed, int64_t remaining);

#endif
