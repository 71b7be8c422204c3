/*
 * redis/handshake.c: the commands of the handshake, and what their replies say.
 *
 * The commands are written before any reply is read, so after the first fault the replies still to
 * come mean nothing and are ignored; the first fault is the cause.
 */
#include "redis/handshake.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"

enum {
    COMMANDS_RESERVE = 4096, /* bytes of all commands besides the script, the user and the password */
    STEPS_PER_SECOND = 20,   /* that are logged */
};

/* ---- error replies ---- */

static const struct {
    const char *word;
    enum redis_error error;
} by_first_word[] = {
    {"NOSCRIPT", REDIS_ERROR_NOSCRIPT},  {"CLUSTERDOWN", REDIS_ERROR_REFUSED}, {"MASTERDOWN", REDIS_ERROR_REFUSED},
    {"LOADING", REDIS_ERROR_REFUSED},    {"BUSY", REDIS_ERROR_REFUSED},        {"OOM", REDIS_ERROR_REFUSED},
    {"NOREPLICAS", REDIS_ERROR_REFUSED}, {"MISCONF", REDIS_ERROR_REFUSED},     {"READONLY", REDIS_ERROR_ROLE},
    {"NOAUTH", REDIS_ERROR_AUTH},        {"WRONGPASS", REDIS_ERROR_AUTH},      {"NOPERM", REDIS_ERROR_NOPERM},
};

/* Errors whose first word is the catch-all ERR: distinguished by what they contain. The first match counts. A NOSCRIPT
 * from inside a script is not among them on purpose: such a call ran, and must not be sent again. */
static const struct {
    const char *part;
    enum redis_error error;
} by_part[] = {
    {"max number of clients", REDIS_ERROR_CLIENTS},
    {"can't run this command", REDIS_ERROR_NOPERM_INSIDE},
    {"ACL failure in script", REDIS_ERROR_NOPERM_INSIDE},
    {"can't access at least one of the keys", REDIS_ERROR_NOPERM_INSIDE}, /* 7.0 */
    {"Client sent AUTH, but no password is set", REDIS_ERROR_AUTH},
    {"AUTH <password> called without any password configured", REDIS_ERROR_AUTH},
    {"invalid password", REDIS_ERROR_AUTH},
    {"DB index is out of range", REDIS_ERROR_AUTH},
    {"-READONLY ", REDIS_ERROR_ROLE},
    {"-OOM ", REDIS_ERROR_REFUSED},
    {"-NOREPLICAS ", REDIS_ERROR_REFUSED},
    {"-MISCONF ", REDIS_ERROR_REFUSED},
    {"-MASTERDOWN ", REDIS_ERROR_REFUSED},
    {"-NOPERM ", REDIS_ERROR_NOPERM_INSIDE},
    {"cluster is down", REDIS_ERROR_REFUSED},
    {"non local key", REDIS_ERROR_REFUSED}, /* to keys that it has: a Valkey 9 after a command on keys of two slots */
    {"Error running script", REDIS_ERROR_OTHER},
    {"unknown command", REDIS_ERROR_UNKNOWN_COMMAND},
};

static bool contains(struct slice text, const char *part)
{
    return memmem(text.data, text.len, part, strlen(part)) != NULL;
}

enum redis_error redis_error_of(struct slice text)
{
    const uint8_t *space = memchr(text.data, ' ', text.len);
    const struct slice word = {text.data, space != NULL ? (size_t)(space - text.data) : text.len};
    for (size_t i = 0; i < N_OF(by_first_word); i++) {
        if (!slice_is(word, by_first_word[i].word)) continue;
        if (by_first_word[i].error == REDIS_ERROR_NOPERM && contains(text, "script: "))
            return REDIS_ERROR_NOPERM_INSIDE;
        return by_first_word[i].error;
    }

    for (size_t i = 0; i < N_OF(by_part); i++)
        if (contains(text, by_part[i].part)) return by_part[i].error;
    return REDIS_ERROR_OTHER;
}

