/*
 * fuzz_scan.c: how the bytes arrive must not matter to the scanner.
 *
 * The last four bytes of the input choose max_frame, max_depth and the sizes of the pieces; the rest
 * is a connection's stream. Scanned whole and in pieces it must give the same messages and the same fault.
 */
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "proto/pull.h"
#include "proto/scan.h"

enum { N_CONTROL = 4 };

struct reading {
    struct scanner scanner;
    uint32_t max_frame;
    size_t start;
    int64_t fault; /* 0 while the framing holds */
};

/* Take every message that has come whole by `have`; each must be one value to the pull reader too. */
static void read_on(struct reading *reading, const uint8_t *bytes, size_t have)
{
    while (reading->fault == 0 && reading->start < have) {
        size_t len = have - reading->start;
        int64_t n = scanner_next(&reading->scanner, bytes + reading->start, len);
        if (n == 0) {
            CHECK(len < reading->max_frame);
            return;
        }
        if (n < 0) {
            reading->fault = n;
            CHECK(scanner_next(&reading->scanner, bytes + reading->start, len) == n);
            return;
        }
        CHECK((size_t)n <= len && n <= (int64_t)reading->max_frame);
        struct pull pull = pull_of(bytes + reading->start, (size_t)n);
        CHECK(pull_skip(&pull) == 0 && pull.at == pull.end);
        reading->start += (size_t)n;
    }
}

static struct reading reading_of(const uint8_t *control)
{
    uint32_t max_frame = control[0] < 128 ? 1 + control[0] : 65536;
    uint8_t max_depth = (uint8_t)(1 + control[1] % SCAN_DEPTH_MAX);
    struct reading reading = {.max_frame = max_frame};
    scanner_init(&reading.scanner, max_frame, max_depth);
    return reading;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < N_CONTROL) return 0;
    size -= N_CONTROL;
    const uint8_t *control = data + size;
    struct reading whole = reading_of(control), pieces = reading_of(control);
    read_on(&whole, data, size);
    for (size_t have = 0; have < size;) {
        size_t step = 1 + control[2 + have % 2] % 16;
        have += step < size - have ? step : size - have;
        read_on(&pieces, data, have);
    }
    CHECK(whole.start == pieces.start);
    CHECK(whole.fault == pieces.fault);
    return 0;
}
