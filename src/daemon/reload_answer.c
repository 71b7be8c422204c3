/* reload_answer.c: a configuration, its faults or its differences as MessagePack, for the thread of reload.c. */
#include "daemon/reload_answer.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/reload.h"
#include "proto/pack.h"

enum { FAULTS_MAX = 1000, HASH_TEXT_MAX = 17 };

static void pack_hash_field(struct packer *packer, uint64_t hash)
{
    char text[HASH_TEXT_MAX];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    pack_text_field(packer, "hash", text);
}

/* ---- A change ---- */

static void pack_change(struct packer *packer, const struct changes *changes, const struct change *change)
{
    char text[CHANGE_TEXT_MAX];
    const char *counts = change_counts_name(change->counts);
    bool is_of_policy = change->subject != CHANGE_OF_DAEMON, is_of_overrides = change->subject == CHANGE_OF_OVERRIDES;
    bool has_end = change->has_old_keys && change->old_keys_ms >= 0, is_of_limit = change->limit[0] != '\0';
    bool is_renamed = change->kind == CHANGE_RENAMED;

    pack_map(packer, 2U + is_of_policy + is_of_limit + change->is_candidate + is_renamed + (change->n_values > 0) +
                         (counts != NULL) + has_end + (change->n_asked > 0) + change->needs_restart +
                         (change->held_by != NULL) + change->is_content + (is_of_overrides ? 3U : 0U));
    if (is_of_policy) pack_text_field(packer, "policy", change->policy);
    if (is_of_limit) pack_text_field(packer, "limit", change->limit);
    if (change->is_candidate) pack_bool_field(packer, "candidate", true);
    pack_text_field(packer, "change", change_kind_name(change->kind));
    if (is_renamed) pack_text_field(packer, "renamed_from", change->renamed_from);
    if (change->n_values > 0) {
        pack_text(packer, "settings");
        pack_array(packer, (uint32_t)change->n_values);
        for (size_t i = 0; i < change->n_values; i++) {
            pack_map(packer, 3);
            pack_text_field(packer, "name", change->values[i].name);
            pack_text_field(packer, "from", change->values[i].from);
            pack_text_field(packer, "to", change->values[i].to);
        }
    }
    if (is_of_overrides) {
        pack_uint_field(packer, "overrides_added", change->n_added);
        pack_uint_field(packer, "overrides_changed", change->n_changed);
        pack_uint_field(packer, "overrides_removed", change->n_removed);
    }
    if (counts != NULL) pack_text_field(packer, "counts", counts);
    if (has_end) pack_int_field(packer, "old_keys_end_ms", change->old_keys_ms);
    if (change->n_asked > 0) pack_uint_field(packer, "asked", change->n_asked);
    if (change->needs_restart) pack_bool_field(packer, "needs_restart", true);
    if (change->is_content) pack_bool_field(packer, "content", true);
    if (change->held_by != NULL) pack_text_field(packer, "held_by", change->held_by);
    pack_text_field(packer, "text", changes_text(changes, change, text));
}

/* ---- reload ---- */

void reload_answer_pack(struct buffer *out, const struct reload *reload, const char *path)
{
    struct packer packer = packer_of(out);
    const struct changes *changes = &reload->changes;
    bool is_refused = reload->next == NULL;
    const char *state = is_refused ? "refused" : changes->n_restart > 0 ? "restart_needed" : "in_effect";
    CHECK(buffer_len(out) == 0);

    pack_map(&packer, is_refused ? 6U : 10U);
    pack_text_field(&packer, "state", state);
    pack_bool_field(&packer, "dry_run", reload->task == RELOAD_DRY_RUN);
    pack_text_field(&packer, "file", path);
    if (!is_refused) {
        pack_hash_field(&packer, reload->next->hash);
        pack_uint_field(&packer, "policies", reload->next->policies->n);
    }
    pack_text(&packer, "changes");
    pack_array(&packer, (uint32_t)changes->n);
    for (size_t i = 0; i < changes->n; i++) pack_change(&packer, changes, &changes->items[i]);
    pack_uint_field(&packer, "more_changes", changes->n_all - changes->n);
    if (!is_refused) {
        uint32_t n = 0;
        for (size_t i = 0; i < changes->n; i++) n += changes->items[i].needs_restart;
        pack_text(&packer, "restart");
        pack_array(&packer, n);
        for (size_t i = 0; i < changes->n; i++)
            if (changes->items[i].needs_restart) pack_text(&packer, changes->items[i].values[0].name);

        char text[CHANGE_TEXT_MAX];
        pack_text(&packer, "notes");
        pack_array(&packer, (uint32_t)changes->n_copies);
        for (size_t i = 0; i < changes->n_copies; i++) {
            pack_map(&packer, 2);
            pack_text_field(&packer, "setting", changes->copies[i].name);
            pack_text_field(&packer, "text", changes_copy_text(changes, &changes->copies[i], text));
        }
    }

    uint32_t n = reload->faults.n < FAULTS_MAX ? (uint32_t)reload->faults.n : FAULTS_MAX;
    pack_text(&packer, "faults");
    pack_array(&packer, n);
    for (uint32_t i = 0; i < n; i++) {
        char line[1024];
        const struct fault *fault = &reload->faults.items[i];
        pack_map(&packer, 3);
        pack_uint_field(&packer, "line", fault->line);
        pack_bool_field(&packer, "warning", fault->code == FAULT_WARNING);
        pack_text_field(&packer, "text", faults_line(line, sizeof line, path, fault));
    }

    if (packer.failed) buffer_truncate(out, packer.start);
}

/* ---- config ---- */

static ssize_t append(void *cookie, const char *bytes, size_t len)
{
    return buffer_append(cookie, bytes, len) == 0 ? (ssize_t)len : 0;
}

void reload_answer_pack_config(struct buffer *out, const struct config *config, const struct config *started,
                               const char *path)
{
    struct buffer text;
    CHECK(buffer_len(out) == 0);
    buffer_init(&text, RELOAD_ANSWER_MAX - 8192); /* of which the rest takes less */
    FILE *file = fopencookie(&text, "w", (cookie_io_functions_t){.write = append});
    bool is_whole = file != NULL;
    if (file != NULL) {
        config_print_in_force(file, config, started);
        is_whole = !ferror(file);
        is_whole &= fclose(file) == 0;
    }
    if (is_whole) {
        struct packer packer = packer_of(out);
        pack_map(&packer, 3);
        pack_text_field(&packer, "file", path != NULL ? path : "");
        pack_hash_field(&packer, config->hash);
        pack_text(&packer, "yaml");
        pack_str(&packer, (struct slice){buffer_data(&text), buffer_len(&text)});
        if (packer.failed) buffer_truncate(out, packer.start);
    }
    buffer_fini(&text);
}
