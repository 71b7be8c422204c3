/* test_yaml_tree.c: what of YAML is read, with which lines, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "config/yaml_tree.h"

static struct tree_node *parse(const char *text, struct faults *faults)
{
    faults_init(faults);
    return yaml_tree_parse(text, strlen(text), faults);
}

static void a_tree_knows_its_lines_and_order(void **state)
{
    (void)state;
    struct faults faults;
    struct tree_node *root = parse("# head\nb:\n  x: 1\n  y: [p,\n      q]\na:\n  ~\n", &faults);
    assert_non_null(root);
    assert_int_equal(faults.n, 0);
    const struct tree_node *b = root->first, *a = b->next, *y = b->first->next;
    assert_string_equal(b->key, "b");
    assert_int_equal(b->kind, TREE_MAP);
    assert_int_equal(b->line, 2);
    assert_string_equal(b->first->text, "1");
    assert_int_equal(b->first->line, 3);
    assert_int_equal(y->kind, TREE_LIST);
    assert_int_equal(y->first->line, 4);
    assert_int_equal(y->last->line, 5);
    assert_string_equal(a->key, "a");
    assert_true(a->is_null);
    assert_int_equal(a->line, 6);
    assert_null(a->next);
    tree_free(root);
    faults_fini(&faults);
}

static void an_empty_file_is_an_empty_map(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", "# only a comment\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct faults faults;
        struct tree_node *root = parse(texts[i], &faults);
        assert_non_null(root);
        assert_int_equal(root->kind, TREE_MAP);
        assert_null(root->first);
        tree_free(root);
        faults_fini(&faults);
    }
}

static void a_quoted_word_is_a_text_and_not_nothing(void **state)
{
    (void)state;
    struct faults faults;
    struct tree_node *root = parse("a: ''\nb: \"null\"\nc: null\nd:\n", &faults);
    assert_false(root->first->is_null);
    assert_false(root->first->next->is_null);
    assert_true(root->first->next->next->is_null);
    assert_true(root->last->is_null);
    tree_free(root);
    faults_fini(&faults);
}

/* Refused files: the line, and a part of the message. */
static const struct {
    const char *text;
    uint32_t line;
    const char *says;
    bool is_fatal;
} refused[] = {
    {"a: 1\nb: [1\nc: 2\n", 3, "yaml: ", true},
    {"a: 1\n\tb: 2\n", 2, "indentation", true},
    {"a: \"open\n", 2, "yaml: ", true},
    {"a: b: c\n", 1, "mapping values are not allowed", true},
    {"a: 1\nb: 2\na: 3\n", 3, "a: is written twice, first on line 1", false},
    {"x:\n  y:\n    z: 1\n    z: 2\n", 4, "x.y.z: is written twice, first on line 3", false},
    {"a: &top 1\nb: *top\n", 2, "b: an alias (*top); aliases are not supported", false},
    {"a: &top 1\nb: 2\n", 1, "an anchor (&top)", false},
    {"a: !!str 1\n", 1, "a tag (tag:yaml.org,2002:str)", false},
    {"? [1, 2]\n: x\n", 1, "in the place of a key", true},
    {"a: 1\n---\nb: 2\n", 2, "a second document", true},
    {"a: \"x\\0y\"\n", 1, "NUL", false},
    {"\"x\\0y\": 1\n", 1, "NUL", false},
    {"[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", 1, "nested deeper than 16", true},
    {"a: \xff\xfe\n", 1, "UTF-8", true},
};

static void what_is_not_read_is_refused_with_its_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct faults faults;
        struct tree_node *root = parse(refused[i].text, &faults);
        assert_int_equal(root == NULL, refused[i].is_fatal);
        assert_true(faults.n_errors > 0);
        faults_sort(&faults);
        bool found = false;
        for (size_t j = 0; j < faults.n; j++)
            found = found || (faults.items[j].line == refused[i].line && strstr(faults.items[j].text, refused[i].says));
        if (!found) fail_msg("%s: line %u: %s", refused[i].text, faults.items[0].line, faults.items[0].text);
        tree_free(root);
        faults_fini(&faults);
    }
}

static void a_billion_laughs_are_one_small_fault(void **state)
{
    (void)state;
    struct faults faults;
    uint64_t before = mem_n_allocs();
    struct tree_node *root = parse("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                                   "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n",
                                   &faults);
    assert_non_null(root);
    assert_true(faults.n_errors > 0);
    assert_true(mem_n_allocs() - before < 300);
    tree_free(root);
    faults_fini(&faults);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char text[] = "a:\n  b: [1, 2, {c: d}]\n  b: &x y\n";
    for (uint64_t nth = 1;; nth++) {
        struct faults faults;
        mem_fail_nth(nth);
        struct tree_node *root = parse(text, &faults);
        uint64_t n_errors = faults.n_errors;
        mem_fail_nth(0);
        tree_free(root);
        faults_fini(&faults);
        assert_true(n_errors > 0);
        if (nth > 100) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_knows_its_lines_and_order),
        cmocka_unit_test(an_empty_file_is_an_empty_map),
        cmocka_unit_test(a_quoted_word_is_a_text_and_not_nothing),
        cmocka_unit_test(what_is_not_read_is_refused_with_its_line),
        cmocka_unit_test(a_billion_laughs_are_one_small_fault),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