enum redis_remedy redis_error_remedy(enum redis_error error)
{
    switch (error) {
    case REDIS_ERROR_NOSCRIPT: return REMEDY_RELOAD;
    case REDIS_ERROR_NOPERM: return REMEDY_SEPARATE;
    case REDIS_ERROR_ROLE: return REMEDY_RECONNECT;
    case REDIS_ERROR_AUTH:
    case REDIS_ERROR_CLIENTS: return REMEDY_RECONNECT_LATE;
    default: return REMEDY_KEEP;
    }
}

bool redis_error_is_about_key(const char *text)
{
    return strncmp(text, "NOPERM ", 7) == 0 && strstr(text, " to access ") != NULL;
}

size_t redis_script_canary(const struct redis_script *script, struct slice args[CANARY_ARGS_MAX])
{
    const struct slice *of_batch;
    size_t n = script->canary(script->arg, &of_batch);
    if (n == 0) return 0;
    CHECK(n + 2 <= CANARY_ARGS_MAX);

    args[0] = slice_of("EVALSHA");
    args[1] = script->sha1;
    memcpy(args + 2, of_batch, n * sizeof args[0]);
    return n + 2;
}

/* ---- the handshake ---- */

static void log_step(const char *step)
{
    static struct log_site steps = {.most = STEPS_PER_SECOND};
    log_limited(&steps, LOG_LEVEL_DEBUG, "Redis: %s", step);
}

static void end_handshake(struct redis_handshake *handshake, const char *fault, enum redis_remedy remedy)
{
    if (handshake->is_over) return;
    handshake->is_over = true;
    handshake->on_over(handshake, fault, remedy);
}

/* Errors that a setting of ours brings about, and which. A part of the server's own words finds the row. */
static const struct {
    const char *part;
    const char *fault;
} by_setting[] = {
    {"NOAUTH", "NOAUTH: Redis asks for a password; set store.redis.password_file"},
    {"WRONGPASS", "WRONGPASS: Redis refuses the user or the password; correct store.redis.username or the password in "
                  "store.redis.password_file, or make the user that is missing"},
    {"invalid password", "Redis refuses the password; correct it in store.redis.password_file"},
    {"without any password configured", "Redis has no password; leave store.redis.password_file out, or set one there"},
    {"no password is set", "Redis has no password; leave store.redis.password_file out, or set one there"},
    {"DB index is out of range", "Redis has no such database; lower store.redis.database"},
};

/* What every command of the handshake shares: true if the reply is good so far. An error ends the handshake, with
 * the setting to change or else the server's own words. Those of an unknown command are its arguments, the password
 * among them. */
static bool is_fine(struct redis_handshake *handshake, const char *what, const struct redis_reader *reply)
{
    if (reply == NULL || handshake->is_over) return false;
    if (!handshake->is_answered) log_step("connected");
    handshake->is_answered = true;
    if (!redis_reader_is_error(reply)) return true;

    struct slice text = redis_reader_text(reply);
    enum redis_error error = redis_error_of(text);
    char fault[192];
    snprintf(fault, sizeof fault, "%s: %.*s", what, (int)text.len, reply->text);
    for (size_t i = 0; i < N_OF(by_setting); i++) {
        if (!contains(text, by_setting[i].part)) continue;
        snprintf(fault, sizeof fault, "%s", by_setting[i].fault);
        break;
    }
    if (error == REDIS_ERROR_UNKNOWN_COMMAND) snprintf(fault, sizeof fault, "%s: unknown command", what);

    bool is_forbidden = error == REDIS_ERROR_NOPERM || error == REDIS_ERROR_NOPERM_INSIDE; /* whatever it is asked */
    bool is_late = is_forbidden || redis_error_remedy(error) == REMEDY_RECONNECT_LATE;
    end_handshake(handshake, fault, is_late ? REMEDY_RECONNECT_LATE : REMEDY_RECONNECT);
    return false;
}

