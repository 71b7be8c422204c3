/*
 * redis/reader.h: replies out of bytes, as RESP2 has them; pure.
 *
 * Every reply of a connection lands in one scratch object, so the hot path allocates nothing: its integers, and its
 * texts as far as they matter to us. What no honest server sends is refused: types of RESP3, deep nesting, replies that
 * are larger than any we ask for. After a refusal nothing that follows on the connection can be read.
 */
#ifndef RL_REDIS_READER_H
#define RL_REDIS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"

enum {
    REDIS_INTEGERS_MAX = 8192, /* elements of one array: the largest batch's reply passes */
    REDIS_DEPTH_MAX = 4,       /* arrays in arrays: HELLO lists modules, each a list with a list of arguments */
    REDIS_TEXT_MAX = 512,      /* bytes of an error for people; what is longer is cut */
    REDIS_TEXTS_MAX = 4096,    /* bytes kept of a reply's texts, likewise: a section of INFO passes */
    REDIS_UNREAD_MAX = 131072, /* bytes of one element */
    REDIS_ELEMENTS_MAX =
        32768, /* of an array in a reply that is kept whole: the ends of every other hash slot's range */
};

enum redis_reply_type { REDIS_STATUS, REDIS_ERROR_TEXT, REDIS_STRING, REDIS_INTEGER, REDIS_ARRAY, REDIS_NIL };

/* Zeroed = no reply has begun. A reply is valid until the next one begins. */
struct redis_reader {
    enum redis_reply_type type;
    size_t n_elements; /* of an array */
    const char *fault; /* why the stream was refused; NULL = it was not */
    char fault_text[64];

    struct buffer *whole; /* not owned; gets the bytes of each reply, for what is nested in it. NULL = not kept */
    uint32_t depth;       /* arrays that are still open */
    size_t left[REDIS_DEPTH_MAX]; /* elements of each that are still to come */

    int64_t integers[REDIS_INTEGERS_MAX]; /* of an integer, or of an array's elements */
    size_t n_integers;
    char text[REDIS_TEXTS_MAX]; /* a string, status or error; of an array the strings, each with its NUL */
    size_t text_len;            /* with the NULs */
};

enum redis_progress {
    REDIS_MORE,  /* the rest is missing; what is not used must come again, with more behind it */
    REDIS_WHOLE, /* one reply is there */
    REDIS_BAD,   /* refused: reader->fault */
};

/* Reads on, up to the end of one reply. */
enum redis_progress redis_reader_feed(struct redis_reader *reader, const uint8_t *bytes, size_t len, size_t *ret_used);

bool redis_reader_is_error(const struct redis_reader *reader);
bool redis_reader_is_integers(const struct redis_reader *reader);  /* an array of nothing but integers */
struct slice redis_reader_text(const struct redis_reader *reader); /* of a string, status or error */
/* Of TIME: us since the epoch; 0 = it is no time. */
int64_t redis_reader_time_us(const struct redis_reader *reader);
/* In an array of names and values (HELLO): the value that follows `name`, or NULL. */
const char *redis_reader_field(const struct redis_reader *reader, const char *name);

#endif
