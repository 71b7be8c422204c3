/*
 * Fastify 5:  await app.register(rateLimit, {limiter, limits: ['web']}); routes add limits in config.rateLimit.
 *
 * Fastify gives a plugin the routes that are declared after it, in its scope. A limit that it never saw would be one
 * that is never asked, so routes are watched from the moment at which an application is made: Fastify announces it. Where
 * this module is loaded later, the plugin watches by itself.
 */
import { subscribe } from 'node:diagnostics_channel'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import type { Decision } from './decision.js'
import { joined } from './http.js'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { LimitInput } from './limits.js'
import { type Endpoint, type Exchange, Limits, endpointName, fieldsOf, isPreflightOf, limitsOf } from './middleware.js'
import { headerOf, keepFields, onResponseEnd } from './node-http.js'
import { checkOptions } from './options.js'

export type Args = [request: FastifyRequest, reply: FastifyReply]
export { type Denial, type KeyValue, type Limit, type LimitInput, NOT_LIMITED } from './limits.js'

/** `preHandler`: the body is there, and the hooks of the application have found the user. */
export type Hook = 'onRequest' | 'preParsing' | 'preValidation' | 'preHandler'
const HOOKS: readonly Hook[] = ['onRequest', 'preParsing', 'preValidation', 'preHandler']

export interface RouteLimits {
  readonly limits: readonly LimitInput<Args>[]
  /** default 'preHandler' */
  readonly hook?: Hook | undefined
}

