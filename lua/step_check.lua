-- step_check.lua: charge all members or none. Twin of src/store/step_check.c, which tells of notes.
-- Fields <B flags>, then with flag 1 <H note, a key> <I6 ms to keep it> <I4 version>, with flag 2 <I7 most>: as many times
-- the costs as fit, up to that. With a note it says after the states 0, or 1 and the time of an admission with the same
-- note, whose states it said, or 2 and that time where the version or the number of limits differs (the states are those
-- of now), then how many units each member was charged for it.
-- Note <I7 time> <I4 version>, per member <I7 s1> <I7 s2> <I7 units>.
local flags, note, keep_ms, version
local most = 1
flags, pos = unp('<B', S, pos)
if flags % 2 == 1 then
    note, keep_ms, version, pos = unp('<HI6I4', S, pos)
    note = K[note]
end
if flags > 1 then most, pos = unp('<I7', S, pos) end
local known, found, foreign = note and try('GET', note), 0, false
local n_noted = type(known) == 'string' and (#known - 11) / 21 or 0
if type(known) == 'table' then
    if not find(known.err, 'WRONGTYPE', 1, true) then return known end
    foreign = true
elseif known and (n_noted < 1 or n_noted > 16 or n_noted % 1 > 0) then
    n_bad = n_bad + 1
elseif known then
    local at, of = unp('<I7I4', known)
    local largest = at
    for j = 1, n_noted do
        local seen1, seen2, units = unp('<I7I7I7', known, 21 * j - 9)
        if seen1 > largest then largest = seen1 end
        if seen2 > largest then largest = seen2 end
        if units > largest then largest = units end
    end
    if largest > 9007199254740991 then -- no script writes such numbers, and no daemon takes them
        n_bad = n_bad + 1
    elseif at + keep_ms * 1000 > now then
        found = of == version and n_noted == n and 1 or 2
    end
end
if foreign then
    for j = 1, n do s1s[j] = -1 end
    say()
elseif found > 0 then
    local intact = true
    if found == 1 then
        for j = 1, n do s1s[j], s2s[j] = unp('<I7I7', known, 21 * j - 9) end
        say()
    else
        intact = look(0)
    end
    if intact then
        tell(found)
        tell((unp('<I7', known)))
        for j = 1, n do tell((unp('<I7', known, 21 * (j < n_noted and j or n_noted) + 5))) end
    end
elseif look(1) then
    if note then tell(0) end
    if decide(1, most) > 0 and note then
        local text, any = pack('<I7I4', now, version), false
        for j = 1, n do
            text = text .. pack('<I7I7I7', s1s[j], s2s[j], charged[j])
            any = any or charged[j] > 0
        end
        if any then call('SET', note, text, 'PXAT', fmt('%.0f', floor(now / 1000) + keep_ms + 1)) end
    end
end
