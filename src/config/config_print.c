/*
 * config_print.c: a configuration as the YAML that would make it, every setting written.
 */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "config/access_read.h"
#include "config/config.h"
#include "policy/policy_setting.h"
#include "policy/value.h"

/* Between quotes; what is not printable escaped. */
static void print_quoted(FILE *out, struct slice text)
{
    fputc('"', out);
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < 0x20 || text.data[i] == 0x7f)
            fprintf(out, "\\x%02x", (unsigned)text.data[i]);
        else
            fprintf(out, "%s%c", text.data[i] == '"' || text.data[i] == '\\' ? "\\" : "", text.data[i]);
    }
    fputc('"', out);
}

/* The entries of a list, one on each line. */
static void print_entries(FILE *out, const char *entries)
{
    const char *between = "";
    for (const char *end; *entries != '\0'; entries = *end == '\n' ? end + 1 : end) {
        end = strchrnul(entries, '\n');
        fputs(between, out);
        print_quoted(out, (struct slice){(const uint8_t *)entries, (size_t)(end - entries)});
        between = ", ";
    }
}

/* ---- Policies ---- */

/* Where a line of a limit begins: of a policy's only one, and of one in a list. */
#define STRAIGHT "    "
#define IN_ITEM  "        "

static void print_value(FILE *out, const struct setting_value *value, const struct policy *policy)
{
    char text[PENALTY_TEXT_MAX];
    const char *between = "";
    const struct value_type type = {.kind = value->kind};

    switch (value->kind) {
    case VALUE_WORD: fwrite(value->text.data, 1, value->text.len, out); break;
    case VALUE_TEXT: print_quoted(out, value->text); break;
    case VALUE_PARTS:
        fputc('[', out);
        for (int i = 0; i < policy->format->n_parts; i++) {
            if (!(value->number & 1U << i)) continue;
            fputs(between, out);
            print_quoted(out, policy->format->names[i]);
            between = ", ";
        }
        fputc(']', out);
        break;
    case VALUE_PENALTY: fputs(value_print_penalty(value->penalty, text), out); break;
    default: fputs(value_print(&type, value->number, text), out);
    }
}

static void print_values(FILE *out, const char *indent, const struct setting_value *values, size_t n,
                         const struct policy *policy)
{
    for (size_t i = 0; i < n; i++) {
        const struct setting *setting = &policy_settings[values[i].field];
        /* The algorithm may hold a smaller number than can be written: the burst of a limit of 0. */
        if (values[i].kind == VALUE_COUNT && values[i].number < setting->type.min) continue;
        fprintf(out, "%s%s: ", values[i].field == FIELD_NAME ? "      - " : indent, setting->name);
        print_value(out, &values[i], policy);
        fputc('\n', out);
    }
}

/* Prints the limits of a policy or of its candidate, as a list of this name if they are written as one. */
static void print_limits(FILE *out, const char *list, const struct policy *policy)
{
    struct setting_value values[N_POLICY_FIELDS];
    bool is_list = policy->limits[0].name[0] != '\0';
    if (is_list) fprintf(out, "    %s:\n", list);
    for (uint16_t i = 0; i < policy->n_limits; i++) {
        size_t n = policy_setting_values(policy, &policy->limits[i], USE_PRINT, values);
        print_values(out, is_list ? IN_ITEM : STRAIGHT, values, n, policy);
    }
}

/* Without this line, an override's burst would follow its limit. */
static bool is_overridden(enum policy_field field, const struct limit *limit, const struct limit *base)
{
    bool differs = policy_setting_number(field, limit) != policy_setting_number(field, base);
    switch (field) {
    case FIELD_LIMIT: return true;
    case FIELD_BURST: return limit->limit > 0;
    case FIELD_WINDOW: return differs;
    default: return differs && limit->limit > 0;
    }
}

/* One setting of an override: by itself, or in a map by the limits' names. */
static void print_overridden(FILE *out, enum policy_field field, const struct policy *variant)
{
    bool is_list = variant->base->limits[0].name[0] != '\0';
    const char *before = "";
    for (uint16_t i = 0; i < variant->n_limits; i++) {
        const struct limit *limit = &variant->limits[i];
        if (!policy_setting_takes(field, limit) || !is_overridden(field, limit, &variant->base->limits[i])) continue;

        const struct setting_value value = {.kind = policy_settings[field].type.kind,
                                            .number = policy_setting_number(field, limit)};
        if (before[0] == '\0') fprintf(out, "        %s: %s", policy_settings[field].name, is_list ? "{" : "");
        if (is_list) fprintf(out, "%s\"%s\": ", before, limit->name);
        print_value(out, &value, variant);
        before = ", ";
    }
    if (before[0] != '\0') fprintf(out, "%s\n", is_list ? "}" : "");
}

/* Which keys an override is for. */
static void print_keys(FILE *out, const struct override *item, const struct policy *policy)
{
    if (item->kind != OVERRIDE_OF_NETWORKS) {
        fprintf(out, "      - %s: ", item->kind == OVERRIDE_OF_KEY ? "key" : "match");
        print_quoted(out, slice_of(item->text));
        fputc('\n', out);
        return;
    }

    fputs("      - match: {cidr: [", out);
    print_entries(out, item->text);
    fputs("]", out);
    if (policy->format != NULL) {
        fputs(", part: ", out);
        print_quoted(out, policy->format->names[item->part]);
    }
    fputs("}\n", out);
}

