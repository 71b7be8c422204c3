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

void *setting_field(const struct setting *setting, const struct config *config)
{
    return (char *)(uintptr_t)config + setting->offset;
}

/* ---- Texts and lists ---- */

static void list_free(struct text_list *list)
{
    for (size_t i = 0; i < list->n; i++) mem_free(list->items[i]);
    mem_free(list->items);
    *list = (struct text_list){0};
}

void setting_free_all(struct config *config)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &setting_table[i];
        if (setting->form.kind == VALUE_TEXT) mem_free(*(char **)setting_field(setting, config));
        if (setting->form.kind == VALUE_LIST) list_free(setting_field(setting, config));
    }
}

static char *checked_copy(const struct setting *setting, const struct tree_node *node, struct faults *faults)
{
    const char *text = value_parse_text(setting->path, node, faults);
    if (text == NULL) return NULL;

    int64_t len = (int64_t)strlen(text), n_printable = 0;
    while ((unsigned char)text[n_printable] >= 0x20 && text[n_printable] != 0x7f) n_printable++;
    if (setting->form.kind == VALUE_TEXT && (len < setting->form.min || len > setting->form.max)) {
        faults_add(faults, node->line, setting->path,
                   "is %" PRId64 " bytes long; write %" PRId64 " to %" PRId64 " bytes", len, setting->form.min,
                   setting->form.max);
        return NULL;
    }
    if (n_printable < len) {
        faults_add(faults, node->line, setting->path, "has a control character in it; write it without");
        return NULL;
    }

    char *copy = mem_strdup(text);
    if (copy == NULL) faults_no_memory(faults, node->line, setting->path, "out of memory; give the daemon more");
    return copy;
}

static void parse_list(const struct setting *setting, struct text_list *ret, const struct tree_node *node,
                       struct faults *faults)
{
    int64_t n = (int64_t)tree_count(node);
    if (node->kind == TREE_REFUSED) return;
    if (node->kind != TREE_LIST) {
        faults_add(faults, node->line, setting->path, "is not a list; write it in brackets, e.g. [\"127.0.0.1:6379\"]");
        return;
    }
    if (n < setting->form.min || n > setting->form.max) {
        faults_add(faults, node->line, setting->path, "has %" PRId64 " entries; write exactly %" PRId64, n,
                   setting->form.max);
        return;
    }

    struct text_list list = {.items = mem_zalloc((size_t)n * sizeof *list.items)};
    if (list.items == NULL) {
        faults_no_memory(faults, node->line, setting->path, "out of memory; give the daemon more");
        return;
    }
    for (const struct tree_node *item = node->first; item != NULL; item = item->next) {
        char *copy = checked_copy(setting, item, faults);
        if (copy != NULL) list.items[list.n++] = copy;
    }
    list_free(ret);
    *ret = list;
}

/* ---- Any kind ---- */

void setting_parse(const struct setting *setting, struct config *config, const struct tree_node *node,
                   struct faults *faults)
{
    void *field = setting_field(setting, config);
    char *copy;
    int64_t value;

    switch (setting->form.kind) {
    case VALUE_LIST: parse_list(setting, field, node, faults); break;
    case VALUE_TEXT:
        copy = checked_copy(setting, node, faults);
        if (copy == NULL) break;
        mem_free(*(char **)field);
        *(char **)field = copy;
        break;
    case VALUE_BOOL:
        if (value_parse(&setting->form, setting->path, node, faults, &value)) *(bool *)field = value != 0;
        break;
    default:
        if (value_parse(&setting->form, setting->path, node, faults, &value)) *(int64_t *)field = value;
    }
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

static bool same_text(const char *a, const char *b)
{
    return a != NULL && b != NULL ? strcmp(a, b) == 0 : a == b;
}

bool setting_equal(const struct setting *setting, const struct config *a, const struct config *b)
{
    const void *left = setting_field(setting, a), *right = setting_field(setting, b);
    const struct text_list *x = left, *y = right;
    size_t i = 0;

    switch (setting->form.kind) {
    case VALUE_TEXT: return same_text(*(char *const *)left, *(char *const *)right);
    case VALUE_LIST:
        while (i < x->n && i < y->n && same_text(x->items[i], y->items[i])) i++;
        return i == x->n && i == y->n;
    case VALUE_BOOL: return *(const bool *)left == *(const bool *)right;
    default: return *(const int64_t *)left == *(const int64_t *)right;
    }
}
