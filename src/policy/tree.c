/* tree.c: makes trees, also out of a message, and writes them as bytes, for config/ and inline_policies.c. */
#include "policy/tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/pull.h"

enum { NUMBER_SIZE = 24, HEAD_SIZE = 48 };

void tree_free(struct tree_node *node)
{
    if (node == NULL) return;
    for (struct tree_node *child = node->first, *next; child != NULL; child = next) {
        next = child->next;
        tree_free(child);
    }
    mem_free(node->key);
    mem_free(node->text);
    mem_free(node);
}

void tree_append(struct tree_node *parent, struct tree_node *node)
{
    if (parent->last != NULL)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
}

struct tree_node *tree_take(struct tree_node *map, const char *key)
{
    struct tree_node *before = NULL, *node = map->first;
    for (; node != NULL && strcmp(node->key, key) != 0; node = node->next) before = node;
    if (node == NULL) return NULL;

    *(before != NULL ? &before->next : &map->first) = node->next;
    if (map->last == node) map->last = before;
    node->next = NULL;
    return node;
}

size_t tree_count(const struct tree_node *node)
{
    size_t n = 0;
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) n++;
    return n;
}

static int by_key(const void *left, const void *right)
{
    const struct tree_node *a = *(const struct tree_node *const *)left, *b = *(const struct tree_node *const *)right;
    int order = strcmp(a->key, b->key);
    if (order != 0) return order;
    return a->line < b->line ? -1 : a->line > b->line;
}

struct tree_node **tree_by_key(const struct tree_node *map, size_t n)
{
    size_t i = 0;
    struct tree_node **sorted = mem_alloc(n * sizeof *sorted);
    if (sorted == NULL) return NULL;
    for (struct tree_node *child = map->first; child != NULL; child = child->next) sorted[i++] = child;
    qsort(sorted, n, sizeof *sorted, by_key);
    return sorted;
}

/* ---- Out of a message ---- */

/* A message while it is read; `path` leads to the value at hand. */
struct reader {
    struct pull pull;
    struct faults *faults;
    char path[FAULTS_KEY_MAX];
    size_t path_len;
    unsigned depth;
};

static bool fail_reading(struct reader *reader, const char *what)
{
    faults_add(reader->faults, 0, reader->path, "%s", what);
    return false;
}

static bool fail_without_memory(struct reader *reader)
{
    faults_no_memory(reader->faults, 0, reader->path, "out of memory; try again later");
    return false;
}

/* A longer path is cut. */
static void lengthen_path(struct reader *reader, const char *between, const char *name, const char *behind)
{
    size_t space = sizeof reader->path - reader->path_len;
    int len = snprintf(reader->path + reader->path_len, space, "%s%.64s%s", between, name, behind);
    reader->path_len += (size_t)len < space ? (size_t)len : space - 1;
}

static void shorten_path(struct reader *reader, size_t len)
{
    reader->path_len = len;
    reader->path[len] = '\0';
}

/* NULL with the fault recorded. */
static char *copy_text(struct reader *reader, struct slice text)
{
    if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        fail_reading(reader, "a text with a NUL byte in it; write it without");
        return NULL;
    }

    char *copy = mem_alloc(text.len + 1);
    if (copy == NULL) {
        fail_without_memory(reader);
        return NULL;
    }
    if (text.len > 0) memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return copy;
}

static bool read_scalar(struct reader *reader, struct tree_node *node)
{
    char number[NUMBER_SIZE] = "";
    struct slice text;
    int64_t value;
    bool yes;

    node->kind = TREE_TEXT;
    if (pull_nil(&reader->pull) == 0) {
        node->is_null = true;
    } else if (pull_bool(&reader->pull, &yes) == 0) {
        snprintf(number, sizeof number, "%s", yes ? "true" : "false");
    } else if (pull_int(&reader->pull, &value) == 0) {
        snprintf(number, sizeof number, "%" PRId64, value);
    } else if (pull_text(&reader->pull, &text) == 0) {
        return (node->text = copy_text(reader, text)) != NULL;
    } else {
        return fail_reading(reader, "is not a value of a setting; write a text, or a whole number up to 2^53 - 1");
    }
    return (node->text = copy_text(reader, slice_of(number))) != NULL;
}

