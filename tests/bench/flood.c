/*
 * flood.c: one client that floods, or one that is polite, for fairness.py.
 *
 *   flood -s SOCKET -m METHOD -p POLICY -k KEYS -d DEPTH -c CONNECTIONS -n CHECKS -t SECONDS -w PID
 *   flood -s SOCKET -m polite -p POLICY -u MICROSECONDS -n CHECKS -b KEY_BYTES -t SECONDS -w PID
 *   both: -l MILLISECONDS, the deadline of the policy
 *
 * METHOD is one of
 *   check, stats, policies, explain
 *   check_many, check_all   of CHECKS checks each
 *   cost                    checks of cost 1000
 *   request_id              every check with a new one
 *   reserve
 *   acquire                 what is granted is released
 *   refund                  seven after each check of cost 8
 *   alternate               a check and a reset in turns, each of another key
 *   long                    messages of 4.2 KB that name no method
 *   leave                   connects, asks and leaves, without reading the answer
 *
 * But for `leave`, a flood keeps DEPTH requests under way on each of its connections: an answer releases the next
 * request. It reads its answers, so nothing but its appetite is hostile.
 *
 * The polite client sends one check every so many microseconds, answered or not, so that a loop that stands still
 * delays several of its checks and not only one. With CHECKS it sends that many in one check_many.
 *
 * -w is the daemon: of every latency also that part is known in which neither the daemon nor this client was runnable
 * and waiting for a core (the second figure of /proc/PID/schedstat). On a machine of few cores the rest is the
 * machine's.
 *
 * One line of JSON comes out. Lateness is an answer's time beyond the deadline. Of the polite client it is that of the
 * answers that the store did not give, and of those after the deadline: what the store answered in time cannot be late.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bench/wire.h"

enum {
    READ_SIZE = 4 << 20, /* bytes; the answers to the longest check_many are less */
    MAX_REQUEST = 256,   /* bytes of a request without its list, key and method */
    MAX_MEMBER = 24,     /* bytes of a member of a list without its key */
    MAX_CONNECTIONS = 1024,
    KEY_BYTES_MIN = 4, /* so that 8000 checks fit the longest message */
    KEY_BYTES_MAX = 255,
    LONG_METHOD = 4200, /* bytes of a method's name */
    SLOT_LEN = 32,
    SOURCE_AT = 8,         /* in a decision as an array */
    REFUNDS_PER_CHECK = 8, /* requests per check */
    PATIENCE_MS = 10000,
};

enum method {
    CHECK,
    STATS,
    METRICS,
    POLICIES,
    EXPLAIN,
    CHECK_MANY,
    CHECK_ALL,
    COST,
    REQUEST_ID,
    RESERVE,
    ACQUIRE,
    REFUND,
    ALTERNATE,
    LONG,
    LEAVE,
    POLITE,
    N_METHODS
};

static const char *const METHOD_NAMES[] = {
    [CHECK] = "check",         [STATS] = "stats",     [POLICIES] = "policies",
    [METRICS] = "metrics",     [EXPLAIN] = "explain", [CHECK_MANY] = "check_many",
    [CHECK_ALL] = "check_all", [COST] = "cost",       [REQUEST_ID] = "request_id",
    [RESERVE] = "reserve",     [ACQUIRE] = "acquire", [REFUND] = "refund",
    [ALTERNATE] = "alternate", [LONG] = "long",       [LEAVE] = "leave",
    [POLITE] = "polite"};

static struct {
    const char *socket;
    enum method method;
    const char *policy;
    unsigned n_keys, depth, n_connections, n_checks, key_bytes;
    int64_t interval_ns, deadline_ns;
    double seconds;
    long daemon;
} opt = {.n_keys = 1,
         .depth = 1,
         .n_connections = 1,
         .n_checks = 1,
         .key_bytes = KEY_BYTES_MIN,
         .interval_ns = 2000000,
         .deadline_ns = 20000000,
         .seconds = 1};

struct moment {
    int64_t ns;         /* CLOCK_MONOTONIC */
    int64_t awaited_ns; /* the time so far that daemon and client waited for a core */
};

