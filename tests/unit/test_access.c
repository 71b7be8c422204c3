/* test_access.c: who may ask for what: how a configuration writes it, which rule counts, and what it allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/users.h"
#include "config/access_read.h"
#include "fakes/config_text.h"

#define POLICIES                                                                                                       \
    "policies:\n"                                                                                                      \
    "  login: {algorithm: fixed_window, limit: 5, window: 10s}\n"                                                      \
    "  api-read: {algorithm: fixed_window, limit: 5, window: 10s}\n"                                                   \
    "  api-write: {algorithm: fixed_window, limit: 5, window: 10s}\n"

enum { OWN = 900 };

static const struct access_rule *match(const struct config *config, uid_t uid, gid_t gid)
{
    return access_match(config->access, &(struct access_peer){.uid = uid, .gid = gid}, OWN);
}

static const char *path_of(const struct access_rule *rule)
{
    static char path[ACCESS_PATH_MAX];
    return access_rule_path(rule, path);
}

static bool grants(const struct config *config, const struct access_rule *rule, const char *policy)
{
    return access_rule_grants(rule, config_policy(config, policy));
}

/* Every uid stands for one user from here on, or with a uid_map of a user namespace 65534 for anybody. */
static void look_at(const char *uid_map)
{
    char path[] = "/tmp/rl-uid-map-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, uid_map, strlen(uid_map)) == (ssize_t)strlen(uid_map));
    close(fd);
    users_look(path);
    unlink(path);
}

/* ---- which rule counts ---- */

static void the_first_rule_that_names_the_user_or_a_group_counts(void **state)
{
    (void)state;
    struct config *config = config_of("access:\n  rules:\n    - {user: 1001}\n    - {group: 2000}\n    - {user: 1002}\n"
                                      "    - {user: 1001, role: admin}\n" POLICIES);
    const gid_t groups[] = {7, 2000, 9};
    const struct access_peer member = {.uid = 1002, .gid = 5, .groups = groups, .n_groups = N_OF(groups)};
    assert_string_equal(path_of(match(config, 1001, 2000)), "access.rules[0]");
    assert_string_equal(path_of(match(config, 1002, 2000)), "access.rules[1]");
    assert_string_equal(path_of(match(config, 1002, 2001)), "access.rules[2]");
    assert_string_equal(path_of(access_match(config->access, &member, OWN)), "access.rules[1]");
    assert_string_equal(path_of(match(config, 1003, 2001)), "access.default");
    config_free(config);
}

static void without_a_rule_root_and_the_own_user_are_admins_and_others_clients(void **state)
{
    (void)state;
    struct config *config = config_of("");
    assert_int_equal(match(config, 0, 0)->role, ROLE_ADMIN);
    assert_int_equal(match(config, OWN, 0)->role, ROLE_ADMIN);
    assert_int_equal(match(config, 1000, 0)->role, ROLE_CLIENT);
    assert_int_equal(match(config, (uid_t)-1, (gid_t)-1)->role, ROLE_CLIENT);
    assert_int_equal(match(config, 1000, 0)->may, methods_of_role(ROLE_CLIENT));
    assert_true(match(config, 1000, 0)->grants_inline);
    config_free(config);

    config = config_of("access: {rules: [{user: 0, role: client}, {user: 900, role: none}], default: {role: none}}\n");
    assert_int_equal(match(config, 0, 0)->role, ROLE_CLIENT);
    assert_int_equal(match(config, OWN, 0)->may, 0);
    assert_int_equal(match(config, 1000, 0)->may, 0);
    config_free(config);
}

static void a_user_that_the_kernel_does_not_name_matches_no_rule(void **state)
{
    (void)state;
    struct config *config = config_of("access: {rules: [{group: 5}], default: {role: none}}\n" POLICIES);
    assert_string_equal(path_of(match(config, (uid_t)-1, 5)), "access.default");
    config_free(config);
}

