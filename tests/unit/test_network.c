/* test_network.c: addresses, networks, and the one that counts for a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "policy/network.h"

static void an_address_is_what_inet_pton_takes_whole(void **state)
{
    (void)state;
    static const char *const good[] = {
        "10.0.0.1",        "0.0.0.0",      "255.255.255.255",  "::", "::1", "2001:db8::1", "2001:DB8:0:0:0:0:0:1",
        "::ffff:10.0.0.1", "::ffff:a00:1", "64:ff9b::10.0.0.1"};
    static const char *const bad[] = {"",
                                      "10.0.0",
                                      "10.0.0.256",
                                      "10.0.0.01",
                                      "10.0.0.1 ",
                                      " 10.0.0.1",
                                      "10.0.0.1:80",
                                      "[::1]",
                                      "::1%eth0",
                                      "fe80::1%1",
                                      ":::",
                                      "1::2::3",
                                      "12345::",
                                      "10.0.0.1/32",
                                      "localhost",
                                      "0x0a000001",
                                      "2001:0db8:0000:0000:0000:0000:255.255.255.2555"};
    struct address address, same;
    for (size_t i = 0; i < N_OF(good); i++) assert_true(address_parse(slice_of(good[i]), &address));
    for (size_t i = 0; i < N_OF(bad); i++) assert_false(address_parse(slice_of(bad[i]), &address));
    assert_false(address_parse((struct slice){(const uint8_t *)"10.0.0.1\0x", 10}, &address));

    assert_true(address_parse(slice_of("10.0.0.1"), &address));
    assert_true(address_parse(slice_of("::ffff:10.0.0.1"), &same));
    assert_true(address.bits == same.bits);
    assert_true(address_parse(slice_of("::10.0.0.1"), &same)); /* which is IPv6 */
    assert_false(address.bits == same.bits);
}

/* Texts that are nearly addresses, against inet_pton() itself. */
static void random_texts_are_read_as_inet_pton_reads_them(void **state)
{
    (void)state;
    static const char *const pieces[] = {":",   ":",   "::",   ".",  "0",    "1", "a",       "F", "10",
                                         "255", "256", "ffff", "00", "0db8", "g", "1.2.3.4", "%"};
    size_t n_good = 0;
    srand(2);
    for (int i = 0; i < 300000; i++) {
        char text[128] = "";
        uint8_t bytes[16] = {0};
        struct address address;
        unsigned __int128 expected = 0;
        bool is_list = i % 2, is_four = i % 4 == 1;
        for (int j = 0, n = is_list ? (is_four ? 4 : 8) : rand() % 16; j < n; j++) {
            if (is_list && j > 0) strcat(text, rand() % 40 == 0 ? "" : is_four ? "." : rand() % 10 == 0 ? "::" : ":");
            strcat(text, pieces[is_list && rand() % 50 ? 4 + (rand() % (is_four ? 2 : 8))
                                                       : (int)((size_t)rand() % N_OF(pieces))]);
        }
        bool is_six = strchr(text, ':') != NULL;
        bool good = inet_pton(is_six ? AF_INET6 : AF_INET, text, bytes) == 1;
        if (address_parse(slice_of(text), &address) != good) fail_msg("%s: %s", text, good ? "refused" : "taken");
        if (!good) continue;
        n_good++;
        for (size_t j = 0; j < (is_six ? 16U : 4U); j++) expected = expected << 8 | bytes[j];
        if (!is_six) expected |= (unsigned __int128)0xffff << 32;
        if (address.bits != expected) fail_msg("%s: another address", text);
    }
    assert_true(n_good > 20000);
}

