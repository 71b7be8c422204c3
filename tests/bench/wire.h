/*
 * wire.h: what the load generators share: sockets, whole MessagePack values among bytes, time, and a histogram.
 *
 * Any error ends a load generator, with a line on standard error.
 */
#ifndef RL_TESTS_BENCH_WIRE_H
#define RL_TESTS_BENCH_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_SUB_BITS = 5, /* 32 buckets per power of two: a quantile is at most 3 % low */
    WIRE_N_BUCKETS = 64 << WIRE_SUB_BITS,
};

struct wire_histogram {
    uint64_t n;
    uint64_t buckets[WIRE_N_BUCKETS];
};

void wire_die(const char *what) __attribute__((noreturn)); /* with errno's text */
int64_t wire_now_ns(void);
uint64_t wire_random(uint64_t *state); /* splitmix64 */

int wire_open(const char *address); /* a path or host:port */
void wire_write(int fd, const uint8_t *bytes, size_t len);
void wire_hello(int fd); /* decisions as arrays from now on; call it before other requests */

uint64_t wire_big_endian(const uint8_t *at, unsigned n);
size_t wire_value_length(const uint8_t *at, size_t len); /* 0 while the value is incomplete */

void wire_histogram_add(struct wire_histogram *histogram, int64_t ns);
double wire_histogram_us(const struct wire_histogram *histogram,
                         double share); /* the time that this share did not exceed */

#endif