static void number_65534_is_a_user_only_outside_of_user_namespaces(void **state)
{
    (void)state;
    static const char *const namespaces[] = {"         0       1000          1\n", "0 0 65536\n",
                                             "0 100000 4294967295\n", "", "nonsense\n"};
    struct faults faults;
    struct config *config = config_from("access: {rules: [{user: 65534}, {group: 65534}]}\n" POLICIES, &faults);
    assert_non_null(config);
    faults_fini(&faults);
    for (size_t i = 0; i < N_OF(namespaces); i++) {
        look_at(namespaces[i]);
        assert_string_equal(path_of(match(config, 65534, 65534)), "access.default");
        assert_int_equal(access_match(config->access, &(struct access_peer){.uid = 65534}, 65534)->role, ROLE_CLIENT);
    }
    users_look("/nowhere/uid_map");
    assert_string_equal(path_of(match(config, 65534, 65534)), "access.default");

    look_at("         0          0 4294967295\n");
    assert_string_equal(path_of(match(config, 65534, 1)), "access.rules[0]");
    assert_string_equal(path_of(match(config, 1, 65534)), "access.rules[1]");
    config_free(config);
}

/* ---- what it allows ---- */

static void policies_are_named_or_meant_by_a_pattern(void **state)
{
    (void)state;
    struct config *config = config_of(
        "access:\n  rules:\n    - {user: 1, policies: [login, api-r*]}\n    - {user: 2, policies: [\"*\"]}\n"
        "    - {user: 3, policies: [\"*-write\", \"(inline)\"]}\n    - {user: 4}\ninline: {allow: true}\n" POLICIES);
    const struct access_rule *rule = match(config, 1, 1);
    assert_true(grants(config, rule, "login") && grants(config, rule, "api-read"));
    assert_false(grants(config, rule, "api-write") || rule->grants_inline);
    rule = match(config, 2, 1);
    assert_true(grants(config, rule, "login") && grants(config, rule, "api-write") && rule->grants_inline);
    rule = match(config, 3, 1);
    assert_false(grants(config, rule, "login") || grants(config, rule, "api-read"));
    assert_true(grants(config, rule, "api-write") && rule->grants_inline);
    rule = match(config, 4, 1);
    assert_true(grants(config, rule, "login") && rule->grants_inline);
    config_free(config);
}

static void methods_follow_the_role_without_those_denied(void **state)
{
    (void)state;
    struct config *config = config_of("access: {rules: [{user: 1, role: admin, deny: [reset, refund]}]}\n" POLICIES);
    method_set may = match(config, 1, 1)->may;
    assert_int_equal(may,
                     methods_of_role(ROLE_ADMIN) & ~((method_set)1 << METHOD_reset | (method_set)1 << METHOD_refund));
    config_free(config);

    assert_int_equal(methods_of_role(ROLE_NONE), 0);
    for (size_t i = 0; i < N_METHODS; i++) {
        enum role needed = method_role((enum method)i);
        assert_int_equal(method_find(slice_of(method_name((enum method)i))), i);
        for (int role = ROLE_NONE; role <= ROLE_ADMIN; role++)
            assert_int_equal(methods_of_role((enum role)role) >> i & 1, role >= (int)needed);
    }
}

static void a_prefix_confines_keys(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *key;
        bool takes;
    } table[] = {
        {"a:", "a:", true},        {"a:", "a:b", true},       {"a:", "a", false},         {"a:", "b:", false},
        {"{user}:", "1:x", true},  {"{user}:", "2:x", false}, {"x{uid}y", "x77y", true},  {"x{uid}y", "x77yz", true},
        {"x{uid}y", "x77", false}, {"x{uid}y", "x7", false},  {"x{uid}y", "x78y", false}, {"{uid}", "77", true},
        {"{uid}", "771", true}, /* hence the warning */
    };
    for (size_t i = 0; i < N_OF(table); i++) {
        char text[512];
        snprintf(text, sizeof text, "access: {rules: [{user: 1, key_prefix: \"%s\"}]}\n" POLICIES, table[i].prefix);
        struct faults faults; /* warnings */
        struct config *config = config_from(text, &faults);
        faults_fini(&faults);
        assert_int_equal(access_rule_takes_key(match(config, 1, 1), "77", slice_of(table[i].key)), table[i].takes);
        config_free(config);
    }
}

static void replaced_rules_allow_nothing(void **state)
{
    (void)state;
    struct config *config = config_of("access: {rules: [{user: 1, role: admin}]}\n" POLICIES);
    struct access *access = access_ref(config->access);
    config_free(config);
    assert_false(access->is_replaced);
    access_replace(access);
    assert_true(access->is_replaced);
    for (size_t i = 0; i < access->n + 2; i++) assert_int_equal(access->rules[i].may, 0);
    access_unref(access);
}

