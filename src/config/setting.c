#include "config/setting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "config/config.h"
#include "policy/value.h"

enum { RESTART = 0, RELOAD = 1 };

const struct setting setting_table[N_SETTINGS] = {
#define SETTING(kind_, field, path_, default_, min_, max_, choices_, reloads_, help)                                   \
    {.form = {VALUE_##kind_, min_, max_, choices_},                                                                    \
     .path = path_,                                                                                                    \
     .offset = offsetof(struct config, field),                                                                         \
     .fallback = default_,                                                                                             \
     .reloads = reloads_},
#include "config/settings.def"
#undef SETTING
};

static void *field_of(const struct setting *setting, const struct config *config)
{
    return (char *)(uintptr_t)config + setting->offset;
}

char **setting_text(const struct setting *setting, const struct config *config)
{
    bool is_text = setting->form.kind == VALUE_TEXT || setting->form.kind == VALUE_LIST;
    return is_text ? field_of(setting, config) : NULL;
}

int64_t *setting_number(const struct setting *setting, const struct config *config)
{
    return field_of(setting, config);
}

void setting_free_all(struct config *config)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char **text = setting_text(&setting_table[i], config);
        if (text != NULL) mem_free(*text);
    }
}

/* The one entry of a list; NULL with the fault recorded. */
static const struct tree_node *entry_of(const struct setting *setting, const struct tree_node *node,
                                        struct faults *faults)
{
    int64_t n = (int64_t)tree_count(node);
    if (node->kind == TREE_REFUSED) return NULL;
    if (node->kind != TREE_LIST)
        faults_add(faults, node->line, setting->path, "is not a list; write it in brackets, e.g. [\"127.0.0.1:6379\"]");
    else if (n != 1)
        faults_add(faults, node->line, setting->path, "has %" PRId64 " entries; write exactly 1", n);
    else
        return node->first;
    return NULL;
}

static void parse_text(const struct setting *setting, char **ret, const struct tree_node *node, struct faults *faults)
{
    const struct value_form *form = &setting->form;
    if (form->kind == VALUE_LIST) node = entry_of(setting, node, faults);
    const char *text = node != NULL ? value_parse_text(setting->path, node, faults) : NULL;
    if (text == NULL) return;

    int64_t len = (int64_t)strlen(text), n_printable = 0;
    while ((unsigned char)text[n_printable] >= 0x20 && text[n_printable] != 0x7f) n_printable++;
    if (form->kind == VALUE_TEXT && (len < form->min || len > form->max)) {
        faults_add(faults, node->line, setting->path,
                   "is %" PRId64 " bytes long; write %" PRId64 " to %" PRId64 " bytes", len, form->min, form->max);
        return;
    }
    if (n_printable < len) {
        faults_add(faults, node->line, setting->path, "has a control character in it; write it without");
        return;
    }

    char *copy = mem_strdup(text);
    if (copy == NULL) {
        faults_no_memory(faults, node->line, setting->path, "out of memory; give the daemon more");
        return;
    }
    mem_free(*ret);
    *ret = copy;
}

void setting_parse(const struct setting *setting, struct config *config, const struct tree_node *node,
                   struct faults *faults)
{
    char **text = setting_text(setting, config);
    if (text != NULL)
        parse_text(setting, text, node, faults);
    else
        value_parse(&setting->form, setting->path, node, faults, setting_number(setting, config));
}

/* Defaults are parsed like values of a file, so that none can be what a file could not set. */
int setting_set_defaults(struct config *config)
{
    struct faults faults;
    faults_init(&faults);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &setting_table[i];
        if (setting->fallback[0] == '\0') continue;
        struct tree_node node = {.kind = TREE_TEXT, .text = (char *)(uintptr_t)setting->fallback};
        setting_parse(setting, config, &node, &faults);
    }

    int status = faults.n_errors == 0 ? 0 : -1;
    faults_fini(&faults);
    return status;
}

bool setting_equal(const struct setting *setting, const struct config *a, const struct config *b)
{
    char **left = setting_text(setting, a), **right = setting_text(setting, b);
    if (left == NULL) return *setting_number(setting, a) == *setting_number(setting, b);
    return *left != NULL && *right != NULL ? strcmp(*left, *right) == 0 : *left == *right;
}