/* A request in flight. */
struct asked {
    struct moment at;
    char slot[SLOT_LEN]; /* of acquire: the next request releases it */
    bool holds;
};

struct connection {
    int fd;
    uint8_t *in; /* owned */
    size_t in_len;
    uint8_t *out; /* owned */
    size_t out_len, out_at;
    struct asked *asked; /* owned; by msgid */
};

/* The results. */
static struct {
    uint64_t n_sent, n_answered, n_allowed, n_denied, n_errors, n_by_store, n_decisions;
    struct wire_histogram raw, net; /* latencies, in total and without the waits for a core */
    struct wire_histogram late_raw, late_net;
    int64_t max_raw, max_net, max_late_raw, max_late_net;
    char error[64]; /* the first one */
} tally;

static uint64_t n_made; /* requests on all connections; request ids and keys depend on it */

/* ---- waits for a core ---- */

static int delay_fds[2];

static void open_delays(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/schedstat", opt.daemon);
    delay_fds[0] = open(path, O_RDONLY | O_CLOEXEC);
    delay_fds[1] = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    if (delay_fds[0] < 0 || delay_fds[1] < 0) wire_die(path);
}

/* Nanoseconds, of daemon and client together, since their start. */
static int64_t awaited_ns(void)
{
    int64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        char text[96], *at;
        ssize_t n = pread(delay_fds[i], text, sizeof text - 1, 0);
        if (n <= 0) wire_die("schedstat");
        text[n] = '\0';
        (void)strtoll(text, &at, 10);
        sum += strtoll(at, NULL, 10);
    }
    return sum;
}

static struct moment moment_now(void)
{
    return (struct moment){.ns = wire_now_ns(), .awaited_ns = awaited_ns()};
}

/* ---- requests ---- */

