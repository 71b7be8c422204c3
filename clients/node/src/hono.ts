/*
 * Hono on @hono/node-server:  app.get('/search', rateLimit(limiter, '10/5s'), search)
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Context, MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { Decision } from './decision.js'
import { joined } from './http.js'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import {
  type Endpoint,
  type Exchange,
  endpointName,
  fieldsOf,
  isPreflightOf,
  limitsOf,
  standsFor,
} from './middleware.js'
import { onResponseEnd } from './node-http.js'

declare module 'hono' {
  interface ContextVariableMap {
    /** what the limits in front of this handler decided; null: no decision was made */
    rateLimit: Decision | null
  }
}

export type Args = [context: Context]
export { type Denial, type KeyValue, type Limit, type LimitInput, NOT_LIMITED } from './limits.js'

/** What @hono/node-server gives to the application. */
interface NodeBindings {
  readonly incoming?: IncomingMessage | undefined
  readonly outgoing?: ServerResponse | undefined
}

function nodeOf(context: Context): NodeBindings {
  return (context.env ?? {}) as NodeBindings
}

function senderOf(context: Context): Sender {
  const peer = nodeOf(context).incoming?.socket.remoteAddress

  return { peer, address: peer, believesAll: false, header: (name) => context.req.header(name) }
}

const keys = keysFor<Args>(senderOf)
/** The client's address; without options the address of the connection. */
export const ip: Keys<Args>['ip'] = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<Args>['user'] = keys.user

/** For `skip`, if the CORS middleware is behind the limit. Safe only where no handler answers OPTIONS. */
export function isPreflight(context: Context): boolean {
  return isPreflightOf(context.req.method, (name) => context.req.header(name))
}

/**
 * The endpoints of one limit. Hono keeps a route for each method and does not show that they were declared together: so a
 * limit at one pattern is one endpoint, by the method that came first.
 */
class Endpoints {
  readonly #known = new Map<string, Endpoint>()

  of(context: Context, handler: MiddlewareHandler): Endpoint {
    const routes = matchedRoutes(context)
    const { routeIndex } = context.req
    const own = routes.slice(routeIndex).find((route) => route.handler === handler) ?? routes[routeIndex]
    const { method = '', path = '' } = own ?? {}
    if (path === '/*' || path === '*') return { name: '', owner: null } // app.use()
    const known = this.#known.get(path)
    if (known) return known

    const owner = [...routes].reverse().find((route) => route.method === method && route.path === path) ?? null
    const found = { name: endpointName([method], path), owner }
    this.#known.set(path, found)
    return found
  }
}

/** Limits the requests that pass here. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): MiddlewareHandler {
  const limits = limitsOf<Args>(limiter, inputs)
  const endpoints = new Endpoints()

  const exchangeOf = (context: Context, ends: ((isAnswered: boolean) => void)[] = []): Exchange => {
    const { incoming, outgoing } = nodeOf(context)

    return {
      ...senderOf(context),
      request: incoming ?? context.req.raw,
      method: context.req.method,
      endpoint: () => endpoints.of(context, handler),
      behind: () => {
        const [own, ...rest] = matchedRoutes(context).slice(context.req.routeIndex)
        return rest
          .filter(({ method, path }) => method === own?.method && path === own.path)
          .map((route) => route.handler)
      },
      onEnd: (ended) => void (outgoing ? onResponseEnd(outgoing, ended) : ends.push(ended)),
    }
  }

  const handler: MiddlewareHandler = async (context, next) => {
    const ends: ((isAnswered: boolean) => void)[] = [] // without a node:http answer, as in app.request(): when the handler ends
    const verdict = await limits.admit(exchangeOf(context, ends), [context])
    context.set('rateLimit', verdict.passes ? verdict.decision : verdict.denial.decision)
    if (!verdict.passes) {
      const { denial, respond } = verdict
      const answer = respond
        ? ((await respond(denial)) as Response)
        : new Response(denial.body, { status: denial.status, headers: { 'Content-Type': denial.contentType } })
      for (const [name, value] of denial.fields)
        answer.headers.set(name, joined(name, answer.headers.get(name), value, verdict.visit.written))
      return answer
    }

    try {
      await next()
    } finally {
      for (const ended of ends) ended(true)
    }
    // the answer is there only now: what inner limits decided stands in it, too
    for (const [name, value] of fieldsOf(verdict))
      context.header(name, joined(name, context.res.headers.get(name), value, verdict.visit!.written))
    return undefined
  }
  standsFor(handler, { limits, exchangeOf: (context) => exchangeOf(context) })
  return handler
}
