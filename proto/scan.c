/*
 * scan.c: the scanner walks values head by head and counts what is still owed.
 *
 * `owed` is the number of values that open containers have announced and that have not begun; each
 * is at least one byte long. So a message must come to at least `at + owed` bytes, and the moment
 * that exceeds max_frame it is refused, whatever else arrives. In particular scanner_next() never
 * asks for more bytes once it has seen max_frame of them, so a buffer of that size cannot deadlock.
 *
 * On an error the state stays where it was: the same bytes give the same error again.
 */
#include "proto/scan.h"

#include <stdbool.h>

#include "base/check.h"
#include "proto/form.h"

static void start_over(struct scanner *scanner)
{
    scanner->depth = 0;
    scanner->at = 0;
    scanner->skip = 0;
    scanner->owed = 1;
}

void scanner_init(struct scanner *scanner, uint32_t max_frame, uint8_t max_depth)
{
    CHECK(max_frame > 0);
    CHECK(max_depth > 0 && max_depth <= SCAN_DEPTH_MAX);
    *scanner = (struct scanner){.max_frame = max_frame, .max_depth = max_depth};
    start_over(scanner);
}

static bool is_container(struct form form)
{
    return form.kind == FORM_ARRAY || form.kind == FORM_MAP;
}

/* What the value's first byte alone rules out; 0 or an enum scan_error. */
static int first_byte_fault(const struct scanner *scanner, struct form form)
{
    if (scanner->at == 0 && form.kind != FORM_ARRAY) return SCAN_BROKEN;
    if (form.kind == FORM_NEVER) return SCAN_BROKEN;
    if ((uint64_t)scanner->at + scanner->owed - 1 + form.head > scanner->max_frame) return SCAN_TOO_LARGE;
    if (is_container(form) && scanner->depth == scanner->max_depth) return SCAN_TOO_DEEP;
    return 0;
}

/* A value has ended: it may have been the last one of its container, and that of the next. */
static void close_ended(struct scanner *scanner)
{
    while (scanner->depth > 0 && --scanner->open[scanner->depth - 1] == 0) scanner->depth--;
}

/* Step over the body of a str, bin, ext or number; false: its end has not come yet. */
static bool skip_body(struct scanner *scanner, size_t len)
{
    size_t here = len - scanner->at;
    uint32_t take = scanner->skip < here ? scanner->skip : (uint32_t)here;
    scanner->at += take;
    scanner->skip -= take;
    return scanner->skip == 0;
}

/* Step over a whole head; 0 or an enum scan_error. */
static int enter(struct scanner *scanner, struct form form, const uint8_t *head)
{
    uint64_t n = form_count(form, head);
    if (form.kind == FORM_MAP) n *= 2;
    if ((uint64_t)scanner->at + form.head + n + scanner->owed - 1 > scanner->max_frame) return SCAN_TOO_LARGE;
    scanner->at += form.head;
    scanner->owed--;
    if (!is_container(form)) {
        scanner->skip = (uint32_t)n;
    } else if (n > 0) {
        scanner->owed += (uint32_t)n;
        scanner->open[scanner->depth++] = (uint32_t)n;
    }
    return 0;
}

int64_t scanner_next(struct scanner *scanner, const uint8_t *bytes, size_t len)
{
    CHECK(len >= scanner->at);
    for (;;) {
        if (scanner->skip > 0) {
            if (!skip_body(scanner, len)) return 0;
            close_ended(scanner);
        }
        if (scanner->owed == 0) {
            int64_t length = scanner->at;
            start_over(scanner);
            return length;
        }
        if (scanner->at >= len) return 0;
        struct form form = form_of(bytes[scanner->at]);
        int fault = first_byte_fault(scanner, form);
        if (fault != 0) return -fault;
        if (len - scanner->at < form.head) return 0;
        uint8_t depth = scanner->depth;
        fault = enter(scanner, form, bytes + scanner->at);
        if (fault != 0) return -fault;
        if (scanner->skip == 0 && scanner->depth == depth) close_ended(scanner);
    }
}