static uint8_t *put(uint8_t *to, const void *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

static uint8_t *put_str_head(uint8_t *to, size_t len)
{
    if (len < 32) {
        *to++ = (uint8_t)(0xa0 | len);
    } else if (len < 256) {
        *to++ = 0xd9;
        *to++ = (uint8_t)len;
    } else {
        *to++ = 0xda;
        *to++ = (uint8_t)(len >> 8);
        *to++ = (uint8_t)len;
    }
    return to;
}

static uint8_t *put_str(uint8_t *to, const char *text, size_t len)
{
    return put(put_str_head(to, len), text, len);
}

/* Four digits, behind as many letters as a longer key needs. */
static uint8_t *put_key(uint8_t *to, uint64_t number)
{
    to = put_str_head(to, opt.key_bytes);
    memset(to, 'x', opt.key_bytes);
    to += opt.key_bytes;
    for (int i = 1; i <= KEY_BYTES_MIN; i++, number /= 10) to[-i] = (uint8_t)('0' + number % 10);
    return to;
}

static uint8_t *put_subject(uint8_t *to)
{
    to = put_str(to, opt.policy, strlen(opt.policy));
    return put_key(to, n_made++ % opt.n_keys);
}

/* [0, msgid, method, an array of n ... */
static uint8_t *put_head(uint8_t *to, uint32_t msgid, const char *method, unsigned n)
{
    to = put(to, "\x94\x00\xce", 3);
    for (int shift = 24; shift >= 0; shift -= 8) *to++ = (uint8_t)(msgid >> shift);
    to = put_str(to, method, strlen(method));
    *to++ = (uint8_t)(0x90 | n);
    return to;
}

static uint8_t *put_checks(uint8_t *to, uint32_t msgid, const char *method)
{
    to = put_head(to, msgid, method, 1);
    *to++ = 0xdc;
    *to++ = (uint8_t)(opt.n_checks >> 8);
    *to++ = (uint8_t)opt.n_checks;
    for (unsigned i = 0; i < opt.n_checks; i++) {
        *to++ = 0x92;
        to = put_subject(to);
    }
    return to;
}

static uint8_t *put_request_id(uint8_t *to, uint32_t msgid)
{
    char id[24];
    int n = snprintf(id, sizeof id, "%ld-%llu", (long)getpid(), (unsigned long long)n_made);
    to = put_subject(put_head(to, msgid, "check", 3));
    *to++ = 0x81;
    to = put_str(to, "request_id", 10);
    return put_str(to, id, (size_t)n);
}

static uint8_t *put_long(uint8_t *to, uint32_t msgid)
{
    static char name[LONG_METHOD + 1];
    memset(name, 'x', LONG_METHOD);
    return put_head(to, msgid, name, 0);
}

/* The method's next request. `asked` is the state of the last request with this msgid. */
static uint8_t *put_request(uint8_t *to, uint32_t msgid, struct asked *asked)
{
    switch (opt.method) {
    case REQUEST_ID: return put_request_id(to, msgid);
    case STATS: return put_head(to, msgid, "stats", 0);
    case METRICS: return put_head(to, msgid, "metrics", 0);
    case POLICIES: return put_head(to, msgid, "policies", 0);
    case EXPLAIN: return put_subject(put_head(to, msgid, "explain", 2));
    case CHECK_MANY: return put_checks(to, msgid, "check_many");
    case CHECK_ALL: return put_checks(to, msgid, "check_all");
    case COST: return put(put_subject(put_head(to, msgid, "check", 3)), "\xcd\x03\xe8", 3);
    case ALTERNATE: return put_subject(put_head(to, msgid, n_made % 2 == 0 ? "check" : "reset", 2));
    case LONG: return put_long(to, msgid);
    case RESERVE: return put(put_subject(put_head(to, msgid, "reserve", 3)), "\x01", 1);
    case ACQUIRE:
        if (!asked->holds) return put_subject(put_head(to, msgid, "acquire", 2));
        asked->holds = false;
        return put_str(put_head(to, msgid, "release", 1), asked->slot, SLOT_LEN);
    case REFUND:
        if (n_made % REFUNDS_PER_CHECK == 0) return put(put_subject(put_head(to, msgid, "check", 3)), "\x08", 1);
        return put(put_subject(put_head(to, msgid, "refund", 3)), "\x01", 1);
    case POLITE:
        if (opt.n_checks > 1) return put_checks(to, msgid, "check_many");
        break;
    default: break;
    }
    return put_subject(put_head(to, msgid, "check", 2));
}

/* The most bytes of a request. */
static size_t request_size(void)
{
    return MAX_REQUEST + LONG_METHOD + (size_t)opt.n_checks * (MAX_MEMBER + opt.key_bytes);
}

/* Are answers lists of decisions? */
static bool asks_lists(void)
{
    return opt.method == CHECK_MANY || (opt.method == POLITE && opt.n_checks > 1);
}

/* ---- answers ---- */

/* The first member of the array at `at`; NULL if it is not an array, or empty. */
static const uint8_t *into_array(const uint8_t *at)
{
    if (*at > 0x90 && *at <= 0x9f) return at + 1;
    if (*at == 0xdc) return at + 3;
    return NULL;
}

/* Of a decision as an array. */
static bool is_by_store(const uint8_t *first, const uint8_t *end)
{
    const uint8_t *at = first;
    for (int i = 0; i < SOURCE_AT; i++) at += wire_value_length(at, (size_t)(end - at));
    return memcmp(at, "\xa5redis", 6) == 0 || memcmp(at, "\xa6memory", 7) == 0;
}

static void note_error(const uint8_t *error, size_t len)
{
    tally.n_errors++;
    if (tally.error[0] == '\0')
        snprintf(tally.error, sizeof tally.error, "%.*s", (int)len - 2, (const char *)error + 2);
    for (char *c = tally.error; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') *c = ' ';
    }
}

/* Count [1, msgid, error, result]. Returns whether the store decided it. */
static bool count_answer(const uint8_t *error, const uint8_t *end, struct asked *asked)
{
    tally.n_answered++;
    size_t error_len = wire_value_length(error, (size_t)(end - error));
    if (*error != 0xc0) {
        note_error(error, error_len);
        return false;
    }

    const uint8_t *first = opt.method == POLICIES ? NULL : into_array(error + error_len);
    if (first != NULL && asks_lists()) first = into_array(first);
    if (first == NULL) return false; /* it is not a decision's */
    tally.n_decisions++;
    if (*first == 0xc3)
        tally.n_allowed++;
    else
        tally.n_denied++;
    bool by_store = is_by_store(first, end);
    tally.n_by_store += by_store;

    const uint8_t *slot = opt.method == ACQUIRE ? memmem(first, (size_t)(end - first), "\xa4slot\xd9\x20", 7) : NULL;
    if (slot != NULL) {
        memcpy(asked->slot, slot + 7, SLOT_LEN);
        asked->holds = true;
    }
    return by_store;
}

static void note_max(int64_t *max, int64_t value)
{
    if (value > *max) *max = value;
}

static void note_time(const struct asked *asked, bool by_store, const struct moment *now)
{
    int64_t raw = now->ns - asked->at.ns, net = raw - (now->awaited_ns - asked->at.awaited_ns);
    if (net < 0) net = 0;
    wire_histogram_add(&tally.raw, raw);
    wire_histogram_add(&tally.net, net);
    note_max(&tally.max_raw, raw);
    note_max(&tally.max_net, net);

    if (by_store && raw <= opt.deadline_ns) return;
    int64_t late_raw = raw > opt.deadline_ns ? raw - opt.deadline_ns : 0;
    int64_t late_net = net > opt.deadline_ns ? net - opt.deadline_ns : 0;
    wire_histogram_add(&tally.late_raw, late_raw);
    wire_histogram_add(&tally.late_net, late_net);
    note_max(&tally.max_late_raw, late_raw);
    note_max(&tally.max_late_net, late_net);
}

/* Counts the complete answer at the front of [at, at + len). Returns its length and msgid; 0 while it is incomplete. */
static size_t take_answer(struct connection *c, const uint8_t *at, size_t len, const struct moment *now,
                          uint32_t *ret_msgid)
{
    size_t n = wire_value_length(at, len);
    if (n == 0) return 0;
    const uint8_t *msgid = at + 2;
    size_t width = wire_value_length(msgid, n - 2);
    if (*msgid == 0xc0) wire_die("the daemon answered that this is not a message");
    *ret_msgid = width == 1 ? *msgid : (uint32_t)wire_big_endian(msgid + 1, (unsigned)width - 1);
    struct asked *asked = &c->asked[*ret_msgid];
    bool by_store = count_answer(msgid + width, at + n, asked);
    note_time(asked, by_store, now);
    return n;
}

/* ---- connections ---- */

static void connection_open(struct connection *c, size_t n_asked, size_t out_size)
{
    *c = (struct connection){.fd = wire_open(opt.socket)};
    c->in = malloc(READ_SIZE);
    c->out = malloc(out_size);
    c->asked = calloc(n_asked, sizeof *c->asked);
    if (!c->in || !c->out || !c->asked) wire_die("malloc");
    wire_hello(c->fd);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0) wire_die("fcntl");
}

