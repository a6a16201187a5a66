-- inbox: publishing to the inbox of a waiter.
--
-- USES now
-- GIVES has_subscriber publish

-- Whether a connection to this very server is subscribed to an inbox. Only then something is published to it: a
-- replica and the nodes of a cluster would pass the message on to a connection that waits elsewhere, and it would
-- be believed.
-- An inbox with a brace is a sharded channel: a client that has one has found that the server knows them.
local function has_subscriber(inbox)
  if string.find(inbox, '{') then
    return redis.call('PUBSUB', 'SHARDNUMSUB', inbox)[2] > 0
  end
  return redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0
end

-- Publish a grant, with more doubles behind it if need be. One of no length makes the waiter ask again.
local function publish(token, inbox, its_fence, lease_us, more)
  local message = 'granted ' .. token .. ' ' .. struct.pack('<ddd', its_fence, now, lease_us) .. (more or '')
  if string.find(inbox, '{') then
    redis.call('SPUBLISH', inbox, message) -- @allow too-new: see above
  else
    redis.call('PUBLISH', inbox, message)
  end
end
