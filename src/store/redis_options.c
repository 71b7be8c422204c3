#include "store/redis_options.h"

#include <string.h>

#include "base/alloc.h"

/* NULL stays NULL. 0, or -1 without memory. */
static int copy_text(const char **ret_copy, const char *text)
{
    *ret_copy = NULL;
    if (text == NULL) return 0;
    *ret_copy = mem_strdup(text);
    return *ret_copy != NULL ? 0 : -1;
}

int redis_options_copy(struct redis_options *ret_copy, const struct redis_options *from)
{
    struct redis_options copy = *from;
    copy.address = copy.username = copy.password = copy.key_prefix = NULL;
    if (copy_text(&copy.address, from->address) < 0 || copy_text(&copy.username, from->username) < 0 ||
        copy_text(&copy.password, from->password) < 0 || copy_text(&copy.key_prefix, from->key_prefix) < 0) {
        redis_options_fini(&copy);
        return -1;
    }
    *ret_copy = copy;
    return 0;
}

void redis_options_fini(struct redis_options *copy)
{
    if (copy->password != NULL) explicit_bzero((char *)copy->password, strlen(copy->password));
    mem_free((char *)copy->address);
    mem_free((char *)copy->username);
    mem_free((char *)copy->password);
    mem_free((char *)copy->key_prefix);
    copy->address = copy->username = copy->password = copy->key_prefix = NULL;
}

static bool same_text(const char *a, const char *b)
{
    if (a == NULL || b == NULL) return a == b;
    return strcmp(a, b) == 0;
}

bool redis_options_same_server(const struct redis_options *a, const struct redis_options *b)
{
    return same_text(a->address, b->address) && same_text(a->username, b->username) &&
           same_text(a->password, b->password) && a->database == b->database;
}
