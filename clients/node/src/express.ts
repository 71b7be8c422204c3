/*
 * Express 4 and 5:  app.post('/login', rateLimit(limiter, {policy: 'login', key: (req) => req.body.user}), login)
 */
import type { Request, RequestHandler, Response } from 'express'
import type { Decision } from './decision.js'
import { Endpoints, handlersBehind } from './express-endpoint.js'
import { type Keys, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Endpoint, type Exchange, isPreflightOf, limitsOf, standsFor } from './middleware.js'
import { addFields, answer, headerOf, onResponseEnd } from './node-http.js'

export type Args = [request: Request, response: Response]
export { type Denial, type KeyValue, type Limit, type LimitInput, NOT_LIMITED } from './limits.js'

declare global {
  namespace Express {
    interface Request {
      /** what the limits in front of this handler decided; null: no decision was made */
      rateLimit?: Decision | null
    }
  }
}

const NOWHERE = { name: '', owner: null }

class ExpressExchange implements Exchange {
  constructor(
    readonly request: Request,
    private readonly response: Response,
    private readonly endpointOf: () => Endpoint = () => NOWHERE,
    readonly behind: () => readonly unknown[] = () => [],
  ) {}

  get method(): string {
    return this.request.method
  }

  get peer(): string | undefined {
    return this.request.socket.remoteAddress
  }

  get address(): string | undefined {
    return this.request.ip
  }

  get believesAll(): boolean {
    return this.request.app.get('trust proxy') === true
  }

  header(name: string): string | undefined {
    return headerOf(this.request, name)
  }

  endpoint(): Endpoint {
    return this.endpointOf()
  }

  onEnd(ended: (isAnswered: boolean) => void): void {
    onResponseEnd(this.response, ended)
  }
}

const keys = keysFor<Args>((request, response) => new ExpressExchange(request, response))
/** The client's address; without options the address that `trust proxy` makes. */
export const ip: Keys<Args>['ip'] = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<Args>['user'] = keys.user

/** For `skip`, if the CORS middleware is behind the limit. Safe only where no handler answers OPTIONS. */
export function isPreflight(request: Request): boolean {
  return isPreflightOf(request.method, (name) => headerOf(request, name))
}

/** Limits the requests that pass here: app.use(rateLimit(...)), or in front of one handler. */
export function rateLimit(limiter: RateLimiter, ...inputs: LimitInput<Args>[]): RequestHandler {
  const limits = limitsOf<Args>(limiter, inputs)
  const endpoints = new Endpoints()

  const exchangeOf = (request: Request, response: Response): Exchange =>
    new ExpressExchange(
      request,
      response,
      () => endpoints.of(request, handler),
      () => handlersBehind(request, handler),
    )
  const handler: RequestHandler = (request, response, next) => {
    limits
      .admit(exchangeOf(request, response), [request, response])
      .then((verdict) => {
        if (!verdict.passes) return answer(response, verdict)

        addFields(response, verdict)
        request.rateLimit = verdict.decision
        return void next()
      })
      .catch(next)
  }
  standsFor(handler, { limits, exchangeOf })
  return handler
}
