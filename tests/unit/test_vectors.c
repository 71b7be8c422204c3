/*
 * test_vectors.c: the codec against proto/vectors (README.md there), and the documents against both.
 *
 * A vector's bytes go through scanner, envelope and pull reader as in a session, in pieces of every
 * kind, and what comes out is put into the words of the column "codec".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "proto/rpc.h"
#include "proto/scan.h"

enum { MAX_FRAME = 65536, MAX_DEPTH = 8, N_VECTORS_MAX = 1000, N_ITEMS_MAX = 500, LONG_VECTOR = 512 };

struct vector {
    char *name;
    char *codec;
    struct buffer bytes; /* owned */
};

static struct vector vectors[N_VECTORS_MAX];
static size_t n_vectors;
static char *items[N_ITEMS_MAX];
static size_t n_items;

/* Reading the files. */

static char *read_text(const char *path)
{
    struct buffer text;
    buffer_init(&text, 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    uint8_t *to;
    size_t n;
    do {
        to = buffer_reserve(&text, 4096);
        assert_non_null(to);
        n = fread(to, 1, 4096, file);
        buffer_grew(&text, n);
    } while (n > 0);
    fclose(file);
    assert_int_equal(buffer_append(&text, "", 1), 0);
    return (char *)text.bytes;
}

/* The text up to `separator` without the blanks around it; *rest moves behind the separator. */
static char *next_column(char **rest, const char *separator)
{
    char *column = strsep(rest, separator);
    if (column == NULL) return NULL;
    column += strspn(column, " ");
    size_t len = strlen(column);
    while (len > 0 && column[len - 1] == ' ') len--;
    column[len] = '\0';
    return column;
}

/* `)*100`: repeat what came since the parenthesis. Returns behind it. */
static const char *repeat(struct buffer *bytes, size_t from, const char *at)
{
    char *end;
    unsigned long times = strtoul(at + 2, &end, 10);
    size_t len = buffer_len(bytes) - from;
    for (unsigned long i = 1; i < times; i++) {
        assert_non_null(buffer_reserve(bytes, len));
        assert_int_equal(buffer_append(bytes, buffer_data(bytes) + from, len), 0);
    }
    return end;
}

static void parse_bytes(const char *at, struct buffer *ret)
{
    size_t group = 0;
    while (*at != '\0') {
        if (*at == ' ') {
            at++;
        } else if (*at == '"') {
            size_t len = strcspn(at + 1, "\"");
            assert_int_equal(buffer_append(ret, at + 1, len), 0);
            at += len + 2;
        } else if (*at == '(') {
            group = buffer_len(ret);
            at++;
        } else if (*at == ')') {
            at = repeat(ret, group, at);
        } else {
            char pair[3] = {at[0], at[1], '\0'};
            char *end;
            uint8_t byte = (uint8_t)strtoul(pair, &end, 16);
            assert_ptr_equal(end, pair + 2);
            assert_int_equal(buffer_append(ret, &byte, 1), 0);
            at += 2;
        }
    }
}

static void load_topic(const char *topic)
{
    char path[100];
    snprintf(path, sizeof path, "proto/vectors/%s.txt", topic);
    char *text = read_text(path);
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (line[0] == '\0' || line[0] == '#') continue;
        assert_in_range(n_vectors, 0, N_VECTORS_MAX - 1);
        struct vector *vector = &vectors[n_vectors++];
        vector->name = mem_strdup(next_column(&line, "|"));
        parse_bytes(next_column(&line, "|"), &vector->bytes);
        vector->codec = mem_strdup(next_column(&line, "|"));
    }
    mem_free(text);
}

static int load(void **state)
{
    (void)state;
    static const char *const topics[] = {"example", "accepted", "sent", "framing", "rpc", "values"};
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) load_topic(topics[i]);
    char *text = read_text("proto/vectors/SECTIONS");
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (line[0] == '\0' || line[0] == '#') continue;
        assert_in_range(n_items, 0, N_ITEMS_MAX - 1);
        items[n_items++] = mem_strdup(next_column(&line, "|"));
    }
    mem_free(text);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_vectors; i++) {
        mem_free(vectors[i].name);
        mem_free(vectors[i].codec);
        buffer_fini(&vectors[i].bytes);
    }
    for (size_t i = 0; i < n_items; i++) mem_free(items[i]);
    return 0;
}

/* Putting what was read into words. */

static void append(struct buffer *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct buffer *words, const char *format, ...)
{
    char piece[800];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    assert_in_range(len, 0, sizeof piece - 1);
    assert_int_equal(buffer_append(words, piece, (size_t)len), 0);
}

