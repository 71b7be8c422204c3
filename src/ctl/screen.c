/* screen.c: draws pages on a terminal, reads its keys, and puts it back in every case, for top.c. */
#include "ctl/screen.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/assert.h"
#include "client/wait.h"
#include "ctl/complain.h"
#include "ctl/text.h"

enum { WIDE_FROM = 0xe1 /* UTF-8 from U+1000 on: taken for two columns, so that no line is too long */ };

/* Home, clear; and the cursor shown again. */
static const char clear[] = "\033[?25l\033[H\033[2J", shown[] = "\033[?25h";
static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static bool is_terminal, reads_keys;
static struct termios before;

/* Also in a handler: both calls may be made there. */
static void put_back(void)
{
    if (reads_keys) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (is_terminal && write(STDOUT_FILENO, shown, sizeof shown - 1) < 0) return;
}

static void prepare(void)
{
    struct termios now = before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    if (reads_keys) tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static void on_end(int number)
{
    put_back();
    _exit(EXIT_SIGNALLED + number);
}

/* Ctrl-Z: the shell gets its terminal as it was. */
static void on_stop(int number)
{
    (void)number;
    put_back();
    raise(SIGSTOP);
    prepare();
}

void screen_open(void)
{
    is_terminal = isatty(STDOUT_FILENO);
    reads_keys = is_terminal && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    for (size_t i = 0; i < N_OF(ending); i++) signal(ending[i], on_end);
    if (!is_terminal) return;

    atexit(put_back);
    signal(SIGTSTP, on_stop);
    prepare();
}

static struct winsize size_of_terminal(void)
{
    struct winsize size = {0};
    if (!is_terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = (struct winsize){0};
    return size;
}

int screen_columns(void)
{
    int n = size_of_terminal().ws_col;
    return n > 0 ? n : is_terminal ? 80 : INT_MAX;
}

int screen_lines(void)
{
    int n = size_of_terminal().ws_row;
    return n > 0 ? n : is_terminal ? 24 : INT_MAX;
}

/* Bytes of the line at the front of `text` that fit. */
static size_t fitting(const char *text, int columns)
{
    size_t at = 0, len = strcspn(text, "\n");
    while (at < len) {
        struct slice rest = {(const uint8_t *)text + at, len - at};
        size_t n = text_utf8_len(rest);
        columns -= rest.data[0] >= WIDE_FROM ? 2 : 1;
        if (columns < 0) break;
        at += n > 0 ? n : 1;
    }
    return at;
}

void screen_draw(const char *text)
{
    int columns = screen_columns(), lines = screen_lines();
    if (!is_terminal) {
        fputs(text, stdout);
        fflush(stdout);
        return;
    }

    fputs(clear, stdout);
    for (int line = 0; line < lines && *text != '\0'; line++) {
        if (line > 0) putchar('\n'); /* none behind the last: it would scroll */
        fwrite(text, 1, fitting(text, columns), stdout);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    fflush(stdout);
}

bool screen_wait(int64_t ms)
{
    int64_t end_ms = wait_now_ms() + ms;
    for (int64_t left_ms = ms; left_ms > 0; left_ms = end_ms - wait_now_ms()) {
        struct pollfd input = {.fd = reads_keys ? STDIN_FILENO : -1, .events = POLLIN};
        int n = poll(&input, 1, (int)left_ms);
        char key = 0;
        if (n <= 0) continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return false;
    }
    return true;
}
