/*
 * check_note.h: the name under which the admission of a check with a request id is remembered.
 *
 *   note1:<policy>:<bytes of the key>:<key>:<request id>                                   a check
 *   notes1:<members>:<policy>:<bytes of the key>:<key>: ... :<request id>                  a check_all of several
 *
 * Equal names are equal questions: policies' names have no colon, keys say their length, and nothing
 * follows the id. It is the same in every daemon, and part of a key in Redis.
 */
#ifndef RL_ENGINE_CHECK_NOTE_H
#define RL_ENGINE_CHECK_NOTE_H

#include "engine/check.h"

/* Writes it where first->note stands, once, where there is a request id. 0, or -1 without memory. */
int check_name_note(struct check *first);

#endif
