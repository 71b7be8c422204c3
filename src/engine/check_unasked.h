/*
 * check_unasked.h: checks that their policies alone decide, so that no store is asked.
 *
 * Unlimited policies admit everything, a limit of 0 denies whatever costs something, and in a check_all one such denial
 * is enough for all. A check_all whose other members are to be asked about goes to the store without these. A reset
 * goes there unless its policy keeps no state of its own for the key.
 */
#ifndef RL_ENGINE_CHECK_UNASKED_H
#define RL_ENGINE_CHECK_UNASKED_H

#include "engine/check.h"

/* Is all decided? The answers are filled then, said to come from `source`, but for what check_answer_unlimited() says.
 */
bool check_decide_unasked(struct check *first, enum source source);
/* The answer to those whose policy is unlimited, once the others have theirs. */
void check_answer_unlimited(struct check *first);

#endif
