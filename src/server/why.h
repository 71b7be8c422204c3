/*
 * why.h: a decision in words, for who is called at night: which limit decided, how much of it is left, what
 * was asked, and when it will do.
 */
#ifndef RL_SERVER_WHY_H
#define RL_SERVER_WHY_H

#include "engine/check.h"

enum { WHY_TEXT_MAX = 1024 };

/* Of a peek that was answered, by its policy or its store. Into `out`, of WHY_TEXT_MAX bytes, which is returned. */
const char *why_text(const struct check *check, char *out);

#endif
