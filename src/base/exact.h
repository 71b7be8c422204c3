/*
 * exact.h: the largest integer up to which every one is exact where numbers are doubles, as in Lua and in many clients.
 */
#ifndef RL_BASE_EXACT_H
#define RL_BASE_EXACT_H

#include <stdint.h>

#define EXACT_MAX ((INT64_C(1) << 53) - 1)

#endif
