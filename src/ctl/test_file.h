/*
 * test_file.h: a file of tests for limits, read and packed, with every mistake in it by its line.
 *
 *   bytes ─▶ yaml_tree ─▶ test_fields.def ──▶ struct test_file: tests, their steps, and for each step
 *                         test_methods.def    when it calls what, the packed parameters, and what is expected
 *
 * The policies are the daemon's to read: those of `config`, or of the file itself.
 */
#ifndef RL_CTL_TEST_FILE_H
#define RL_CTL_TEST_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "policy/faults.h"
#include "policy/tree.h"

enum test_field {
#define TEST_FIELD(ID, ...) TEST_##ID,
#include "ctl/test_fields.def"
#undef TEST_FIELD
    N_TEST_FIELDS
};

enum test_kind { TEST_KIND_COUNT, TEST_KIND_DURATION, TEST_KIND_WORD, TEST_KIND_TRUTH };
enum test_scope { TEST_SCOPE_STEP, TEST_SCOPE_ERROR, TEST_SCOPE_DECISION };

extern const struct test_field_row {
    const char *name;
    enum test_kind kind;
    enum test_scope scope;
    const char *wire; /* of a decision: the field's name in the protocol */
} test_fields[N_TEST_FIELDS];

enum test_shape { TEST_SHAPE_TARGET, TEST_SHAPE_LIST, TEST_SHAPE_NAME };
enum test_third {
    TEST_THIRD_NO_MORE,
    TEST_THIRD_COST,
    TEST_THIRD_COST_OR_OPTIONS,
    TEST_THIRD_UNITS, /* a cost that must be there; options may follow it, of a TARGET */
    TEST_THIRD_OPTIONS
};
enum test_answer { TEST_ANSWER_DECISION, TEST_ANSWER_ANOTHER };
enum test_names { TEST_NAMES_NOTHING, TEST_NAMES_RESERVATION, TEST_NAMES_SLOT };

struct test_method {
    const char *name;
    enum test_shape shape;
    enum test_third third;
    enum test_answer answer;
    enum test_names names;
    const char *usage;
};

/* What a call is about. */
struct test_target {
    uint32_t line;
    const struct tree_node *policy; /* a name, or settings */
    const char *key;
    int64_t cost;
};

struct test_expectation {
    bool is_given;
    int64_t low, high;  /* of numbers, ends included; durations in milliseconds; -1 = never; a truth is 0 or 1 */
    const char *text;   /* of words; "" = there is none */
    const char *before; /* as it is written */
};

enum test_store { TEST_STORE_STAYS, TEST_STORE_DOWN, TEST_STORE_UP };

struct test_step {
    uint32_t line;
    enum test_store store;            /* the step is `redis: down` or `redis: up` */
    const struct test_method *method; /* NULL: it is that */
    int64_t at_us;                    /* of the first call, since the epoch */
    int64_t every_us, n_ticks;        /* 0, 1: all at once */
    int64_t times;                    /* calls in each tick */
    struct test_target *targets;      /* owned; of a NAME none */
    size_t n_targets;
    struct buffer params; /* owned; packed; of a NAME what follows the name */
    size_t as, uses;      /* the number of the name that it gives, or of the one that it takes; NO_NAME */
    struct test_expectation expects[N_TEST_FIELDS];
};
#define NO_NAME SIZE_MAX

struct test_name {
    const char *text;
    const struct test_step *step; /* the last that gives it */
    enum test_names what;
};

struct test {
    uint32_t line;
    const char *name;
    int64_t start_us;        /* since the epoch */
    struct test_step *steps; /* owned */
    size_t n_steps;
    struct test_name *names; /* owned; what its steps name */
    size_t n_names;
};

struct test_file {
    const char *path;       /* not owned */
    char *config;           /* owned; the path of the configuration: this file's if its policies are here */
    uint32_t config_line;   /* that names it */
    struct tree_node *root; /* owned; the texts above are its own */
    struct test *tests;     /* owned */
    size_t n_tests;
};

enum { TEST_CALLS_MAX = 10000000 /* of one step */ };

/* 0, or -1 with at least one fault. Call test_file_fini() in either case. */
int test_file_read(struct test_file *file, const char *path, struct faults *faults);
void test_file_fini(struct test_file *file);

#endif
