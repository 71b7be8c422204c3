#include "config/config_print.h"

#include <string.h>

#include "config/policy_print.h"

/* How many leading sections two paths share: "a.b.c" and "a.b.d" share 2. */
static size_t shared_sections(const char *a, const char *b)
{
    size_t n = 0;
    for (; *a != '\0' && *a == *b; a++, b++) n += *a == '.';
    return n;
}

/* The headings that `path` opens below the ones it shares with the setting before. Returns its depth. */
static int print_sections(FILE *out, const char *before, const char *path)
{
    size_t n_open = shared_sections(before, path), depth = 0;
    for (const char *dot = strchr(path, '.'); dot != NULL; path = dot + 1, dot = strchr(path, '.')) {
        if (depth >= n_open) fprintf(out, "%*s%.*s:\n", (int)(2 * depth), "", (int)(dot - path), path);
        depth++;
    }
    return (int)depth;
}

void config_print(FILE *out, const struct config *config)
{
    char value[SETTING_VALUE_MAX];
    const char *before = "";
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &setting_table[i];
        const char *text = setting_print(setting, config, value);
        int depth = print_sections(out, before, setting->path);
        const char *name = strrchr(setting->path, '.') + 1;
        if (text != NULL)
            fprintf(out, "%*s%s: %s\n", 2 * depth, "", name, text);
        else
            fprintf(out, "%*s# %s: not set\n", 2 * depth, "", name);
        before = setting->path;
    }
    fprintf(out, "policies:%s\n", config->policies->n == 0 ? " {}" : "");
    for (size_t i = 0; i < config->policies->n; i++) policy_print(out, config->policies->in_order[i]);
}