static void a_network_is_written_in_one_way(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"10.0.0.0/8", "10.0.0.0/8"},
        {"10.0.0.1", "10.0.0.1/32"},
        {"0.0.0.0/0", "0.0.0.0/0"},
        {"::/0", "::/0"},
        {"2001:DB8:0:0::/32", "2001:db8::/32"},
        {"2001:db8::1", "2001:db8::1/128"},
        {"::ffff:10.0.0.0/104", "10.0.0.0/8"},
        {"::ffff:0:0/96", "0.0.0.0/0"},
        {"::ffff:10.0.0.1", "10.0.0.1/32"},
        {"::10.0.0.0/104", "::10.0.0.0/104"},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct network network;
        char wrong[NETWORK_WRONG_MAX] = "", text[NETWORK_TEXT_MAX];
        if (!network_parse(cases[i][0], &network, wrong)) fail_msg("%s %s", cases[i][0], wrong);
        assert_string_equal(network_print(&network, text), cases[i][1]);
    }
}

static void what_is_no_network_is_refused_with_the_one_to_write(void **state)
{
    (void)state;
    static const char no_network[] =
        "is no network; write an address and how many of its bits count, e.g. 10.0.0.0/8 or 2001:db8::/32";
    static const char *const cases[][2] = {
        {"10.0.0.1/8", "has bits set behind the first 8; write 10.0.0.0/8, or 10.0.0.1/32 for this address alone"},
        {"2001:db8::1/32",
         "has bits set behind the first 32; write 2001:db8::/32, or 2001:db8::1/128 for this address alone"},
        {"::ffff:10.1.0.0/104",
         "has bits set behind the first 104; write 10.0.0.0/8, or 10.1.0.0/32 for this address alone"},
        {"10.0.0.0/33", "has no length from 0 to 32 behind the slash; write 10.0.0.0/32, for instance"},
        {"10.0.0.0/", "has no length from 0 to 32 behind the slash; write 10.0.0.0/32, for instance"},
        {"10.0.0.0/08", "has no length from 0 to 32 behind the slash; write 10.0.0.0/32, for instance"},
        {"10.0.0.0/+8", "has no length from 0 to 32 behind the slash; write 10.0.0.0/32, for instance"},
        {"10.0.0.0/255.0.0.0", "has no length from 0 to 32 behind the slash; write 10.0.0.0/32, for instance"},
        {"::/129", "has no length from 0 to 128 behind the slash; write ::/128, for instance"},
        {"::ffff:10.0.0.0/8", "has no length from 96 to 128 behind the slash; write 10.0.0.0/8, for instance"},
        {"::ffff:10.0.0.0/95", "has no length from 96 to 128 behind the slash; write 10.0.0.0/32, for instance"},
        {"10/8", no_network},
        {"10.0.0.*", no_network},
        {"fe80::%eth0/64", no_network},
        {"[::]/0", no_network},
        {"", no_network},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct network network;
        char wrong[NETWORK_WRONG_MAX] = "";
        assert_false(network_parse(cases[i][0], &network, wrong));
        assert_string_equal(wrong, cases[i][1]);
    }
}

/* ---- the set --------------------------------------------------------------------------------------------------- */

static void add(struct network_set *set, const char *text, int part, uint32_t override)
{
    char wrong[NETWORK_WRONG_MAX] = "";
    struct network network = {.part = (uint8_t)part, .override = override};
    if (!network_parse(text, &network, wrong)) fail_msg("%s %s", text, wrong);
    assert_int_equal(network_set_add(set, &network), 0);
}

static void assert_found(const struct network_set *set, const struct key_format *format, const char *key,
                         const char *expected)
{
    char text[NETWORK_TEXT_MAX];
    struct network network;
    const char *found = network_set_find(set, format, slice_of(key), &network) ? network_print(&network, text) : "none";
    if (strcmp(found, expected) != 0) fail_msg("%s: %s, not %s", key, found, expected);
}

