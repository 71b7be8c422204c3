// header.cc: the header is C++ too.
#include <ratelimit.h>

#include <cstdio>

int main(int, char **argv)
{
    ratelimit *client = nullptr;
    ratelimit_decision decision{};
    if (ratelimit_open(argv[1], &client) != RATELIMIT_OK) return 2;
    ratelimit_status status = ratelimit_check(client, argv[2], "alice", 5, 1, 10000, &decision);
    std::printf("%s\n", status == RATELIMIT_OK ? ratelimit_source_name(decision.source) : ratelimit_error(client));
    ratelimit_close(client);
}
