"""originals.py: the five limiters that a `compat:` policy does not go with (six presets), as their users run them: plain
Redis commands or a script of their own, without our code.

Each takes a Redis client, the client's key, a limit and a window, and answers hit() with its verdict. key_now() is the
Redis key that a hit at this moment touches.
"""

import uuid


def server_ms(redis):
    seconds, microseconds = redis.time()
    return seconds * 1000 + microseconds // 1000


class Original:
    counts_denied = False

    def __init__(self, redis, key, limit, window_s):
        self.redis, self.key, self.limit, self.window_s = redis, key, limit, window_s
        self.window_ms = window_s * 1000

    def key_now(self):
        raise NotImplementedError

    def hit(self):
        raise NotImplementedError

    def value(self):
        """The part of the state to compare: the count, or the number of entries."""
        key = self.key_now()
        kind = self.redis.type(key).decode()
        if kind == "string":
            return kind, int(self.redis.get(key))
        return kind, self.redis.zcard(key) if kind == "zset" else 0


class WindowStartMillis(Original):
    """INCR of a key that names the window's start, by the host's clock; every request counts, the first sets the expiry."""

    counts_denied = True

    def key_now(self):
        now = server_ms(self.redis)
        return f"ratelimiter:{self.key}:{now - now % self.window_ms}"

    def hit(self):
        key = self.key_now()
        count = self.redis.incr(key)
        if count == 1:
            self.redis.pexpire(key, self.window_ms + 1000)
        return count <= self.limit


class RlaasFixed(Original):
    """One script with the server's clock: INCR, EXPIRE at the first hit, TTL read back."""

    counts_denied = True
    SCRIPT = """
    local seconds = tonumber(redis.call('TIME')[1])
    local key = KEYS[1] .. ':' .. math.floor(seconds / tonumber(ARGV[1]))
    local count = redis.call('INCR', key)
    if count == 1 then redis.call('EXPIRE', key, ARGV[1]) end
    return {count <= tonumber(ARGV[2]) and 1 or 0, count, redis.call('TTL', key)}
    """

    def key_now(self):
        return f"rlaas:rate_limit:{self.key}:{server_ms(self.redis) // 1000 // self.window_s}"

    def hit(self):
        return self.redis.eval(self.SCRIPT, 1, f"rlaas:rate_limit:{self.key}", self.window_s, self.limit)[0] == 1


class RlaasSliding(Original):
    """A ZSET of milliseconds. Denied requests are not recorded, but every request moves the expiry."""

    SCRIPT = """
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - ARGV[1])
    local allowed = redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2])
    if allowed then redis.call('ZADD', KEYS[1], now, ARGV[3]) end
    redis.call('PEXPIRE', KEYS[1], 2 * ARGV[1])
    return allowed and 1 or 0
    """

    def key_now(self):
        return f"rlaas:rate_limit:{self.key}"

    def hit(self):
        return self.redis.eval(self.SCRIPT, 1, self.key_now(), self.window_ms, self.limit, uuid.uuid4().hex) == 1


class FirstHit(Original):
    """A window that starts at the first hit. Denied requests are not counted."""

    SCRIPT = """
    local count = tonumber(redis.call('GET', KEYS[1]) or '0')
    if count >= tonumber(ARGV[1]) then return 0 end
    if redis.call('INCR', KEYS[1]) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
    return 1
    """

    def key_now(self):
        return f"rate_limit:{self.key}"

    def hit(self):
        return self.redis.eval(self.SCRIPT, 1, self.key_now(), self.limit, self.window_s) == 1


class EndpointWindow(FirstHit):
    """The count script of many tutorials: it stops incrementing once it is over the limit."""

    SCRIPT = """
    local count = redis.call('GET', KEYS[1])
    if count and tonumber(count) > tonumber(ARGV[1]) then return 0 end
    count = redis.call('INCR', KEYS[1])
    if tonumber(count) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
    return tonumber(count) <= tonumber(ARGV[1]) and 1 or 0
    """


class EndpointLog(Original):
    """A ZSET in which every request is recorded, the denied ones too."""

    counts_denied = True

    def key_now(self):
        return f"rate_limit:{self.key}"

    def hit(self):
        key, now = self.key_now(), server_ms(self.redis)
        with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.zadd(key, {uuid.uuid4().hex: now})
            pipeline.zremrangebyscore(key, 0, now - self.window_ms)
            pipeline.zcard(key)
            pipeline.expire(key, self.window_s)
            count = pipeline.execute()[2]
        return count <= self.limit


ORIGINALS = {
    "window-start-millis": WindowStartMillis,
    "rlaas-fixed": RlaasFixed,
    "rlaas-sliding": RlaasSliding,
    "first-hit": FirstHit,
    "endpoint-window": EndpointWindow,
    "endpoint-log": EndpointLog,
}
