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

#include "base/assert.h"
#include "proto/format.h"

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

/* A value has ended, and with it perhaps containers around it. True: the message. */
static inline bool end_value(struct scanner *scanner)
{
    while (--scanner->open[scanner->depth] == 0) {
        if (scanner->depth == 0) return true;
        scanner->depth--;
    }
    return false;
}

/* `at` and `spare` are kept apart while values are walked, and the function is not inlined: in its caller the two would
 * not stay in registers. */
__attribute__((noinline)) int64_t scanner_next(struct scanner *scanner, const uint8_t *bytes, size_t len)
{
    CHECK(len >= scanner->at);
    if (scanner->at == 0 && len > 0 && format_table[bytes[0]].kind != FORMAT_ARRAY) return -SCAN_BROKEN;

    uint32_t at = scanner->at, spare = scanner->spare;
    bool is_whole = false;
    int found = 0;
    if (scanner->skip > 0) {
        uint32_t take = scanner->skip < len - at ? scanner->skip : (uint32_t)(len - at);
        at += take;
        scanner->skip -= take;
        is_whole = scanner->skip == 0 && end_value(scanner);
    }

    while (at < len && !is_whole) {
        struct format format = format_table[bytes[at]];
        size_t here = len - at;
        if (format.kind >= FORMAT_ARRAY || here < format.head) { /* what the first byte alone rules out */
            if (format.kind == FORMAT_NEVER)
                found = -SCAN_BROKEN;
            else if (format.head - 1U > spare)
                found = -SCAN_TOO_LARGE;
            else if (format.kind >= FORMAT_ARRAY && scanner->depth == scanner->max_depth)
                found = -SCAN_TOO_DEEP;
            if (found != 0 || here < format.head) break;
        }

        uint64_t n = format_count(format, bytes + at);
        if (format.kind == FORMAT_MAP) n *= 2;
        uint64_t n_due = format.head - 1 + n; /* bytes that are known to come from now on */
        if (n_due > spare) {
            found = -SCAN_TOO_LARGE;
            break;
        }
        spare -= (uint32_t)n_due;

        if (format.kind >= FORMAT_ARRAY && n > 0) {
            at += format.head;
            scanner->open[++scanner->depth] = (uint32_t)n;
        } else if (n_due < here) {
            at += 1 + (uint32_t)n_due;
            is_whole = end_value(scanner);
        } else {
            at = (uint32_t)len;
            scanner->skip = (uint32_t)(n_due + 1 - here);
        }
    }

    if (is_whole) {
        start_over(scanner);
        return at;
    }
    scanner->at = at;
    scanner->spare = spare;
    return found;
}

int64_t scanner_next_after(struct scanner *scanner, const uint8_t *bytes, size_t len, size_t at, uint32_t n)
{
    CHECK(scanner->at == 0 && at <= len);
    for (; n > 0 && at < len; n--) {
        struct format format = format_table[bytes[at]];
        if (format.kind >= FORMAT_ARRAY || len - at < format.head) break;
        uint64_t size = (uint64_t)format.head + format_count(format, bytes + at);
        if (size > len - at) break;
        at += size;
    }

    if (at + n > scanner->max_frame || scanner->max_depth < 2) return scanner_next(scanner, bytes, len);
    if (n == 0) return (int64_t)at;

    scanner->depth = 2;
    scanner->open[1] = 1;
    scanner->open[2] = n;
    scanner->at = (uint32_t)at;
    scanner->spare = scanner->max_frame - (uint32_t)at - n;
    return scanner_next(scanner, bytes, len);
}
