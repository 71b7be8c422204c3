/*
 * Koa 2 and 3:  app.use(rateLimit(limiter, 'web')), or in front of a route's handler.
 */
import type { Context, Middleware } from 'koa'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import {
  type Endpoint,
  type Exchange,
  endpointName,
  isPreflightOf,
  limitsOf,
  noPattern,
  standsFor,
} from './middleware.js'
import { addFields, headerOf, onResponseEnd } from './node-http.js'

export type Args = [context: Context]
export { type Denial, type KeyValue, type Limit, type LimitInput, NOT_LIMITED } from './limits.js'

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

/** For `skip`, if the CORS middleware is behind the limit. Safe only where no handler answers OPTIONS. */
export function isPreflight(context: Context): boolean {
  return isPreflightOf(context.method, (name) => headerOf(context.req, name))
}

/** Of @koa/router, which leaves them in the context. */
interface Layer {
  readonly path: unknown
  readonly methods: readonly string[]
  readonly stack: readonly unknown[]
  readonly regexp?: RegExp | undefined
}

/**
 * Middleware of a router with a prefix regards capitals where its routes do not: another spelling of the path would get
 * past the limit. Checked once for each layer.
 */
function checkSpelling(context: Context, handler: Middleware, checked: WeakSet<Layer>): void {
  const matched = (context['matched'] ?? []) as readonly Layer[]
  const group = matched.find(({ methods, stack }) => methods.length === 0 && stack.includes(handler))
  if (!group?.regexp || checked.has(group)) return

  const other = context.path.replace(/[a-z]/gi, (letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  )
  const route = matched.find(({ methods }) => methods.includes(context.method))
  if (route?.regexp?.test(other) && !group.regexp.test(other))
    throw new Error(
      `rateLimit: ${other} gets past this limit: router.use() regards capitals, and the routes of this router do not. Make it with new Router({ sensitive: true })`,
    )
  checked.add(group)
}

/**
 * The route that the router found; in front of all routers what koa-mount has mounted the application at. Other routers
 * show no pattern.
 */
function endpointOf(context: Context, handler: Middleware): Endpoint {
  const mount = String(context['mountPath'] ?? '')
  const matched = ((context['matched'] ?? []) as readonly Layer[]).filter(({ methods }) =>
    methods.includes(context.method),
  )
  const layer = matched.find(({ stack }) => stack.includes(handler)) ?? matched[0]
  if (layer) {
    const host = (context['router'] as { host?: unknown } | undefined)?.host
    const path = `${mount}${String(layer.path)}${host === undefined ? '' : ` host=${String(host)}`}`
    return { name: endpointName(layer.methods, path), owner: layer }
  }

  const isInFront = (context.app.middleware as readonly unknown[]).includes(handler)
  if (!isInFront && mount === '') throw noPattern('Koa')
  return { name: mount, owner: mount === '' ? null : handler }
}

function exchangeOf(context: Context, handler: Middleware): Exchange {
  return {
    ...senderOf(context),
    request: context.req,
    method: context.method,
    endpoint: () => endpointOf(context, handler),
    behind: () => {
      const layers = (context['matched'] ?? []) as readonly Layer[]
      const stack = layers.find((layer) => layer.stack.includes(handler))?.stack ?? []
      return stack.slice(stack.indexOf(handler) + 1)
    },
    onEnd: (ended) => onResponseEnd(context.res, ended),
  }
}

/** Limits the requests that pass here. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): Middleware {
  const limits = limitsOf<Args>(limiter, inputs)

  const checked = new WeakSet<Layer>()

  const handler: Middleware = async (context, next) => {
    checkSpelling(context, handler, checked)
    const verdict = await limits.admit(exchangeOf(context, handler), [context])
    addFields(context.res, verdict)
    context.state['rateLimit'] = verdict.passes ? verdict.decision : verdict.denial.decision
    if (verdict.passes) return next()

    const { denial, respond } = verdict
    if (respond) return respond(denial)
    context.status = denial.status
    context.set('Content-Type', denial.contentType)
    context.body = denial.body
  }
  standsFor(handler, { limits, exchangeOf: (context) => exchangeOf(context, handler) })
  return handler
}