static void say_text(struct buffer *words, struct slice text, bool is_bin)
{
    if (text.len > 64) {
        append(words, "%s(%zu)", is_bin ? "bin" : "text", text.len);
        return;
    }
    append(words, is_bin ? "b\"" : "\"");
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = text.data[i];
        bool plain = byte >= ' ' && byte < 0x7f && strchr("\"\\|", byte) == NULL;
        append(words, plain ? "%c" : "\\x%02x", byte);
    }
    append(words, "\"");
}

static void say_value(struct buffer *words, struct pull *pull);

static void say_values(struct buffer *words, struct pull *pull, uint32_t n)
{
    if (n > 16) {
        append(words, "array(%u)", n);
        while (n-- > 0) assert_int_equal(pull_skip(pull), 0);
        return;
    }
    append(words, "[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) append(words, ",");
        say_value(words, pull);
    }
    append(words, "]");
}

static void say_pairs(struct buffer *words, struct pull *pull)
{
    uint32_t n;
    assert_int_equal(pull_map(pull, &n), 0);
    append(words, "{");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) append(words, ",");
        say_value(words, pull);
        append(words, ":");
        say_value(words, pull);
    }
    append(words, "}");
}

static void say_number(struct buffer *words, struct pull *pull)
{
    int64_t number;
    bool is_float = pull_type(pull) == PULL_FLOAT;
    if (pull_int(pull, &number) == 0) {
        append(words, "%lld", (long long)number);
    } else {
        append(words, is_float ? "float" : "big");
        assert_int_equal(pull_skip(pull), 0);
    }
}

static void say_value(struct buffer *words, struct pull *pull)
{
    bool truth, is_bin = pull_is_bin(pull);
    uint32_t n;
    struct slice text;
    switch (pull_type(pull)) {
    case PULL_NIL:
        assert_int_equal(pull_nil(pull), 0);
        append(words, "nil");
        break;
    case PULL_BOOL:
        assert_int_equal(pull_bool(pull, &truth), 0);
        append(words, truth ? "true" : "false");
        break;
    case PULL_INT:
    case PULL_FLOAT: say_number(words, pull); break;
    case PULL_TEXT:
        assert_int_equal(pull_text(pull, &text), 0);
        say_text(words, text, is_bin);
        break;
    case PULL_ARRAY:
        assert_int_equal(pull_array(pull, &n), 0);
        say_values(words, pull, n);
        break;
    case PULL_MAP: say_pairs(words, pull); break;
    case PULL_EXT:
        assert_int_equal(pull_skip(pull), 0);
        append(words, "ext");
        break;
    case PULL_END: fail_msg("a value ends too early"); break;
    }
}

static void say_request(struct buffer *words, const uint8_t *message, size_t len)
{
    struct rpc_request request;
    enum rpc_fault fault = rpc_parse_request(message, len, &request);
    if (fault == RPC_FRAMING) {
        append(words, "framing");
        return;
    }
    bool is_notification = request.kind == RPC_NOTIFICATION;
    const char *what = is_notification ? "notification" : "request";
    if (fault == RPC_BAD_METHOD) what = "bad_method";
    if (fault == RPC_BAD_PARAMS) what = "bad_params";
    append(words, "%s", what);
    if (!is_notification) append(words, " %llu", (unsigned long long)request.msgid);
    if (fault != RPC_OK) return;
    append(words, " ");
    /* Whether the method came as str or bin: read the envelope once more, up to it. */
    struct pull pull = pull_of(message, len);
    uint32_t n;
    assert_int_equal(pull_array(&pull, &n), 0);
    for (uint32_t i = is_notification ? 1 : 2; i > 0; i--) assert_int_equal(pull_skip(&pull), 0);
    say_text(words, request.method, pull_is_bin(&pull));
    append(words, " ");
    say_values(words, &request.params, request.n_params);
    assert_ptr_equal(request.params.at, request.n_params > 0 ? message + len : request.params.at);
}

static void say_response(struct buffer *words, const uint8_t *message, size_t len)
{
    struct rpc_response response;
    assert_int_equal(rpc_parse_response(message, len, &response), 0);
    append(words, "response ");
    if (response.has_msgid) {
        append(words, "%llu ", (unsigned long long)response.msgid);
    } else {
        append(words, "nil ");
    }
    if (response.is_error) {
        say_text(words, response.error, false);
    } else {
        append(words, "nil");
    }
    append(words, " ");
    say_value(words, &response.result);
    assert_ptr_equal(response.result.at, message + len);
}

static const char *scan_word(int64_t fault)
{
    if (fault == -SCAN_TOO_LARGE) return "too_large";
    return fault == -SCAN_TOO_DEEP ? "too_deep" : "broken";
}

