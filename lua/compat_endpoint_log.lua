-- compat_endpoint_log.lua: a ZSET of milliseconds; records every request, denied ones too; C counterpart in
-- src/limit/compat.c. limit a, window b ms (whole seconds). Members are unique, so that two requests in one
-- millisecond count as two.
--@prepare
base = fmt('%.0f', now_ms)
edge = fmt('%.0f', now_ms - b)
px = fmt('%.0f', b)
second, start, renews, window, counted = 0, now_ms * 1000, true, b * 1000, 1e300
--@view compat_rlaas_sliding
--@wait compat_rlaas_sliding
--@save compat_rlaas_sliding
