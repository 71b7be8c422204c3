/*
 * text.h: keys and messages for a terminal: valid UTF-8 as it is; what is not, control characters and the backslash as
 * \xNN, once.
 */
#ifndef RL_CTL_TEXT_H
#define RL_CTL_TEXT_H

#include <stdio.h>

#include "base/slice.h"

/* Bytes of the UTF-8 character at the front of `text`; 0 if none is there (also overlong forms, surrogates and
 * what lies beyond U+10FFFF). */
size_t text_utf8_len(struct slice text);

void text_print(FILE *out, struct slice text);

/* The daemon's sentences, in which it has written keys in ASCII, with \xNN for everything else: such keys look as
 * text_print() shows them. */
void text_print_sentence(FILE *out, struct slice text);

#endif
