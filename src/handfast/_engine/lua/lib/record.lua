-- record: what is stored of a token, a line of text in the hash `tokens`. Its twin in Python is _engine/records.py.
--
-- USES
-- GIVES write_record read_record weight_of
--
--   weight limit claim_ms wait_until_us fence since_us inbox control label
--
-- weight     permits that the token holds, or waits for
-- limit      the limit that its request brought along
-- claim_ms   the first lease of a grant that is handed over; 0 where the token waits for several names
-- wait_until the end of its wait-lease; 0 once it holds
-- fence      0 while it waits
-- since      when it was granted, or when it began to wait: its score in the queue
-- owner      the rest, as the client sent it: its inbox, its control channel and its label, which may have spaces
--
-- Times are in microseconds, written with %.0f: Lua's tostring keeps 14 digits, and they have 16.

local function write_record(weight, limit, claim_ms, wait_until, fence, since, owner)
  return weight .. ' ' .. limit .. ' ' .. claim_ms .. ' ' .. wait_until .. ' ' .. fence .. ' ' .. since .. ' ' .. owner
end

-- Returns the fields by their names, with `since` as text; nothing for a record that was evicted.
local function read_record(text)
  local weight, limit, claim_ms, wait_until, fence, since, owner, inbox =
    string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ((%S+) .*)$')
  return weight
    and {
      weight = tonumber(weight),
      limit = tonumber(limit),
      claim_ms = tonumber(claim_ms),
      wait_until = tonumber(wait_until),
      fence = tonumber(fence),
      since = since,
      owner = owner,
      inbox = inbox,
    }
end

-- The permits of a record; 0 where it was evicted.
local function weight_of(text)
  return text and tonumber(string.match(text, '^%d+')) or 0
end
