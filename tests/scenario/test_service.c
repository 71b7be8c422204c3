/* test_service.c: the service manager's two protocols, with the manager's side played by the test. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/service.h"

static int manager = -1; /* what reads the notifications */
static char directory[64];
static char message[1024];

static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                    "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};

static void set_number(const char *name, long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    setenv(name, text, 1);
}

/* Listen for notifications at `name`: a path, or abstract with a leading @. */
static void start_manager(const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strcpy(addr.sun_path, name);
    if (name[0] == '@') addr.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&addr, len), 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static const char *next_message(void)
{
    ssize_t n = recv(manager, message, sizeof message - 1, 0);
    if (n < 0) return NULL;
    message[n] = '\0';
    return message;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/rl.XXXXXX");
    assert_non_null(mkdtemp(directory));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char path[96];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    service_init(); /* without the variables: forgets the manager */
    if (manager >= 0) close(manager);
    manager = -1;
    snprintf(path, sizeof path, "%s/notify", directory);
    unlink(path);
    return rmdir(directory);
}

static void start_at_path(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/notify", directory);
    start_manager(path);
    service_init();
}

static void without_a_manager_nothing_happens(void **state)
{
    (void)state;
    service_init();
    service_ready("up");
    service_watchdog();
    assert_int_equal(service_listen_fd(SERVICE_DATA), -1);
    assert_int_equal(service_watchdog_ms(), 0);
}

static void every_state_is_one_datagram(void **state)
{
    (void)state;
    start_at_path();
    service_ready("Redis ready");
    assert_string_equal(next_message(), "READY=1\nSTATUS=Redis ready");
    service_stopping();
    assert_string_equal(next_message(), "STOPPING=1");
    service_watchdog();
    assert_string_equal(next_message(), "WATCHDOG=1");
    service_status("connection refused");
    assert_string_equal(next_message(), "STATUS=connection refused");
    assert_null(next_message());
}

static void reloading_says_when_it_began(void **state)
{
    (void)state;
    long long us = 0;
    start_at_path();
    service_reloading();
    assert_int_equal(sscanf(next_message(), "RELOADING=1\nMONOTONIC_USEC=%lld", &us), 1);
    assert_true(us > 0);
}

static void a_status_stays_one_line(void **state)
{
    (void)state;
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    start_at_path();
    service_status("first\nMAINPID=1\nlast");
    assert_string_equal(next_message(), "STATUS=first MAINPID=1 last");
    service_ready(longer);
    assert_non_null(next_message());
    assert_true(strlen(message) < 600);
}

static void an_abstract_address_works(void **state)
{
    (void)state;
    char name[64];
    snprintf(name, sizeof name, "@rl-test-%d", (int)getpid());
    start_manager(name);
    service_init();
    service_stopping();
    assert_string_equal(next_message(), "STOPPING=1");
}

static void an_address_of_another_kind_is_ignored(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "@", "vsock:2:1234", "relative/path", "/no/such/socket"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("NOTIFY_SOCKET", bad[i], 1);
        service_init();
        service_ready("up");
    }
}

static void a_manager_that_does_not_read_blocks_nobody(void **state)
{
    (void)state;
    start_at_path();
    for (int i = 0; i < 10000; i++) service_watchdog();
    for (int i = 0; i < 10000; i++) service_status("status");
    assert_string_equal(next_message(), "WATCHDOG=1");
}

static void ready_is_not_lost_where_the_manager_does_not_read(void **state)
{
    (void)state;
    char got[4][sizeof message];
    int n = 0;
    start_at_path();
    for (int i = 0; i < 10000; i++) service_watchdog(); /* the queue is full */
    service_ready("first");
    service_reloading();
    service_ready("second");
    while (next_message() != NULL) {
        service_retry();
        if (strcmp(message, "WATCHDOG=1") != 0 && n < 4) strcpy(got[n++], message);
    }
    assert_int_equal(n, 2); /* the first READY was out of date */
    assert_int_equal(strncmp(got[0], "RELOADING=1\n", 12), 0);
    assert_string_equal(got[1], "READY=1\nSTATUS=second");
}

static void the_variables_are_gone_afterwards(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i], "1", 1);
    service_init();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_null(getenv(names[i]));
}

static void half_the_watchdogs_interval_is_returned(void **state)
{
    (void)state;
    setenv("WATCHDOG_USEC", "10000000", 1);
    service_init();
    assert_int_equal(service_watchdog_ms(), 5000);
    setenv("WATCHDOG_USEC", "10000000", 1);
    set_number("WATCHDOG_PID", getpid());
    service_init();
    assert_int_equal(service_watchdog_ms(), 5000);
    setenv("WATCHDOG_USEC", "10000000", 1);
    set_number("WATCHDOG_PID", getpid() + 1); /* meant for another process */
    service_init();
    assert_int_equal(service_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "soon", 1);
    service_init();
    assert_int_equal(service_watchdog_ms(), 0);
}

