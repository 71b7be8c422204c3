/*
 * Koa 2 and 3:  app.use(rateLimit(limiter, 'web')), or in front of a route's handler.
 */
import type { Context, Middleware } from 'koa'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, Limits, endpointName } from './middleware.js'
import { addFields, headerOf, onResponseEnd } from './node-http.js'

export type Args = [context: Context]
export type { Denial, KeyValue, Limit, LimitInput } from './limits.js'

function senderOf(context: Context): Sender {
  return {
    peer: context.req.socket.remoteAddress,
    address: context.ip,
    believesAll: context.app.proxy && context.app.maxIpsCount === 0,
    header: (name) => headerOf(context.req, name),
  }
}

const keys = keysFor<Args>(senderOf)
/** The client's address; without options the address that `app.proxy` makes. */
export const ip: Keys<Args>['ip'] = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<Args>['user'] = keys.user

function exchangeOf(context: Context): Exchange {
  return {
    ...senderOf(context),
    method: context.method,
    // @koa/router sets the route; without a router there is no endpoint
    endpoint: () => endpointName(context.method, context['_matchedRoute']?.toString()),
    onEnd: (ended) => onResponseEnd(context.res, ended),
  }
}

/** Limits the requests that pass here. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): Middleware {
  const limits = new Limits<Args>(limiter, inputs)

  return async (context, next) => {
    const verdict = await limits.admit(exchangeOf(context), [context])
    addFields(context.res, verdict.passes ? verdict.fields : verdict.denial.fields)
    context.state['rateLimit'] = verdict.passes ? verdict.decision : verdict.denial.decision
    if (verdict.passes) return next()

    const { denial, respond } = verdict
    if (respond) return respond(denial)
    context.status = denial.status
    context.set('Content-Type', denial.contentType)
    context.body = denial.body
  }
}