/* A session in small: bytes come in pieces, messages go out as words. */
struct walk {
    const struct vector *vector;
    struct scanner scanner;
    uint8_t *seen; /* owned; exactly as long as the vector; what has not come yet is 0xc1 */
    size_t start;  /* of the message under way */
    bool lost;
    char last[800]; /* the words of the last message, and how often they came in a row */
    unsigned n_last;
    struct buffer words;
};

static void flush_word(struct walk *walk)
{
    if (walk->n_last == 0) return;
    if (buffer_len(&walk->words) > 0) append(&walk->words, "; ");
    append(&walk->words, "%s", walk->last);
    if (walk->n_last > 1) append(&walk->words, " *%u", walk->n_last);
    walk->n_last = 0;
}

static void add_word(struct walk *walk, const char *word)
{
    if (walk->n_last > 0 && strcmp(walk->last, word) != 0) flush_word(walk);
    snprintf(walk->last, sizeof walk->last, "%s", word);
    walk->n_last++;
}

static void add_message(struct walk *walk, const uint8_t *message, size_t len)
{
    struct buffer word;
    buffer_init(&word, 0);
    bool is_request = strncmp(walk->vector->codec, "response", 8) != 0;
    if (is_request) {
        say_request(&word, message, len);
    } else {
        say_response(&word, message, len);
    }
    assert_int_equal(buffer_append(&word, "", 1), 0);
    add_word(walk, (const char *)buffer_data(&word));
    walk->lost = strcmp(walk->last, "framing") == 0;
    buffer_fini(&word);
}

/* The bytes up to `have` have come. */
static void feed(struct walk *walk, size_t have)
{
    memcpy(walk->seen, buffer_data(&walk->vector->bytes), have);
    while (!walk->lost && walk->start < have) {
        int64_t n = scanner_next(&walk->scanner, walk->seen + walk->start, have - walk->start);
        if (n == 0) return;
        if (n < 0) {
            add_word(walk, scan_word(n));
            walk->lost = true;
        } else {
            add_message(walk, walk->seen + walk->start, (size_t)n);
            walk->start += (size_t)n;
        }
    }
}

static void begin_walk(struct walk *walk, const struct vector *vector)
{
    size_t len = buffer_len(&vector->bytes);
    *walk = (struct walk){.vector = vector, .seen = mem_alloc(len)};
    memset(walk->seen, 0xc1, len);
    scanner_init(&walk->scanner, MAX_FRAME, MAX_DEPTH);
    buffer_init(&walk->words, 0);
}

static void end_walk(struct walk *walk, const char *how)
{
    size_t len = buffer_len(&walk->vector->bytes);
    if (len > 0) feed(walk, len);
    if (!walk->lost && (walk->start < len || len == 0)) add_word(walk, "more");
    flush_word(walk);
    assert_int_equal(buffer_append(&walk->words, "", 1), 0);
    const char *words = (const char *)buffer_data(&walk->words);
    if (strcmp(words, walk->vector->codec) != 0) {
        fail_msg("%s (%s):\nexpected %s\nread     %s", walk->vector->name, how, walk->vector->codec, words);
    }
    mem_free(walk->seen);
    buffer_fini(&walk->words);
}

static void every_vector_means_what_it_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_vectors; i++) {
        struct walk walk;
        begin_walk(&walk, &vectors[i]);
        end_walk(&walk, "whole");
    }
}

static void every_vector_means_the_same_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_vectors; i++) {
        struct walk walk;
        begin_walk(&walk, &vectors[i]);
        for (size_t have = 1; have < buffer_len(&vectors[i].bytes); have++) feed(&walk, have);
        end_walk(&walk, "byte by byte");
    }
}

/* Every offset; of a long vector those near its ends and some between. */
static void every_vector_means_the_same_split_in_two(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_vectors; i++) {
        size_t len = buffer_len(&vectors[i].bytes);
        for (size_t at = 1; at < len; at += len <= LONG_VECTOR || at < 32 || at + 32 > len ? 1 : 1499) {
            struct walk walk;
            char how[40];
            snprintf(how, sizeof how, "split at %zu", at);
            begin_walk(&walk, &vectors[i]);
            feed(&walk, at);
            end_walk(&walk, how);
        }
    }
}

