#include "store/redis_reader.h"

#include <string.h>

static struct redis_reader *reader_of(const redisReadTask *task)
{
    return task->privdata;
}

/* NULL makes hiredis fail the stream; its own text would be "Out of memory". */
static void *refuse(struct redis_reader *reader, const char *why)
{
    if (reader->refusal == NULL) reader->refusal = why;
    return NULL;
}

static int depth_of(const redisReadTask *task)
{
    int depth = 0;
    for (const redisReadTask *t = task->parent; t != NULL; t = t->parent) depth++;
    return depth;
}

/* A reply begins: only where a command waits for it. NULL = refused. */
static struct redis_reader *begin(const redisReadTask *task)
{
    struct redis_reader *reader = reader_of(task);
    if (reader->context->replies.head == NULL) return refuse(reader, "a reply that no command waits for");
    memset(&reader->head, 0, sizeof(reader->head));
    reader->head.type = task->type;
    reader->n_integers = 0;
    reader->text_len = 0;
    return reader;
}

static bool is_root(const redisReadTask *task)
{
    return task->parent == NULL;
}

static bool is_first_level(const redisReadTask *task)
{
    return task->parent != NULL && task->parent->parent == NULL;
}

static void keep_text(struct redis_reader *reader, const char *bytes, size_t len)
{
    size_t room = sizeof(reader->text) - reader->text_len;
    if (room < 2) return;
    if (len > room - 1) len = room - 1;
    memcpy(reader->text + reader->text_len, bytes, len);
    reader->text[reader->text_len + len] = '\0';
    reader->text_len += len + 1;
}

static void *on_string(const redisReadTask *task, char *bytes, size_t len)
{
    struct redis_reader *reader = reader_of(task);
    if (is_root(task) && begin(task) == NULL) return NULL;
    if (is_root(task) || is_first_level(task)) keep_text(reader, bytes, len);
    return reader;
}

static void *on_array(const redisReadTask *task, size_t n)
{
    struct redis_reader *reader = reader_of(task);
    if (task->type != REDIS_REPLY_ARRAY) return refuse(reader, "a reply of a protocol that was not asked for");
    if (depth_of(task) >= REDIS_DEPTH_MAX) return refuse(reader, "a reply nested too deeply");
    if (!is_root(task)) return reader;
    if (begin(task) == NULL) return NULL;
    reader->head.elements = n;
    return reader;
}

static void *on_integer(const redisReadTask *task, long long value)
{
    struct redis_reader *reader = reader_of(task);
    if (is_root(task) && begin(task) == NULL) return NULL;
    bool is_kept = is_root(task) || is_first_level(task);
    if (is_kept && reader->n_integers < REDIS_INTEGERS_MAX) reader->integers[reader->n_integers++] = value;
    return reader;
}

static void *on_nil(const redisReadTask *task)
{
    struct redis_reader *reader = reader_of(task);
    if (!is_root(task)) return reader;
    if (begin(task) == NULL) return NULL;
    reader->head.type = REDIS_REPLY_NIL; /* the task says string or array: "$-1" and "*-1" */
    return reader;
}

static void *on_double(const redisReadTask *task, double value, char *bytes, size_t len)
{
    (void)value, (void)bytes, (void)len;
    return refuse(reader_of(task), "a reply of a protocol that was not asked for");
}

static void *on_bool(const redisReadTask *task, int value)
{
    (void)value;
    return refuse(reader_of(task), "a reply of a protocol that was not asked for");
}

static void on_free(void *reply)
{
    (void)reply; /* the reader's own scratch */
}

static redisReplyObjectFunctions functions = {
    .createString = on_string,
    .createArray = on_array,
    .createInteger = on_integer,
    .createDouble = on_double,
    .createNil = on_nil,
    .createBool = on_bool,
    .freeObject = on_free,
};

void redis_reader_attach(struct redis_reader *reader, redisAsyncContext *context)
{
    reader->context = context;
    reader->refusal = NULL;
    context->c.reader->fn = &functions;
    context->c.reader->privdata = reader;
    context->c.reader->maxelements = REDIS_INTEGERS_MAX;
    context->c.reader->maxbuf = 0; /* keep the buffer: else hiredis frees and allocates it again at each large read */
}

bool redis_reader_is_error(const struct redis_reader *reader)
{
    return reader->head.type == REDIS_REPLY_ERROR;
}

bool redis_reader_is_integers(const struct redis_reader *reader)
{
    return reader->head.type == REDIS_REPLY_ARRAY && reader->n_integers == reader->head.elements;
}

struct slice redis_reader_text(const struct redis_reader *reader)
{
    size_t len = reader->text_len > 0 ? reader->text_len - 1 : 0;
    return (struct slice){(const uint8_t *)reader->text, len};
}

const char *redis_reader_field(const struct redis_reader *reader, const char *name)
{
    if (reader->head.type != REDIS_REPLY_ARRAY) return NULL;
    bool found = false;
    for (size_t i = 0; i < reader->text_len; i += strlen(reader->text + i) + 1) {
        if (found) return reader->text + i;
        found = strcmp(reader->text + i, name) == 0;
    }
    return NULL;
}
