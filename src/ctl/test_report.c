/* test_report.c: prints what became of the tests, and writes it as XML, for test_run.c. */
#include "ctl/test_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ctl/text.h"

int test_report_init(struct test_report *report, bool wants_junit)
{
    *report = (struct test_report){0};
    if (!wants_junit) return 0;
    report->cases = open_memstream(&report->text, &report->text_len);
    return report->cases != NULL ? 0 : -1;
}

void test_report_fini(struct test_report *report)
{
    if (report->cases != NULL) fclose(report->cases);
    free(report->text);
}

/* Text of XML, in quotes or not. What XML has no character for becomes a question mark. */
static void put_xml(FILE *out, const char *text)
{
    struct slice rest = slice_of(text);
    while (rest.len > 0) {
        size_t len = text_utf8_len(rest);
        uint8_t first = rest.data[0];
        bool is_control = first < 0x20 && first != '\n' && first != '\t';
        if (len == 0 || is_control)
            fputc('?', out);
        else if (first == '\n')
            fputs("&#10;", out);
        else if (first == '&' || first == '<' || first == '>' || first == '"')
            fprintf(out, "&#%d;", first);
        else
            fwrite(rest.data, 1, len, out);
        if (len == 0) len = 1;
        rest.data += len;
        rest.len -= len;
    }
}

static void begin_case(struct test_report *report, const char *path, const char *name, double seconds)
{
    fputs("  <testcase classname=\"", report->cases);
    put_xml(report->cases, path);
    fputs("\" name=\"", report->cases);
    put_xml(report->cases, name);
    fprintf(report->cases, "\" time=\"%.3f\"", seconds);
}

void test_report_passed(struct test_report *report, const char *path, const struct test *test, double seconds)
{
    report->n_tests++;
    if (report->cases == NULL) return;
    begin_case(report, path, test->name, seconds);
    fputs("/>\n", report->cases);
}

void test_report_failed(struct test_report *report, const char *path, const struct test *test, uint32_t line,
                        const char *message, const char *why, double seconds)
{
    report->n_tests++;
    report->n_failed++;
    printf("%s:%" PRIu32 ": ", path, line);
    text_print(stdout, slice_of(test->name));
    printf(": %s\n%s", message, why);
    if (report->cases == NULL) return;

    begin_case(report, path, test->name, seconds);
    fputs(">\n    <failure message=\"", report->cases);
    put_xml(report->cases, path);
    fprintf(report->cases, ":%" PRIu32 ": ", line);
    put_xml(report->cases, message);
    fputs("\">", report->cases);
    put_xml(report->cases, path);
    fprintf(report->cases, ":%" PRIu32 ": ", line);
    put_xml(report->cases, message);
    fputs("&#10;", report->cases);
    put_xml(report->cases, why);
    fputs("</failure>\n  </testcase>\n", report->cases);
}

static void put_error(struct test_report *report, const char *path, const char *message)
{
    if (report->cases == NULL) return;
    begin_case(report, path, "(the file)", 0);
    fputs(">\n    <error message=\"", report->cases);
    put_xml(report->cases, message);
    fputs("\"/>\n  </testcase>\n", report->cases);
}

void test_report_wrong(struct test_report *report, const char *path, const struct faults *faults)
{
    char line[2048];
    bool is_first = true;
    for (size_t i = 0; i < faults->n; i++) {
        faults_line(line, sizeof line, path, &faults->items[i]);
        fprintf(stderr, "%s\n", line);
        if (is_first) put_error(report, path, line);
        is_first = false;
    }
    report->n_wrong_files++;
}

void test_report_no_daemon(struct test_report *report, const struct test_file *file, const char *words)
{
    char line[2048];
    snprintf(line, sizeof line, "%s:%" PRIu32 ": %s", file->path, file->config_line, words);
    fprintf(stderr, "%s\n", line);
    put_error(report, file->path, line);
    report->n_wrong_files++;
}

int test_report_write(struct test_report *report, const char *path)
{
    CHECK(report->cases != NULL); /* JUnit's XML was wanted */
    FILE *out = fopen(path, "we");
    if (out == NULL) return -1;
    fflush(report->cases);
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuite name=\"ratelimitctl test\" tests=\"%" PRIu64 "\" failures=\"%" PRIu64 "\" errors=\"%" PRIu64
            "\" skipped=\"0\">\n",
            report->n_tests + report->n_wrong_files, report->n_failed, report->n_wrong_files);
    fwrite(report->text, 1, report->text_len, out);
    fputs("</testsuite>\n", out);
    int failed = ferror(out);
    return fclose(out) == 0 && !failed ? 0 : -1;
}