static void connection_close(struct connection *c)
{
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c->asked);
}

/* Bytes that the daemon does not accept now stay in `out`. */
static void write_some(struct connection *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = write(c->fd, c->out + c->out_at, c->out_len - c->out_at);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) wire_die("write");
        c->out_at += (size_t)n;
    }
    c->out_at = c->out_len = 0;
}

static void read_some(struct connection *c)
{
    ssize_t n = read(c->fd, c->in + c->in_len, READ_SIZE - c->in_len);
    if (n < 0 && errno == EAGAIN) return;
    if (n == 0) errno = EPIPE;
    if (n <= 0) wire_die("read");
    c->in_len += (size_t)n;
}

static void ask(struct connection *c, uint32_t msgid, const struct moment *now)
{
    struct asked *asked = &c->asked[msgid];
    uint8_t *end = put_request(c->out + c->out_len, msgid, asked);
    c->out_len = (size_t)(end - c->out);
    asked->at = *now;
    tally.n_sent++;
}

/* ---- the flood ---- */

/* Reads and counts answers, and sends as many new requests. */
static void flood_exchange(struct connection *c, int64_t end)
{
    read_some(c);
    if (c->out_at > 0) { /* move the rest to the front: `out` has space for one request per msgid */
        memmove(c->out, c->out + c->out_at, c->out_len - c->out_at);
        c->out_len -= c->out_at;
        c->out_at = 0;
    }

    struct moment now = moment_now();
    size_t at = 0, len;
    uint32_t msgid;
    while (at < c->in_len && (len = take_answer(c, c->in + at, c->in_len - at, &now, &msgid)) > 0) {
        at += len;
        if (now.ns < end) ask(c, msgid, &now);
    }
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
    write_some(c);
}

