#include "config/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/alloc.h"
#include "base/check.h"

struct builder {
    struct faults *faults;
    struct tree_node *root; /* owned until the end */
    struct tree_node *open[YAML_TREE_DEPTH_MAX];
    size_t depth;
    char *key; /* owned; read, its value comes next */
    uint32_t key_line;
    uint32_t n_documents;
};

static uint32_t line_of(const yaml_mark_t *mark)
{
    return (uint32_t)mark->line + 1;
}

static int no_memory(struct builder *builder, uint32_t line)
{
    faults_no_memory(builder->faults, line, NULL, "out of memory while reading the file; give the daemon more");
    return -1;
}

/* Put a new node where the parser stands: under the open map or list, or at the root. NULL without memory. */
static struct tree_node *place(struct builder *builder, enum tree_kind kind, uint32_t line)
{
    struct tree_node *node = mem_zalloc(sizeof *node);
    if (node == NULL) {
        no_memory(builder, line);
        return NULL;
    }
    node->kind = kind;
    node->line = builder->key != NULL ? builder->key_line : line;
    node->key = builder->key;
    builder->key = NULL;
    if (builder->depth == 0) {
        builder->root = node;
        return node;
    }
    tree_append(builder->open[builder->depth - 1], node);
    return node;
}

static bool key_is_due(const struct builder *builder)
{
    return builder->depth > 0 && builder->open[builder->depth - 1]->kind == TREE_MAP && builder->key == NULL;
}

static char *text_of(const yaml_event_t *event)
{
    size_t len = event->data.scalar.length;
    char *text = mem_alloc(len + 1);
    if (text == NULL) return NULL;
    memcpy(text, event->data.scalar.value, len);
    text[len] = '\0';
    return text;
}

static bool means_null(const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    return value[0] == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0;
}

static int on_scalar(struct builder *builder, const yaml_event_t *event)
{
    uint32_t line = line_of(&event->start_mark);
    bool has_nul = strlen((const char *)event->data.scalar.value) != event->data.scalar.length;
    char *text = text_of(event);
    if (text == NULL) return no_memory(builder, line);
    if (has_nul) faults_add(builder->faults, line, "yaml", "a text with a NUL byte in it; write it without");
    if (key_is_due(builder)) {
        builder->key = text;
        builder->key_line = line;
        return 0;
    }
    struct tree_node *node = place(builder, has_nul ? TREE_REFUSED : TREE_TEXT, line);
    if (node == NULL) {
        mem_free(text);
        return -1;
    }
    node->text = text;
    node->is_null = means_null(event);
    return 0;
}

static int on_alias(struct builder *builder, const yaml_event_t *event)
{
    uint32_t line = line_of(&event->start_mark);
    faults_add(builder->faults, line, builder->key, "an alias (*%.40s); aliases are not supported, write the value out",
               (const char *)event->data.alias.anchor);
    if (key_is_due(builder)) return -1;
    return place(builder, TREE_REFUSED, line) != NULL ? 0 : -1;
}

static int on_open(struct builder *builder, const yaml_event_t *event, enum tree_kind kind)
{
    uint32_t line = line_of(&event->start_mark);
    if (key_is_due(builder)) {
        faults_add(builder->faults, line, "yaml", "a map or list in the place of a key; write a name");
        return -1;
    }
    if (builder->depth == YAML_TREE_DEPTH_MAX) {
        faults_add(builder->faults, line, "yaml", "nested deeper than %d; no setting lies that deep",
                   YAML_TREE_DEPTH_MAX);
        return -1;
    }
    struct tree_node *node = place(builder, kind, line);
    if (node == NULL) return -1;
    builder->open[builder->depth++] = node;
    return 0;
}

static int by_key(const void *left, const void *right)
{
    const struct tree_node *a = *(const struct tree_node *const *)left, *b = *(const struct tree_node *const *)right;
    int order = strcmp(a->key, b->key);
    if (order != 0) return order;
    return a->line < b->line ? -1 : a->line > b->line;
}

/* The whole path of `key` within `map`, the map that has just been closed: "policies.login.limit". */
static const char *path_of(const struct builder *builder, const char *key, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i <= builder->depth && at < size; i++) {
        const char *name = builder->open[i]->key;
        if (name != NULL) at += (size_t)snprintf(out + at, size - at, "%s.", name);
    }
    if (at < size) snprintf(out + at, size - at, "%s", key);
    return out;
}

