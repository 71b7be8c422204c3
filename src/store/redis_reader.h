/*
 * redis_reader.h: our own object functions for hiredis' parser.
 *
 * hiredis parses; what it builds is ours: every reply of a connection lands in one scratch object,
 * so the hot path allocates nothing, and what no honest server sends is refused while it is parsed:
 * a reply that no command waits for (hiredis would abort the process), deep nesting (it would
 * recurse), maps and pushes (we speak RESP2). A refusal makes hiredis close the connection.
 */
#ifndef RL_STORE_REDIS_READER_H
#define RL_STORE_REDIS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/async.h>

#include "base/slice.h"

enum {
    REDIS_INTEGERS_MAX = 8192, /* elements of one array: the largest batch's reply passes */
    REDIS_DEPTH_MAX = 4,       /* arrays in arrays: HELLO lists modules, each a list with a list of arguments */
    REDIS_TEXT_MAX = 512,      /* bytes kept of a reply's texts; what is longer is cut */
};

/* The reply being read. Valid inside the command's callback only: the next reply overwrites it. */
struct redis_reader {
    redisReply head; /* first: hiredis' async.c reads its type; REDIS_REPLY_* and, for arrays, `elements` */
    redisAsyncContext *context;
    const char *refusal; /* why the stream was refused; NULL = it was not */

    int64_t integers[REDIS_INTEGERS_MAX]; /* of an integer, or of an array's elements */
    size_t n_integers;
    char text[REDIS_TEXT_MAX]; /* a string, status or error; of an array the strings, each with its NUL */
    size_t text_len;           /* with the NULs */
};

/* Take over the parsing of a context that has not read yet. The reader outlives the context. */
void redis_reader_attach(struct redis_reader *reader, redisAsyncContext *context);

bool redis_reader_is_error(const struct redis_reader *reader);
bool redis_reader_is_integers(const struct redis_reader *reader);  /* an array of nothing but integers */
struct slice redis_reader_text(const struct redis_reader *reader); /* of a string, status or error */
/* In an array of names and values (HELLO): the value that follows `name`; NULL where there is none. */
const char *redis_reader_field(const struct redis_reader *reader, const char *name);

#endif
