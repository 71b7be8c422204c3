#include "bench/wire.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HELLO_MAX = 1024 /* bytes of its answer */ };

void wire_die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}

int64_t wire_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

uint64_t wire_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- sockets ---- */

int wire_open(const char *address)
{
    const char *colon = strrchr(address, ':');
    int fd;
    if (colon) {
        char host[128];
        snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
        struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
        if (getaddrinfo(host, colon + 1, &hints, &found) != 0) wire_die(address);
        fd = socket(found->ai_family, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) wire_die(address);
        freeaddrinfo(found);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    } else {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        snprintf(sun.sun_path, sizeof sun.sun_path, "%s", address);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof sun) != 0) wire_die(address);
    }
    return fd;
}

void wire_write(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) wire_die("write");
        bytes += n;
        len -= (size_t)n;
    }
}

void wire_hello(int fd)
{
    static const uint8_t hello[] = "\x94\x00\x00\xa5hello\x91\x81\xa8"
                                   "decision\xa5"
                                   "array";
    uint8_t answer[HELLO_MAX];
    size_t len = 0;
    wire_write(fd, hello, sizeof hello - 1);
    do {
        ssize_t n = read(fd, answer + len, sizeof answer - len);
        if (n <= 0) wire_die("hello");
        len += (size_t)n;
    } while (wire_value_length(answer, len) == 0);
}

/* ---- MessagePack ---- */

uint64_t wire_big_endian(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) value = value << 8 | at[i];
    return value;
}

size_t wire_value_length(const uint8_t *at, size_t len)
{
    size_t pos = 0;
    for (uint64_t left = 1; left > 0; left--) {
        if (pos >= len) return 0;
        uint8_t tag = at[pos];
        unsigned head = 1;
        uint64_t payload = 0;
        if (tag <= 0x7f || tag >= 0xe0 || (tag >= 0xc0 && tag <= 0xc3)) {
        } else if (tag <= 0x8f)
            left += 2 * (tag & 15u);
        else if (tag <= 0x9f)
            left += tag & 15u;
        else if (tag <= 0xbf)
            payload = tag & 31u;
        else if (tag >= 0xcc && tag <= 0xcf)
            payload = 1u << (tag - 0xcc);
        else if (tag >= 0xd0 && tag <= 0xd3)
            payload = 1u << (tag - 0xd0);
        else if (tag == 0xca || tag == 0xcb)
            payload = tag == 0xca ? 4 : 8;
        else {
            unsigned size = tag >= 0xdc ? 2u << (tag & 1) : 1u << ((tag >= 0xd9 ? tag - 0xd9 : tag - 0xc4) % 3);
            if (pos + 1 + size > len) return 0;
            uint64_t n = wire_big_endian(at + pos + 1, size);
            head += size;
            if (tag >= 0xde)
                left += 2 * n;
            else if (tag >= 0xdc)
                left += n;
            else
                payload = n;
        }
        pos += head + payload;
    }
    return pos <= len ? pos : 0;
}

/* ---- histogram ---- */

void wire_histogram_add(struct wire_histogram *histogram, int64_t ns)
{
    uint64_t value = ns < 1 ? 1 : (uint64_t)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(value);
    unsigned sub = 0;
    if (power >= WIRE_SUB_BITS) sub = (unsigned)(value >> (power - WIRE_SUB_BITS)) & ((1u << WIRE_SUB_BITS) - 1);
    histogram->buckets[(power << WIRE_SUB_BITS) | sub]++;
    histogram->n++;
}

double wire_histogram_us(const struct wire_histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)ceil((double)histogram->n * share), seen = 0;
    for (unsigned i = 0; i < WIRE_N_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen < wanted || seen == 0) continue;
        unsigned power = i >> WIRE_SUB_BITS, sub = i & ((1u << WIRE_SUB_BITS) - 1);
        return ldexp(1 + (double)sub / (1u << WIRE_SUB_BITS), (int)power) / 1000;
    }
    return 0;
}
