"""calendars.py: finds the ends of calendar windows from the local time of a zone.

A window (a day, a week, ...) begins at the first instant at which the clocks show its beginning or a later time, and ends
where the next one begins. One of an hour begins at each instant at which the clocks show another hour, or are set back. The first
day of a unit is a number for weeks (0 = monday), and (month, day) for months and years with an anchor. This module uses no offsets or transitions: it reads the local time in steps of half an hour, with
Python's own zoneinfo.
"""

import bisect
import calendar
import datetime
import functools
import zoneinfo

UNITS = ("hour", "day", "week", "month", "year")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia",
         "Pacific/Chatham", "America/Sao_Paulo", "America/St_Johns", "America/Havana", "America/Santiago", "America/Nuuk",
         "Asia/Beirut", "Asia/Jerusalem", "Africa/Cairo", "Africa/Casablanca", "America/Scoresbysund")
HOUR_S, DAY_S = 3600, 86400
NOMINAL_US = {unit: 1_000_000 * seconds for unit, seconds in
              zip(UNITS, (HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S, 365 * DAY_S))}
LONGEST_US = {unit: nominal + 1_000_000 * 3 * DAY_S for unit, nominal in NOMINAL_US.items()}
LOOK_S = 1800  # no zone of the list changes its clocks twice in that time, nor shows a new day for a part of it only
FURTHEST_S = 26 * HOUR_S

# Difficult moments of zones: a day skipped, midnight skipped or shown twice, a minute of the next day shown before it.
PAST = {
    "Pacific/Apia": "2011-12-30T10:00", "America/Sao_Paulo": "2018-11-04T03:00", "America/St_Johns": "2006-10-29T02:31",
    "Asia/Beirut": "2024-03-30T22:00", "America/Havana": "2024-11-03T05:00", "Australia/Lord_Howe": "2024-04-06T15:00",
    "Africa/Cairo": "2010-09-09T21:00", "Africa/Casablanca": "2024-03-10T02:00", "America/Nuuk": "2023-03-26T01:00",
    "America/Scoresbysund": "2024-03-31T01:00", "Europe/Berlin": "2024-10-27T01:00", "America/Santiago": "2019-09-08T04:00",
    "America/New_York": "2000-02-29T00:00", "Asia/Jerusalem": "2004-02-29T00:00", "UTC": "2000-12-31T23:00",
}
TURNS = ("2097-01-01", "2100-02-28", "2100-03-01", "2104-02-29", "2104-12-31")


@functools.cache
def zone_of(name):
    return zoneinfo.ZoneInfo(name)


def shown(zone, at_s):
    """The local time of the zone."""
    return datetime.datetime.fromtimestamp(at_s, zone_of(zone)).replace(tzinfo=None, fold=0)


def utc_s(naive):
    return int(naive.replace(tzinfo=datetime.timezone.utc).timestamp())


@functools.lru_cache(maxsize=200_000)
def reached_s(zone, naive):
    """The first second at which the zone's clocks show `naive` or a later time."""
    at = utc_s(naive) - FURTHEST_S
    while shown(zone, at) < naive:
        at += LOOK_S
    low, high = at - LOOK_S, at
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(zone, middle) >= naive else (middle, high)
    return high


def beginning(unit, first, naive):
    """Of the day, week, ... of the local time `naive`."""
    day = naive.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return day - datetime.timedelta(days=(day.weekday() - first) % 7)
    if unit == "day":
        return day
    month, number = first if isinstance(first, tuple) else (1, 1)
    months = [(year, m) for year in (day.year - 1, day.year) for m in (range(1, 13) if unit == "month" else (month,))]
    begins = [datetime.datetime(year, m, min(number, calendar.monthrange(year, m)[1])) for year, m in months]
    return max(begin for begin in begins if begin <= day)


def is_new_hour(zone, at_s):
    """Does a window begin in the minute before? The clocks change at whole minutes."""
    before, now = shown(zone, at_s - 60), shown(zone, at_s)
    return now < before or (now.date(), now.hour) != (before.date(), before.hour)


@functools.lru_cache(maxsize=200_000)
def following(unit, week_start, begin):
    longest = {"day": datetime.timedelta(days=1), "week": datetime.timedelta(days=7),
               "month": datetime.timedelta(days=31), "year": datetime.timedelta(days=366)}[unit]
    return beginning(unit, week_start, begin + longest)


def looked_up_end_s(unit, zone, week_start, now_s):
    if unit == "hour":
        return next(at for at in range(now_s // 60 * 60 + 60, now_s + 7200, 60) if is_new_hour(zone, at))
    begin = beginning(unit, week_start, shown(zone, now_s))
    while reached_s(zone, begin) <= now_s:
        begin = following(unit, week_start, begin)
    return reached_s(zone, begin)


@functools.cache
def known_ends(_unit, _zone, _week_start):
    """The known ends, in order, and for each the earliest moment from which it is known to be the next one."""
    return [], {}


def end_us(unit, zone, week_start, now_us):
    """The end of the window of `now`."""
    now_s = now_us // 1_000_000
    ends, known_from = known_ends(unit, zone, week_start)
    at = bisect.bisect_right(ends, now_s)
    if at < len(ends) and known_from[ends[at]] <= now_s:
        return ends[at] * 1_000_000
    end = looked_up_end_s(unit, zone, week_start, now_s)
    if end not in known_from:
        bisect.insort(ends, end)
    known_from[end] = now_s  # earlier than before, otherwise the list would have it
    return end * 1_000_000


def length_us(unit, zone, week_start, now_us):
    """Of the window of `now`."""
    now_s = now_us // 1_000_000
    if unit == "hour":
        begin_s = next(at for at in range(now_s // 60 * 60, now_s - 7200, -60) if is_new_hour(zone, at))
        return end_us(unit, zone, week_start, now_us) - begin_s * 1_000_000
    begin = beginning(unit, week_start, shown(zone, now_s))
    while reached_s(zone, after := following(unit, week_start, begin)) <= now_s:
        begin = after
    return end_us(unit, zone, week_start, now_us) - reached_s(zone, begin) * 1_000_000


@functools.cache
def changes_s(zone, year):
    """The days of that year on which the zone changes its clocks."""
    def ahead(at):
        return utc_s(shown(zone, at)) - at

    first = utc_s(datetime.datetime(year, 1, 1))
    return [at for at in range(first, first + 365 * DAY_S, DAY_S) if ahead(at) != ahead(at + DAY_S)]


def hard_moment_us(rng, zone, past):
    """A moment near a difficult point of the calendar."""
    if past:
        return utc_s(datetime.datetime.fromisoformat(PAST.get(zone, PAST["UTC"]))) * 1_000_000
    changes = changes_s(zone, rng.randint(2097, 2106))
    if changes and rng.random() < 0.7:
        return (rng.choice(changes) + rng.randint(0, DAY_S)) * 1_000_000
    return reached_s(zone, datetime.datetime.fromisoformat(rng.choice(TURNS))) * 1_000_000
