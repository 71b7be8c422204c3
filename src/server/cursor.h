/*
 * cursor.h: where a view that comes in parts goes on: some numbers, which its answers have as the text `next`, such as
 * "17.3.0.128". The client sends it back; nothing is kept for it.
 */
#ifndef RL_SERVER_CURSOR_H
#define RL_SERVER_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "server/params.h"

enum { CURSOR_NUMBERS_MAX = 4, CURSOR_TEXT_MAX = 96 };

void cursor_print(const uint64_t *numbers, size_t n, char out[CURSOR_TEXT_MAX]);
/* Empty: 0 for each. 0, or -1 with the fault filled: it is not as cursor_print() writes it. */
int cursor_read(const struct params *params, struct slice next, uint64_t *ret, size_t n);
int cursor_fail(const struct params *params); /* sets the fault: a number is none of an answer; returns -1 */

#endif
