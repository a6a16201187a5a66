-- permits_acquire: ask for several locks; get all of them at once, or stand in every line.
--
-- KEYS holders_queue_tokens_past...
-- ARGV token ttl_ms wait_ms max_waiters who
-- REPLY granted fence lease_us
-- REPLY queued now_us position retry_us
-- REPLY busy retry_us
-- REPLY full length
-- REPLY over
--
-- Four keys a name; the other words are those of permit_acquire. Nothing is held while it waits, and
-- nothing is handed over to it: the token stands in all lines with a claim of 0, is rung when it is the
-- head of one that is free, and comes here to look. It enters all lines in one step and never keeps a
-- part of its places, so any two tokens stand in the same order wherever they meet: none waits for
-- another that waits for it. All names are granted with one fence, larger than any that they had.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its places.
-- LATE after its release or cancel it finds itself in `past`: `over`, and nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in line already goes on, since it takes up nothing new.
local token, ttl_ms, wait_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_waiters, who = tonumber(ARGV[4]), ARGV[5]
-- @include clock
-- @include expiry

-- First look at each name, and write nothing.
local names, idle, held, placed, length = {}, 0, 0, 0, 0
local least, of_grant, ends, of_place = now, 0, math.huge, string.format('%.0f', now)
for k = 1, #KEYS, 4 do
  local holders, queue, tokens, past = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  if redis.call('ZSCORE', past, token) then
    return {'over'}
  end
  local known, stored, fence, resized = unpack(redis.call('HMGET', tokens, token, 'used', 'fence', 'limit'))
  -- @include grant
  -- @include reset
  -- @include queue
  -- @include waiters

  local _, _, _, _, granted, since = read_record(known or '')
  local deadline = known and tonumber(redis.call('ZSCORE', holders, token) or 0) or 0
  if deadline > now then
    held, of_grant, ends = held + 1, math.max(of_grant, granted), math.min(ends, deadline)
  elseif known and redis.call('ZSCORE', queue, token) then
    placed, of_place = placed + 1, since
  end
  idle = idle + (redis.call('EXISTS', holders, queue) == 0 and 1 or 0)
  length = math.max(length, redis.call('ZCARD', queue))
  least = math.max(least, fence + 1)

  local name = {make_room = make_room}
  names[#names + 1] = name

  function name.take()
    if idle == #names then
      start_afresh()
    end
    hold(token, 1, 1, ttl_ms, who, least)
    keep(tokens, ttl_ms + memory)
  end

  function name.enter()
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    local wait_until = string.format('%.0f', now + wait_ms * 1000)
    redis.call('HSET', tokens, token, write_record(1, 1, 0, wait_until, 0, of_place, who))
    redis.call('ZADD', queue, 'NX', (tonumber(last[2]) or 0) + 1, token)
    keep(queue, wait_ms + 3600000)
    keep(tokens, wait_ms + ttl_ms + memory)
  end

  -- Serve those before it. Answers its position, whether the line may go on, and when a lease here ends.
  function name.look()
    sweep()
    local more = hand_over(token)
    least = math.max(least, fence + 1) -- a grant that nobody heard has used one up
    return redis.call('ZRANK', queue, token) + math.min(used, 1), more, earliest()
  end

  function name.leave()
    if redis.call('ZREM', holders, token) == 1 then
      used = used - (known and read_record(known) or 0)
      settle()
    end
    redis.call('ZREM', queue, token)
  end

  function name.forget()
    redis.call('HDEL', tokens, token)
  end
end

if held == #names then
  return {'granted', of_grant, ends - now}
end
if idle == #names then
  for _, name in ipairs(names) do
    name.take()
  end
  return {'granted', least, ttl_ms * 1000}
end

if placed == #names then
  redis.call('HDEL', KEYS[3], '')
else
  if held + placed == 0 and length >= max_waiters then
    length = 0
    for _, name in ipairs(names) do
      length = math.max(length, name.make_room())
    end
    if length >= max_waiters then
      return {'full', length}
    end
  end
  redis.call('ZADD', KEYS[1], 'XX', 0, '')
  for _, name in ipairs(names) do
    name.leave()
  end
end
for _, name in ipairs(names) do
  name.enter()
end
local position, retry_us = 0, -1
for _, name in ipairs(names) do
  local place, more, next_end = name.look()
  position = math.max(position, place)
  if more == 1 then
    position, retry_us = math.max(position, 1), 0
    break -- that was enough for one call
  elseif place > 0 and next_end then
    retry_us = math.max(retry_us, next_end - now, 0)
  end
end
if position == 0 then
  for _, name in ipairs(names) do
    name.leave()
    name.take()
  end
  return {'granted', least, ttl_ms * 1000}
end
if wait_ms == 0 then
  for _, name in ipairs(names) do
    name.leave()
    name.forget()
  end
  return {'busy', retry_us}
end
return {'queued', now, position - 1, retry_us}
