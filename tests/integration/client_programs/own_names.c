/* own_names.c: a program whose functions have the names of internal ones of the library: they must not collide. */
#include <stdio.h>
#include <string.h>

#include <ratelimit.h>

int buffer_append(int a, int b);
int heap_push(int a);
int map_insert(int a);
int pull_int(int a);
int request_new(int a);

int buffer_append(int a, int b)
{
    return a + b;
}

int heap_push(int a)
{
    return a;
}

int map_insert(int a)
{
    return a;
}

int pull_int(int a)
{
    return a;
}

int request_new(int a)
{
    return a;
}

int main(int argc, char **argv)
{
    struct ratelimit *client;
    struct ratelimit_decision decision;
    if (argc != 3 || ratelimit_open(argv[1], &client) != RATELIMIT_OK) return 2;
    enum ratelimit_status status = ratelimit_check(client, argv[2], "alice", strlen("alice"), 1, 10000, &decision);
    printf("%s %d\n", status == RATELIMIT_OK ? ratelimit_source_name(decision.source) : ratelimit_error(client),
           buffer_append(heap_push(1), map_insert(1)) + pull_int(1) + request_new(1));
    ratelimit_close(client);
    return 0;
}
