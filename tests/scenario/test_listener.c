/* test_listener.c: making the daemon's socket in a temporary directory, with every obstacle that may be in the way.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "daemon/listener.h"

static char directory[64];
static char path[256];
static char text[512];
static struct listener listener;
static struct listener_options options;

static int set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/rl.XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/socket", directory);
    options = (struct listener_options){.path = path, .mode = 0660};
    text[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static void open_it(void)
{
    if (listener_open(&listener, &options, text, sizeof text) != 0) fail_msg("%s", text);
}

/* Refused, with all of these in the message. */
static void assert_refused(const char *first, const char *second)
{
    struct listener untouched = {.fd = 77};
    assert_int_equal(listener_open(&untouched, &options, text, sizeof text), -1);
    assert_int_equal(untouched.fd, 77);
    if (strstr(text, first) == NULL || strstr(text, second) == NULL) fail_msg("%s", text);
    assert_null(strchr(text, '\n'));
}

static struct sockaddr_un address_of(const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    assert_true(strlen(name) < sizeof addr.sun_path);
    memcpy(addr.sun_path, name, strlen(name) + 1);
    return addr;
}

static int try_connect(const char *to)
{
    struct sockaddr_un addr = address_of(to);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int rc = connect(fd, (struct sockaddr *)&addr, sizeof addr);
    close(fd);
    return rc;
}

/* A listening socket at `to` that is not ours. */
static int foreign_socket(const char *to)
{
    struct sockaddr_un addr = address_of(to);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(fd, 5), 0);
    return fd;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(name, &st) == 0;
}

static size_t n_files(void)
{
    char command[128];
    snprintf(command, sizeof command, "ls -A %s | wc -l", directory);
    FILE *out = popen(command, "r");
    unsigned n = 0;
    assert_int_equal(fscanf(out, "%u", &n), 1);
    pclose(out);
    return n;
}

static void the_socket_has_its_mode_whatever_the_umask(void **state)
{
    (void)state;
    static const unsigned modes[] = {0600, 0660, 0666, 0620};
    static const unsigned masks[] = {0, 022, 077, 0777};
    for (size_t i = 0; i < 4; i++) {
        struct stat st;
        mode_t old = umask(masks[i]);
        options.mode = modes[i];
        open_it();
        assert_int_equal(umask(old), masks[i]); /* put back as it was */
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 07777, modes[i]);
        listener_close(&listener);
    }
}

static void clients_can_connect_and_nothing_else_is_left_in_the_directory(void **state)
{
    (void)state;
    open_it();
    assert_int_equal(try_connect(path), 0);
    assert_int_equal(n_files(), 2); /* the socket and its lock */
    assert_true(fcntl(listener.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(listener.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(listener.lock_fd, F_GETFD) & FD_CLOEXEC);
    listener_close(&listener);
    assert_false(exists(path));
    assert_int_equal(n_files(), 1); /* the lock stays */
}

static void the_group_is_set(void **state)
{
    (void)state;
    struct stat st;
    if (geteuid() != 0) skip();
    options.has_group = true;
    options.group = 4711;
    open_it();
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_gid, 4711);
    listener_close(&listener);
}

static void a_group_that_may_not_be_set_is_named_and_nothing_is_left(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(chown(directory, 65534, 65534), 0);
    options.has_group = true;
    options.group = 4711;
    assert_int_equal(seteuid(65534), 0);
    int rc = listener_open(&listener, &options, text, sizeof text);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(text, "to the group 4711 (listen.group)"));
    assert_false(exists(path));
    assert_int_equal(n_files(), 1);
}

static void a_stale_socket_is_replaced(void **state)
{
    (void)state;
    close(foreign_socket(path)); /* bound and left by a process that died */
    assert_int_equal(try_connect(path), -1);
    open_it();
    assert_int_equal(try_connect(path), 0);
    listener_close(&listener);
}

/* A start that is killed between bind and rename leaves its temporary socket behind. */
static void a_half_made_socket_of_a_killed_start_is_replaced(void **state)
{
    (void)state;
    char temp[160];
    uint64_t hash = hash_stable(HASH_STABLE_START, "socket", strlen("socket"));
    snprintf(temp, sizeof temp, "%s/.rl-%016llx", directory, (unsigned long long)hash);
    close(foreign_socket(temp));
    open_it();
    assert_false(exists(temp));
    assert_int_equal(try_connect(path), 0);
    listener_close(&listener);
}

