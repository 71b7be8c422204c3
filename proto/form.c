#include "proto/form.h"

const struct form form_table[32] = {
    /* kind, head, field, fixed */
    {FORM_NIL, 1, 0, 0},   /* c0 nil */
    {FORM_NEVER, 1, 0, 0}, /* c1 */
    {FORM_BOOL, 1, 0, 0},  /* c2 false */
    {FORM_BOOL, 1, 0, 0},  /* c3 true */
    {FORM_BIN, 2, 1, 0},   /* c4 bin 8 */
    {FORM_BIN, 3, 2, 0},   /* c5 bin 16 */
    {FORM_BIN, 5, 4, 0},   /* c6 bin 32 */
    {FORM_EXT, 3, 1, 0},   /* c7 ext 8 */
    {FORM_EXT, 4, 2, 0},   /* c8 ext 16 */
    {FORM_EXT, 6, 4, 0},   /* c9 ext 32 */
    {FORM_FLOAT, 1, 0, 4}, /* ca float 32 */
    {FORM_FLOAT, 1, 0, 8}, /* cb float 64 */
    {FORM_UINT, 1, 0, 1},  /* cc uint 8 */
    {FORM_UINT, 1, 0, 2},  /* cd uint 16 */
    {FORM_UINT, 1, 0, 4},  /* ce uint 32 */
    {FORM_UINT, 1, 0, 8},  /* cf uint 64 */
    {FORM_INT, 1, 0, 1},   /* d0 int 8 */
    {FORM_INT, 1, 0, 2},   /* d1 int 16 */
    {FORM_INT, 1, 0, 4},   /* d2 int 32 */
    {FORM_INT, 1, 0, 8},   /* d3 int 64 */
    {FORM_EXT, 2, 0, 1},   /* d4 fixext 1 */
    {FORM_EXT, 2, 0, 2},   /* d5 fixext 2 */
    {FORM_EXT, 2, 0, 4},   /* d6 fixext 4 */
    {FORM_EXT, 2, 0, 8},   /* d7 fixext 8 */
    {FORM_EXT, 2, 0, 16},  /* d8 fixext 16 */
    {FORM_STR, 2, 1, 0},   /* d9 str 8 */
    {FORM_STR, 3, 2, 0},   /* da str 16 */
    {FORM_STR, 5, 4, 0},   /* db str 32 */
    {FORM_ARRAY, 3, 2, 0}, /* dc array 16 */
    {FORM_ARRAY, 5, 4, 0}, /* dd array 32 */
    {FORM_MAP, 3, 2, 0},   /* de map 16 */
    {FORM_MAP, 5, 4, 0},   /* df map 32 */
};
