-- record: what is stored of one token that holds or waits. Its twin in Python is _engine/records.py.
--
-- USES
-- GIVES weight_of inbox_of
--
--   mark weight limit claim_ms (doubles), then the owner as text: inbox control label
--
-- mark       of a holder the fence, of a waiter the end of its wait-lease in microseconds
-- weight     permits that the token holds, or waits for
-- limit      the limit that its request brought along
-- claim_ms   the first lease of a grant that is handed over; 0 where the token asked for several names
-- owner      as the client sent it: its inbox, its control channel and its label, which may have spaces
--
-- Weight, limit and claim_ms come packed from the client, so that scripts copy them: bytes 9 to 32.

-- The permits of a record; 0 where it was evicted.
local function weight_of(its_record)
  return its_record and (struct.unpack('<d', its_record, 9)) or 0
end

-- The inbox is the first word of the owner, which begins at byte 33.
local function inbox_of(its_record)
  return string.sub(its_record, 33, string.find(its_record, ' ', 33, true) - 1)
end
