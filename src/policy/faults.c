/* faults.c: a list of faults and their lines, for all that read a configuration, an inline policy or a test file. */
#include "policy/faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"

enum { FAULT_TEXT_MAX = 1024 };

void faults_init(struct faults *faults)
{
    memset(faults, 0, sizeof *faults);
}

void faults_fini(struct faults *faults)
{
    for (size_t i = 0; i < faults->n; i++) mem_free(faults->items[i].text);
    mem_free(faults->items);
    faults_init(faults);
}

void faults_record_va(struct faults *faults, enum fault_code code, uint32_t line, const char *key, const char *format,
                      va_list args)
{
    char text[FAULT_TEXT_MAX];
    size_t at = 0;
    faults->n_errors += code != FAULT_WARNING;
    if (key != NULL) {
        log_escape(text, FAULTS_KEY_MAX, key, strlen(key));
        at = strlen(text);
        at += (size_t)snprintf(text + at, sizeof text - at, ": ");
    }
    vsnprintf(text + at, sizeof text - at, format, args);

    /* Without memory it is counted and not kept. */
    if (faults->n == faults->cap) {
        size_t cap = faults->cap > 0 ? 2 * faults->cap : 16;
        struct fault *items = mem_realloc(faults->items, cap * sizeof *items);
        if (items == NULL) return;
        faults->items = items;
        faults->cap = cap;
    }
    char *copy = mem_strdup(text);
    if (copy == NULL) return;
    faults->items[faults->n] = (struct fault){.line = line, .order = (uint32_t)faults->n, .code = code, .text = copy};
    faults->n++;
}

void faults_record(struct faults *faults, enum fault_code code, uint32_t line, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    faults_record_va(faults, code, line, key, format, args);
    va_end(args);
}

enum fault_code faults_first_error(const struct faults *faults, const char **ret_text)
{
    for (size_t i = 0; i < faults->n; i++) {
        if (faults->items[i].code == FAULT_WARNING) continue;
        *ret_text = faults->items[i].text;
        return faults->items[i].code;
    }
    *ret_text = NULL;
    return FAULT_NO_MEMORY;
}

static int by_line(const void *left, const void *right)
{
    const struct fault *a = left, *b = right;
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

void faults_sort(struct faults *faults)
{
    if (faults->n > 1) qsort(faults->items, faults->n, sizeof *faults->items, by_line);
}

const char *faults_line(char *out, size_t size, const char *file, const struct fault *fault)
{
    char line[16] = "";
    CHECK(size > 0);
    if (fault->line > 0) snprintf(line, sizeof line, "%u:", fault->line);
    snprintf(out, size, "%s:%s %s%s", file, line, fault->code == FAULT_WARNING ? "warning: " : "", fault->text);
    return out;
}

const char *faults_shown(char *out, const char *value)
{
    out[0] = '\'';
    log_escape(out + 1, FAULTS_SHOWN_MAX - 2, value, strlen(value));
    return strcat(out, "'");
}
