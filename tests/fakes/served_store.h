/*
 * served_store.h: a fixture with a store_fixture and a real redis-server, both created for the present test.
 */
#ifndef RL_TESTS_SERVED_STORE_H
#define RL_TESTS_SERVED_STORE_H

#include "fakes/real_redis.h"
#include "fakes/store_fixture.h"

extern struct real_redis redis; /* the present test's, once it is started */

/* For cmocka. */
int served_store_setup(void **state);
int served_store_teardown(void **state);
#define SERVED_STORE_TEST(function) cmocka_unit_test_setup_teardown(function, served_store_setup, served_store_teardown)

/* The server on a Unix socket, with further arguments (NULL = none); nothing connects yet. */
void served_store_start(const char *const *args);
/* The server, and the store connected to it. */
void served_store_open(void);

#endif