static void print_policy(FILE *out, const struct policy *policy)
{
    const struct overrides *overrides = policy->overrides;
    struct setting_value values[N_POLICY_FIELDS];
    fprintf(out, "  \"%s\":\n", policy->name);
    if (policy->unlimited) {
        fprintf(out, "    unlimited: true\n");
        return;
    }

    print_limits(out, "limits", policy);
    if (policy->candidate != NULL) print_limits(out, "candidate", policy->candidate);
    print_values(out, STRAIGHT, values, policy_setting_values(policy, NULL, USE_PRINT, values), policy);

    if (overrides != NULL) fprintf(out, "    overrides:\n");
    for (size_t i = 0; overrides != NULL && i < overrides->n; i++) {
        const struct override *item = &overrides->items[i];
        print_keys(out, item, policy);
        if (item->variant->unlimited) fprintf(out, "        unlimited: true\n");
        for (size_t field = 0; field < N_POLICY_FIELDS; field++)
            if (policy_settings[field].uses & USE_OVERRIDE)
                print_overridden(out, (enum policy_field)field, item->variant);
    }
}

/* ---- Everything ---- */

/* The headings that `path` opens below the ones it shares with the setting before. Returns its depth. */
static int print_sections(FILE *out, const char *before, const char *path)
{
    size_t n_shared = 0, depth = 0;
    for (size_t i = 0; before[i] != '\0' && before[i] == path[i]; i++) n_shared += path[i] == '.';

    for (const char *dot = strchr(path, '.'); dot != NULL; path = dot + 1, dot = strchr(path, '.')) {
        if (depth >= n_shared) fprintf(out, "%*s%.*s:\n", (int)(2 * depth), "", (int)(dot - path), path);
        depth++;
    }
    return (int)depth;
}

/* What the holder has, as a file would have it. A text is set. */
static void print_held(FILE *out, const struct setting *setting, const void *holder)
{
    char **text = setting_text(setting, holder), number[UNITS_TEXT_MAX];
    if (text == NULL) {
        fputs(value_print(&setting->type, setting_number(setting, holder), number), out);
    } else if (setting->type.kind == VALUE_LIST) {
        fputc('[', out);
        print_entries(out, *text);
        fputc(']', out);
    } else {
        print_quoted(out, slice_of(*text));
    }
}

/* ---- Who may ask ---- */

static void print_rule(FILE *out, const char *before, const struct access_rule *rule)
{
    for (size_t i = 0; i < N_ACCESS_SETTINGS; i++) {
        const struct setting *setting = &access_settings[i];
        char **text = setting_text(setting, rule);
        bool is_role = setting->type.kind == VALUE_CHOICE; /* which is always written */
        if (text != NULL ? *text == NULL : !is_role && setting_number(setting, rule) == 0) continue;
        fprintf(out, "%s%s: ", before, setting->name);
        print_held(out, setting, rule);
        before = ", ";
    }
    fputs("}\n", out);
}

static void print_access(FILE *out, struct access *access)
{
    fprintf(out, "access:\n  rules:%s\n", access->n == 0 ? " []" : "");
    for (size_t i = 0; i < access->n; i++) print_rule(out, "    - {", &access->rules[i]);
    print_rule(out, "  default: {", access_default(access));
}

void config_print(FILE *out, const struct config *config)
{
    config_print_in_force(out, config, config);
}

void config_print_in_force(FILE *out, const struct config *config, const struct config *started)
{
    const char *before = "";
    CHECK(config->policies != NULL && config->access != NULL);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &daemon_settings[i];
        const struct config *holder = setting->uses & USE_RELOAD ? config : started;
        if (config_is_tls_off(config, setting)) {
            const char *section = strncmp(setting->name, "store.redis.sentinel.", 21) == 0 ? "sentinel." : "";
            fprintf(out, "    # %stls.%s: not set\n", section, strrchr(setting->name, '.') + 1);
            continue;
        }

        char **text = setting_text(setting, holder);
        bool is_set = text == NULL || *text != NULL;
        int indent = 2 * print_sections(out, before, setting->name);
        fprintf(out, "%*s%s%s: ", indent, "", is_set ? "" : "# ", strrchr(setting->name, '.') + 1);
        if (is_set)
            print_held(out, setting, holder);
        else
            fputs("not set", out);
        fputc('\n', out);
        before = setting->name;
    }
    print_access(out, config->access);
    fprintf(out, "policies:%s\n", config->policies->n == 0 ? " {}" : "");
    for (size_t i = 0; i < config->policies->n; i++) print_policy(out, config->policies->in_order[i]);
}

static ssize_t hash_bytes(void *cookie, const char *bytes, size_t len)
{
    uint64_t *hash = cookie;
    *hash = hash_stable(*hash, bytes, len);
    return (ssize_t)len;
}

/* `hash` goes over what is written to it from now on. NULL without memory. */
static FILE *open_hash(uint64_t *hash)
{
    *hash = HASH_STABLE_START;
    return fopencookie(hash, "w", (cookie_io_functions_t){.write = hash_bytes});
}

uint64_t config_hash(const struct config *config, const struct config *started)
{
    uint64_t hash;
    FILE *out = open_hash(&hash);
    if (out == NULL) return 0;
    config_print_in_force(out, config, started);
    fclose(out);
    return hash;
}

uint64_t config_hash_access(struct access *access)
{
    uint64_t hash;
    FILE *out = open_hash(&hash);
    if (out == NULL) return 0;
    print_access(out, access);
    fclose(out);
    return hash;
}
