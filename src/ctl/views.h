/*
 * views.h: what an operator sees of the daemon: denials, slowlog and clients, in one go or as they come; and what top.c
 * shares with them. The daemon answers with some rows at a time.
 */
#ifndef RL_CTL_VIEWS_H
#define RL_CTL_VIEWS_H

#include <stdio.h>

#include "client/ratelimit.h"
#include "ctl/complain.h"
#include "ctl/options.h"
#include "ctl/rows.h"

/* denials and slowlog. */
enum exit_code views_print_checks(struct ratelimit *client, const char *method, const struct options *options);
enum exit_code views_print_clients(struct ratelimit *client, const struct options *options);

void views_print_time(FILE *out,
                      int64_t time_ms); /* since the epoch: 2026-11-28 06:31:02.123, of this machine's zone */
/* A client with its user's name on this machine, as JSON. */
void views_client_json(FILE *out, struct pull client);
/* The name of a user on this machine, or the number; valid until the next call. */
const char *views_user(int64_t uid);
/* "[a, b]" of all rows, each by `print`. */
void views_rows_json(FILE *out, const struct rows *rows, void (*print)(FILE *out, struct pull row));
void views_row_json(FILE *out, struct pull row);

#endif
