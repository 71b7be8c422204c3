/* redis/reader.c: one RESP reply after another out of the bytes of a connection, for redis/conn.c. */
#include "redis/reader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

enum { DIGITS_MAX = 19 };

/* -1, and the first reason counts. */
static ssize_t refuse_reply(struct redis_reader *reader, const char *why)
{
    if (reader->fault == NULL) reader->fault = why;
    return -1;
}

/* A number up to its CR LF. Returns the bytes used; 0 if the rest is missing, -1 if it is none. */
static inline ssize_t take_number(const uint8_t *bytes, size_t len, int64_t *ret_number)
{
    bool is_negative = len > 0 && bytes[0] == '-';
    const uint8_t *first = bytes + is_negative, *end = bytes + len, *at = first;
    uint64_t number = 0;
    for (uint32_t digit; at < end && (digit = *at - (uint32_t)'0') <= 9; at++) number = number * 10 + digit;

    ptrdiff_t n_digits = at - first;
    if (n_digits >= DIGITS_MAX && (n_digits > DIGITS_MAX || number > (uint64_t)INT64_MAX + is_negative)) return -1;
    if (end - at >= 2 && n_digits > 0 && at[0] == '\r' && at[1] == '\n') {
        *ret_number = (int64_t)(is_negative ? 0 - number : number);
        return at + 2 - bytes;
    }
    bool may_go_on = at == end || (end - at == 1 && n_digits > 0 && at[0] == '\r');
    return may_go_on ? 0 : -1;
}

/* Only the reply itself, or an array's own elements, are kept. */
static void keep_text(struct redis_reader *reader, const uint8_t *bytes, size_t len)
{
    size_t space = sizeof reader->text - reader->text_len;
    if (reader->depth > 1 || space < 2) return;
    if (len > space - 1) len = space - 1;
    memcpy(reader->text + reader->text_len, bytes, len);
    reader->text[reader->text_len + len] = '\0';
    reader->text_len += len + 1;
}

static void set_type(struct redis_reader *reader, enum redis_reply_type type)
{
    if (reader->depth == 0) reader->type = type;
}

/* "+OK\r\n" or "-ERR ...\r\n" */
static ssize_t take_line(struct redis_reader *reader, const uint8_t *bytes, size_t len)
{
    const uint8_t *end = memchr(bytes, '\r', len);
    if (end == NULL || end + 1 == bytes + len) return 0;
    if (end[1] != '\n') return refuse_reply(reader, "Protocol error, a line with a stray CR");
    set_type(reader, bytes[0] == '-' ? REDIS_ERROR_TEXT : REDIS_STATUS);
    keep_text(reader, bytes + 1, (size_t)(end - bytes) - 1);
    return end - bytes + 2;
}

/* "$2\r\nOK\r\n" or "*2\r\n", whose elements follow; "$-1\r\n" and "*-1\r\n" for none. */
static ssize_t take_counted(struct redis_reader *reader, const uint8_t *bytes, size_t len)
{
    char type = (char)bytes[0];
    int64_t number = 0;
    ssize_t used = take_number(bytes + 1, len - 1, &number);
    if (used == 0) return 0;
    if (used < 0 || number < -1)
        return refuse_reply(reader, type == '$' ? "Protocol error, a bad length of a string"
                                                : "Protocol error, a bad length of an array");

    size_t head = 1 + (size_t)used;
    if (number == -1) {
        set_type(reader, REDIS_NIL);
        return (ssize_t)head;
    }
    int64_t elements_max = reader->whole != NULL ? REDIS_ELEMENTS_MAX : REDIS_INTEGERS_MAX;
    if (number > (type == '$' ? REDIS_UNREAD_MAX : elements_max))
        return refuse_reply(reader, "a reply larger than any we asked for");

    if (type == '*') {
        if (reader->depth >= REDIS_DEPTH_MAX) return refuse_reply(reader, "a reply nested too deeply");
        set_type(reader, REDIS_ARRAY);
        if (reader->depth == 0) reader->n_elements = (size_t)number;
        if (number > 0) reader->left[reader->depth++] = (size_t)number + 1; /* itself, which is done next */
        return (ssize_t)head;
    }

    size_t whole = head + (size_t)number + 2;
    if (len < whole) return 0;
    if (memcmp(bytes + whole - 2, "\r\n", 2) != 0)
        return refuse_reply(reader, "Protocol error, a string without its end");
    set_type(reader, REDIS_STRING);
    keep_text(reader, bytes + head, (size_t)number);
    return (ssize_t)whole;
}

