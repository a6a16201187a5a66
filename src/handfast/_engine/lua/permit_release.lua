-- permit_release: release the permits of one or several names, and hand them to the waiters.
--
-- KEYS state tokens more...
-- ARGV token options...
-- REPLY released more
-- REPLY lost
-- REPLY unknown
-- ALONE released 0
--
-- `more` are the keys of further names, two each. Of several names, those that the token still holds are released
-- even where another one was lost. more is 1 when 100 waiters of one name were served or skipped and its queue may
-- go on, and those of the names after it: send it again.
-- options are up to two: `copies`, or the empty text, and at_least_us. With `copies` an acquire of this token was sent
-- more than once, so that one may still arrive: then the token gets a tombstone. at_least_us is how long a lock stays
-- taken since its grant: released earlier, it rests until then under another token, which no call renews or releases.
--
-- TWICE `released` until the next grant of the name; then `unknown`, since nothing else is remembered of a release. A
--   lock rests until a time that was set by its grant.
--   So `unknown` is the reply to a copy of a release that has run, or else the lease was lost. It is `lost` in any
--   case where an operator took the lease away, and with copies, since the tombstone then tells the two apart.
-- LATE an unknown token changes nothing. Should an older state of the server have it in the queue, it leaves it.
-- MEMORY the first write is one that passes at maxmemory, or a HSET that is repeated behind one.

local token, options = ARGV[1], ARGV[2] ~= nil
local busy = nil -- by its first key, the state of each name that the short way is not for
local released, is_first = 0, false -- how many, and whether one of them held until now
local OVER = '\0\0\0\0\0\0\0\0' -- the end of a lease that was given up
for k = 1, #KEYS, 2 do
  -- The short way: the holder in the state, and an empty queue. The end of the lease becomes 0, and the token stays.
  local text, length, holder = redis.call('HGET', KEYS[k], 's')
  if text and #text >= HOLDER_AT then
    length, holder = struct.unpack('<dBc0', text, LENGTH_AT)
  end
  if holder == token and length == 0 and not options then
    local free = OVER .. string.sub(text, FENCE_AT)
    if free ~= text then
      is_first = true
      if redis.pcall('HSET', KEYS[k], 's', free) ~= 0 then
        redis.call('HDEL', KEYS[k], '')
        redis.call('HSET', KEYS[k], 's', free)
      end
    end
    released = released + 1
  else
    busy = busy or {}
    busy[k] = text or ''
  end
end
if not busy then
  return 'released \0\0\0\0\0\0\0\0'
end

-- @include clock

if #KEYS == 2 and not options and #busy[1] >= HOLDER_AT then
  local lease_end, fence, keep, extra, grants, waited, waiting, length, holder =
    struct.unpack('<ddddddddBc0', busy[1])
  local out, soonest, set_limit, memory = 0, 0, 0, 0
  if extra == 1 then
    out, soonest, set_limit, memory = struct.unpack('<dddd', redis.call('HGET', KEYS[1], 'q'))
  end
  if holder == token and lease_end > 0 and out == 0 and set_limit == 0 then
    -- The short way of a lock with waiters: the first one is there, and all that it wants is one of one. It is not for
    -- those of a cluster, whose inboxes may be sharded channels.
    local head, score = unpack(redis.call('ZPOPMIN', KEYS[2]))
    local text = head and redis.call('HGET', KEYS[1], head)
    if text then
      local wait_until, weight, limit, claim_ms = struct.unpack('<dddd', text)
      local inbox = string.sub(text, INBOX_AT, string.find(text, ' ', INBOX_AT, true) - 1)
      local is_sharded = string.find(inbox, '{')
      local fits = weight == 1 and limit == 1 and claim_ms > 0 and not is_sharded
      if wait_until >= now and fits and redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0 then
        redis.call('HDEL', KEYS[1], head)
        fence = fence < now and now or fence + 1
        local its_end, wait_us = now + claim_ms * 1000, now - (score + FINISHED)
        if wait_us >= AHEAD_FROM_US then
          local _, last = string.find(text, ' ahead=', INBOX_AT, true)
          wait_us = last and wait_us - string.match(text, '^%d+', last + 1) or wait_us
        end
        grants, waited, length = grants + 1, wait_us > 0 and waited + wait_us or waited, length - 1
        local now_held = struct.pack(
          '<ddddddddBc0d', its_end, fence, keep, extra, grants, waited, waiting, length, #head, head, fence
        )
        redis.call('HSET', KEYS[1], 's', now_held .. string.sub(text, WEIGHT_AT))
        redis.call('PUBLISH', inbox, 'granted ' .. head .. ' ' .. struct.pack('<ddd', fence, now, claim_ms * 1000))
        return 'released \0\0\0\0\0\0\0\0'
      end
    end
    if head and head ~= '' then -- the mark was alone in its set, which is gone now
      redis.call('ZADD', KEYS[2], score, head)
    end
  elseif out > 0 and length == 0 and holder ~= token then
    -- The short way of one of several holders, with an empty queue.
    local text = redis.call('HGET', KEYS[1], token)
    if text and redis.call('HDEL', KEYS[1], token) == 1 and redis.call('ZREM', KEYS[2], token) == 1 then
      out = out - struct.unpack('<d', text, WEIGHT_AT)
      redis.call('HSET', KEYS[1], 'q', struct.pack('<dddd', out, soonest, set_limit, memory))
      return 'released \0\0\0\0\0\0\0\0'
    end
  end
end

-- @include record
-- @include state
-- @include grant
-- @include queue
-- @include handoff

gives_back = true
local lost, more = false, 0
local copies, at_least_us = ARGV[2] == 'copies', tonumber(ARGV[3] or 0)
local RESTED = '.' -- before the token of a lock that rests
for k = 1, #KEYS, 2 do
  if busy[k] then
    load_name(KEYS[k], KEYS[k + 1], busy[k] ~= '' and busy[k])
    if extra == 0 and not options and holder == token and lease_end > 0 then
      released, is_first, lease_end, changed = released + 1, true, 0, true
      more = more == 0 and hand_over() or more
    else
      -- @include memory
      -- @include tombstones
      -- @include sweep
      local known = finished(token)
      local was_released = holder == token and lease_end == 0 or holder == RESTED .. token or known == 'finished'
      -- A fence is the time of its grant, or later where the clock was set back.
      local rests_until = holder == token and math.min((struct.unpack('<d', record)), now) + at_least_us or 0
      local rests = at_least_us > 0 and lease_end > now and rests_until > now
      if rests then
        lease_end, holder, changed = rests_until, RESTED .. token, true
        live_for((rests_until - now) / 1000)
      end
      if rests or was_released or drop_lease(token) then
        released, is_first = released + 1, is_first or not was_released
        if copies then
          add_tombstone(token)
        end
        sweep()
        more = more == 0 and hand_over() or more
      else
        lost = lost or known == 'lost' or copies
        if ticket_of(token) then
          leave_queue(token)
          sweep()
          hand_over()
        end
        if copies and not known then
          add_tombstone(token, true)
        end
      end
    end
    if changed then
      save() -- more is 1, and the name was not handed over; a name that was lost stays without keys
    end
  end
end
if lost or is_first and released < #KEYS / 2 then
  return 'lost '
elseif released < #KEYS / 2 then
  return 'unknown '
end
if more == 1 then
  -- So that it is known when this is sent again, also where others hold the names by then.
  for k = 1, #KEYS, 2 do
    load_name(KEYS[k], KEYS[k + 1], redis.call('HGET', KEYS[k], 's'))
    -- @include tombstones
    add_tombstone(token)
  end
end
return 'released ' .. struct.pack('<d', more)
