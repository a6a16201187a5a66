-- record: what is stored of one token that holds or waits. Its twin in Python is _engine/records.py.
--
-- USES
-- GIVES weight_of inbox_of
--
--   mark weight limit claim_ms caller (doubles), then as text: inbox control label words...
--
-- mark       of a holder the fence, of a waiter the end of its wait-lease in microseconds
-- weight     permits that the token holds, or waits for
-- limit      the limit that its request brought along
-- claim_ms   the first lease of a grant that is handed over; 0 where the token asked for several names
-- caller     the number of the thread or task that requested it
-- inbox      the channel on which it hears of a grant
-- control    the channel on which it hears that its lease was taken away; its last part is the id of the client
-- label      what people call the client, percent-encoded
-- words      further facts of the token, as `name=text`, percent-encoded. `value` is data that the caller shows to
--            others, `ttl` the length of its lease in milliseconds if it is not the default one, `slot` the number that permit_slot.lua gave a holder, `ahead` the head start of a request in
--            microseconds, `wanted` when a holder that is to end is revoked, see permit_overtake.lua, `hold`
--            the end of an operator's hold in microseconds and `reason` why. A reader passes over unknown words
--
-- All but the mark comes from the client in one piece, so that scripts copy it from WEIGHT_AT on.

-- The permits of a record; 0 where it was evicted.
local function weight_of(its_record)
  return its_record and (struct.unpack('<d', its_record, WEIGHT_AT)) or 0
end

-- The inbox is the first word of the text.
local function inbox_of(its_record)
  return string.sub(its_record, INBOX_AT, string.find(its_record, ' ', INBOX_AT, true) - 1)
end