static void flood(void)
{
    static struct connection connections[MAX_CONNECTIONS];
    static struct pollfd polled[MAX_CONNECTIONS];
    int64_t end = wire_now_ns() + (int64_t)(opt.seconds * 1e9);
    for (unsigned i = 0; i < opt.n_connections; i++) {
        connection_open(&connections[i], opt.depth, opt.depth * request_size());
        polled[i].fd = connections[i].fd;
        struct moment now = moment_now();
        for (uint32_t msgid = 0; msgid < opt.depth; msgid++) ask(&connections[i], msgid, &now);
        write_some(&connections[i]);
    }

    while (tally.n_answered < tally.n_sent) {
        for (unsigned i = 0; i < opt.n_connections; i++)
            polled[i].events = connections[i].out_at < connections[i].out_len ? POLLIN | POLLOUT : POLLIN;
        if (poll(polled, opt.n_connections, PATIENCE_MS) <= 0) wire_die("no answer for ten seconds");
        for (unsigned i = 0; i < opt.n_connections; i++) {
            if (polled[i].revents & POLLOUT) write_some(&connections[i]);
            if (polled[i].revents & (POLLIN | POLLHUP)) flood_exchange(&connections[i], end);
        }
    }

    for (unsigned i = 0; i < opt.n_connections; i++) connection_close(&connections[i]);
}

/* CONNECTIONS clients at once, again and again. */
static void come_and_leave(void)
{
    uint8_t request[MAX_REQUEST];
    int fds[MAX_CONNECTIONS];
    for (int64_t end = wire_now_ns() + (int64_t)(opt.seconds * 1e9); wire_now_ns() < end;) {
        for (unsigned i = 0; i < opt.n_connections; i++) {
            fds[i] = wire_open(opt.socket);
            size_t len = (size_t)(put_request(request, 1, NULL) - request);
            if (write(fds[i], request, len) != (ssize_t)len) wire_die("write");
            tally.n_sent++;
        }
        for (unsigned i = 0; i < opt.n_connections; i++) close(fds[i]);
    }
}

/* ---- the polite client ---- */

static void polite_exchange(struct connection *c)
{
    read_some(c);
    struct moment now = moment_now();
    size_t at = 0, len;
    uint32_t msgid;
    while (at < c->in_len && (len = take_answer(c, c->in + at, c->in_len - at, &now, &msgid)) > 0) at += len;
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
}

static void polite(void)
{
    struct connection c;
    uint32_t n_most = (uint32_t)(opt.seconds * 1e9 / (double)opt.interval_ns) + 1;
    connection_open(&c, n_most, (size_t)n_most * request_size());
    (void)prctl(PR_SET_TIMERSLACK, 1);
    int64_t next = wire_now_ns(), last = next;

    for (uint32_t n = 0; n < n_most || tally.n_answered < tally.n_sent;) {
        int64_t now = wire_now_ns();
        if (n < n_most && now >= next) {
            struct moment moment = moment_now();
            ask(&c, n++, &moment);
            write_some(&c);
            next += opt.interval_ns;
            if (next < now) next = now; /* after a late wake-up, send no burst for the missed time */
            last = now;
        }
        if (n == n_most && now - last > (int64_t)PATIENCE_MS * 1000000) wire_die("no answer for ten seconds");

        int64_t wait_ns = n < n_most ? next - now : 100000000;
        struct timespec wait = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns > 0 ? wait_ns % 1000000000 : 0};
        struct pollfd polled = {.fd = c.fd, .events = c.out_at < c.out_len ? POLLIN | POLLOUT : POLLIN};
        if (ppoll(&polled, 1, &wait, NULL) < 0) wire_die("ppoll");
        if (polled.revents & POLLOUT) write_some(&c);
        if (polled.revents & (POLLIN | POLLHUP)) polite_exchange(&c);
    }
    connection_close(&c);
}