/* A map may hold very many policies, so duplicates are found by sorting. */
static int refuse_duplicates(struct builder *builder, const struct tree_node *map)
{
    size_t n = 0, i = 0;
    for (const struct tree_node *child = map->first; child != NULL; child = child->next) n++;
    if (n < 2) return 0;
    struct tree_node **sorted = mem_alloc(n * sizeof *sorted);
    if (sorted == NULL) return no_memory(builder, map->line);
    for (struct tree_node *child = map->first; child != NULL; child = child->next) sorted[i++] = child;
    qsort(sorted, n, sizeof *sorted, by_key);
    for (i = 1; i < n; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) != 0) continue;
        char path[FAULTS_KEY_MAX];
        faults_add(builder->faults, sorted[i]->line, path_of(builder, sorted[i]->key, path, sizeof path),
                   "stands here again, first on line %u; keep one of them", sorted[i - 1]->line);
        sorted[i]->kind = TREE_REFUSED;
    }
    mem_free(sorted);
    return 0;
}

static int on_close(struct builder *builder)
{
    struct tree_node *closed = builder->open[--builder->depth];
    CHECK(closed != NULL);
    return closed->kind == TREE_MAP ? refuse_duplicates(builder, closed) : 0;
}

static int on_document(struct builder *builder, const yaml_event_t *event)
{
    if (++builder->n_documents == 1) return 0;
    faults_add(builder->faults, line_of(&event->start_mark), "yaml",
               "a second document begins here; keep one, without a line of `---` inside");
    return -1;
}

/* Anchors without aliases and tags change nothing that is read here, so they were meant for something else. */
static void refuse_properties(struct builder *builder, const yaml_event_t *event, const yaml_char_t *anchor,
                              const yaml_char_t *tag)
{
    uint32_t line = line_of(&event->start_mark);
    if (anchor != NULL)
        faults_add(builder->faults, line, "yaml", "an anchor (&%.40s); anchors are not supported, leave it out",
                   (const char *)anchor);
    if (tag != NULL)
        faults_add(builder->faults, line, "yaml", "a tag (%.40s); tags are not supported, leave it out",
                   (const char *)tag);
}

static int on_event(struct builder *builder, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT: return on_document(builder, event);
    case YAML_ALIAS_EVENT: return on_alias(builder, event);
    case YAML_SCALAR_EVENT:
        refuse_properties(builder, event, event->data.scalar.anchor, event->data.scalar.tag);
        return on_scalar(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        refuse_properties(builder, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return on_open(builder, event, TREE_LIST);
    case YAML_MAPPING_START_EVENT:
        refuse_properties(builder, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return on_open(builder, event, TREE_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return on_close(builder);
    default: return 0;
    }
}

static int on_syntax_error(struct builder *builder, const yaml_parser_t *parser)
{
    uint32_t line = line_of(&parser->problem_mark);
    if (parser->error == YAML_MEMORY_ERROR) return no_memory(builder, line);
    if (parser->error == YAML_READER_ERROR) {
        faults_add(builder->faults, line_of(&parser->mark), "yaml", "%s; save the file as UTF-8 text", parser->problem);
        return -1;
    }
    faults_add(builder->faults, line, "yaml",
               "%s%s%s; check indentation (spaces, no tabs), quotes and the colon behind each key",
               parser->problem != NULL ? parser->problem : "not YAML", parser->context != NULL ? " " : "",
               parser->context != NULL ? parser->context : "");
    return -1;
}

static int build(struct builder *builder, yaml_parser_t *parser)
{
    for (bool at_end = false; !at_end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) return on_syntax_error(builder, parser);
        at_end = event.type == YAML_STREAM_END_EVENT;
        int status = on_event(builder, &event);
        yaml_event_delete(&event);
        if (status < 0) return -1;
    }
    if (builder->root == NULL && place(builder, TREE_MAP, 1) == NULL) return -1;
    return 0;
}

struct tree_node *yaml_tree_parse(const char *bytes, size_t len, struct faults *faults)
{
    struct builder builder = {.faults = faults};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        no_memory(&builder, 0);
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, len);
    int status = build(&builder, &parser);
    yaml_parser_delete(&parser);
    mem_free(builder.key);
    if (status == 0) return builder.root;
    tree_free(builder.root);
    return NULL;
}
