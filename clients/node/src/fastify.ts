/*
 * Fastify 5:  await app.register(rateLimit, {limiter, limits: ['web']}); routes add limits in config.rateLimit.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import type { Decision } from './decision.js'
import { joined } from './http.js'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Exchange, endpointName, methodOf, limitsOf } from './middleware.js'
import { headerOf, keepFields, onResponseEnd } from './node-http.js'
import { checkOptions } from './options.js'

export type Args = [request: FastifyRequest, reply: FastifyReply]
export type { Denial, KeyValue, Limit, LimitInput } from './limits.js'

/** `preHandler` where a key needs the body. */
export type Hook = 'onRequest' | 'preParsing' | 'preValidation' | 'preHandler'
const HOOKS: readonly Hook[] = ['onRequest', 'preParsing', 'preValidation', 'preHandler']

export interface RouteLimits {
  readonly limits: readonly LimitInput<Args>[]
  /** default: the plugin's */
  readonly hook?: Hook | undefined
}

export interface PluginOptions {
  readonly limiter: RateLimiter
  /** for every request, also of unknown routes; default: none */
  readonly limits?: readonly LimitInput<Args>[] | undefined
  /** default 'onRequest' */
  readonly hook?: Hook | undefined
}

type HookFunction = (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>

declare module 'fastify' {
  interface FastifyContextConfig {
    rateLimit?: LimitInput<Args> | RouteLimits
  }
  interface FastifyRequest {
    /** what the limits in front of this handler decided; null: no decision was made */
    rateLimit: Decision | null
  }
  interface FastifyInstance {
    /** A hook for places that have no config, such as setNotFoundHandler({preHandler: app.rateLimit('web')}, handler). */
    rateLimit(...inputs: LimitInput<Args>[]): HookFunction
  }
}

function senderOf(request: FastifyRequest): Sender {
  return {
    peer: request.socket.remoteAddress,
    address: request.ip,
    believesAll: (request.server.initialConfig as { trustProxy?: unknown }).trustProxy === true,
    header: (name) => headerOf(request.raw, name),
  }
}

const keys = keysFor<Args>(senderOf)
/** The client's address; without options the address that `trustProxy` makes. */
export const ip: Keys<Args>['ip'] = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<Args>['user'] = keys.user

function exchangeOf(request: FastifyRequest, reply: FastifyReply): Exchange {
  return {
    ...senderOf(request),
    method: request.method,
    endpoint: () => {
      const { method, url } = request.routeOptions
      return endpointName(methodOf(request.method, Array.isArray(method) ? method : []), url)
    },
    onEnd: (ended) => onResponseEnd(reply.raw, ended),
  }
}

function hookFor(limiter: RateLimiter, inputs: readonly LimitInput<Args>[]): HookFunction {
  const limits = limitsOf<Args>(limiter, inputs)

  return async (request, reply) => {
    const verdict = await limits.admit(exchangeOf(request, reply), [request, reply])
    const fields = verdict.passes ? verdict.fields : verdict.denial.fields
    for (const [name, value] of fields) reply.header(name, joined(name, reply.getHeader(name), value))
    keepFields(reply.raw, fields)
    request.rateLimit = verdict.passes ? verdict.decision : verdict.denial.decision
    if (verdict.passes) return undefined

    const { denial, respond } = verdict
    if (respond) {
      await respond(denial)
      return reply
    }
    // bytes, so that Fastify leaves the type as it is
    return reply.code(denial.status).header('Content-Type', denial.contentType).send(Buffer.from(denial.body))
  }
}

function checkHook(hook: Hook): Hook {
  if (!HOOKS.includes(hook)) throw new TypeError(`rateLimit: hook is not one of ${HOOKS.join(', ')}: ${String(hook)}`)

  return hook
}

/** What a route has in config.rateLimit. */
interface OwnLimits {
  readonly hook: Hook
  readonly run: HookFunction
}

function ownLimits(
  limiter: RateLimiter,
  url: string,
  declared: LimitInput<Args> | RouteLimits,
  usual: Hook,
): OwnLimits {
  const own: RouteLimits = typeof declared === 'object' && 'limits' in declared ? declared : { limits: [declared] }
  checkOptions(`rateLimit of ${url}`, own, ['limits', 'hook'])

  return { hook: checkHook(own.hook ?? usual), run: hookFor(limiter, own.limits) }
}

async function plugin(app: FastifyInstance, options: PluginOptions): Promise<void> {
  checkOptions('rateLimit', options, ['limiter', 'limits', 'hook'])
  const { limiter, limits = [] } = options
  const usual = checkHook(options.hook ?? 'onRequest')

  app.decorateRequest('rateLimit', null)
  app.decorate('rateLimit', (...inputs: LimitInput<Args>[]) => hookFor(limiter, inputs))
  if (limits.length > 0) app.addHook(usual as 'onRequest', hookFor(limiter, limits))

  // A mistake shows when the route is declared. But without `await` routes may be declared before this plugin is loaded,
  // and these onRoute never sees: so the limits are looked up when a request comes.
  const known = new Map<unknown, OwnLimits>()
  const ownOf = (url: string, declared: LimitInput<Args> | RouteLimits): OwnLimits => {
    const own = known.get(declared) ?? ownLimits(limiter, url, declared, usual)
    known.set(declared, own)
    return own
  }
  app.addHook('onRoute', (route: RouteOptions) => {
    if (route.config?.rateLimit !== undefined) ownOf(route.url, route.config.rateLimit)
  })

  for (const hook of HOOKS)
    app.addHook(hook as 'onRequest', async (request, reply) => {
      const { config, url = '' } = request.routeOptions
      const own = config?.rateLimit === undefined ? null : ownOf(url, config.rateLimit)

      return own?.hook === hook ? own.run(request, reply) : undefined
    })
}

/** The plugin applies to the instance that registers it, not only to a scope of its own. */
export const rateLimit: typeof plugin = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'ratelimitd',
})
