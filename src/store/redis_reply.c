#include "store/redis_reply.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *word;
    enum redis_error error;
} by_first_word[] = {
    {"NOSCRIPT", REDIS_ERROR_NOSCRIPT}, {"MOVED", REDIS_ERROR_MOVED},         {"ASK", REDIS_ERROR_ASK},
    {"TRYAGAIN", REDIS_ERROR_TRYAGAIN}, {"CROSSSLOT", REDIS_ERROR_CROSSSLOT}, {"CLUSTERDOWN", REDIS_ERROR_AWAY},
    {"MASTERDOWN", REDIS_ERROR_AWAY},   {"LOADING", REDIS_ERROR_AWAY},        {"READONLY", REDIS_ERROR_ROLE},
    {"BUSY", REDIS_ERROR_BUSY},         {"OOM", REDIS_ERROR_CAPACITY},        {"NOREPLICAS", REDIS_ERROR_CAPACITY},
    {"MISCONF", REDIS_ERROR_CAPACITY},  {"NOAUTH", REDIS_ERROR_AUTH},         {"WRONGPASS", REDIS_ERROR_AUTH},
    {"NOPERM", REDIS_ERROR_NOPERM},     {"WRONGTYPE", REDIS_ERROR_SCRIPT},
};

/* Errors whose first word is the catch-all ERR: told apart by what they contain. The first match counts. A NOSCRIPT
 * from inside a script is not among them on purpose: such a call ran, and must not be sent again. */
static const struct {
    const char *part;
    enum redis_error error;
} by_part[] = {
    {"max number of clients", REDIS_ERROR_CLIENTS},
    {"can't run this command", REDIS_ERROR_NOPERM_INSIDE},
    {"ACL failure in script", REDIS_ERROR_NOPERM_INSIDE},
    {"Client sent AUTH, but no password is set", REDIS_ERROR_AUTH},
    {"AUTH <password> called without any password configured", REDIS_ERROR_AUTH},
    {"invalid password", REDIS_ERROR_AUTH},
    {"DB index is out of range", REDIS_ERROR_AUTH},
    {"-READONLY ", REDIS_ERROR_ROLE},
    {"-OOM ", REDIS_ERROR_CAPACITY},
    {"-NOREPLICAS ", REDIS_ERROR_CAPACITY},
    {"-MISCONF ", REDIS_ERROR_CAPACITY},
    {"-MASTERDOWN ", REDIS_ERROR_AWAY},
    {"-NOPERM ", REDIS_ERROR_NOPERM_INSIDE},
    {"Error running script", REDIS_ERROR_SCRIPT},
    {"script: ", REDIS_ERROR_SCRIPT},
    {"user_script:", REDIS_ERROR_SCRIPT},
    {"unknown command", REDIS_ERROR_UNKNOWN_COMMAND},
};

static bool contains(const char *text, size_t len, const char *part)
{
    return memmem(text, len, part, strlen(part)) != NULL;
}

enum redis_error redis_error_of(const char *text, size_t len)
{
    const char *space = memchr(text, ' ', len);
    size_t word_len = space != NULL ? (size_t)(space - text) : len;
    for (size_t i = 0; i < sizeof(by_first_word) / sizeof(by_first_word[0]); i++) {
        const char *word = by_first_word[i].word;
        if (word_len != strlen(word) || memcmp(text, word, word_len) != 0) continue;
        if (by_first_word[i].error == REDIS_ERROR_NOPERM && contains(text, len, "script: "))
            return REDIS_ERROR_NOPERM_INSIDE;
        return by_first_word[i].error;
    }
    for (size_t i = 0; i < sizeof(by_part) / sizeof(by_part[0]); i++) {
        if (contains(text, len, by_part[i].part)) return by_part[i].error;
    }
    return REDIS_ERROR_OTHER;
}

enum redis_remedy redis_error_remedy(enum redis_error error)
{
    switch (error) {
    case REDIS_ERROR_NOSCRIPT: return REMEDY_RELOAD;
    case REDIS_ERROR_NOPERM: return REMEDY_APART;
    case REDIS_ERROR_ROLE: return REMEDY_RECONNECT;
    case REDIS_ERROR_AUTH:
    case REDIS_ERROR_CLIENTS: return REMEDY_RECONNECT_LATE;
    default: return REMEDY_KEEP;
    }
}
