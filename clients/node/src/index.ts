/*
 * ratelimitd: ask the daemon on this host whether something may happen now.
 *
 *     const limiter = new RateLimiter()
 *     const decision = await limiter.check('login', user)
 *     if (!decision.allowed) console.log('again in', decision.retryAfterMs)
 *
 * The middleware is in ratelimitd/express, /fastify, /koa, /hono and /nest; what tests need in ratelimitd/testing.
 */
export type { CombinedDecision, Correction, Decision, Explanation } from './decision.js'
export { Aborted, Denied, Refused, Unavailable, type UnavailableKind } from './errors.js'
export { Reservation, Slot } from './holds.js'
export type { Field, HeaderMode, HeaderOptions, Refusal } from './http.js'
export { type IpOptions, type KeyPart, type Sender, hashed, ipKey, joinKey, userKey } from './keys.js'
export {
  type AcquireOptions,
  type CallLimits,
  type CheckAllOptions,
  type CheckOptions,
  type Counters,
  type DecisionEvent,
  type Key,
  type LimiterOptions,
  type Member,
  type OnError,
  type Policy,
  RateLimiter,
  type RefundOptions,
  type ReserveOptions,
} from './limiter.js'
export { type Denial, type KeyValue, type Limit, type LimitInput, NOT_LIMITED, parseLimit } from './limits.js'
