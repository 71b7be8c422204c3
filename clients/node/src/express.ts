/*
 * Express 4 and 5:  app.post('/login', rateLimit(limiter, {policy: 'login', key: (req) => req.body.user}), login)
 */
import type { Request, RequestHandler, Response } from 'express'
import { type IpOptions, type KeyPart, type Sender, ipKey, userKey } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, Limits, endpointName } from './middleware.js'
import { addFields, answer, headerOf, onResponseEnd } from './node-http.js'

export type Args = [request: Request, response: Response]
export type { Denial, KeyValue, Limit, LimitInput } from './limits.js'

function senderOf(request: Request): Sender {
  return {
    peer: request.socket.remoteAddress,
    address: request.ip,
    believesAll: request.app.get('trust proxy') === true,
    header: (name) => headerOf(request, name),
  }
}

/** The client's address; without options, as `trust proxy` says. */
export function ip(options: IpOptions = {}): (request: Request) => string {
  const key = ipKey(options)

  return (request) => key(senderOf(request))
}

/** The user, or the address of one who has no name. */
export function user(find: (...args: Args) => KeyPart | null | undefined, options: IpOptions = {}): (...args: Args) => string {
  const key = ipKey(options)

  return (request, response) => userKey(find(request, response), () => key(senderOf(request)))
}

function exchangeOf(request: Request, response: Response): Exchange {
  return {
    ...senderOf(request),
    method: request.method,
    endpoint: () => {
      const route = request.route as { path: unknown } | undefined
      return endpointName(request.method, route && `${request.baseUrl}${String(route.path)}`) || request.baseUrl
    },
    onEnd: (ended) => onResponseEnd(response, ended),
  }
}

/** Limits the requests that pass here: app.use(rateLimit(...)), or in front of one handler. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): RequestHandler {
  const limits = new Limits<Args>(limiter, inputs)

  return (request, response, next) => {
    limits.admit(exchangeOf(request, response), [request, response]).then((verdict) => {
      if (!verdict.passes) return answer(response, verdict)

      addFields(response, verdict.fields)
      return void next()
    }).catch(next)
  }
}
