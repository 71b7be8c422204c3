/*
 * hints.h: the advice in the message that refuses an unknown word: the name here of what other systems call otherwise,
 * the nearest name of a slip of the pen, and what this version lacks.
 */
#ifndef RL_POLICY_HINTS_H
#define RL_POLICY_HINTS_H

#include <stdbool.h>

#include "limit/calendar.h"

/* What to write in place of `word` as the value of the setting at `path`, or NULL. `choices` (names separated by one
 * space each; may be NULL) are looked through for a slip of the pen. At most one guess: valid until the next call with
 * the same `out`, which has HINT_MAX bytes. */
enum { HINT_MAX = 128 };
const char *hint_value(const char *path, const char *word, const char *choices, char *out);

/* "5/m" as the `limit` at `path`, which other systems call a rate: as the two settings it is, into `out`; or NULL. */
const char *hint_rate(const char *path, const char *text, char *out);

/* The zone of the system's zone.tab with the same city ("Berlin", "europe/berlin"), or the one with the most similar
 * name. False if no name is similar. */
bool hint_zone(const char *written, char ret_name[CALENDAR_ZONE_MAX + 1]);

/* The refusal of the key at `path`, or with `value` of this value of a setting: what this version lacks, and what is
 * written elsewhere. NULL: none of these. `*` in a path stands for a policy's name. */
const char *hint_refusal(const char *path, const char *value);

#endif
