/* exact.h: a double holds every integer up to this exactly; numbers are doubles in Lua and in many clients. */
#ifndef RL_BASE_EXACT_H
#define RL_BASE_EXACT_H

#include <stdint.h>

#define EXACT_MAX ((INT64_C(1) << 53) - 1)

#endif
