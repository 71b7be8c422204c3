/*
 * error.h: the wire's error codes, listed once in error.def.
 *
 * On the wire an error is the string "CODE: message"; the code is everything before the first
 * ": ". PROTOCOL.md says for each whose fault it is and whether a retry makes sense.
 */
#ifndef RL_PROTO_ERROR_H
#define RL_PROTO_ERROR_H

enum error_code {
    ERROR_NONE = 0,
#define ERROR_CODE(name, help) ERROR_##name,
#include "proto/error.def"
#undef ERROR_CODE
    N_ERROR_CODES
};

const char *error_name(enum error_code code); /* "BAD_KEY"; "NONE" for ERROR_NONE */

#endif
