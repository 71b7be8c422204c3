#include "config/zone_names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"

static const char *city_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

/* The zone's name on a line of zone.tab: "DE", a tab, the coordinates, a tab, the name, perhaps a tab and a comment. */
static bool name_on(char *line, char ret_name[CALENDAR_ZONE_MAX + 1])
{
    char *rest = NULL;
    if (line[0] == '#') return false;
    const char *country = strtok_r(line, "\t\n", &rest), *where = strtok_r(NULL, "\t\n", &rest);
    const char *name = strtok_r(NULL, "\t\n", &rest);
    if (country == NULL || where == NULL || name == NULL || strlen(name) > CALENDAR_ZONE_MAX) return false;
    strcpy(ret_name, name);
    return true;
}

/* Each name on its own, so that nothing has to be kept but the best so far. */
bool zone_names_nearest(const char *written, char ret_name[CALENDAR_ZONE_MAX + 1])
{
    char path[4096], line[512], name[CALENDAR_ZONE_MAX + 1];
    struct nearest nearest = nearest_to(written);
    snprintf(path, sizeof path, "%s/zone.tab", calendar_zone_dir());
    FILE *table = fopen(path, "re");
    if (table == NULL) return false;
    bool found = false, same_city = false;
    while (!same_city && fgets(line, sizeof line, table) != NULL) {
        if (!name_on(line, name)) continue;
        size_t distance = nearest.distance;
        nearest_offer(&nearest, name);
        same_city = strcasecmp(city_of(name), city_of(written)) == 0;
        if (nearest.distance == distance && !same_city) continue;
        strcpy(ret_name, name);
        found = true;
    }
    fclose(table);
    return found;
}