static void a_live_socket_is_respected(void **state)
{
    (void)state;
    int fd = foreign_socket(path);
    assert_refused(path, "in use");
    assert_int_equal(try_connect(path), 0);
    close(fd);
}

static void a_live_socket_with_a_full_backlog_is_respected(void **state)
{
    (void)state;
    struct sockaddr_un addr = address_of(path);
    int fd = foreign_socket(path), waiting[16];
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 16; i++) {
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(waiting[i], (struct sockaddr *)&addr, sizeof addr);
    }
    assert_refused(path, "in use");
    for (int i = 0; i < 16; i++) close(waiting[i]);
    close(fd);
}

static void a_second_daemon_on_the_same_path_is_refused(void **state)
{
    (void)state;
    open_it();
    assert_refused("another ratelimitd", "socket.lock");
    assert_int_equal(try_connect(path), 0);
    listener_close(&listener);
    open_it(); /* the lock is free again */
    listener_close(&listener);
}

/* Then the second one waits, and does not give up: its predecessor is only draining. */
static void a_second_daemon_learns_that_the_first_is_about_to_end(void **state)
{
    (void)state;
    struct listener second;
    open_it();
    listener_leave(&listener);
    assert_int_equal(listener_open(&second, &options, text, sizeof text), LISTENER_LATER);
    assert_non_null(strstr(text, "about to end"));
    assert_int_equal(try_connect(path), 0); /* it is still there for its clients */
    listener_close(&listener);

    open_it();
    assert_int_equal(listener_open(&second, &options, text, sizeof text), LISTENER_FAULT); /* the new one stays */
    listener_close(&listener);
}

static void a_datagram_socket_is_respected(void **state)
{
    (void)state;
    struct sockaddr_un addr = address_of(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_refused(path, "cannot be seen whether it is in use");
    close(fd);
}

static void only_a_socket_is_replaced(void **state)
{
    (void)state;
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_refused(path, "no socket");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(path, "no socket");
    assert_int_equal(n_files(), 2);
}

static void symbolic_links_are_not_followed(void **state)
{
    (void)state;
    char other[300], lock[300];
    snprintf(other, sizeof other, "%s/elsewhere", directory);
    snprintf(lock, sizeof lock, "%s.lock", path);
    assert_int_equal(symlink(other, path), 0);
    assert_refused(path, "symbolic link");
    unlink(path);
    unlink(lock);
    assert_int_equal(symlink(other, lock), 0);
    assert_refused("socket.lock", "symbolic link");
    assert_false(exists(other));
}

static void a_lock_that_is_no_file_is_refused(void **state)
{
    (void)state;
    char lock[300];
    snprintf(lock, sizeof lock, "%s.lock", path);
    assert_int_equal(mkfifo(lock, 0600), 0);
    assert_refused("socket.lock", "not a regular file");
}

static void a_missing_directory_is_named(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/none/socket", directory);
    assert_refused("/none does not exist", "create it");
    snprintf(path, sizeof path, "%s/file/socket", directory);
    char file[96];
    snprintf(file, sizeof file, "%s/file", directory);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_refused("/file cannot be opened", "Not a directory");
}

static void a_directory_without_permission_is_named(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(seteuid(65534), 0);
    int rc = listener_open(&listener, &options, text, sizeof text);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "Permission denied"));
    assert_non_null(strstr(text, "write to its directory"));
}

static void a_directory_that_anybody_may_change_is_refused(void **state)
{
    (void)state;
    assert_int_equal(chmod(directory, 0777), 0);
    assert_refused(path, "chmod o-w");
    assert_refused("chmod +t", "in Kubernetes `emptyDir: {medium: Memory}`"); /* a plain emptyDir is 0777 */
    assert_int_equal(chmod(directory, 01777), 0); /* sticky: only the owner removes his files */
    open_it();
    listener_close(&listener);
}

/* A directory whose name fills the path up to `len` bytes with the socket's. */
static void make_path_of(size_t len)
{
    char dir[160];
    size_t fill = len - strlen(directory) - strlen("//s");
    snprintf(dir, sizeof dir, "%s/%0*d", directory, (int)fill, 0);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/s", dir);
    assert_int_equal(strlen(path), len);
}

