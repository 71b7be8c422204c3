/*
 * meant.h: words that other systems use for what has another name here, for the message that refuses them.
 */
#ifndef RL_CONFIG_MEANT_H
#define RL_CONFIG_MEANT_H

/* What to write in place of `word` as the value of the setting at `path`, or NULL. `choices` (names separated by one
 * space each; may be NULL) are looked through for a slip of the pen. At most one guess: valid until the next call with
 * the same `out`, which has MEANT_MAX bytes. */
enum { MEANT_MAX = 128 };
const char *meant_value(const char *path, const char *word, const char *choices, char *out);

/* What to write in place of the key at `path`, or NULL. */
const char *meant_key(const char *path);

/* "5/m", which other systems call a rate: as the two settings it is, into `out`; or NULL. */
const char *meant_rate(const char *text, char *out);

#endif
