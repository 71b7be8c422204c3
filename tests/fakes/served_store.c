#include "fakes/served_store.h"

#include <string.h>

struct real_redis redis;

int served_store_setup(void **state)
{
    memset(&redis, 0, sizeof(redis));
    return store_fixture_setup(state);
}

int served_store_teardown(void **state)
{
    int status = store_fixture_teardown(state);
    if (redis.folder[0] != '\0') real_redis_fini(&redis);
    return status;
}

void served_store_start(const char *const *args)
{
    real_redis_init(&redis, false);
    real_redis_start(&redis, args);
}

void served_store_open(void)
{
    served_store_start(NULL);
    store_fixture_open_ready(redis.address);
}