static void the_longest_network_counts(void **state)
{
    (void)state;
    static const char *const networks[] = {"10.0.0.0/8",      "10.1.0.0/16",   "10.1.255.0/24",   "10.1.255.255",
                                           "255.255.255.255", "2001:db8::/32", "2001:db8:1::/48", "ffff::/16"};
    static const char *const cases[][2] = {
        {"9.255.255.255", "none"},
        {"10.0.0.0", "10.0.0.0/8"},
        {"10.1.0.0", "10.1.0.0/16"},
        {"10.1.254.255", "10.1.0.0/16"},
        {"10.1.255.0", "10.1.255.0/24"},
        {"10.1.255.255", "10.1.255.255/32"},
        {"10.2.0.0", "10.0.0.0/8"},
        {"10.255.255.255", "10.0.0.0/8"},
        {"11.0.0.0", "none"},
        {"::ffff:10.1.0.0", "10.1.0.0/16"},
        {"::10.1.0.0", "none"},
        {"255.255.255.255", "255.255.255.255/32"},
        {"255.255.255.254", "none"},
        {"2001:db8::1", "2001:db8::/32"},
        {"2001:db8:1::", "2001:db8:1::/48"},
        {"2001:db8:2::", "2001:db8::/32"},
        {"2001:db9::", "none"},
        {"::", "none"},
        {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff::/16"},
        {"no address", "none"},
    };
    struct network_set set = {0};
    for (size_t i = N_OF(networks); i-- > 0;) add(&set, networks[i], 0, (uint32_t)i);
    assert_int_equal(network_set_seal(&set), 0);
    for (size_t i = 0; i < N_OF(cases); i++) assert_found(&set, NULL, cases[i][0], cases[i][1]);
    network_set_fini(&set);
}

static void a_network_of_length_0_has_its_own_family_alone(void **state)
{
    (void)state;
    struct network_set six = {0}, four = {0}, both = {0};
    add(&six, "::/0", 0, 0);
    add(&four, "0.0.0.0/0", 0, 0);
    add(&both, "::/0", 0, 0);
    add(&both, "0.0.0.0/0", 0, 1);
    assert_int_equal(network_set_seal(&six) + network_set_seal(&four) + network_set_seal(&both), 0);
    static const char *const sixes[] = {"::", "::fffe:ffff:ffff", "::1:0:0:0",
                                        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"};
    static const char *const fours[] = {"0.0.0.0", "255.255.255.255", "::ffff:0:0", "::ffff:ffff:ffff"};
    for (size_t i = 0; i < N_OF(sixes); i++) {
        assert_found(&six, NULL, sixes[i], "::/0");
        assert_found(&four, NULL, sixes[i], "none");
        assert_found(&both, NULL, sixes[i], "::/0");
        assert_found(&six, NULL, fours[i], "none");
        assert_found(&four, NULL, fours[i], "0.0.0.0/0");
        assert_found(&both, NULL, fours[i], "0.0.0.0/0");
    }
    network_set_fini(&six);
    network_set_fini(&four);
    network_set_fini(&both);
}

static int overriding(const struct network_set *set, const struct key_format *format, const char *key)
{
    struct network network;
    return network_set_find(set, format, slice_of(key), &network) ? (int)network.override : -1;
}

static void of_several_parts_the_longest_network_counts_and_of_two_alike_the_first(void **state)
{
    (void)state;
    struct key_format format;
    struct network_set set = {0};
    assert_null(key_format_parse(&format, "{from}|{user}|{to}"));
    add(&set, "10.0.0.0/8", 2, 0);
    add(&set, "10.0.0.0/8", 0, 1);
    add(&set, "10.1.0.0/16", 0, 2);
    add(&set, "2001:db8::/32", 2, 3);
    assert_int_equal(network_set_seal(&set), 0);
    assert_int_equal(overriding(&set, &format, "10.2.0.0|u|10.0.0.1"), 0);
    assert_int_equal(overriding(&set, &format, "10.2.0.0|u|11.0.0.1"), 1);
    assert_int_equal(overriding(&set, &format, "10.1.0.0|u|10.0.0.1"), 2);
    assert_int_equal(overriding(&set, &format, "10.1.0.0|u|2001:db8::1"), 3);
    assert_int_equal(overriding(&set, &format, "u|u|10.0.0.1"), 0);
    assert_int_equal(overriding(&set, &format, "u|10.1.0.0|u"), -1); /* a part without networks */
    assert_int_equal(overriding(&set, &format, "10.1.0.0"), -1);
    network_set_fini(&set);
}

/* Many that lie in each other, against a search through all of them. */
static void random_sets_find_what_a_search_through_all_finds(void **state)
{
    (void)state;
    enum { N = 400, N_ASKED = 2000, N_SETS = 20 };
    srand(1);
    for (int i = 0; i < N_SETS; i++) {
        struct network_set set = {0};
        for (uint32_t j = 0; j < N; j++) {
            struct network network = {.override = j};
            char text[NETWORK_TEXT_MAX], wrong[NETWORK_WRONG_MAX];
            unsigned bits = (unsigned)rand() & 0xffff, len = 8U + (unsigned)rand() % 17;
            uint32_t address = (UINT32_C(0x0a000000) | bits << 8) & UINT32_MAX << (32 - len);
            snprintf(text, sizeof text, j % 2 ? "%u.%u.%u.0/%u" : "::%02x%02x:%02x00/%u", address >> 24,
                     address >> 16 & 255, address >> 8 & 255, j % 2 ? len : len + 96);
            assert_true(network_parse(text, &network, wrong));
            assert_int_equal(network_set_add(&set, &network), 0);
        }
        assert_int_equal(network_set_seal(&set), 0);
        for (int j = 0; j < N_ASKED; j++) {
            char key[INET6_ADDRSTRLEN];
            unsigned bits = (unsigned)rand() & 0xffffff, last = rand() % 2 ? 255U * (unsigned)(rand() % 2) : bits & 255;
            snprintf(key, sizeof key, j % 2 ? "10.%u.%u.%u" : "::0a%02x:%02x%02x", bits >> 16, bits >> 8 & 255, last);
            struct address address;
            const struct network *longest = NULL;
            struct network found;
            bool is_found = network_set_find(&set, NULL, slice_of(key), &found);
            assert_true(address_parse(slice_of(key), &address));
            for (size_t k = 0; k < set.n; k++) {
                const struct network *one = &set.networks[k];
                bool has_it = one->first.bits >> (128 - one->len) == address.bits >> (128 - one->len);
                if (has_it && (longest == NULL || one->len > longest->len)) longest = one;
            }
            assert_true(longest == NULL ? !is_found : is_found && network_is_same(&found, longest));
        }
        network_set_fini(&set);
    }
}

static void without_memory_it_says_so(void **state)
{
    (void)state;
    char wrong[NETWORK_WRONG_MAX];
    struct network_set set = {0};
    struct network network = {0};
    assert_true(network_parse("10.0.0.0/8", &network, wrong));
    mem_fail_nth(1);
    assert_int_equal(network_set_add(&set, &network), -1);
    assert_int_equal(network_set_add(&set, &network), 0);
    for (uint64_t i = 1; i <= 2; i++) {
        mem_fail_nth(i);
        assert_int_equal(network_set_seal(&set), -1);
        network_set_fini(&set);
        set = (struct network_set){0};
        mem_fail_nth(0);
        assert_int_equal(network_set_add(&set, &network), 0);
    }
    network_set_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_what_inet_pton_takes_whole),
        cmocka_unit_test(random_texts_are_read_as_inet_pton_reads_them),
        cmocka_unit_test(a_network_is_written_in_one_way),
        cmocka_unit_test(what_is_no_network_is_refused_with_the_one_to_write),
        cmocka_unit_test(the_longest_network_counts),
        cmocka_unit_test(a_network_of_length_0_has_its_own_family_alone),
        cmocka_unit_test(of_several_parts_the_longest_network_counts_and_of_two_alike_the_first),
        cmocka_unit_test(random_sets_find_what_a_search_through_all_finds),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
