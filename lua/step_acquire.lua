-- step_acquire.lua: charge all members or none; limits of slots take this one. Twin of src/store/step_slots.c. Field:
-- <c32 slot>.
slot, pos = unp('<c32', S, pos)
if look(1) then decide(1, 1) end