/* Returns the bytes used; 0 if the rest is missing, -1 if it was refused. */
static ssize_t take_element(struct redis_reader *reader, const uint8_t *bytes, size_t len)
{
    if (len == 0) return 0;

    if (bytes[0] == ':') { /* ":12\r\n", as nearly all */
        int64_t number;
        ssize_t used = take_number(bytes + 1, len - 1, &number);
        if (used == 0) return 0;
        if (used < 0) return refuse_reply(reader, "Protocol error, a bad integer");
        set_type(reader, REDIS_INTEGER);
        if (reader->depth <= 1 && reader->n_integers < REDIS_INTEGERS_MAX)
            reader->integers[reader->n_integers++] = number;
        return used + 1;
    }

    switch (bytes[0]) {
    case '$':
    case '*': return take_counted(reader, bytes, len);
    case '+':
    case '-': return take_line(reader, bytes, len);
    default: break;
    }

    if (strchr("_,#!=(%~>|", bytes[0]) != NULL && bytes[0] != '\0')
        return refuse_reply(reader, "a reply of a protocol that was not asked for");
    snprintf(reader->fault_text, sizeof reader->fault_text,
             isprint(bytes[0]) ? "Protocol error, got \"%c\" as reply type byte"
                               : "Protocol error, got \"\\x%02x\" as reply type byte",
             bytes[0]);
    return refuse_reply(reader, reader->fault_text);
}

enum redis_progress redis_reader_feed(struct redis_reader *reader, const uint8_t *bytes, size_t len, size_t *ret_used)
{
    *ret_used = 0;
    if (reader->fault != NULL) return REDIS_BAD;
    bool begins = reader->depth == 0;
    if (begins) reader->n_elements = reader->n_integers = reader->text_len = 0;

    size_t at = 0;
    enum redis_progress progress = REDIS_WHOLE;
    do {
        ssize_t used = take_element(reader, bytes + at, len - at);
        if (used <= 0) {
            progress = used < 0 ? REDIS_BAD : REDIS_MORE;
            break;
        }
        at += (size_t)used;
        while (reader->depth > 0 && --reader->left[reader->depth - 1] == 0) reader->depth--; /* arrays that it ends */
    } while (reader->depth > 0);

    *ret_used = at;
    if (reader->whole == NULL) return progress;
    if (begins) buffer_truncate(reader->whole, 0);
    if (buffer_append(reader->whole, bytes, at) == 0) return progress;
    (void)refuse_reply(reader, "a reply larger than any we asked for");
    return REDIS_BAD;
}

bool redis_reader_is_error(const struct redis_reader *reader)
{
    return reader->type == REDIS_ERROR_TEXT;
}

bool redis_reader_is_integers(const struct redis_reader *reader)
{
    return reader->type == REDIS_ARRAY && reader->n_integers == reader->n_elements;
}

struct slice redis_reader_text(const struct redis_reader *reader)
{
    size_t len = reader->text_len > 0 ? reader->text_len - 1 : 0;
    return (struct slice){(const uint8_t *)reader->text, len};
}

/* Seconds and microseconds, as texts. */
int64_t redis_reader_time_us(const struct redis_reader *reader)
{
    char *end = NULL;
    if (reader->type != REDIS_ARRAY || reader->text_len == 0) return 0;
    int64_t seconds = strtoll(reader->text, &end, 10);
    size_t at = (size_t)(end - reader->text) + 1;
    int64_t us = at < reader->text_len ? strtoll(reader->text + at, NULL, 10) : 0;
    bool is_time = seconds > 0 && seconds < INT64_MAX / SECOND_US - 1 && us >= 0 && us < SECOND_US;
    return is_time ? seconds * SECOND_US + us : 0;
}

const char *redis_reader_field(const struct redis_reader *reader, const char *name)
{
    if (reader->type != REDIS_ARRAY) return NULL;
    bool found = false;
    for (size_t i = 0; i < reader->text_len; i += strlen(reader->text + i) + 1) {
        if (found) return reader->text + i;
        found = strcmp(reader->text + i, name) == 0;
    }
    return NULL;
}
