/*
 * fuzz_config.c: any bytes as a configuration file. Either there is a configuration, and what it prints
 * as makes the same one again, or there is at least one fault.
 *
 * Password files are not read: a file's content must not depend on the machine it is fuzzed on.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *print(const struct config *config, size_t *ret_len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_len);
    CHECK(out != NULL);
    config_print(out, config);
    fclose(out);
    return text;
}

static void compare(const struct config *config)
{
    struct faults faults;
    size_t len, len_again;
    char *text = print(config, &len);
    faults_init(&faults);
    struct config *again = config_parse(text, len, CONFIG_DRY_RUN, &faults);
    CHECK(again != NULL && faults.n_errors == 0);
    char *text_again = print(again, &len_again);
    CHECK(len == len_again && memcmp(text, text_again, len) == 0);
    CHECK(again->policies->n == config->policies->n);
    for (size_t i = 0; i < again->policies->n; i++)
        CHECK(again->policies->in_order[i]->version == config->policies->in_order[i]->version);
    free(text);
    free(text_again);
    config_free(again);
    faults_fini(&faults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct faults faults;
    char line[2048];
    if (memmem(data, size, "password_file", 13) != NULL) return 0;
    faults_init(&faults);
    struct config *config = config_parse(size > 0 ? (const char *)data : "", size, CONFIG_DRY_RUN, &faults);
    CHECK((config == NULL) == (faults.n_errors > 0));
    for (size_t i = 0; i < faults.n; i++) {
        CHECK(i == 0 || faults.items[i - 1].line <= faults.items[i].line);
        CHECK(strchr(faults_line(line, sizeof line, "F", &faults.items[i]), '\n') == NULL);
    }
    if (config != NULL) compare(config);
    config_free(config);
    faults_fini(&faults);
    return 0;
}