/* ---- how it is written ---- */

#define RULES(rules) "access:\n  rules:\n" rules POLICIES

static void what_is_wrong_is_refused_with_its_line_and_the_way_out(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t line;
        const char *says;
    } table[] = {
        {"access: 5\n", 1, "access: is not a map of settings; "},
        {"access: {rule: []}\n", 1, "access.rule: no such setting; did you mean rules?"},
        {"acess: {}\n", 1, "acess: no such setting; did you mean access?"},
        {"access: {rules: {user: root}}\n", 1, "access.rules: is not a list; write rules such as - {user: www-data"},
        {"access: {rules: [root]}\n", 1, "access.rules[0]: is not a map; write {user: ..., policies: [...]}"},
        {"access: {default: none}\n", 1, "access.default: is not a map; "},
        {"access: {default: {user: root}}\n", 1, "access.default.user: is for a rule of access.rules; "},
        {RULES("    - {role: client}\n"), 3, "access.rules[0]: has neither user nor group; "},
        {RULES("    - {user: root}\n    - {user: root,\n       group: root}\n"), 5,
         "access.rules[1].group: does not go with user; "},
        {RULES("    - {user: no-such-user}\n"), 3,
         "access.rules[0].user: there is no user 'no-such-user' on this machine; "},
        {RULES("    - {group: no-such-group}\n"), 3, "access.rules[0].group: there is no group 'no-such-group' on"},
        {RULES("    - {user: -1}\n"), 3, "there is no user '-1'"},
        {RULES("    - {user: 4294967295}\n"), 3, "there is no user '4294967295'"},
        {RULES("    - {user: \"\"}\n"), 3, "access.rules[0].user: is 0 bytes long; write 1 to 255"},
        {RULES("    - {user: [root]}\n"), 3, "access.rules[0].user: a list where one value is expected; "},
        {RULES("    - {user: \"a\\nb\"}\n"), 3, "access.rules[0].user: has a control character"},
        {RULES("    - {user: root, uid: 5}\n"), 3, "access.rules[0].uid: no such setting; "},
        {RULES("    - {user: root, rolle: admin}\n"), 3, "access.rules[0].rolle: no such setting; did you mean role?"},
        {RULES("    - {user: root, role: amdin}\n"), 3,
         "access.rules[0].role: 'amdin' is not known; did you mean admin?"},
        {RULES("    - {user: root, policies: login}\n"), 3,
         "access.rules[0].policies: is not a list; write a list, e.g. [login, \"api*\"]"},
        {RULES("    - {user: root, policies: []}\n"), 3, "access.rules[0].policies: has 0 entries; write 1 to 256"},
        {RULES("    - {user: root, policies: [logn]}\n"), 3,
         "access.rules[0].policies[0]: there is no policy 'logn'; did you mean login?"},
        {RULES("    - {user: root, policies: [login, zzzzzzzzzzz]}\n"), 3,
         "access.rules[0].policies[1]: there is no policy 'zzzzzzzzzzz'; write the name of one"},
        {RULES("    - {user: root, policies: [\"a[pi]\"]}\n"), 3,
         "access.rules[0].policies[0]: 'a[pi]' is no policy's name; "},
        {RULES("    - {user: root, policies: [inline?]}\n"), 3, "'inline?' is no policy's name; "},
        {RULES("    - {user: root, policies: [{a: b}]}\n"), 3, "a map where one value is expected"},
        {RULES("    - {user: root, deny: [rest]}\n"), 3,
         "access.rules[0].deny[0]: there is no method 'rest'; did you mean reset?"},
        {RULES("    - {user: root, deny: [zzzzzzzzzzzzz]}\n"), 3,
         "access.rules[0].deny[0]: there is no method 'zzzzzzzzzzzzz'; "},
        {RULES("    - {user: root, deny: reset}\n"), 3, "access.rules[0].deny: is not a list; "},
        {RULES("    - {user: root, max_connections: 0}\n"), 3, "access.rules[0].max_connections: '0' is too small; "},
        {RULES("    - {user: root, max_inflight: many}\n"), 3,
         "access.rules[0].max_inflight: 'many' is not a whole number; "},
        {RULES("    - {user: root, key_prefix: \"{uer}:\"}\n"), 3,
         "access.rules[0].key_prefix: has braces other than one {user} or {uid}; "},
        {RULES("    - {user: root, key_prefix: \"{user}{uid}:\"}\n"), 3, "has braces other than one {user} or {uid}; "},
        {RULES("    - {user: root, key_prefix: \"a}\"}\n"), 3, "has braces other than one"},
        {RULES("    - {group: root, key_prefix: \"{user}:\"}\n"), 3,
         "access.rules[0].key_prefix: has {user}, which is the name in a rule for one user; write {uid}"},
        {"access: {default: {key_prefix: \"{user}:\"}}\n", 1, "access.default.key_prefix: has {user}, which"},
        {RULES("    - {group: root, key_prefix: \"u{uid}\"}\n"), 3,
         "access.rules[0].key_prefix: has no separator behind {uid}, so user 1 could use the keys of user 11; write "
         "one"},
        {"access: {default: {key_prefix: \"{uid}0:\"}}\n", 1,
         "access.default.key_prefix: has no separator behind {uid}"},
        {RULES("    - {user: root}\n  rules: []\n"), 4, "access.rules"},
        {RULES("    - {user: root, user: root}\n"), 3, "user"},
    };
    for (size_t i = 0; i < N_OF(table); i++) {
        struct faults faults;
        assert_null(config_from(table[i].text, &faults));
        bool is_found = false;
        for (size_t f = 0; f < faults.n; f++)
            is_found |= faults.items[f].line == table[i].line && strstr(faults.items[f].text, table[i].says) != NULL;
        if (!is_found) fail_msg("%s: %u: %s", table[i].text, faults.items[0].line, faults.items[0].text);
        faults_fini(&faults);
    }
}

