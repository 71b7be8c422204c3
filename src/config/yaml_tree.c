/* yaml_tree.c: builds the tree out of libyaml's events, for config.c and ctl/test_file.c. */
#include "config/yaml_tree.h"

#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "base/alloc.h"
#include "base/assert.h"

struct builder {
    const char *bytes; /* of the file, not owned */
    size_t len;
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

static int refuse_without_memory(struct builder *builder, uint32_t line)
{
    faults_no_memory(builder->faults, line, NULL, "out of memory while reading the file; give the daemon more");
    return -1;
}

/* Put a new node where the parser is: under the open map or list, or at the root. NULL without memory. */
static struct tree_node *add_node(struct builder *builder, enum tree_kind kind, uint32_t line)
{
    struct tree_node *node = mem_zalloc(sizeof *node);
    if (node == NULL) {
        refuse_without_memory(builder, line);
        return NULL;
    }

    node->kind = kind;
    node->line = builder->key != NULL ? builder->key_line : line;
    node->key = builder->key;
    builder->key = NULL;
    if (builder->depth > 0)
        tree_append(builder->open[builder->depth - 1], node);
    else
        builder->root = node;
    return node;
}

static bool key_is_due(const struct builder *builder)
{
    return builder->depth > 0 && builder->open[builder->depth - 1]->kind == TREE_MAP && builder->key == NULL;
}

static int on_scalar(struct builder *builder, const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;
    uint32_t line = line_of(&event->start_mark);
    bool is_refused = strlen(value) != event->data.scalar.length;
    bool is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    char *text = mem_strdup(value);
    if (text == NULL) return refuse_without_memory(builder, line);
    if (is_refused) faults_add(builder->faults, line, "yaml", "a text with a NUL byte in it; write it without");
    if (is_plain && strstr(value, "\xc2\xa0") != NULL) {
        faults_add(builder->faults, line, "yaml",
                   "a no-break space (U+00A0), which looks like a space and is none; write a space");
        is_refused = true;
    }

    if (key_is_due(builder)) {
        builder->key = text;
        builder->key_line = line;
        return 0;
    }
    struct tree_node *node = add_node(builder, is_refused ? TREE_REFUSED : TREE_TEXT, line);
    if (node == NULL) {
        mem_free(text);
        return -1;
    }
    node->text = text;
    node->is_null = is_plain && (value[0] == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0);
    return 0;
}

static int on_open(struct builder *builder, uint32_t line, enum tree_kind kind)
{
    if (key_is_due(builder)) {
        faults_add(builder->faults, line, "yaml", "a map or list in the place of a key; write a name");
        return -1;
    }
    if (builder->depth == YAML_TREE_DEPTH_MAX) {
        faults_add(builder->faults, line, "yaml", "nested deeper than %d; no setting lies that deep",
                   YAML_TREE_DEPTH_MAX);
        return -1;
    }

    struct tree_node *node = add_node(builder, kind, line);
    if (node == NULL) return -1;
    builder->open[builder->depth++] = node;
    return 0;
}

/* The whole path of `key` within `map`, the map that has just been closed: "policies.login.limit". */
static const char *path_of_key(const struct builder *builder, const char *key, char *out, size_t size)
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
    size_t n = tree_count(map);
    struct tree_node **sorted = tree_by_key(map, n);
    if (sorted == NULL) return refuse_without_memory(builder, map->line);

    for (size_t i = 1; i < n; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) != 0) continue;
        char path[FAULTS_KEY_MAX];
        faults_add(builder->faults, sorted[i]->line, path_of_key(builder, sorted[i]->key, path, sizeof path),
                   "is written twice, first on line %u; keep one of them", sorted[i - 1]->line);
        sorted[i]->kind = TREE_REFUSED;
    }
    mem_free(sorted);
    return 0;
}

/* Tags, and anchors without aliases, change nothing here, so the file expects something else of them. */
static void refuse_properties(struct builder *builder, uint32_t line, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor != NULL)
        faults_add(builder->faults, line, "yaml", "an anchor (&%.40s); anchors are not supported, leave it out",
                   (const char *)anchor);
    if (tag != NULL)
        faults_add(builder->faults, line, "yaml", "a tag (%.40s); tags are not supported, leave it out",
                   (const char *)tag);
}

static int on_event(struct builder *builder, const yaml_event_t *event)
{
    uint32_t line = line_of(&event->start_mark);
    const struct tree_node *closed;

    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++builder->n_documents == 1) return 0;
        faults_add(builder->faults, line, "yaml",
                   "a second document begins here; keep one, without a line of `---` inside");
        return -1;
    case YAML_ALIAS_EVENT:
        faults_add(builder->faults, line, builder->key,
                   "an alias (*%.40s); aliases are not supported, write the value out",
                   (const char *)event->data.alias.anchor);
        return !key_is_due(builder) && add_node(builder, TREE_REFUSED, line) != NULL ? 0 : -1;
    case YAML_SCALAR_EVENT:
        refuse_properties(builder, line, event->data.scalar.anchor, event->data.scalar.tag);
        return on_scalar(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        refuse_properties(builder, line, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return on_open(builder, line, TREE_LIST);
    case YAML_MAPPING_START_EVENT:
        refuse_properties(builder, line, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return on_open(builder, line, TREE_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        CHECK(builder->depth > 0);
        closed = builder->open[--builder->depth];
        return closed->kind == TREE_MAP ? refuse_duplicates(builder, closed) : 0;
    default: return 0;
    }
}

/* The reader is ahead of the parser: its mark is where the parser is. */
static uint32_t line_at(const struct builder *builder, size_t offset)
{
    uint32_t line = 1;
    for (size_t i = 0; i < offset && i < builder->len; i++) line += builder->bytes[i] == '\n';
    return line;
}

struct tree_node *yaml_tree_parse(const char *bytes, size_t len, struct faults *faults)
{
    struct builder builder = {.bytes = bytes, .len = len, .faults = faults};
    yaml_parser_t parser;
    bool at_end = false, is_sound = true;
    if (!yaml_parser_initialize(&parser)) {
        refuse_without_memory(&builder, 0);
        return NULL;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, len);

    while (is_sound && !at_end) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            uint32_t line = line_of(&parser.problem_mark);
            if (parser.error == YAML_MEMORY_ERROR)
                refuse_without_memory(&builder, line);
            else if (parser.error == YAML_READER_ERROR)
                faults_add(builder.faults, line_at(&builder, parser.problem_offset), "yaml",
                           "%s; save the file as UTF-8 text", parser.problem);
            else
                faults_add(builder.faults, line, "yaml",
                           "%s%s%s; check indentation (spaces, no tabs), quotes and the colon behind each key",
                           parser.problem != NULL ? parser.problem : "not YAML", parser.context != NULL ? " " : "",
                           parser.context != NULL ? parser.context : "");
            is_sound = false;
            break;
        }
        is_sound = on_event(&builder, &event) == 0;
        at_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    if (is_sound && builder.root == NULL) add_node(&builder, TREE_MAP, 1);

    yaml_parser_delete(&parser);
    mem_free(builder.key);
    if (is_sound) return builder.root;
    tree_free(builder.root);
    return NULL;
}
