#include "config/policy_keys.h"

#include "base/alloc.h"
#include "config/setting.h"
#include "limit/policy.h"

void policy_keys_read_format(struct reading *reading, struct policy *policy)
{
    char shown[FAULTS_SHOWN_MAX];
    const struct tree_node *node = reading->given[FIELD_KEY_FORMAT];
    if (node == NULL) return;
    policy->format = mem_zalloc(sizeof *policy->format);
    if (policy->format == NULL) {
        reading_no_memory(reading->faults, node->line);
        return;
    }
    const char *text = setting_parse_text(reading_path(reading, FIELD_KEY_FORMAT), node, reading->faults);
    if (text == NULL) return;
    const char *wrong = key_format_parse(policy->format, text);
    if (wrong == NULL) return;
    policy->format->n_parts = 0;
    faults_add(reading->faults, node->line, reading->path, "%s %s", faults_shown(shown, text), wrong);
}

/* The part that an item of the list names, as a bit; 0 with the fault recorded. */
static key_parts read_part(struct reading *reading, const struct tree_node *node, const struct key_format *format,
                           key_parts seen)
{
    char shown[FAULTS_SHOWN_MAX];
    const char *name = setting_parse_text(reading->path, node, reading->faults);
    if (name == NULL) return 0;
    int part = key_format_find(format, name);
    faults_shown(shown, name);
    if (part < 0)
        faults_add(reading->faults, node->line, reading->path, "%s is no part of key_format %s; write one of those",
                   shown, format->text);
    else if (seen & 1U << part)
        faults_add(reading->faults, node->line, reading->path, "%s stands in it twice; write it once", shown);
    else
        return (key_parts)(1U << part);
    return 0;
}

void policy_keys_read_by(struct reading *reading, struct limit *limit)
{
    const struct tree_node *node = reading->given[FIELD_BY];
    const struct key_format *format = limit->policy->format;
    if (node == NULL || node->kind == TREE_REFUSED) return;
    reading_path(reading, FIELD_BY);
    if (node->kind != TREE_LIST) {
        faults_add(reading->faults, node->line, reading->path,
                   "is no list; write the parts of the key in brackets, e.g. [tenant], or [] for one counter of all");
        return;
    }
    if (format == NULL)
        faults_add(reading->faults, node->line, reading->path,
                   "is of no use without key_format; write that beside it, e.g. key_format: \"{tenant}:{user}\"");
    if (format == NULL || format->n_parts == 0) return;
    for (const struct tree_node *item = node->first; item != NULL; item = item->next)
        limit->parts |= read_part(reading, item, format, limit->parts);
    limit->shared = limit->parts != key_format_all(format);
}
