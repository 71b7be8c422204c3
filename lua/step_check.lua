-- step_check.lua: charge all members or none. Twin of src/store/step_check.c. No fields of its own.
if look(1) then decide(1, 1) end
