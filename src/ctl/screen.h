/*
 * screen.h: the terminal of `top`: a page that is drawn over the one before, keys without a newline, and the state from
 * before put back however the program ends (but by SIGKILL).
 *
 * Without a terminal on standard output pages follow each other as plain lines.
 */
#ifndef RL_CTL_SCREEN_H
#define RL_CTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* A terminal on standard output is prepared, and put back at the end of the program. */
void screen_open(void);
int screen_columns(void); /* INT_MAX without a terminal */
int screen_lines(void);   /* the same */
/* Lines of UTF-8 without controls but newlines; what a terminal has no place for is left out. */
void screen_draw(const char *text);
/* Waits. False: the user wants to end it. */
bool screen_wait(int64_t ms);

#endif
