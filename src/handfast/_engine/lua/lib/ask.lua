-- ask: asking the holders to end.
--
-- USES now state tokens lease_end holder record out revoke save
-- GIVES ask_holders

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

-- Ask the holders, 100 at most, and take the leases of those whose time is over. Returns when the first time is over;
-- infinite if no one was asked. A lock that rests (see permit_release.lua) and an operator's hold are not asked.
local function ask_holders(grace_ms, by, reason)
  local MAX_ASKED = 100 -- (invariant 13)
  local first_end, others = math.huge, {}
  if lease_end > 0 and not string.find(holder, '^%p') then
    local its_end, its_record = ask(holder, record, grace_ms, by, reason)
    first_end = its_end
    if its_record then
      record = its_record
      save()
    end
  end
  if out > 0 then
    others = redis.call('ZRANGEBYSCORE', tokens, string.format('(%.0f', now), FINISHED, 'LIMIT', 0, MAX_ASKED)
  end
  for _, other in ipairs(others) do
    local known = not string.find(other, '^%p') and redis.call('HGET', state, other)
    if known then
      local its_end, its_record = ask(other, known, grace_ms, by, reason)
      first_end = math.min(first_end, its_end)
      if its_record then
        save(other, its_record)
      end
    end
  end
  return first_end
end
