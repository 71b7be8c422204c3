/*
 * views.h: the methods by which operators see who is limited, since when and by whom: top, denials, slowlog, clients.
 *
 * An answer has some rows, and says where the next one goes on, so that none takes long. What the rows are of has one
 * row at one place as long as it is there, so asking for one part after another brings it once.
 */
#ifndef RL_SERVER_VIEWS_H
#define RL_SERVER_VIEWS_H

#include "server/params.h"

/* As in the table of methods. */
int views_top(struct params *params);
int views_denials(struct params *params);
int views_slowlog(struct params *params);
int views_clients(struct params *params);
int views_hash(struct params *params); /* how a key is written in the log, and in views that show hashes */

#endif
