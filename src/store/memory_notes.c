#include "store/memory_notes.h"

#include "base/alloc.h"
#include "base/hash.h"

enum {
    SAMPLE = 8,
    EVICT_MAX = 64, /* at a time: after the bound was lowered there may be very many */
    OVERHEAD = 32,  /* the heap's own bytes of a note, and its share of the map's slots */
};

int memory_notes_init(struct memory_notes *notes, size_t max, uint64_t max_bytes)
{
    *notes = (struct memory_notes){.max = max, .max_bytes = max_bytes};
    list_init(&notes->notes);
    return map_init(&notes->map, max);
}

static uint8_t *name_of(struct memory_note *note)
{
    return (uint8_t *)&note->members[note->n_members];
}

static size_t bytes_of(const struct memory_note *note)
{
    return sizeof *note + note->n_members * sizeof note->members[0] + note->name_len + OVERHEAD;
}

static void drop(struct memory_notes *notes, struct memory_note *note)
{
    notes->n_bytes -= bytes_of(note);
    list_remove(&note->link);
    map_remove(&notes->map, &note->node);
    mem_free(note);
}

void memory_notes_fini(struct memory_notes *notes)
{
    while (!list_empty(&notes->notes)) drop(notes, LIST_ITEM(notes->notes.next, struct memory_note, link));
    map_fini(&notes->map);
}

static struct memory_note *find(struct memory_notes *notes, struct slice name)
{
    struct map_node *node = map_first(&notes->map, hash_keyed(name.data, name.len));
    for (; node != NULL; node = map_next_same(node)) {
        struct memory_note *note = CONTAINER_OF(node, struct memory_note, node);
        if (slice_eq((struct slice){name_of(note), note->name_len}, name)) return note;
    }
    return NULL;
}

const struct memory_note *memory_notes_find(struct memory_notes *notes, const struct op *op, int64_t now_us)
{
    const struct memory_note *note = find(notes, op->note);
    if (note == NULL || note->generation != notes->generation) return NULL;
    bool counts = note->until_us > now_us && note->at_us + (int64_t)op->note_ms * 1000 > now_us;
    return counts ? note : NULL;
}

static int64_t end_of(const struct memory_notes *notes, const struct memory_note *note)
{
    return note->generation == notes->generation ? note->until_us : INT64_MIN;
}

/* Those that stay go behind the others: the next sample is another. There is one at least. */
static void evict(struct memory_notes *notes)
{
    struct memory_note *first = LIST_ITEM(notes->notes.next, struct memory_note, link);
    for (size_t i = 0; i < SAMPLE && i < notes->map.n; i++) {
        struct memory_note *note = LIST_ITEM(list_pop_front(&notes->notes), struct memory_note, link);
        list_push_back(&notes->notes, &note->link);
        if (end_of(notes, note) < end_of(notes, first)) first = note;
    }
    drop(notes, first);
}

static bool is_over(const struct memory_notes *notes, size_t n_more, size_t more_bytes)
{
    return notes->map.n > 0 && (notes->map.n + n_more > notes->max || notes->n_bytes + more_bytes > notes->max_bytes);
}

struct memory_note *memory_notes_add(struct memory_notes *notes, const struct op *op, int64_t now_us,
                                     size_t *ret_n_evicted)
{
    struct memory_note *old = find(notes, op->note);
    struct memory_note *note = mem_alloc(sizeof *note + op->n_members * sizeof note->members[0] + op->note.len);
    if (note == NULL) return NULL;
    *note = (struct memory_note){
        .at_us = now_us,
        .until_us = now_us + (int64_t)op->note_ms * 1000,
        .version = op_version(op),
        .generation = notes->generation,
        .hold_id = op->hold != NULL ? op->hold->id : 0,
        .hold_ttl_ms = op->hold != NULL ? op->hold->ttl_ms : 0,
        .name_len = (uint32_t)op->note.len,
        .n_members = op->n_members,
    };
    memcpy(name_of(note), op->note.data, op->note.len);
    if (old != NULL) drop(notes, old);
    *ret_n_evicted = 0;
    for (; *ret_n_evicted < EVICT_MAX && is_over(notes, 1, bytes_of(note)); ++*ret_n_evicted) evict(notes);
    notes->n_bytes += bytes_of(note);
    list_push_back(&notes->notes, &note->link);
    map_insert(&notes->map, &note->node, hash_keyed(op->note.data, op->note.len));
    return note;
}

void memory_notes_sweep(struct memory_notes *notes, size_t n, int64_t now_us)
{
    if (n > notes->map.n) n = notes->map.n;
    for (size_t i = 0; i < n; i++) {
        struct memory_note *note = LIST_ITEM(notes->notes.next, struct memory_note, link);
        if (end_of(notes, note) <= now_us) {
            drop(notes, note);
        } else {
            list_remove(&note->link);
            list_push_back(&notes->notes, &note->link);
        }
    }
}

size_t memory_notes_trim(struct memory_notes *notes)
{
    size_t n = 0;
    for (; n < EVICT_MAX && is_over(notes, 0, 0); n++) evict(notes);
    return n;
}

void memory_notes_forget_all(struct memory_notes *notes)
{
    notes->generation++;
}