static void a_path_of_107_bytes_works_and_one_of_108_is_refused(void **state)
{
    (void)state;
    make_path_of(107);
    open_it();
    assert_int_equal(try_connect(path), 0);
    assert_string_equal(listener.path, path);
    listener_close(&listener);
    assert_false(exists(path));
    make_path_of(108);
    assert_refused("108 bytes", "107");
}

static void a_name_of_100_bytes_works(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/%0*d", directory, (int)(107 - strlen(directory) - 1), 7);
    open_it();
    assert_int_equal(try_connect(path), 0);
    listener_close(&listener);
}

static void a_path_without_a_name_is_refused(void **state)
{
    (void)state;
    options.path = "";
    assert_refused("empty", "/run/");
    options.path = "/tmp/";
    assert_refused("/tmp/", "directory");
    options.path = "/tmp/..";
    assert_refused("/tmp/..", "directory");
}

static void a_relative_path_works(void **state)
{
    (void)state;
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(directory), 0);
    options.path = "socket";
    open_it();
    assert_int_equal(try_connect(path), 0);
    listener_close(&listener);
    assert_false(exists(path));
    assert_int_equal(chdir(here), 0);
}

static void closing_leaves_a_successors_socket_alone(void **state)
{
    (void)state;
    open_it();
    assert_int_equal(unlink(path), 0);
    int fd = foreign_socket(path);
    listener_close(&listener);
    assert_int_equal(try_connect(path), 0);
    close(fd);
}

static void an_activation_descriptor_is_taken_as_it_is(void **state)
{
    (void)state;
    int fd = foreign_socket(path);
    assert_int_equal(listener_adopt(&listener, fd, text, sizeof text), 0);
    assert_int_equal(listener.fd, fd);
    assert_string_equal(listener.path, path);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    listener_close(&listener);
    assert_true(exists(path)); /* the service manager's */
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void a_descriptor_of_another_kind_is_refused(void **state)
{
    (void)state;
    int pair[2], fds[4];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fds[0] = pair[0];                               /* not listening */
    fds[1] = socket(AF_UNIX, SOCK_DGRAM, 0);        /* not a stream */
    fds[2] = socket(AF_INET, SOCK_STREAM, 0);       /* not a Unix socket */
    fds[3] = open("/dev/null", O_RDWR | O_CLOEXEC); /* no socket */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(listener_adopt(&listener, fds[i], text, sizeof text), -1);
        assert_non_null(strstr(text, "ListenStream="));
        close(fds[i]);
    }
    close(pair[1]);
    assert_int_equal(listener_adopt(&listener, -1, text, sizeof text), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void a_lock_file_made_under_umask_0777_can_be_opened_by_the_next_start(void **state)
{
    char lock[300];
    struct stat st;
    (void)state;
    mode_t old = umask(0777);
    open_it();
    umask(old);
    snprintf(lock, sizeof lock, "%s.lock", path);
    assert_int_equal(stat(lock, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    listener_close(&listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_socket_has_its_mode_whatever_the_umask),
        TEST(a_lock_file_made_under_umask_0777_can_be_opened_by_the_next_start),
        TEST(clients_can_connect_and_nothing_else_is_left_in_the_directory),
        TEST(the_group_is_set),
        TEST(a_group_that_may_not_be_set_is_named_and_nothing_is_left),
        TEST(a_stale_socket_is_replaced),
        TEST(a_half_made_socket_of_a_killed_start_is_replaced),
        TEST(a_live_socket_is_respected),
        TEST(a_live_socket_with_a_full_backlog_is_respected),
        TEST(a_second_daemon_on_the_same_path_is_refused),
        TEST(a_second_daemon_learns_that_the_first_is_about_to_end),
        TEST(a_datagram_socket_is_respected),
        TEST(only_a_socket_is_replaced),
        TEST(symbolic_links_are_not_followed),
        TEST(a_lock_that_is_no_file_is_refused),
        TEST(a_missing_directory_is_named),
        TEST(a_directory_without_permission_is_named),
        TEST(a_directory_that_anybody_may_change_is_refused),
        TEST(a_path_of_107_bytes_works_and_one_of_108_is_refused),
        TEST(a_name_of_100_bytes_works),
        TEST(a_path_without_a_name_is_refused),
        TEST(a_relative_path_works),
        TEST(closing_leaves_a_successors_socket_alone),
        TEST(an_activation_descriptor_is_taken_as_it_is),
        TEST(a_descriptor_of_another_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
