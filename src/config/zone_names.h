/*
 * zone_names.h: which time zone did somebody mean who wrote the name of none?
 */
#ifndef RL_CONFIG_ZONE_NAMES_H
#define RL_CONFIG_ZONE_NAMES_H

#include <stdbool.h>

#include "limit/calendar.h"

/* The zone of the same city whatever stands before it ("Berlin", "europe/berlin"), or the one spelled most alike, of
 * those that the system's zone.tab lists. False where it lists none that is near. */
bool zone_names_nearest(const char *written, char ret_name[CALENDAR_ZONE_MAX + 1]);

#endif
