#include "fakes/config_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct config *config_from(const char *text, struct faults *faults)
{
    faults_init(faults);
    return config_parse(text, strlen(text), CONFIG_START, faults);
}

struct config *config_of(const char *text)
{
    struct faults faults;
    struct config *config = config_from(text, &faults);
    if (config == NULL) fail_msg("%s: line %u: %s", text, faults.items[0].line, faults.items[0].text);
    assert_int_equal(faults.n, 0);
    faults_fini(&faults);
    return config;
}

char *text_of(const struct config *config)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    config_print(out, config);
    fclose(out);
    return text;
}

const struct policy *config_policy(const struct config *config, const char *name)
{
    const struct policy *policy = policy_find(config->policies, slice_of(name));
    assert_non_null(policy);
    return policy;
}

const struct limit *config_limit(const struct config *config, const char *name)
{
    return &config_policy(config, name)->limits[0];
}
