/* memory_records.c: a map and a list of records, and which of them goes first, for the memory store. */
#include "store/memory_records.h"

#include "base/alloc.h"
#include "base/hash.h"

enum {
    SAMPLE = 8,
    EVICT_MAX = 64, /* at a time: after the bound was lowered there may be very many */
    OVERHEAD = 32,  /* the heap's own bytes of a record, and its share of the map's slots */
};

int memory_records_init(struct memory_records *records, size_t max, uint64_t max_bytes)
{
    *records = (struct memory_records){.max = max, .max_bytes = max_bytes};
    list_init(&records->records);
    return map_init(&records->map, max);
}

static uint8_t *record_name(struct memory_record *record)
{
    return (uint8_t *)&record->members[record->n_members];
}

static size_t bytes_of(const struct memory_record *record)
{
    return sizeof *record + record->n_members * sizeof record->members[0] + record->name_len + OVERHEAD;
}

static void drop_record(struct memory_records *records, struct memory_record *record)
{
    records->n_bytes -= bytes_of(record);
    list_remove(&record->link);
    map_remove(&records->map, &record->node);
    mem_free(record);
}

void memory_records_fini(struct memory_records *records)
{
    while (!list_empty(&records->records))
        drop_record(records, LIST_ITEM(records->records.next, struct memory_record, link));
    map_fini(&records->map);
}

static struct memory_record *find_record(struct memory_records *records, struct slice name, uint64_t hash)
{
    struct map_node *node = map_first(&records->map, hash);
    for (; node != NULL; node = map_next_same(node)) {
        struct memory_record *record = CONTAINER_OF(node, struct memory_record, node);
        if (slice_eq((struct slice){record_name(record), record->name_len}, name)) return record;
    }
    return NULL;
}

const struct memory_record *memory_records_find(struct memory_records *records, const struct op *op, int64_t now_us)
{
    const struct memory_record *record = find_record(records, op->record, hash_keyed(op->record.data, op->record.len));
    if (record == NULL || record->generation != records->generation) return NULL;

    bool counts = record->until_us > now_us && record->at_us + (int64_t)op->record_ms * 1000 > now_us;
    return counts ? record : NULL;
}

static int64_t end_of(const struct memory_records *records, const struct memory_record *record)
{
    return record->generation == records->generation ? record->until_us : INT64_MIN;
}

static bool fits(const struct memory_records *records, size_t n_new, size_t new_bytes)
{
    return records->map.n + n_new <= records->max && records->n_bytes + new_bytes <= records->max_bytes;
}

/* The record of a sample that ends first goes. The others go behind the rest: the next sample is another. */
static void evict_to_fit(struct memory_records *records, size_t n_new, size_t new_bytes)
{
    for (size_t n = 0; n < EVICT_MAX && records->map.n > 0 && !fits(records, n_new, new_bytes); n++) {
        struct memory_record *first = LIST_ITEM(records->records.next, struct memory_record, link);
        for (size_t i = 0; i < SAMPLE && i < records->map.n; i++) {
            struct memory_record *record = LIST_ITEM(list_pop_front(&records->records), struct memory_record, link);
            list_push_back(&records->records, &record->link);
            if (end_of(records, record) < end_of(records, first)) first = record;
        }
        records->n_evicted++;
        drop_record(records, first);
    }
}

/* Frees those of the next n that are over. */
static void drop_over(struct memory_records *records, size_t n, int64_t now_us)
{
    if (n > records->map.n) n = records->map.n;
    for (size_t i = 0; i < n; i++) {
        struct memory_record *record = LIST_ITEM(records->records.next, struct memory_record, link);
        if (end_of(records, record) <= now_us) {
            drop_record(records, record);
        } else {
            list_remove(&record->link);
            list_push_back(&records->records, &record->link);
        }
    }
}

struct memory_record *memory_records_add(struct memory_records *records, const struct op *op, int64_t now_us)
{
    struct memory_record *record =
        mem_alloc(sizeof *record + op->n_members * sizeof record->members[0] + op->record.len);
    if (record == NULL) return NULL;

    *record = (struct memory_record){
        .at_us = now_us,
        .until_us = now_us + (int64_t)op->record_ms * 1000,
        .version = op_version(op),
        .generation = records->generation,
        .reservation_id = op->reservation != NULL ? op->reservation->id : 0,
        .reservation_ttl_ms = op->reservation != NULL ? op->reservation->ttl_ms : 0,
        .name_len = (uint32_t)op->record.len,
        .n_members = op->n_members,
    };
    memcpy(record_name(record), op->record.data, op->record.len);

    uint64_t hash = hash_keyed(op->record.data, op->record.len);
    struct memory_record *old = find_record(records, op->record, hash);
    if (old != NULL) drop_record(records, old);
    if (records->exact && !fits(records, 1, bytes_of(record))) drop_over(records, records->map.n, now_us);
    if (records->exact && !fits(records, 1, bytes_of(record))) {
        mem_free(record);
        return NULL;
    }
    evict_to_fit(records, 1, bytes_of(record));

    records->n_bytes += bytes_of(record);
    list_push_back(&records->records, &record->link);
    map_insert(&records->map, &record->node, hash);
    return record;
}

void memory_records_sweep(struct memory_records *records, size_t n, int64_t now_us)
{
    drop_over(records, n, now_us);
    evict_to_fit(records, 0, 0);
}

void memory_records_forget_all(struct memory_records *records)
{
    records->generation++;
}
