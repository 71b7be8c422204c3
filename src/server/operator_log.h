/*
 * operator_log.h: a line at level info for each thing that an operator or an administrator does to the limits: a reset,
 * a refund, a reload; over the control socket, too. Clients refund as a matter of course, so theirs have no line. At
 * most OPERATOR_LINES a second; the next one says how many were held back.
 */
#ifndef RL_SERVER_OPERATOR_LOG_H
#define RL_SERVER_OPERATOR_LOG_H

struct check;
struct session;

/* `what` was asked for on `session`: "reset", "reload --dry-run". `check` has the policy, key and units; NULL: none. */
void operator_log_note(const struct session *session, const char *what, const struct check *check);

#endif
