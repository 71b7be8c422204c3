/* config_mark.c: a hash over the files of a configuration, for daemon/reload.c, which looks whether they change. */
#include "config/config_mark.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "config/secret.h"

/* One that cannot be read, or is not a regular file, holds nothing. */
static uint64_t mark_content(uint64_t hash, const char *path)
{
    char bytes[16384];
    size_t n_all = 0;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return hash;
    bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    for (ssize_t n; is_file && n_all <= CONFIG_FILE_MAX && (n = read(fd, bytes, sizeof bytes)) > 0; n_all += (size_t)n)
        hash = hash_stable(hash, bytes, (size_t)n);
    close(fd);
    explicit_bzero(bytes, sizeof bytes); /* it may be a password */
    return hash_stable(hash, &n_all, sizeof n_all);
}

static uint64_t mark_file(uint64_t hash, const char *path, bool reads)
{
    struct stat status;
    struct {
        uint64_t device, inode, size;
        int64_t s, ns, changed_s, changed_ns;
    } seen = {0};

    if (stat(path, &status) == 0) {
        seen.device = status.st_dev;
        seen.inode = status.st_ino;
        seen.size = (uint64_t)status.st_size;
        seen.s = status.st_mtim.tv_sec;
        seen.ns = status.st_mtim.tv_nsec;
        seen.changed_s = status.st_ctim.tv_sec; /* after a chmod it may be readable */
        seen.changed_ns = status.st_ctim.tv_nsec;
    }
    hash = hash_stable(hash, &seen, sizeof seen);
    return reads ? mark_content(hash, path) : hash;
}

bool config_names_file(const struct setting *setting)
{
    static const char suffix[] = "_file";
    size_t len = strlen(setting->name);
    return setting->type.kind == VALUE_TEXT && len >= sizeof suffix &&
           strcmp(setting->name + len - (sizeof suffix - 1), suffix) == 0;
}

uint64_t config_mark(const char *path, const struct config *config, bool reads)
{
    CHECK(path != NULL);
    uint64_t hash = mark_file(HASH_STABLE_START, path, reads);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *setting = &daemon_settings[i];
        const char *named = config_names_file(setting) ? *setting_text(setting, config) : NULL;
        char whole[PATH_MAX];
        if (named != NULL && secret_path(named, whole, sizeof whole)) hash = mark_file(hash, whole, reads);
    }
    return hash;
}

bool config_same_files(const struct config *a, const struct config *b)
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (config_names_file(&daemon_settings[i]) && !setting_equal(&daemon_settings[i], a, b)) return false;
    return true;
}