export interface PluginOptions {
  readonly limiter: RateLimiter
  /** for every request, also of unknown routes; default: none */
  readonly limits?: readonly LimitInput<Args>[] | undefined
  /** of these limits; default 'onRequest' */
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

/** For `skip`, if the CORS plugin is behind the limit. Safe only where no handler answers OPTIONS. */
export function isPreflight(request: FastifyRequest): boolean {
  return isPreflightOf(request.method, (name) => headerOf(request.raw, name))
}

// ---- endpoints -----------------------------------------------------------------------------------------------------

const ENDPOINT = Symbol.for('ratelimitd.endpoint') // of a route, in its config: this is what requests show of it

/** `GET /search version=2.0.0`: with what else Fastify chooses the route by. */
function nameOf(route: Pick<RouteOptions, 'method' | 'url'> & { constraints?: object | undefined }): string {
  const constraints = Object.entries(route.constraints ?? {})
    .map(
      ([name, value]) =>
        ` ${name}=${typeof value === 'object' && !(value instanceof RegExp) ? JSON.stringify(value) : String(value)}`,
    )
    .sort()
    .join('')

  return endpointName([route.method].flat(), route.url) + constraints
}

function endpointOf(request: FastifyRequest): Endpoint {
  const { config, method = [], url } = request.routeOptions
  const known = (config as { [ENDPOINT]?: Endpoint } | undefined)?.[ENDPOINT]
  if (known) return known
  if (url === undefined) return { name: '', owner: null } // unknown paths

  // declared before anything watched. Another route may have the same name, by its constraints; so has a HEAD of its GET
  return { name: nameOf({ method: method as RouteOptions['method'], url }), owner: method === 'HEAD' ? null : config }
}

function exchangeOf(request: FastifyRequest, reply: FastifyReply): Exchange {
  return {
    ...senderOf(request),
    request: request.raw,
    method: request.method,
    endpoint: () => endpointOf(request),
    onEnd: (ended) => onResponseEnd(reply.raw, ended),
  }
}

// ---- asking --------------------------------------------------------------------------------------------------------

function hookFor(limits: Limits<Args>): HookFunction {
  return async (request, reply) => {
    const verdict = await limits.admit(exchangeOf(request, reply), [request, reply])
    const fields = fieldsOf(verdict)
    if (verdict.visit)
      for (const [name, value] of fields)
        reply.header(name, joined(name, reply.getHeader(name), value, verdict.visit.written))
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

// ---- routes --------------------------------------------------------------------------------------------------------

interface Plugin {
  readonly limiter: RateLimiter
  /** of its `limits` */
  readonly run: HookFunction | null
}

const PLUGIN = Symbol.for('ratelimitd.plugin') // of a scope, and those inside it
const WATCHED = Symbol.for('ratelimitd.watched') // of a server: one watcher, if this module is loaded twice

type Scope = FastifyInstance & { [PLUGIN]?: Plugin }

/** What a route has in config.rateLimit. */
interface OwnLimits {
  readonly hook: Hook
  readonly limits: Limits<Args>
}

function ownLimits({ limiter }: Plugin, url: string, declared: LimitInput<Args> | RouteLimits): OwnLimits {
  const own: RouteLimits = typeof declared === 'object' && 'limits' in declared ? declared : { limits: [declared] }
  checkOptions(`rateLimit of ${url}`, own, ['limits', 'hook'])

  return { hook: checkHook(own.hook ?? 'preHandler'), limits: new Limits<Args>(limiter, own.limits) }
}

const owners = new WeakMap<object, Map<string, object>>()

/** What has this name in a server: a HEAD that Fastify adds belongs to its GET. */
function ownerOf({ server }: FastifyInstance, name: string): object {
  const known = owners.get(server) ?? new Map<string, object>()
  owners.set(server, known)
  const owner = known.get(name) ?? {}
  known.set(name, owner)
  return owner
}

/** Gives a route its name and its limits. They are asked behind the hooks of the application, and behind the route's own. */
function onRoute(this: FastifyInstance, route: RouteOptions): void {
  const scope = this as Scope
  if ('rateLimit' in route)
    throw new TypeError(`rateLimit of ${route.url}: write it into the route's config: {config: {rateLimit: ...}}`)
  const name = nameOf(route)
  const endpoint: Endpoint = { name, owner: ownerOf(scope, name) }
  route.config = { ...route.config, [ENDPOINT]: endpoint } as NonNullable<RouteOptions['config']>

  // The plugin may be loaded later: then hooks of it are missing in scopes that were made before. What was asked already
  // is not asked again.
  if (scope[PLUGIN] === undefined)
    behind(route, 'preHandler', async (request, reply) => scope[PLUGIN]?.run?.(request, reply))
  const declared = route.config.rateLimit
  if (declared === undefined) return

  let own: OwnLimits | null = null
  const prepare = (): void => {
    const plugin = scope[PLUGIN]
    if (plugin === undefined)
      throw new Error(
        `rateLimit of ${route.url}: the plugin is registered neither in the scope of this route nor around it, so this limit would never be asked`,
      )
    own ??= ownLimits(plugin, route.url, declared)
    if (own.limits.needsEndpoint && plugin.limiter.enabled) plugin.limiter.claimEndpoint(name, endpoint.owner!)
  }
  if (scope[PLUGIN] !== undefined)
    prepare() // a mistake shows where the route is declared
  else scope.addHook('onReady', async () => prepare()) // or when the application starts

  const usual = typeof declared === 'object' && 'limits' in declared ? declared.hook : undefined
  behind(route, checkHook(usual ?? 'preHandler'), async (request, reply) => hookFor(own!.limits)(request, reply))
}

function behind(route: RouteOptions, hook: Hook, run: HookFunction): void {
  const hooks = route as unknown as Record<Hook, unknown>
  hooks[hook] = [hooks[hook] ?? [], run].flat()
}

/** Watches the routes of a server. False: it was watched before. */
function watch(app: FastifyInstance): boolean {
  const server = app.server as { [WATCHED]?: boolean }
  if (server[WATCHED]) return false
  server[WATCHED] = true
  app.addHook('onRoute', onRoute)
  return true
}

subscribe('fastify.initialization', (message) => watch((message as { fastify: FastifyInstance }).fastify))

// ---- the plugin ----------------------------------------------------------------------------------------------------

async function plugin(app: FastifyInstance, options: PluginOptions): Promise<void> {
  checkOptions('rateLimit', options, ['limiter', 'limits', 'hook'])
  const { limiter, limits = [] } = options
  const usual = checkHook(options.hook ?? 'onRequest')
  const run = limits.length > 0 ? hookFor(limitsOf<Args>(limiter, limits)) : null
  const own: Plugin = { limiter, run }

  app.decorateRequest('rateLimit', null)
  app.decorate('rateLimit', (...inputs: LimitInput<Args>[]) => hookFor(limitsOf<Args>(limiter, inputs)))
  if (watch(app)) lookUpLater(app, own)
  ;(app as Scope)[PLUGIN] = own
  if (run) app.addHook(usual as 'onRequest', run)
}

/** This module was loaded after the application was made: routes that it never saw are found by their requests. */
function lookUpLater(app: FastifyInstance, plugin: Plugin): void {
  const known = new Map<unknown, OwnLimits>()

  for (const hook of HOOKS)
    app.addHook(hook as 'onRequest', async (request, reply) => {
      const { config, url = '' } = request.routeOptions
      const declared = config?.rateLimit
      if (declared === undefined || ENDPOINT in config) return undefined
      const own = known.get(declared) ?? ownLimits(plugin, url, declared)
      known.set(declared, own)

      return own.hook === hook ? hookFor(own.limits)(request, reply) : undefined
    })
}

/** The plugin applies to the instance that registers it, not only to a scope of its own. */
export const rateLimit: typeof plugin = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'ratelimitd',
})