static void all_faults_of_all_rules_are_found(void **state)
{
    (void)state;
    struct faults faults;
    assert_null(config_from(RULES("    - {user: root, role: x}\n    - {policies: [x]}\n    - 5\n"), &faults));
    assert_int_equal(faults.n_errors, 4);
    faults_fini(&faults);
}

static void too_many_rules_and_entries_are_refused(void **state)
{
    (void)state;
    static char text[1 << 20];
    struct faults faults;
    size_t at = (size_t)sprintf(text, "access:\n  rules:\n");
    for (int i = 0; i <= ACCESS_RULES_MAX; i++) at += (size_t)sprintf(text + at, "    - {user: %d}\n", i);
    assert_null(config_from(text, &faults));
    assert_non_null(strstr(faults.items[0].text, "access.rules: has 257 entries; write 0 to 256"));
    faults_fini(&faults);

    at = (size_t)sprintf(text, "access: {rules: [{user: 1, policies: [a*");
    for (int i = 0; i < ACCESS_NAMES_MAX; i++) at += (size_t)sprintf(text + at, ", b%d*", i);
    sprintf(text + at, "]}]}\n");
    assert_null(config_from(text, &faults));
    assert_non_null(strstr(faults.items[0].text, "access.rules[0].policies: has 257 entries; write 1 to 256"));
    faults_fini(&faults);
}

/* Each rule of 256 may have 256 names, and there may be 100000 policies: comparing all took minutes. */
static void many_wrong_names_are_all_found_and_only_the_first_get_advice(void **state)
{
    (void)state;
    enum { N_POLICIES = 10000, N_WRONG = 150, N_ADVISED = 100 };
    static char text[1 << 20];
    size_t at = (size_t)sprintf(text, "access: {rules: [{user: 1, policies: [x");
    for (int i = 1; i < N_WRONG; i++) at += (size_t)sprintf(text + at, ", q%dx", i);
    at += (size_t)sprintf(text + at, "]}]}\npolicies:\n");
    for (int i = 0; i < N_POLICIES; i++) at += (size_t)sprintf(text + at, "  q%d: {unlimited: true}\n", i);

    struct faults faults;
    size_t n_advised = 0;
    assert_null(config_from(text, &faults));
    assert_int_equal(faults.n_errors, N_WRONG);
    for (size_t i = 0; i < faults.n; i++) n_advised += strstr(faults.items[i].text, "did you mean q") != NULL;
    assert_int_equal(n_advised, N_ADVISED - 1); /* nothing is like x */
    faults_fini(&faults);
}

