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

static char **text_field(const struct setting *setting, const struct config *config)
{
    return field_of(setting, config);
}

static struct text_list *list_field(const struct setting *setting, const struct config *config)
{
    return field_of(setting, config);
}

const struct setting *setting_find(const char *path)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strcmp(setting_table[i].path, path) == 0) return &setting_table[i];
    return NULL;
}

bool setting_is_section(const char *path)
{
    size_t len = strlen(path);
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (strncmp(setting_table[i].path, path, len) == 0 && setting_table[i].path[len] == '.') return true;
    return false;
}

/* Texts and lists */

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
        if (setting->form.kind == VALUE_TEXT) mem_free(*text_field(setting, config));
        if (setting->form.kind == VALUE_LIST) list_free(list_field(setting, config));
    }
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

static char *checked_copy(const struct setting *setting, const struct tree_node *node, struct faults *faults)
{
    const char *text = value_parse_text(setting->path, node, faults);
    if (text == NULL) return NULL;
    int64_t len = (int64_t)strlen(text);
    if (setting->form.kind == VALUE_TEXT && (len < setting->form.min || len > setting->form.max)) {
        faults_add(faults, node->line, setting->path,
                   "is %" PRId64 " bytes long; write %" PRId64 " to %" PRId64 " bytes", len, setting->form.min,
                   setting->form.max);
        return NULL;
    }
    if (has_control(text)) {
        faults_add(faults, node->line, setting->path, "has a control character in it; write it without");
        return NULL;
    }
    char *copy = mem_strdup(text);
    if (copy == NULL) faults_no_memory(faults, node->line, setting->path, "out of memory; give the daemon more");
    return copy;
}

static void parse_text(const struct setting *setting, struct config *config, const struct tree_node *node,
                       struct faults *faults)
{
    char *copy = checked_copy(setting, node, faults);
    if (copy == NULL) return;
    mem_free(*text_field(setting, config));
    *text_field(setting, config) = copy;
}

static void parse_list(const struct setting *setting, struct config *config, const struct tree_node *node,
                       struct faults *faults)
{
    struct text_list list = {0};
    int64_t n = 0;
    if (node->kind == TREE_REFUSED) return;
    if (node->kind != TREE_LIST) {
        faults_add(faults, node->line, setting->path, "is not a list; write it in brackets, e.g. [\"127.0.0.1:6379\"]");
        return;
    }
    for (const struct tree_node *item = node->first; item != NULL; item = item->next) n++;
    if (n < setting->form.min || n > setting->form.max) {
        faults_add(faults, node->line, setting->path, "has %" PRId64 " entries; write exactly %" PRId64, n,
                   setting->form.max);
        return;
    }
    list.items = mem_zalloc((size_t)n * sizeof *list.items);
    if (list.items == NULL) {
        faults_no_memory(faults, node->line, setting->path, "out of memory; give the daemon more");
        return;
    }
    for (const struct tree_node *item = node->first; item != NULL; item = item->next) {
        char *copy = checked_copy(setting, item, faults);
        if (copy != NULL) list.items[list.n++] = copy;
    }
    list_free(list_field(setting, config));
    *list_field(setting, config) = list;
}

/* Any kind */

void setting_parse(const struct setting *setting, struct config *config, const struct tree_node *node,
                   struct faults *faults)
{
    int64_t value;
    if (setting->form.kind == VALUE_TEXT) {
        parse_text(setting, config, node, faults);
    } else if (setting->form.kind == VALUE_LIST) {
        parse_list(setting, config, node, faults);
    } else if (value_parse(&setting->form, setting->path, node, faults, &value)) {
        if (setting->form.kind == VALUE_BOOL)
            *(bool *)field_of(setting, config) = value != 0;
        else
            *(int64_t *)field_of(setting, config) = value;
    }
}

/* The defaults take the same way as values from a file, so that they cannot say what a file could not. */
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

/* Control characters were refused when the text was read. */
static const char *quote(const char *text, char *out, size_t size)
{
    size_t at = 0;
    out[at++] = '"';
    for (; *text != '\0' && at + 4 < size; text++) {
        if (*text == '"' || *text == '\\') out[at++] = '\\';
        out[at++] = *text;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

static const char *print_list(const struct text_list *list, char *out)
{
    size_t at = 0;
    if (list->n == 0) return NULL;
    for (size_t i = 0; i < list->n && at + 4 < SETTING_VALUE_MAX; i++) {
        out[at++] = i == 0 ? '[' : ',';
        quote(list->items[i], out + at, SETTING_VALUE_MAX - at - 1);
        at += strlen(out + at);
    }
    out[at++] = ']';
    out[at] = '\0';
    return out;
}

const char *setting_print(const struct setting *setting, const struct config *config, char *out)
{
    const char *text;
    switch (setting->form.kind) {
    case VALUE_TEXT:
        text = *text_field(setting, config);
        return text != NULL ? quote(text, out, SETTING_VALUE_MAX) : NULL;
    case VALUE_LIST: return print_list(list_field(setting, config), out);
    case VALUE_BOOL: return value_print(&setting->form, *(bool *)field_of(setting, config), out);
    default: return value_print(&setting->form, *(int64_t *)field_of(setting, config), out);
    }
}

bool setting_equal(const struct setting *setting, const struct config *a, const struct config *b)
{
    char left[SETTING_VALUE_MAX], right[SETTING_VALUE_MAX];
    const char *x = setting_print(setting, a, left), *y = setting_print(setting, b, right);
    if (x == NULL || y == NULL) return x == y;
    return strcmp(x, y) == 0;
}
