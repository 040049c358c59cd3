"""One state per key: fleets, their shards and what they share."""
