#include "limit/diag.h"

#include <stdarg.h>
#include <stdio.h>

int diag_invalid(struct diag *diag, enum policy_field field, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag->code = DIAG_INVALID;
    diag->field = field;
    vsnprintf(diag->text, sizeof diag->text, format, args);
    va_end(args);
    return -1;
}
