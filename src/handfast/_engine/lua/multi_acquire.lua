-- multi_acquire: ask for several locks; get all of them at once, or enter every queue.
--
-- KEYS state tokens more...
-- ARGV token request wants
-- REPLY granted fence lease_us
-- REPLY - the fence, if all were granted for ttl_ms from now
-- REPLY queued now_us position retry_us ticket
-- REPLY busy retry_us
-- REPLY full length
-- REPLY finished
-- REPLY superseded
--
-- `more` are the keys of further names, two each. Arguments and replies are those of permit_acquire; wants is for one
-- permit of one, with a claim of 0. The token holds nothing while it waits, and nothing is handed over
-- to it: it stands in all queues with a claim of 0, is woken when it is the head of one that is free, and sends this
-- script again. All names are granted with one fence, larger than any that they had.
--
-- It enters all queues in one step, never keeps a part of its places, and has one ticket in all of them: its own, or
-- one that is larger than all tickets there. So any two tokens stand in the same order wherever they meet, also after
-- one of them has lost places and has taken them again: no two wait for each other.
--
-- TWICE the same answer: a holder finds its grant and fence, a waiter its places.
-- LATE after its cancel, or after a release that knows of copies, the token has a tombstone: `finished`, and
--   nothing changes.
-- MEMORY the first write of every path is one that is refused at maxmemory; only a waiter that is
--   in all queues already goes on, since it takes up nothing new.

-- @include clock

local token, wants = ARGV[1], ARGV[3]
local ttl_ms, wait_ms, max_waiters, ticket = struct.unpack('<dddd', ARGV[2])
local number = #KEYS / 2

-- First look at each name, and write nothing. The short way of most requests: all are free.
local texts, min_fence, all_free = {}, now, ticket == 0
for k = 1, #KEYS, 2 do
  local text = redis.call('HGET', KEYS[k], 's')
  local lease_end, fence, keep, extra, length, _ = math.huge, 0, 0, 0, 0, nil
  if text and #text >= HOLDER_AT then
    lease_end, fence, keep, extra, _, _, _, length = struct.unpack('<dddddddd', text)
  end
  all_free = all_free and lease_end <= now and length == 0 and extra == 0 and keep > now + ttl_ms * 1000 + HOUR_US
  min_fence = math.max(min_fence, fence + 1)
  texts[k] = text
end
if all_free then
  local its_end, its_record = now + ttl_ms * 1000, struct.pack('<Bc0d', #token, token, min_fence) .. wants
  for k = 1, #KEYS, 2 do
    local _, _, keep, _, grants, waited = struct.unpack('<dddddd', texts[k])
    local text = struct.pack('<dddddddd', its_end, min_fence, keep, 0, grants + 1, waited, 0, 0)
    redis.call('HSET', KEYS[k], 's', text .. its_record)
  end
  return min_fence
end

-- @include record
-- @include state
-- @include grant

-- Take the next name at hand.
local function load_keys(k, text)
  load_name(KEYS[k], KEYS[k + 1], text or redis.call('HGET', KEYS[k], 's'))
end

-- @include memory
-- @include tombstones
-- @include overtaken
-- @include sweep
-- @include queue
-- @include handoff

local held, placed, longest, its_fence, first_end, next_ticket = 0, 0, 0, 0, math.huge, now
local is_new = ticket == 0
for k = 1, #KEYS, 2 do
  load_keys(k, texts[k])
  local over = finished(token)
  if over == 'superseded' then
    return 'superseded '
  elseif over then
    return 'finished '
  end
  local its_end, its_record = lease_of(token)
  if its_record and its_end > now then
    held, first_end = held + 1, math.min(first_end, its_end)
    its_fence = math.max(its_fence, (struct.unpack('<d', its_record)))
  end
  local its_ticket = ticket_of(token)
  if not its_end and not its_ticket and was_overtaken(ticket, wants) then
    return 'superseded '
  end
  if its_ticket and (ticket == 0 or ticket == its_ticket) then
    placed, ticket = placed + 1, its_ticket
  end
  longest, next_ticket = math.max(longest, length), math.max(next_ticket, waiting + 1)
end
if held == number then
  return 'granted ' .. struct.pack('<dd', its_fence, first_end - now)
end

-- Give up what the token holds of the name at hand, and its place in the queue.
local function leave()
  if not drop_lease(token) and ticket_of(token) then
    leave_queue(token)
  end
end

gives_back = placed == number
if placed < number then
  if is_new and held + placed == 0 and longest >= max_waiters then
    -- @include waiters
    longest = 0
    for k = 1, #KEYS, 2 do
      load_keys(k)
      evict_waiters()
      if changed then
        save()
      end
      longest = math.max(longest, length)
    end
    if longest >= max_waiters then
      return 'full ' .. struct.pack('<d', longest)
    end
  end
  require_memory()
  for k = 1, #KEYS, 2 do
    load_keys(k)
    leave()
    if changed then
      save()
    end
  end
end
if ticket == 0 then
  ticket = next_ticket
end
local its_record = struct.pack('<d', now + wait_ms * 1000) .. wants
for k = 1, #KEYS, 2 do
  load_keys(k)
  enter_queue(token, ticket, its_record, wait_ms + ttl_ms)
end

-- Serve the waiters before the token. Stop where the queue of a name may go on: that is enough for one call.
local position, retry_us = 0, -1
for k = 1, #KEYS, 2 do
  load_keys(k)
  sweep()
  local more = hand_over(token)
  min_fence = math.max(min_fence, fence + 1) -- a grant to another waiter has used one
  local place, first = redis.call('ZRANK', tokens, token) + math.min(used(), 1), next_expiry()
  position = math.max(position, place, more)
  if more == 1 then
    retry_us = 0
    break
  elseif place > 0 and first then
    retry_us = math.max(retry_us, first - now, 0)
  end
end
if position > 0 and wait_ms > 0 then
  return 'queued ' .. struct.pack('<dddd', now, position - 1, retry_us, ticket)
end
for k = 1, #KEYS, 2 do
  load_keys(k)
  leave()
  if position == 0 then
    grant(token, wants, ttl_ms, ticket, min_fence)
  else
    save()
  end
end
if position > 0 then
  return 'busy ' .. struct.pack('<d', retry_us)
end
return min_fence
