/* request_fault.h: why a request is refused, as its answer says it. */
#ifndef RL_SERVER_REQUEST_FAULT_H
#define RL_SERVER_REQUEST_FAULT_H

#include "proto/error.h"

enum { FAULT_TEXT_MAX = 256 };

struct request_fault {
    enum error_code code;
    char text[FAULT_TEXT_MAX];
};

#endif
