/*
 * json.h: a packed value as JSON, on one line.
 *
 * Texts are written as UTF-8; a byte that is not a part of UTF-8 becomes the four characters \xNN (the backslash
 * escaped, as JSON wants it), so the output is always valid JSON. What JSON has no form for becomes null.
 */
#ifndef RL_CTL_JSON_H
#define RL_CTL_JSON_H

#include <stdio.h>

#include "proto/pull.h"

void json_text(FILE *out, struct slice text); /* with its quotes */
void json_value(FILE *out, struct pull *pull);

#endif
