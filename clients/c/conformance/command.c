/* command.c: reads a line of JSON with libyaml, for driver.c. */
#include "command.h"

#include <stdlib.h>
#include <string.h>

struct line *command_read(const char *text, size_t len)
{
    struct line *line = calloc(1, sizeof *line);
    yaml_parser_t parser;
    yaml_parser_initialize(&parser);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    bool is_read = yaml_parser_load(&parser, &line->document);
    yaml_parser_delete(&parser);
    line->n_users = 1;
    if (is_read) return line;
    free(line);
    return NULL;
}

void command_leave(struct line *line)
{
    if (--line->n_users > 0) return;
    yaml_document_delete(&line->document);
    free(line);
}

yaml_node_t *command_field(struct line *line, yaml_node_t *map, const char *name)
{
    if (map == NULL || map->type != YAML_MAPPING_NODE) return NULL;
    for (yaml_node_pair_t *pair = map->data.mapping.pairs.start; pair < map->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(&line->document, pair->key);
        yaml_node_t *value = yaml_document_get_node(&line->document, pair->value);
        if (strcmp((char *)key->data.scalar.value, name) != 0) continue;
        bool is_null = value->type == YAML_SCALAR_NODE && value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                       strcmp((char *)value->data.scalar.value, "null") == 0;
        return is_null ? NULL : value;
    }
    return NULL;
}

const char *command_word(struct line *line, yaml_node_t *map, const char *name)
{
    yaml_node_t *value = command_field(line, map, name);
    return value != NULL && value->type == YAML_SCALAR_NODE ? (char *)value->data.scalar.value : NULL;
}

int64_t command_number(struct line *line, yaml_node_t *map, const char *name, int64_t otherwise)
{
    const char *text = command_word(line, map, name);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

bool command_flag(struct line *line, yaml_node_t *map, const char *name)
{
    const char *text = command_word(line, map, name);
    return text != NULL && strcmp(text, "true") == 0;
}

yaml_node_t *command_member(struct line *line, yaml_node_t *list, long i)
{
    if (list == NULL || list->type != YAML_SEQUENCE_NODE) return NULL;
    yaml_node_item_t *at = list->data.sequence.items.start + i;
    return at < list->data.sequence.items.top ? yaml_document_get_node(&line->document, *at) : NULL;
}

static char *base64(const char *text, size_t *ret_len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *bytes = calloc(strlen(text) + 1, 1);
    unsigned bits = 0, n_bits = 0;
    *ret_len = 0;
    for (; *text != '\0' && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        n_bits += 6;
        if (n_bits >= 8) bytes[(*ret_len)++] = (char)(bits >> (n_bits -= 8));
    }
    return bytes;
}

/* A text of a command, with {thread} and {time} filled in. The caller owns it. */
char *command_text(struct line *line, yaml_node_t *node, const struct command_place *place, size_t *ret_len)
{
    if (node == NULL) return *ret_len = 0, calloc(1, 1);
    if (node->type == YAML_MAPPING_NODE) return base64(command_word(line, node, "base64"), ret_len);
    const char *from = (char *)node->data.scalar.value;
    size_t len = node->data.scalar.length;
    char *text;
    FILE *to = open_memstream(&text, ret_len);
    for (const char *end = from + len; from < end; from++) {
        bool is_thread = place != NULL && strncmp(from, "{thread}", 8) == 0;
        bool is_time = place != NULL && strncmp(from, "{time}", 6) == 0;
        if (is_thread || is_time) {
            fprintf(to, "%d", is_thread ? place->thread : place->time);
            from += is_thread ? 7 : 5;
        } else {
            putc(*from, to);
        }
    }
    fclose(to);
    return text;
}

void command_put_text(FILE *to, const char *text)
{
    putc('"', to);
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') putc('\\', to);
        if ((unsigned char)*text < ' ')
            fprintf(to, "\\u%04x", *text);
        else
            putc(*text, to);
    }
    putc('"', to);
}

/* A policy's name, or its settings in braces. */
static void put_policy(struct line *line, yaml_node_t *node, FILE *to)
{
    if (node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) { /* such as a number */
        fputs((char *)node->data.scalar.value, to);
    } else if (node->type == YAML_SCALAR_NODE) {
        command_put_text(to, (char *)node->data.scalar.value);
    } else if (node->type == YAML_SEQUENCE_NODE) {
        putc('[', to);
        for (int i = 0; command_member(line, node, i) != NULL; i++) {
            if (i > 0) putc(',', to);
            put_policy(line, command_member(line, node, i), to);
        }
        putc(']', to);
    } else {
        putc('{', to);
        for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
            if (pair > node->data.mapping.pairs.start) putc(',', to);
            put_policy(line, yaml_document_get_node(&line->document, pair->key), to);
            putc(':', to);
            put_policy(line, yaml_document_get_node(&line->document, pair->value), to);
        }
        putc('}', to);
    }
}

char *command_policy(struct line *line, yaml_node_t *node, const struct command_place *place)
{
    char *text;
    size_t len;
    if (node == NULL || node->type == YAML_SCALAR_NODE) return command_text(line, node, place, &len);
    FILE *to = open_memstream(&text, &len);
    put_policy(line, node, to);
    fclose(to);
    return text;
}
