-- permit_slot: give a holder a number that no other holder has.
--
-- KEYS state tokens
-- ARGV token prefer
-- REPLY slot number
-- REPLY lost
-- REPLY full
-- ALONE slot 0
--
-- The number is the word `slot` of the holder's record, so it is free when the lease ends. Numbers go from 0 to 1023.
-- The holder gets `prefer` if it is free; if not, and for -1, the smallest number which is free.
-- lost: the token holds nothing, or the record was evicted. full: all
--   numbers are taken, or there are more than 1,024 other holders.
--
-- TWICE the same number.
-- LATE after a release it finds no holder and changes nothing.
-- MEMORY the first write is a HSET, refused at maxmemory.

-- @include clock
-- @include record
-- @include state
-- @include grant

local MOST = 1024

local token, prefer = ARGV[1], tonumber(ARGV[2])
local taken = {[-1] = true} -- which is no number

local function slot_of(its_record)
  return tonumber(string.match(its_record, ' slot=(%d+)', INBOX_AT))
end

local function take(its_record)
  local slot = its_record and slot_of(its_record)
  if slot then
    taken[slot] = true
  end
end

load_name(KEYS[1], KEYS[2], redis.call('HGET', KEYS[1], 's'))
local its_end, its_record = lease_of(token)
if not its_record or its_end <= now then
  return 'lost '
end
local slot = slot_of(its_record)
if not slot then
  if lease_end > now then
    take(record)
  end
  local live = string.format('(%.0f', now)
  local others = out > 0 and redis.call('ZRANGEBYSCORE', tokens, live, FINISHED, 'LIMIT', 0, MOST + 1) or {}
  if others[1] then
    for _, one in ipairs(redis.call('HMGET', state, unpack(others))) do
      take(one)
    end
  end
  slot = prefer
  if taken[slot] then
    slot = 0
    while taken[slot] do
      slot = slot + 1
    end
  end
  if slot >= MOST or #others > MOST then
    return 'full '
  end
  its_record = its_record .. string.format(' slot=%.0f', slot)
  if holder == token then
    record = its_record
    save()
  else
    save(token, its_record)
  end
end
return 'slot ' .. struct.pack('<d', slot)
