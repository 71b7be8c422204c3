/*
 * Hono on @hono/node-server:  app.get('/search', rateLimit(limiter, '10/5s'), search)
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Context, MiddlewareHandler } from 'hono'
import { matchedRoutes } from 'hono/route'
import type { Decision } from './decision.js'
import { isJoined, joined } from './http.js'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, endpointName, limitsOf } from './middleware.js'
import { onResponseEnd } from './node-http.js'

declare module 'hono' {
  interface ContextVariableMap {
    /** what the limits in front of this handler decided; null: no decision was made */
    rateLimit: Decision | null
  }
}

export type Args = [context: Context]
export type { Denial, KeyValue, Limit, LimitInput } from './limits.js'

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

/** Limits the requests that pass here. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): MiddlewareHandler {
  const limits = limitsOf<Args>(limiter, inputs)

  return async (context, next) => {
    const { outgoing } = nodeOf(context)
    const ends: ((isAnswered: boolean) => void)[] = [] // without a node:http answer, as in app.request(): when the handler ends
    const exchange: Exchange = {
      ...senderOf(context),
      method: context.req.method,
      endpoint: () => {
        const route = matchedRoutes(context)[context.req.routeIndex]
        return endpointName(route?.method === 'ALL' ? 'ALL' : context.req.method, route?.path ?? '')
      },
      onEnd: (ended) => void (outgoing ? onResponseEnd(outgoing, ended) : ends.push(ended)),
    }

    const verdict = await limits.admit(exchange, [context])
    if (!verdict.passes) {
      const { denial, respond } = verdict
      if (respond) {
        const own = (await respond(denial)) as Response
        for (const [name, value] of denial.fields) own.headers.set(name, value)
        return own
      }
      const headers = new Headers(denial.fields.map(([name, value]): [string, string] => [name, value]))
      headers.set('Content-Type', denial.contentType)
      return new Response(denial.body, { status: denial.status, headers })
    }

    context.set('rateLimit', verdict.decision)
    try {
      await next()
    } finally {
      for (const ended of ends) ended(true)
    }
    for (const [name, value] of verdict.fields) {
      const inner = context.res.headers.get(name) // of a limiter behind this one, or of the application
      context.header(name, inner === null || !isJoined(name) ? value : joined(name, value, inner))
    }
    return undefined
  }
}
