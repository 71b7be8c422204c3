/*
 * scan.c: the scanner walks values head by head and counts what open containers still expect.
 *
 * `spare` says how many bytes the message may have beyond those that are known to come. A container announces values
 * of at least one byte each, and those bytes are known from then on. A value whose head, body or members need more
 * than what is spare is refused, whatever else arrives. In particular scanner_next() never asks for more bytes once it
 * has seen max_frame of them, so a buffer of that size cannot deadlock.
 *
 * On an error the state stays before the value at fault: the same bytes give the same error again.
 */
#include "proto/scan.h"

#include <stdbool.h>

#include "base/check.h"
#include "proto/form.h"

static void start_over(struct scanner *scanner)
{
    scanner->depth = 0;
    scanner->open[0] = 1;
    scanner->at = 0;
    scanner->skip = 0;
    scanner->spare = scanner->max_frame - 1;
}

void scanner_init(struct scanner *scanner, uint32_t max_frame, uint8_t max_depth)
{
    CHECK(max_frame > 0);
    CHECK(max_depth > 0 && max_depth <= SCAN_DEPTH_MAX);
    *scanner = (struct scanner){.max_frame = max_frame, .max_depth = max_depth};
    start_over(scanner);
}

/* What the first byte of a value rules out, alone; 0 or an enum scan_error. */
static int first_byte_fault(const struct scanner *scanner, struct form form, uint32_t spare)
{
    if (form.kind == FORM_NEVER) return SCAN_BROKEN;
    if (form.head - 1U > spare) return SCAN_TOO_LARGE;
    if (form_is_container(form) && scanner->depth == scanner->max_depth) return SCAN_TOO_DEEP;
    return 0;
}

/* The last value of a container has ended, and with it perhaps others around it. True: the message. */
static bool close_ended(struct scanner *scanner)
{
    while (scanner->depth > 0)
        if (--scanner->open[--scanner->depth] > 0) return false;
    return true;
}

/* Step over the rest of a body; false: its end has not come yet. */
static bool skip_body(struct scanner *scanner, size_t len)
{
    size_t here = len - scanner->at;
    uint32_t take = scanner->skip < here ? scanner->skip : (uint32_t)here;
    scanner->at += take;
    scanner->skip -= take;
    return scanner->skip == 0;
}

static int64_t end_message(struct scanner *scanner, uint32_t length)
{
    start_over(scanner);
    return length;
}

/* Every byte of every client comes through here, so `at` and `spare` are kept apart while values are walked, and not
 * inlined: in its caller they would not stay in registers. */
__attribute__((noinline)) int64_t scanner_next(struct scanner *scanner, const uint8_t *bytes, size_t len)
{
    CHECK(len >= scanner->at);
    if (scanner->at == 0 && len > 0 && form_table[bytes[0]].kind != FORM_ARRAY) return -SCAN_BROKEN;
    if (scanner->skip > 0) {
        if (!skip_body(scanner, len)) return 0;
        if (--scanner->open[scanner->depth] == 0 && close_ended(scanner)) return end_message(scanner, scanner->at);
    }

    uint32_t at = scanner->at, spare = scanner->spare;
    int found = 0;
    while (at < len) {
        struct form form = form_table[bytes[at]];
        size_t here = len - at;
        if (form.kind >= FORM_ARRAY || here < form.head) {
            found = -first_byte_fault(scanner, form, spare);
            if (found != 0 || here < form.head) break;
        }

        uint64_t n = form_count(form, bytes + at);
        if (form.kind == FORM_MAP) n *= 2;
        uint64_t more = form.head - 1 + n; /* bytes that are known to come from now on */
        if (more > spare) {
            found = -SCAN_TOO_LARGE;
            break;
        }
        spare -= (uint32_t)more;

        if (form.kind >= FORM_ARRAY) {
            at += form.head;
            if (n > 0) scanner->open[++scanner->depth] = (uint32_t)n;
            if (n > 0) continue;
        } else if (more < here) {
            at += 1 + (uint32_t)more;
        } else {
            at = (uint32_t)len;
            scanner->skip = (uint32_t)(more + 1 - here);
            break;
        }
        if (--scanner->open[scanner->depth] == 0 && close_ended(scanner)) return end_message(scanner, at);
    }

    scanner->at = at;
    scanner->spare = spare;
    return found;
}

void scanner_skip_head(struct scanner *scanner, size_t at, uint32_t n)
{
    CHECK(scanner->at == 0);
    if (n == 0 || at + n > scanner->max_frame || scanner->max_depth < 2) return;
    scanner->depth = 2;
    scanner->open[1] = 1;
    scanner->open[2] = n;
    scanner->at = (uint32_t)at;
    scanner->spare = scanner->max_frame - (uint32_t)at - n;
}
