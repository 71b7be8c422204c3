/*
 * scan.h: find the end of a MessagePack message in bytes that a stranger sends, before anything
 * is allocated or decoded for it.
 *
 * The scanner is incremental: it remembers where it stopped and what is still open, so a message
 * that arrives byte by byte costs O(length) in all. It believes no declared size: a string, array
 * or map that could not end within max_frame is refused at its header.
 */
#ifndef RL_PROTO_SCAN_H
#define RL_PROTO_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum { SCAN_DEPTH_MAX = 32 };

enum scan_error {
    SCAN_TOO_LARGE = 1, /* the message is, or must become, longer than max_frame */
    SCAN_TOO_DEEP,      /* nested deeper than max_depth */
    SCAN_BROKEN,        /* a byte that MessagePack does not have (0xc1), or a first byte that is not an array */
};

struct scanner {
    uint32_t max_frame;                /* bytes of one message */
    uint8_t max_depth;                 /* nested arrays and maps, the outermost counted; <= SCAN_DEPTH_MAX */
    uint8_t depth;                     /* open containers */
    uint32_t at;                       /* bytes of the message already understood */
    uint32_t skip;                     /* bytes of a value's body still to come */
    uint32_t spare;                    /* bytes that the message may have beyond those known to come (scan.c) */
    uint32_t open[1 + SCAN_DEPTH_MAX]; /* values still to come: the message itself, then in each open container */
};

void scanner_init(struct scanner *scanner, uint32_t max_frame, uint8_t max_depth);

/*
 * Look at the `len` bytes of the message under way, always given from its first byte.
 * Returns > 0: the message's whole length, and the scanner is ready for the next message;
 *           0: more bytes are needed; call again with the same bytes and those that followed;
 *         < 0: -(enum scan_error); the framing is lost.
 */
int64_t scanner_next(struct scanner *scanner, const uint8_t *bytes, size_t len);

/* The same, at the first look at a message whose first `at` bytes a reader of its own has understood: an array up to
 * the n values of another one, which is its last value. Values that hold no others and are here are stepped over
 * without keeping account of them: of most messages these are all. */
int64_t scanner_next_after(struct scanner *scanner, const uint8_t *bytes, size_t len, size_t at, uint32_t n);

#endif