static void descriptors_for_another_process_are_left_alone(void **state)
{
    (void)state;
    set_number("LISTEN_PID", getpid() + 1);
    set_number("LISTEN_FDS", 1);
    service_init();
    assert_int_equal(service_listen_fd(SERVICE_DATA), -1);
    set_number("LISTEN_FDS", 1); /* without LISTEN_PID */
    service_init();
    assert_int_equal(service_listen_fd(SERVICE_DATA), -1);
}

enum { N_PASSED = 3, FIRST_PASSED = 3, OUT_OF_THE_WAY = 20 };

/* The descriptors 3 to 5 are open, as if passed; who has them gets them back. */
static void pass_descriptors(int saved[N_PASSED])
{
    int null_fd = open("/dev/null", O_RDWR);
    for (int i = 0; i < N_PASSED; i++) {
        saved[i] = fcntl(FIRST_PASSED + i, F_DUPFD, OUT_OF_THE_WAY);
        if (FIRST_PASSED + i != null_fd) assert_true(dup2(null_fd, FIRST_PASSED + i) >= 0);
    }
    if (null_fd >= FIRST_PASSED + N_PASSED) close(null_fd);
}

static void give_back(const int saved[N_PASSED])
{
    for (int i = 0; i < N_PASSED; i++) {
        close(FIRST_PASSED + i);
        if (saved[i] < 0) continue;
        dup2(saved[i], FIRST_PASSED + i);
        close(saved[i]);
    }
}

static void one_descriptor_is_taken_and_several_are_too_many(void **state)
{
    (void)state;
    int saved[N_PASSED];
    pass_descriptors(saved);
    set_number("LISTEN_PID", getpid());
    set_number("LISTEN_FDS", 1);
    service_init();
    assert_int_equal(service_listen_fd(SERVICE_DATA), 3);
    assert_true(fcntl(3, F_GETFD) & FD_CLOEXEC);
    set_number("LISTEN_PID", getpid());
    set_number("LISTEN_FDS", 2);
    service_init();
    assert_int_equal(service_listen_fd(SERVICE_DATA), SERVICE_FD_SEVERAL);
    give_back(saved);
}

/* Earlier, the connection to the service manager was opened first, and could get the number. */
static void a_promised_descriptor_that_is_not_open_is_nobody_elses(void **state)
{
    (void)state;
    int saved[N_PASSED];
    char path[96];
    snprintf(path, sizeof path, "%s/notify", directory);
    start_manager(path);
    pass_descriptors(saved);
    close(3);
    set_number("LISTEN_PID", getpid());
    set_number("LISTEN_FDS", 2);
    setenv("LISTEN_FDNAMES", "control:ratelimitd", 1);
    service_init();
    assert_int_equal(service_listen_fd(SERVICE_CONTROL), SERVICE_FD_CLOSED);
    assert_int_equal(service_listen_fd(SERVICE_DATA), 4);
    service_init(); /* forgets the manager, whose socket may be 3 */
    give_back(saved);
}

static int pass(int n, const char *fd_names, enum service_socket which)
{
    set_number("LISTEN_PID", getpid());
    set_number("LISTEN_FDS", n);
    if (fd_names != NULL) setenv("LISTEN_FDNAMES", fd_names, 1);
    service_init();
    return service_listen_fd(which);
}

/* Their order is the service manager's. */
static void a_descriptor_named_control_is_the_control_socket(void **state)
{
    (void)state;
    static const struct {
        int n;
        const char *names;
        int data, control;
    } cases[] = {
        {1, "control", -1, 3},           {1, "ratelimitd.socket", 3, -1},
        {1, "controls", 3, -1},          {1, "", 3, -1},
        {2, "ratelimitd:control", 3, 4}, {2, "control:ratelimitd", 4, 3},
        {2, "control:", 4, 3},           {2, "control", 4, 3}, /* the second has none */
        {2, "control:control", -1, -2},  {3, "a:control:b", -2, 4},
        {3, "control:a:control", 4, -2}, {0, "control", -1, -1},
    };
    int saved[N_PASSED];
    pass_descriptors(saved);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int data = pass(cases[i].n, cases[i].names, SERVICE_DATA);
        int control = pass(cases[i].n, cases[i].names, SERVICE_CONTROL);
        assert_int_equal(data, cases[i].data);
        assert_int_equal(control, cases[i].control);
    }
    give_back(saved);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_manager_nothing_happens),
        TEST(every_state_is_one_datagram),
        TEST(reloading_says_when_it_began),
        TEST(a_status_stays_one_line),
        TEST(an_abstract_address_works),
        TEST(an_address_of_another_kind_is_ignored),
        TEST(a_manager_that_does_not_read_blocks_nobody),
        TEST(ready_is_not_lost_where_the_manager_does_not_read),
        TEST(the_variables_are_gone_afterwards),
        TEST(half_the_watchdogs_interval_is_returned),
        TEST(descriptors_for_another_process_are_left_alone),
        TEST(one_descriptor_is_taken_and_several_are_too_many),
        TEST(a_promised_descriptor_that_is_not_open_is_nobody_elses),
        TEST(a_descriptor_named_control_is_the_control_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
