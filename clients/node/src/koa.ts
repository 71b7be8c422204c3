/*
 * Koa 2 and 3:  app.use(rateLimit(limiter, 'web')), or in front of a route's handler.
 */
import type { Context, Middleware } from 'koa'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, endpointName, methodOf, limitsOf } from './middleware.js'
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

/** Of @koa/router, which leaves them in the context. */
interface Layer {
  readonly path: unknown
  readonly methods: readonly string[]
  readonly stack: readonly unknown[]
}

/** Without a router there is no endpoint. */
function endpointOf(context: Context, handler: unknown): string {
  const path: unknown = context['_matchedRoute']
  const matched = (context['matched'] ?? []) as readonly Layer[]
  const layers = matched.filter((layer) => layer.path === path && layer.methods.includes(context.method))
  const layer = layers.find(({ stack }) => stack.includes(handler)) ?? layers[0]

  return endpointName(methodOf(context.method, layer?.methods ?? []), path?.toString())
}

function exchangeOf(context: Context, handler: unknown): Exchange {
  return {
    ...senderOf(context),
    method: context.method,
    endpoint: () => endpointOf(context, handler),
    onEnd: (ended) => onResponseEnd(context.res, ended),
  }
}

/** Limits the requests that pass here. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): Middleware {
  const limits = limitsOf<Args>(limiter, inputs)

  const handler: Middleware = async (context, next) => {
    const verdict = await limits.admit(exchangeOf(context, handler), [context])
    addFields(context.res, verdict.passes ? verdict.fields : verdict.denial.fields)
    context.state['rateLimit'] = verdict.passes ? verdict.decision : verdict.denial.decision
    if (verdict.passes) return next()

    const { denial, respond } = verdict
    if (respond) return respond(denial)
    context.status = denial.status
    context.set('Content-Type', denial.contentType)
    context.body = denial.body
  }
  return handler
}
