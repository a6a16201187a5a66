-- list_item: offer an item for a price, or change the price of an offer.
--
-- KEYS offers goods
-- ARGV item offer price
-- REPLY listed
-- REPLY missing
--
-- `goods` is the key of the seller's items, `offer` the member of `offers` for this item of this seller.
--
-- TWICE the same reply; `missing` if it was sold between the two, although the first had listed it.
-- LATE it restores its price, and offers again an item that the seller has bought back. To prevent that, name the
--      listing and remember the name, as purchase_item does with orders.
-- MEMORY the first write, a ZADD, is refused; nothing has changed.
local offers, goods = KEYS[1], KEYS[2]
local item, offer, price = ARGV[1], ARGV[2], ARGV[3]

if redis.call('SISMEMBER', goods, item) == 0 and not redis.call('ZSCORE', offers, offer) then
  return {'missing'}
end
redis.call('ZADD', offers, price, offer)
redis.call('SREM', goods, item)
return {'listed'}
