/* format.c: the table of MessagePack's 256 first bytes, for scan.c and pull.c. */
#include "proto/format.h"

/* One row for each first byte; FIX_n: n rows, whose count goes up by one from `first` on. */
#define FIX_4(kind, first)                                                                                             \
    {kind, 1, 0, first}, {kind, 1, 0, first + 1}, {kind, 1, 0, first + 2},                                             \
    {                                                                                                                  \
        kind, 1, 0, first + 3                                                                                          \
    }
#define FIX_16(kind, first) FIX_4(kind, first), FIX_4(kind, first + 4), FIX_4(kind, first + 8), FIX_4(kind, first + 12)

const struct format format_table[256] = {
    /* kind, head, field, fixed */
    [0x00 ... 0x7f] = {FORMAT_UINT, 1, 0, 0}, /* positive fixint */
    [0x80] = FIX_16(FORMAT_MAP, 0),           /* 80 to 8f fixmap */
    FIX_16(FORMAT_ARRAY, 0),                  /* 90 to 9f fixarray */
    FIX_16(FORMAT_STR, 0),
    FIX_16(FORMAT_STR, 16),                  /* a0 to bf fixstr */
    {FORMAT_NIL, 1, 0, 0},                   /* c0 nil */
    {FORMAT_NEVER, 1, 0, 0},                 /* c1 */
    {FORMAT_BOOL, 1, 0, 0},                  /* c2 false */
    {FORMAT_BOOL, 1, 0, 0},                  /* c3 true */
    {FORMAT_BIN, 2, 1, 0},                   /* c4 bin 8 */
    {FORMAT_BIN, 3, 2, 0},                   /* c5 bin 16 */
    {FORMAT_BIN, 5, 4, 0},                   /* c6 bin 32 */
    {FORMAT_EXT, 3, 1, 0},                   /* c7 ext 8 */
    {FORMAT_EXT, 4, 2, 0},                   /* c8 ext 16 */
    {FORMAT_EXT, 6, 4, 0},                   /* c9 ext 32 */
    {FORMAT_FLOAT, 1, 0, 4},                 /* ca float 32 */
    {FORMAT_FLOAT, 1, 0, 8},                 /* cb float 64 */
    {FORMAT_UINT, 1, 0, 1},                  /* cc uint 8 */
    {FORMAT_UINT, 1, 0, 2},                  /* cd uint 16 */
    {FORMAT_UINT, 1, 0, 4},                  /* ce uint 32 */
    {FORMAT_UINT, 1, 0, 8},                  /* cf uint 64 */
    {FORMAT_INT, 1, 0, 1},                   /* d0 int 8 */
    {FORMAT_INT, 1, 0, 2},                   /* d1 int 16 */
    {FORMAT_INT, 1, 0, 4},                   /* d2 int 32 */
    {FORMAT_INT, 1, 0, 8},                   /* d3 int 64 */
    {FORMAT_EXT, 2, 0, 1},                   /* d4 fixext 1 */
    {FORMAT_EXT, 2, 0, 2},                   /* d5 fixext 2 */
    {FORMAT_EXT, 2, 0, 4},                   /* d6 fixext 4 */
    {FORMAT_EXT, 2, 0, 8},                   /* d7 fixext 8 */
    {FORMAT_EXT, 2, 0, 16},                  /* d8 fixext 16 */
    {FORMAT_STR, 2, 1, 0},                   /* d9 str 8 */
    {FORMAT_STR, 3, 2, 0},                   /* da str 16 */
    {FORMAT_STR, 5, 4, 0},                   /* db str 32 */
    {FORMAT_ARRAY, 3, 2, 0},                 /* dc array 16 */
    {FORMAT_ARRAY, 5, 4, 0},                 /* dd array 32 */
    {FORMAT_MAP, 3, 2, 0},                   /* de map 16 */
    {FORMAT_MAP, 5, 4, 0},                   /* df map 32 */
    [0xe0 ... 0xff] = {FORMAT_INT, 1, 0, 0}, /* negative fixint */
};
