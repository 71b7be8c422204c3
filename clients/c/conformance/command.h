/*
 * command.h: a command of the suite as it came, one line of JSON, and the values in it. libyaml reads it: JSON is YAML.
 * What returns a `char *` returns a text of the caller's own.
 */
#ifndef CONFORMANCE_COMMAND_H
#define CONFORMANCE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <yaml.h>

struct line {
    yaml_document_t document;
    int n_users; /* calls that still read in it */
};

/* What {thread} and {time} stand for in its texts; NULL: for themselves. */
struct command_place {
    int thread, time;
};

struct line *command_read(const char *text, size_t len); /* NULL if it is no JSON; has one user */
void command_leave(struct line *line);                   /* one user less */

/* NULL if it is not there, or null. */
yaml_node_t *command_field(struct line *line, yaml_node_t *map, const char *name);
yaml_node_t *command_member(struct line *line, yaml_node_t *list, long i);
const char *command_word(struct line *line, yaml_node_t *map, const char *name);

int64_t command_number(struct line *line, yaml_node_t *map, const char *name, int64_t otherwise);
bool command_flag(struct line *line, yaml_node_t *map, const char *name);
char *command_text(struct line *line, yaml_node_t *node, const struct command_place *place, size_t *ret_len);
/* A policy's name, or its settings in braces. */
char *command_policy(struct line *line, yaml_node_t *node, const struct command_place *place);

/* As JSON. */
void command_put_text(FILE *to, const char *text);

#endif