/* ---- the report ---- */

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value == 0 || value > most) {
        fprintf(stderr, "flood: %s is not 1 to %u\n", text, most);
        exit(2);
    }
    return (unsigned)value;
}

static enum method method_of(const char *name)
{
    for (int i = 0; i < N_METHODS; i++) {
        if (strcmp(name, METHOD_NAMES[i]) == 0) return (enum method)i;
    }
    fprintf(stderr, "flood: no method %s\n", name);
    exit(2);
}

static void parse(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "s:m:p:k:d:c:n:b:u:l:t:w:")) != -1) {
        switch (option) {
        case 's': opt.socket = optarg; break;
        case 'm': opt.method = method_of(optarg); break;
        case 'p': opt.policy = optarg; break;
        case 'k': opt.n_keys = number(optarg, 10000); break;
        case 'd': opt.depth = number(optarg, 65536); break;
        case 'c': opt.n_connections = number(optarg, MAX_CONNECTIONS); break;
        case 'n': opt.n_checks = number(optarg, 65535); break;
        case 'b': opt.key_bytes = number(optarg, KEY_BYTES_MAX); break;
        case 'u': opt.interval_ns = (int64_t)number(optarg, 10000000) * 1000; break;
        case 'l': opt.deadline_ns = (int64_t)number(optarg, 3600000) * 1000000; break;
        case 't': opt.seconds = atof(optarg); break;
        case 'w': opt.daemon = (long)number(optarg, 1 << 30); break;
        default: exit(2);
        }
    }
    if (!opt.socket || !opt.policy || strlen(opt.policy) > 8 || opt.daemon == 0 || opt.key_bytes < KEY_BYTES_MIN) {
        fprintf(stderr, "flood: see the top of tests/bench/flood.c\n");
        exit(2);
    }
}

static double us(int64_t ns)
{
    return (double)ns / 1000;
}

static void print_times(const char *name, const struct wire_histogram *histogram, int64_t max_ns)
{
    printf("\"%s\": {\"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f}, ", name,
           wire_histogram_us(histogram, 0.5), wire_histogram_us(histogram, 0.99), wire_histogram_us(histogram, 0.999),
           us(max_ns));
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    open_delays();
    int64_t start = wire_now_ns();
    if (opt.method == POLITE)
        polite();
    else if (opt.method == LEAVE)
        come_and_leave();
    else
        flood();

    double seconds = (double)(wire_now_ns() - start) / 1e9;
    printf("{");
    print_times("raw", &tally.raw, tally.max_raw);
    print_times("net", &tally.net, tally.max_net);
    print_times("late_raw", &tally.late_raw, tally.max_late_raw);
    print_times("late_net", &tally.late_net, tally.max_late_net);
    printf("\"late_n\": %llu, \"sent\": %llu, \"answered\": %llu, \"decisions\": %llu, \"by_store\": %llu, "
           "\"allowed\": %llu, \"denied\": %llu, \"errors\": %llu, \"error\": \"%s\", \"seconds\": %.3f, "
           "\"per_second\": %.1f}\n",
           (unsigned long long)tally.late_raw.n, (unsigned long long)tally.n_sent, (unsigned long long)tally.n_answered,
           (unsigned long long)tally.n_decisions, (unsigned long long)tally.n_by_store,
           (unsigned long long)tally.n_allowed, (unsigned long long)tally.n_denied, (unsigned long long)tally.n_errors,
           tally.error, seconds, (double)tally.n_answered / seconds);
    return 0;
}