static void what_allows_nothing_or_too_much_is_a_warning(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        {"    - {user: root, policies: [\"apl*\"]}\n", "access.rules[0].policies[0]: 'apl*' fits no policy"},
        {"    - {user: root, policies: [\"(inline)\"]}\n",
         "access.rules[0].policies[0]: allows nothing as long as inline.allow"},
        {"    - {user: root, key_prefix: \"{user}\"}\n", "access.rules[0].key_prefix: has no separator behind {user}, "
                                                         "so this user can use the keys of those whose name "
                                                         "begins with the same letters"},
        {"    - {user: root, key_prefix: \"{user}-\"}\n", "has no separator behind {user}"},
        {"    - {user: root, key_prefix: \"{uid}7\"}\n",
         "no separator behind {uid}, so this user can use the keys of those "
         "whose number begins with the same digits"},
    };
    for (size_t i = 0; i < N_OF(table); i++) {
        char text[1024];
        struct faults faults;
        snprintf(text, sizeof text, "access:\n  rules:\n%s" POLICIES, table[i][0]);
        struct config *config = config_from(text, &faults);
        assert_non_null(config);
        assert_int_equal(faults.n, 1);
        assert_non_null(strstr(faults.items[0].text, table[i][1]));
        faults_fini(&faults);
        config_free(config);
    }
}

/* A prefix confined keys, and not the counters that they share: a user gave back another's units. */
static void a_prefix_confines_counters_by_the_parts_that_it_holds_whole(void **state)
{
    (void)state;
    static const struct {
        const char *prefix, *format, *by;
        bool confines;
    } table[] = {
        {"acme:", "{tenant}:{user}", "[tenant]", true},
        {"acme:", "{tenant}:{user}", "[user]", false},
        {"acme:", "{tenant}:{user}", "[]", false},
        {"acme:", "{tenant}:{user}", "[tenant, user]", true},
        {"acme", "{tenant}:{user}", "[tenant]", false}, /* acme2:bob begins so, too */
        {"acme:b", "{tenant}:{user}", "[tenant]", true},
        {"acme:bob", "{tenant}:{user}", "[user]", false}, /* of which evil:bob is one */
        {"acme:", "{tenant}::{user}", "[tenant]", false}, /* half of the literal */
        {"acme::", "{tenant}::{user}", "[tenant]", true},
        {"t/acme:", "t/{tenant}:{user}", "[tenant]", true},
        {"t/", "t/{tenant}:{user}", "[tenant]", false},
        {"t", "t/{tenant}:{user}", "[tenant]", false},
        {"acme:", "t/{tenant}:{user}", "[tenant]", false}, /* no key fits both */
        {"a:b:", "{one}:{two}:{three}", "[two]", true},
        {"a:b", "{one}:{two}:{three}", "[two]", false},
        {"a:b", "{one}:{two}:{three}", "[two, three]", false},
        {"a:b", "{one}:{two}:{three}", "[one, three]", true},
        {"a:b:", "{one}:{two}:{three}", "[two, three]", true},
        {"{uid}:", "{tenant}:{user}", "[tenant]", true},
        {"{uid}:", "{tenant}:{user}", "[user]", false},
        {"{uid}.", "{tenant}:{user}", "[tenant]", false},
    };
    for (size_t i = 0; i < N_OF(table); i++) {
        char text[1024];
        struct faults faults;
        snprintf(text, sizeof text,
                 "access: {rules: [{user: 1001, key_prefix: \"%s\"}]}\npolicies:\n  p:\n    key_format: \"%s\"\n    "
                 "limits:\n"
                 "      - {name: l, by: %s, algorithm: fixed_window, limit: 5, window: 10s}\n",
                 table[i].prefix, table[i].format, table[i].by);
        struct config *config = config_from(text, &faults);
        if (config == NULL) fail_msg("%s: %s", text, faults.items[0].text);
        char start[ACCESS_START_MAX];
        const struct slice begin = access_rule_start(&config->access->rules[0], "1001", start);
        bool confines = access_confines(begin, config_limit(config, "p"));
        if (confines != table[i].confines) fail_msg("%s", text);
        if (faults.n != !confines) fail_msg("%s: %zu warnings", text, faults.n);
        if (!confines)
            assert_non_null(strstr(faults.items[0].text, "access.rules[0].key_prefix: leaves this user no reset and no "
                                                         "refund of policy p, because p/l counts keys of others, too"));
        faults_fini(&faults);
        config_free(config);
    }
}