static void on_hello(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_handshake *handshake = CONTAINER_OF(call, struct redis_handshake, hello);
    if (reply != NULL && redis_reader_is_error(reply))
        handshake->without_hello |= redis_error_of(redis_reader_text(reply)) == REDIS_ERROR_UNKNOWN_COMMAND;
    if (!is_fine(handshake, "HELLO", reply)) return;

    const char *role = redis_reader_field(reply, "role"), *mode = redis_reader_field(reply, "mode");
    const char *server = redis_reader_field(reply, "server"), *version = redis_reader_field(reply, "version");
    if (server != NULL && version != NULL)
        snprintf(handshake->server, sizeof handshake->server, "%s %s", server, version);
    bool is_node = mode != NULL && strcmp(mode, "cluster") == 0;
    if (is_node && !handshake->is_cluster)
        end_handshake(
            handshake,
            "this server is a node of a cluster and has only some of the keys; set store.redis.topology: cluster",
            REMEDY_RECONNECT_LATE);
    if (mode != NULL && strcmp(mode, "standalone") == 0 && handshake->is_cluster)
        end_handshake(handshake, "this server is no node of a cluster; set store.redis.topology: single",
                      REMEDY_RECONNECT_LATE);
    if (mode != NULL && strcmp(mode, "sentinel") == 0)
        end_handshake(handshake, "this is a Sentinel; write the address of the master into store.redis.addresses",
                      REMEDY_RECONNECT_LATE);
    handshake->is_replica = role != NULL && strcmp(role, "master") != 0;
    if (handshake->is_replica) end_handshake(handshake, "this server is a replica", REMEDY_RECONNECT);
    if (!handshake->is_over) log_step(handshake->authenticates ? "HELLO and AUTH done" : "HELLO done");
}

static void on_auth(struct redis_call *call, const struct redis_reader *reply)
{
    if (is_fine(CONTAINER_OF(call, struct redis_handshake, hello), "AUTH", reply)) log_step("AUTH done");
}

/* A name helps only people who look: no reason to go without the connection. */
static void on_setname(struct redis_call *call, const struct redis_reader *reply)
{
    (void)call, (void)reply;
}

static void on_select(struct redis_call *call, const struct redis_reader *reply)
{
    if (is_fine(CONTAINER_OF(call, struct redis_handshake, select), "SELECT", reply)) log_step("database selected");
}

static void on_load(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_handshake *handshake = CONTAINER_OF(call, struct redis_handshake, load);
    if (!is_fine(handshake, "SCRIPT LOAD", reply)) return;
    if (!slice_eq(redis_reader_text(reply), handshake->script->sha1)) {
        end_handshake(handshake, "SCRIPT LOAD returned another digest than ours", REMEDY_RECONNECT_LATE);
        return;
    }
    log_step("script loaded");
}

/* The server would run the script, but for the canary's key: another node has it, or the user may use other keys alone
 * (those of compat policies). */
static bool is_about_key(const struct redis_handshake *handshake, const struct redis_reader *reply)
{
    static const char *const words[] = {"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN "};
    if (reply == NULL || !redis_reader_is_error(reply)) return false;
    if (redis_error_is_about_key(reply->text)) return true;
    for (size_t i = 0; handshake->is_cluster && i < N_OF(words); i++)
        if (strncmp(reply->text, words[i], strlen(words[i])) == 0) return true;
    return false;
}

static void on_canary(struct redis_call *call, const struct redis_reader *reply)
{
    struct redis_handshake *handshake = CONTAINER_OF(call, struct redis_handshake, canary);
    if (is_about_key(handshake, reply)) {
        end_handshake(handshake, NULL, REMEDY_KEEP);
        return;
    }
    if (!is_fine(handshake, "EVALSHA", reply)) return;
    const struct redis_script *script = handshake->script;
    if (script->is_canary_good(script->arg, reply))
        end_handshake(handshake, NULL, REMEDY_KEEP);
    else
        end_handshake(handshake, "the script's answer makes no sense", REMEDY_RECONNECT_LATE);
}

