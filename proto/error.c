/* error.c: the names of error.def, for server/, which writes them, and ctl/, which reads them. */
#include "proto/error.h"

static const char *const names[N_ERROR_CODES] = {
    [ERROR_NONE] = "NONE",
#define ERROR_CODE(name, help) [ERROR_##name] = #name,
#include "proto/error.def"
#undef ERROR_CODE
};

const char *error_name(enum error_code code)
{
    return names[code];
}