static void repack(struct pull *pull, struct packer *packer)
{
    bool truth;
    uint32_t n;
    uint64_t positive;
    int64_t number;
    struct slice text;
    switch (pull_type(pull)) {
    case PULL_NIL:
        assert_int_equal(pull_nil(pull), 0);
        pack_nil(packer);
        break;
    case PULL_BOOL:
        assert_int_equal(pull_bool(pull, &truth), 0);
        pack_bool(packer, truth);
        break;
    case PULL_INT:
        if (pull_uint64(pull, &positive) == 0) {
            pack_uint(packer, positive);
        } else {
            assert_int_equal(pull_int(pull, &number), 0);
            pack_int(packer, number);
        }
        break;
    case PULL_TEXT:
        assert_int_equal(pull_text(pull, &text), 0);
        pack_str(packer, text);
        break;
    case PULL_ARRAY:
        assert_int_equal(pull_array(pull, &n), 0);
        pack_array(packer, n);
        while (n-- > 0) repack(pull, packer);
        break;
    case PULL_MAP:
        assert_int_equal(pull_map(pull, &n), 0);
        pack_map(packer, n);
        while (n-- > 0) {
            repack(pull, packer);
            repack(pull, packer);
        }
        break;
    default: fail_msg("a float, an ext type, or nothing");
    }
}

/* Also holds for the requests of the examples, which are as short as they can be. */
static void what_is_sent_is_in_its_shortest_form(void **state)
{
    (void)state;
    size_t n_seen = 0;
    for (size_t i = 0; i < n_vectors; i++) {
        if (strncmp(vectors[i].name, "sent/", 5) != 0 && strncmp(vectors[i].name, "example/", 8) != 0) continue;
        struct buffer again;
        buffer_init(&again, 0);
        struct packer packer = packer_of(&again);
        size_t len = buffer_len(&vectors[i].bytes);
        struct pull pull = pull_of(buffer_data(&vectors[i].bytes), len);
        repack(&pull, &packer);
        assert_int_equal(buffer_len(&again), len);
        assert_memory_equal(buffer_data(&again), buffer_data(&vectors[i].bytes), len);
        buffer_fini(&again);
        n_seen++;
    }
    assert_true(n_seen > 0);
}

/* The lists against each other, and the document against the vectors. */

static bool stands_under(const char *name, const char *item)
{
    size_t len = strlen(item);
    return strncmp(name, item, len) == 0 && (name[len] == '\0' || name[len] == '/');
}

static void every_item_has_a_vector_and_every_vector_an_item(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_items; i++) {
        bool found = stands_under(items[i], "live");
        for (size_t k = 0; k < n_vectors; k++) found = found || stands_under(vectors[k].name, items[i]);
        if (!found) fail_msg("%s has no vector", items[i]);
    }
    for (size_t k = 0; k < n_vectors; k++) {
        bool found = false;
        for (size_t i = 0; i < n_items; i++) found = found || stands_under(vectors[k].name, items[i]);
        if (!found) fail_msg("%s stands in no section", vectors[k].name);
        for (size_t i = 0; i < k; i++) assert_string_not_equal(vectors[i].name, vectors[k].name);
    }
}

static const struct vector *vector_of(const char *name)
{
    for (size_t i = 0; i < n_vectors; i++) {
        if (strcmp(vectors[i].name, name) == 0) return &vectors[i];
    }
    fail_msg("there is no vector %s", name);
    return NULL;
}

/* The hex of a block of DUMPS.md, up to its closing fence; comments begin with ';'. */
static void parse_dump(char **rest, struct buffer *ret)
{
    char *line;
    while ((line = strsep(rest, "\n")) != NULL && strcmp(line, "```") != 0) {
        line[strcspn(line, ";")] = '\0';
        parse_bytes(line, ret);
    }
}

static void dumps_md_shows_every_example(void **state)
{
    (void)state;
    char *text = read_text("proto/vectors/DUMPS.md");
    char *rest = text, *line;
    size_t n_dumps = 0, n_examples = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strncmp(line, "example/", 8) != 0) continue;
        const struct vector *vector = vector_of(line);
        struct buffer dump;
        buffer_init(&dump, 0);
        parse_dump(&rest, &dump);
        if (buffer_len(&dump) != buffer_len(&vector->bytes))
            fail_msg("the dump of %s has another length", vector->name);
        assert_memory_equal(buffer_data(&dump), buffer_data(&vector->bytes), buffer_len(&dump));
        buffer_fini(&dump);
        n_dumps++;
    }
    for (size_t i = 0; i < n_vectors; i++) n_examples += stands_under(vectors[i].name, "example");
    assert_int_equal(n_dumps, n_examples);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_means_what_it_says),
        cmocka_unit_test(every_vector_means_the_same_byte_by_byte),
        cmocka_unit_test(every_vector_means_the_same_split_in_two),
        cmocka_unit_test(what_is_sent_is_in_its_shortest_form),
        cmocka_unit_test(every_item_has_a_vector_and_every_vector_an_item),
        cmocka_unit_test(dumps_md_shows_every_example),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