static int send_command(struct redis_handshake *handshake, struct redis_call *call,
                        void (*on_reply)(struct redis_call *, const struct redis_reader *), const struct slice *args,
                        size_t n)
{
    call->on_reply = on_reply;
    return redis_conn_send(handshake->conn, call, args, n);
}

const char *redis_client_name(char out[REDIS_CLIENT_NAME_MAX])
{
    char host[64] = "unknown";
    (void)gethostname(host, sizeof host - 1);
    for (char *c = host; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~') *c = '-'; /* Redis takes printable characters only */
    snprintf(out, REDIS_CLIENT_NAME_MAX, "ratelimitd:%s:%ld", host, (long)getpid());
    return out;
}

/* The bytes of a login, and `n_behind` of the commands behind it. */
static int guard_login(struct redis_conn *conn, const char *username, const char *password, size_t n_behind)
{
    size_t names = (username != NULL ? strlen(username) : 0) + (password != NULL ? strlen(password) : 0);
    return redis_conn_guard(conn, COMMANDS_RESERVE + names + n_behind);
}

int redis_hello_send(struct redis_conn *conn, struct redis_call *call, const char *username, const char *password,
                     size_t n_behind)
{
    char name[REDIS_CLIENT_NAME_MAX];
    struct slice args[8] = {slice_of("HELLO"), slice_of("2")};
    size_t n = 2;
    if (username != NULL || password != NULL) {
        if (guard_login(conn, username, password, n_behind) < 0) return -1;
        args[n++] = slice_of("AUTH");
        args[n++] = slice_of(username != NULL ? username : "default");
        args[n++] = slice_of(password != NULL ? password : ""); /* a user without a password is let in with any */
    }
    args[n++] = slice_of("SETNAME");
    args[n++] = slice_of(redis_client_name(name));
    return redis_conn_send(conn, call, args, n);
}

/* For proxies and servers that do not know HELLO. */
static int send_auth_and_name(struct redis_handshake *handshake, const struct redis_options *options, size_t n_behind)
{
    char name[REDIS_CLIENT_NAME_MAX];
    if (handshake->authenticates) {
        if (guard_login(handshake->conn, options->username, options->password, n_behind) < 0) return -1;
        struct slice auth[3] = {slice_of("AUTH")};
        size_t n = 1;
        if (options->username != NULL) auth[n++] = slice_of(options->username);
        auth[n++] = slice_of(options->password != NULL ? options->password : "");
        if (send_command(handshake, &handshake->hello, on_auth, auth, n) < 0) return -1;
    }

    const struct slice setname[] = {slice_of("CLIENT"), slice_of("SETNAME"), slice_of(redis_client_name(name))};
    return send_command(handshake, &handshake->setname, on_setname, setname, 3);
}

int redis_handshake_start(struct redis_handshake *handshake, const struct redis_options *options)
{
    const struct redis_script *script = handshake->script;
    handshake->is_over = handshake->is_answered = false;
    handshake->server[0] = '\0';
    handshake->is_cluster = options->topology == TOPOLOGY_CLUSTER;
    handshake->authenticates = options->username != NULL || options->password != NULL;
    handshake->hello.on_reply = on_hello;
    int sent = handshake->without_hello ? send_auth_and_name(handshake, options, script->text.len)
                                        : redis_hello_send(handshake->conn, &handshake->hello, options->username,
                                                           options->password, script->text.len);
    if (sent < 0) return -1;

    if (options->database != 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", options->database);
        const struct slice select[] = {slice_of("SELECT"), slice_of(number)};
        if (send_command(handshake, &handshake->select, on_select, select, 2) < 0) return -1;
    }
    const struct slice load[] = {slice_of("SCRIPT"), slice_of("LOAD"), script->text};
    if (send_command(handshake, &handshake->load, on_load, load, 3) < 0) return -1;

    struct slice canary[CANARY_ARGS_MAX];
    size_t n = redis_script_canary(script, canary);
    return n > 0 ? send_command(handshake, &handshake->canary, on_canary, canary, n) : -1;
}
