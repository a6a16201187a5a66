-- election_announce: note the beginning or the end of a term, and send messages to the observers.
--
-- KEYS terms watchers
-- ARGV term text
-- PACK term <ddd fence ends keep_ms
-- REPLY told more
-- ALONE told 0
--
-- terms is a hash with a field for each of the last 32 terms: the fence in digits. The value is the time of the end in
--   us, as a double, 0 while the term lasts, and then `text`: who led, and why the term ended.
-- ends is 0 for the beginning, else 1. The end of a term replaces the beginning. The first end stays, and no beginning
--   replaces it. keep_ms is how long the terms are kept after the last call.
-- more is how many observers are left after 100 messages, else 0: send the call again for those that were there at first.
--
-- TWICE the first call is noted; there are messages for observers that have come since.
-- LATE a term is noted behind newer ones: readers sort them by fence. It is dropped if there are 32 newer terms.
-- MEMORY the first write is a HSET, refused at maxmemory; of a term that is noted a PEXPIRE, which passes.

-- @include clock

local terms, watchers = KEYS[1], KEYS[2]
local fence, ends, keep_ms = struct.unpack('<ddd', ARGV[1])

-- @include inbox
-- @include watchers

local MOST = 32

local field = string.format('%.0f', fence)
local noted = redis.call('HGET', terms, field)
if not noted or (ends == 1 and struct.unpack('<d', noted) == 0) then
  redis.call('HSET', terms, field, struct.pack('<d', ends * now) .. ARGV[2])
end
redis.call('PEXPIRE', terms, keep_ms)
if redis.call('HLEN', terms) > MOST then
  local oldest = fence
  for _, one in ipairs(redis.call('HKEYS', terms)) do
    oldest = math.min(oldest, one)
  end
  redis.call('HDEL', terms, string.format('%.0f', oldest))
end
return 'told ' .. struct.pack('<d', ring())
