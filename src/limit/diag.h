/*
 * diag.h: what is wrong with the settings of a limit: a code and a field for the program, a text for the operator.
 *
 * No code reads the text; the line in a file is found by the field.
 */
#ifndef RL_LIMIT_DIAG_H
#define RL_LIMIT_DIAG_H

#include "limit/policy_field.h"

enum diag_code {
    DIAG_INVALID,   /* the author must change the settings */
    DIAG_WARNING,   /* the same, but the settings are used as they are */
    DIAG_NO_MEMORY, /* the settings may be right */
};

enum { DIAG_TEXT_MAX = 256 };

struct diag {
    enum diag_code code;
    enum policy_field field;
    char text[DIAG_TEXT_MAX]; /* "is wrong like this; write that" */
};

/* The settings are invalid because of `field`. Returns -1. */
int diag_invalid(struct diag *diag, enum policy_field field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