static void who_may_neither_reset_nor_refund_is_not_warned_of_shared_counters(void **state)
{
    (void)state;
    static const char shared[] = "policies: {p: {key_format: \"{a}:{b}\", by: [], algorithm: fixed_window, limit: 5, "
                                 "window: 10s}, q: {algorithm: fixed_window, limit: 5, window: 10s}}\n";
    static const char *const rules[] = {
        "{user: 1001, key_prefix: \"x:\", deny: [reset, refund]}",
        "{user: 1001, key_prefix: \"x:\", policies: [q]}",
        "{user: 1001}",
        "{user: 1001, key_prefix: \"x:\", role: none}",
    };
    for (size_t i = 0; i < N_OF(rules); i++) {
        char text[1024];
        snprintf(text, sizeof text, "access: {rules: [%s]}\n%s", rules[i], shared);
        config_free(config_of(text)); /* fails with a warning */
    }
}

static void what_is_printed_parses_back_to_the_same_rules(void **state)
{
    (void)state;
    struct config *first =
        config_of("access:\n  rules:\n    - {user: root, policies: [login, \"api*\"], deny: [reset, refund],\n"
                  "       key_prefix: \"a\\\"{user}:\", max_connections: 7, max_inflight: 9, max_slots: 11}\n"
                  "    - {group: \"0\", role: operator}\n  default: {role: none}\n" POLICIES);
    char *once = text_of(first);
    struct config *second = config_of(once);
    char *twice = text_of(second);
    assert_string_equal(once, twice);
    assert_non_null(
        strstr(once, "    - {user: \"root\", role: client, policies: [\"login\", \"api*\"], deny: [\"reset\", "
                     "\"refund\"], key_prefix: \"a\\\"{user}:\", max_connections: 7, max_inflight: 9, max_slots: 11}\n"
                     "    - {group: \"0\", role: operator}\n  default: {role: none}\n"));
    free(once);
    free(twice);
    config_free(first);
    config_free(second);
}

static void without_memory_there_is_no_configuration(void **state)
{
    (void)state;
    static const char text[] = "access: {rules: [{user: 0, policies: [login], key_prefix: \"{uid}:\"}]}\n" POLICIES;
    struct faults faults;
    bool is_done = false;
    for (unsigned n = 1; !is_done; n++) {
        mem_fail_nth(n);
        struct config *config = config_from(text, &faults);
        mem_fail_nth(0);
        is_done = config != NULL;
        assert_true(is_done == (faults.n_errors == 0));
        faults_fini(&faults);
        config_free(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_65534_is_a_user_only_outside_of_user_namespaces),
        cmocka_unit_test(the_first_rule_that_names_the_user_or_a_group_counts),
        cmocka_unit_test(without_a_rule_root_and_the_own_user_are_admins_and_others_clients),
        cmocka_unit_test(a_user_that_the_kernel_does_not_name_matches_no_rule),
        cmocka_unit_test(policies_are_named_or_meant_by_a_pattern),
        cmocka_unit_test(methods_follow_the_role_without_those_denied),
        cmocka_unit_test(a_prefix_confines_keys),
        cmocka_unit_test(replaced_rules_allow_nothing),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_line_and_the_way_out),
        cmocka_unit_test(all_faults_of_all_rules_are_found),
        cmocka_unit_test(too_many_rules_and_entries_are_refused),
        cmocka_unit_test(many_wrong_names_are_all_found_and_only_the_first_get_advice),
        cmocka_unit_test(what_allows_nothing_or_too_much_is_a_warning),
        cmocka_unit_test(a_prefix_confines_counters_by_the_parts_that_it_holds_whole),
        cmocka_unit_test(who_may_neither_reset_nor_refund_is_not_warned_of_shared_counters),
        cmocka_unit_test(what_is_printed_parses_back_to_the_same_rules),
        cmocka_unit_test(without_memory_there_is_no_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