/* Sorts the members by their keys, of which no two may be equal. */
static bool sort_members(struct reader *reader, struct tree_node *map, size_t n)
{
    size_t path_len = reader->path_len, twice = 0;
    if (n < 2) return true;
    struct tree_node **sorted = tree_by_key(map, n);
    if (sorted == NULL) return fail_without_memory(reader);

    map->first = sorted[0];
    map->last = sorted[n - 1];
    map->last->next = NULL;
    for (size_t i = 1; i < n; i++) {
        sorted[i - 1]->next = sorted[i];
        if (twice == 0 && strcmp(sorted[i - 1]->key, sorted[i]->key) == 0) twice = i;
    }

    if (twice > 0) {
        lengthen_path(reader, ".", sorted[twice]->key, "");
        fail_reading(reader, "is written twice; keep one of them");
        shorten_path(reader, path_len);
    }
    mem_free(sorted);
    return twice == 0;
}

static bool read_node(struct reader *reader, struct tree_node *node)
{
    uint32_t n;
    if (pull_map(&reader->pull, &n) == 0)
        node->kind = TREE_MAP;
    else if (pull_array(&reader->pull, &n) == 0)
        node->kind = TREE_LIST;
    else
        return read_scalar(reader, node);

    if (reader->depth == TREE_DEPTH_MAX) return fail_reading(reader, "is nested too deeply; no setting lies that deep");
    reader->depth++;
    for (uint32_t i = 0; i < n; i++) {
        size_t path_len = reader->path_len;
        struct tree_node *child = mem_zalloc(sizeof *child);
        if (child == NULL) return fail_without_memory(reader);
        tree_append(node, child);

        if (node->kind == TREE_MAP) {
            struct slice key;
            if (pull_text(&reader->pull, &key) != 0)
                return fail_reading(reader, "has a setting whose name is not a text");
            if ((child->key = copy_text(reader, key)) == NULL) return false;
            lengthen_path(reader, ".", child->key, "");
        } else {
            char number[NUMBER_SIZE];
            snprintf(number, sizeof number, "%" PRIu32, i);
            lengthen_path(reader, "[", number, "]");
        }

        if (!read_node(reader, child)) return false;
        shorten_path(reader, path_len);
    }
    reader->depth--;
    return node->kind == TREE_LIST || sort_members(reader, node, n);
}

struct tree_node *tree_unpack(struct slice map, const char *name, struct faults *faults)
{
    struct reader reader = {.pull = pull_of(map.data, map.len), .faults = faults};
    lengthen_path(&reader, "", name, "");
    struct tree_node *root = mem_zalloc(sizeof *root);
    if (root != NULL && read_node(&reader, root)) return root;
    if (root == NULL) fail_without_memory(&reader);
    tree_free(root);
    return NULL;
}

/* ---- Equal trees, equal bytes ---- */

static int write_text(const char *mark, const char *text, struct buffer *out)
{
    char head[HEAD_SIZE];
    size_t len = strlen(text);
    int head_len = snprintf(head, sizeof head, "%s%zu:", mark, len);
    if (buffer_append(out, head, (size_t)head_len) != 0) return -1;
    return buffer_append(out, text, len);
}

/* Every text comes with its length, and every map and list has an end, so that different trees give different bytes. */
int tree_write(const struct tree_node *node, struct buffer *out)
{
    if (node->kind == TREE_TEXT) return write_text(node->is_null ? "n" : "t", node->text, out);
    if (buffer_append(out, node->kind == TREE_MAP ? "{" : "[", 1) != 0) return -1;
    for (const struct tree_node *child = node->first; child != NULL; child = child->next) {
        if (node->kind == TREE_MAP && write_text("k", child->key, out) != 0) return -1;
        if (tree_write(child, out) != 0) return -1;
    }
    return buffer_append(out, "}", 1);
}
