/*
 * hints.h: the advice in the message that refuses an unknown word: the name here of what other systems call otherwise,
 * the nearest name of a slip of the pen, and what this version lacks.
 */
#ifndef RL_POLICY_HINTS_H
#define RL_POLICY_HINTS_H

#include <stdbool.h>

#include "limit/calendar.h"

enum { HINT_MAX = 128 };
/* Which of the choices (names separated by one space each) to write in place of `word`: that which other systems call
 * so, or the nearest one; or NULL. Valid until the next call with the same `out`, which has HINT_MAX bytes. */
const char *hint_choice(const char *word, const char *choices, char *out);

/* "5/m", which other systems write as a limit: as the two settings it is, into `out`; or NULL. */
const char *hint_rate(const char *text, char *out);

/* The zone of the system's zone.tab with the same city ("Berlin", "europe/berlin"), or the one with the most similar
 * name. False if no name is similar. */
bool hint_zone(const char *written, char ret_name[CALENDAR_ZONE_MAX + 1]);

/* The refusal of the key at `path`, or with `value` of this value of a setting: what this version lacks, and what is
 * written elsewhere. NULL: none of these. `*` in a path stands for a policy's name. */
const char *hint_refusal(const char *path, const char *value);

#endif
