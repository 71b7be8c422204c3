/*
 * faults.h: everything that is wrong with a configuration file, gathered while it is read.
 *
 * Reading goes on after a fault, so that one start shows them all. A fault is
 * `LINE: key: what is wrong; what to write instead`; a warning has the same form and stops nothing.
 */
#ifndef RL_POLICY_FAULTS_H
#define RL_POLICY_FAULTS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_code {
    FAULT_INVALID,   /* the author must change the settings */
    FAULT_WARNING,   /* the same, but the settings are used as they are */
    FAULT_NO_MEMORY, /* the settings may be right */
};

struct fault {
    uint32_t line; /* 1-based; 0 = the file as a whole */
    uint32_t order;
    enum fault_code code;
    char *text; /* owned; "key: what is wrong; what to write instead" */
};

struct faults {
    struct fault *items; /* owned */
    size_t n, cap;
    size_t n_errors; /* without the warnings, and with what could not be kept because memory was short */
};

void faults_init(struct faults *faults);
void faults_fini(struct faults *faults);

enum { FAULTS_KEY_MAX = 256 };

/* `key` is the whole path, e.g. "policies.login.window"; NULL = none. Beyond FAULTS_KEY_MAX it is cut, and what is not
 * printable in it is escaped. */
void faults_record(struct faults *faults, enum fault_code code, uint32_t line, const char *key, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void faults_record_va(struct faults *faults, enum fault_code code, uint32_t line, const char *key, const char *format,
                      va_list args) __attribute__((format(printf, 5, 0)));

#define faults_add(faults, line, key, ...)       faults_record(faults, FAULT_INVALID, line, key, __VA_ARGS__)
#define faults_warn(faults, line, key, ...)      faults_record(faults, FAULT_WARNING, line, key, __VA_ARGS__)
#define faults_no_memory(faults, line, key, ...) faults_record(faults, FAULT_NO_MEMORY, line, key, __VA_ARGS__)

/* The code of the first error; FAULT_NO_MEMORY if none could be kept. `ret_text`: its text, else NULL. */
enum fault_code faults_first_error(const struct faults *faults, const char **ret_text);

void faults_sort(struct faults *faults); /* by line; within a line as they were found */

/* One fault as one line of text, without the newline, into `out`, which is returned. */
const char *faults_line(char *out, size_t size, const char *file, const struct fault *fault);

/* A value of the file as it may stand in a message: quoted, escaped, cut short. `out` has FAULTS_SHOWN_MAX bytes. */
enum { FAULTS_SHOWN_MAX = 80 };
const char *faults_shown(char *out, const char *value);

#endif
