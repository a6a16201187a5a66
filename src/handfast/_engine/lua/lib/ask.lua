-- ask: asking the holders to end.
--
-- USES now state tokens lease_end holder record out soonest weight_of revoke save put
-- GIVES ask_holders
--
-- The lease of a holder that was asked ends soon after its time, whether the request that has asked is still there or not,
-- and permit_renew.lua does not prolong it. The time between is for that request, which tells the holder that it
-- takes the lease.

-- Ask a holder, or take its lease if its time is over. Returns when that is, and its record if that has to be saved.
local function ask(its_token, its_record, grace_ms, by, reason)
  local start, last = string.find(its_record, ' wanted=%d+', INBOX_AT)
  local known_end = start and tonumber(string.sub(its_record, start + 8, last)) or math.huge
  local its_end = math.min(known_end, now + grace_ms * 1000)
  if its_end <= now then
    redis.call('HSET', state, 'last', struct.pack('<d', now) .. 'preempt ' .. by .. ' ' .. reason)
    revoke(its_token, its_record, 'its holder was asked to end and did not in time: ' .. reason)
    return math.huge, nil
  end
  -- The holder counts from its grant as well, since a message takes time: it must not rely on its lease for longer.
  local granted = struct.unpack('<d', its_record)
  -- A fence is ahead of the clock by what was granted at once; by more than a second, the clock was set back.
  local held_ms = math.floor((its_end - (granted <= now + 1000000 and granted or 0)) / 1000)
  local times = string.format('%.0f %.0f', math.ceil((its_end - now) / 1000), held_ms)
  local message = table.concat({'wanted', its_token, times, by, reason}, ' ')
  redis.call('PUBLISH', string.match(its_record, '^%S+ (%S+)', INBOX_AT), message)
  if its_end == known_end then
    return its_end, nil
  end
  local words = start and string.sub(its_record, 1, start - 1) .. string.sub(its_record, last + 1) or its_record
  return its_end, words .. string.format(' wanted=%.0f', its_end)
end

-- Whether a holder was asked before.
local function is_asked(its_record)
  return string.find(its_record, ' wanted=', INBOX_AT, true)
end

-- Ask the holders, 100 at most, from the lease end `from` on, and take the leases of those whose time is over. With `needed`
-- only as many are asked as have so many permits, those among them that were asked before. Returns when the first time is
-- over, infinite if no one was asked; and from where to go on, 0 at the end. A lock that rests (see permit_release.lua) and an
-- operator's hold are not asked.
local function ask_holders(grace_ms, by, reason, from, needed)
  local MAX_ASKED = 100 -- (invariant 13)
  local asked, fresh, first_end, next_from, found = {}, {}, math.huge, 0, {}
  local function add(token, its_record, its_end)
    if its_record and not string.find(token, '^%p') then
      local among = is_asked(its_record) and asked or fresh
      among[#among + 1] = {token, its_record, its_end}
    end
  end
  if from == 0 and lease_end > 0 then
    add(holder, record, lease_end)
  end
  if out > 0 then
    local least = from > 0 and from or string.format('(%.0f', now)
    found = redis.call('ZRANGEBYSCORE', tokens, least, FINISHED, 'WITHSCORES', 'LIMIT', 0, MAX_ASKED)
  end
  for i = 1, #found, 2 do
    add(found[i], redis.call('HGET', state, found[i]), tonumber(found[i + 1]))
  end
  for _, among in ipairs({asked, fresh}) do
    for _, one in ipairs(among) do
      local token, its_record, lease = unpack(one)
      if needed and needed <= 0 and among == fresh then
        return first_end, 0
      end
      needed = needed and needed - weight_of(its_record)
      local its_end, noted = ask(token, its_record, grace_ms, by, reason)
      first_end = math.min(first_end, its_end)
      if noted or its_end + ASKED_US < lease then -- a lease that was just handed over is confirmed for a whole ttl
        lease, noted = math.min(lease, its_end + ASKED_US), noted or its_record
        if token == holder then
          record, lease_end = noted, lease
          save()
        else
          soonest = math.min(soonest, lease)
          save(token, noted)
          put(lease, token)
        end
      end
    end
  end
  if #found == 2 * MAX_ASKED then
    next_from = tonumber(found[#found])
    next_from = next_from == from and next_from + 1 or next_from
  end
  return first_end, next_from
end
