#include "config/not_built.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/faults.h"

static const struct {
    const char *path;
    const char *advice;
} table[] = {
#define NOT_BUILT(path, advice) {path, advice},
#include "config/not_built.def"
#undef NOT_BUILT
};

const char *not_built(const char *path, const char *value)
{
    char asked[FAULTS_KEY_MAX + FAULTS_SHOWN_MAX];
    snprintf(asked, sizeof asked, "%.*s%s%.*s", FAULTS_KEY_MAX - 1, path, value != NULL ? ": " : "",
             FAULTS_SHOWN_MAX - 3, value != NULL ? value : "");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].path, asked) == 0) return table[i].advice;
    return NULL;
}
