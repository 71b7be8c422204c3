/* server_clock.c: a module of a Redis or Valkey server that answers TIME, from a client or from a script, with the
 * microseconds in the 8 bytes of a file, which may change at any time. All else in the server has the clock of the
 * host. The few functions of the server's interface are declared here: no package of its own has the header. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, ERR = 1, API_VERSION = 1 };

typedef int (*command)(void *ctx, void **argv, int argc);
static int (*create_command)(void *ctx, const char *name, command run, const char *flags, int first, int last,
                             int step);
static int (*set_attributes)(void *ctx, const char *name, int version, int api_version);
static void *(*register_filter)(void *ctx, void (*filter)(void *args), int flags);
static void *(*argument)(void *args, int at);
static int (*replace_argument)(void *args, int at, void *string);
static void *(*create_string)(void *ctx, const char *data, size_t len);
static const char *(*text_of)(const void *string, size_t *len);
static int (*reply_array)(void *ctx, long len);
static int (*reply_text)(void *ctx, const char *data, size_t len);

static const struct {
    const char *name;
    void *function;
} NEEDED[] = {{"CreateCommand", &create_command},
              {"SetModuleAttribs", &set_attributes},
              {"RegisterCommandFilter", &register_filter},
              {"CommandFilterArgGet", &argument},
              {"CommandFilterArgReplace", &replace_argument},
              {"CreateString", &create_string},
              {"StringPtrLen", &text_of},
              {"ReplyWithArray", &reply_array},
              {"ReplyWithStringBuffer", &reply_text}};
static const char NAME[] = "clock.time";
static const volatile int64_t *now_us;

static int tell_time(void *ctx, void **argv, int argc)
{
    (void)argv, (void)argc;
    char text[32];
    int64_t now = *now_us;
    reply_array(ctx, 2);
    reply_text(ctx, text, (size_t)snprintf(text, sizeof text, "%" PRId64, now / 1000000));
    return reply_text(ctx, text, (size_t)snprintf(text, sizeof text, "%" PRId64, now % 1000000));
}

static void rename_time(void *args)
{
    size_t len;
    const char *name = text_of(argument(args, 0), &len);
    if (len == 4 && strncasecmp(name, "TIME", 4) == 0)
        replace_argument(args, 0, create_string(NULL, NAME, sizeof NAME - 1));
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc)
{
    int (*find)(const char *name, void *function) = ((int (**)(const char *, void *))ctx)[0];
    for (size_t i = 0; i < sizeof NEEDED / sizeof NEEDED[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "RedisModule_%s", NEEDED[i].name);
        if (find(name, NEEDED[i].function) != OK) return ERR;
    }
    set_attributes(ctx, "clock", 1, API_VERSION);

    size_t len;
    if (argc != 1) return ERR;
    int file = open(text_of(argv[0], &len), O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof *now_us, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return ERR;
    close(file);
    now_us = mapped;
    if (create_command(ctx, NAME, tell_time, "readonly fast", 0, 0, 0) != OK) return ERR;
    return register_filter(ctx, rename_time, 0) != NULL ? OK : ERR;
}
