-- purchase_item: buy an offer at the price that the buyer has seen.
--
-- KEYS offers goods payer payee receipt
-- ARGV item offer seen remember
-- REPLY sold price
-- REPLY gone
-- REPLY repriced price
-- REPLY short missing
-- REPLY own
--
-- `goods` is the key of the buyer's items; `payer` and `payee` are the funds of buyer and seller. `receipt` is the key of
-- this order, which lives for `remember` seconds. `offer` is the member of `offers`, `seen` the price that the buyer saw.
--
-- TWICE `sold` again, from the receipt, without a second payment. Any other reply changes nothing and leaves no receipt,
--       so the second call decides anew.
-- LATE without a receipt (it has expired, or the reply was not `sold`), it buys if there is such an offer at that price.
-- MEMORY the first write, a SET, is refused; nothing has changed.
local offers, goods, payer, payee, receipt = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local item, offer, seen, remember = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

if payer == payee then
  return {'own'}
end
local paid = redis.call('GET', receipt)
if paid then
  return {'sold', tonumber(paid)}
end
local asked = redis.call('ZSCORE', offers, offer)
if not asked then
  return {'gone'}
end
local price = tonumber(asked)
if price ~= seen then
  return {'repriced', price}
end
local missing = price - tonumber(redis.call('GET', payer) or '0')
if missing > 0 then
  return {'short', missing}
end

-- A script is never rolled back, so fail for keys of another type before the first write.
redis.call('GET', payee)
redis.call('SISMEMBER', goods, item)

redis.call('SET', receipt, price, 'EX', remember)
redis.call('ZREM', offers, offer)
redis.call('DECRBY', payer, price)
redis.call('INCRBY', payee, price)
redis.call('SADD', goods, item)
return {'sold', price}
