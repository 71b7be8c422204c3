/*
 * NestJS 11 and 12, on Express or Fastify:
 *
 *     @Module({ imports: [RateLimitModule.forRoot({ limiter })], providers: [{ provide: APP_GUARD, useExisting: RateLimitGuard }] })
 *     class Search { @RateLimit({ limit: 10, window: '5s' }) @Get() find() {} }
 *
 * The guard asks. If other guards stand between it and the handler, it asks only for the module's limits, and an
 * interceptor for those of the handler: behind all guards, so that their functions see the user whom these have found.
 * What would not be asked stops the start.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import {
  type ArgumentsHost,
  type CallHandler,
  type CanActivate,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  type ExecutionContext,
  HttpException,
  Inject,
  Injectable,
  Module,
  type NestInterceptor,
  type OnModuleInit,
  RequestMethod,
  SetMetadata,
  UseInterceptors,
  VersioningType,
} from '@nestjs/common'
import { APP_FILTER, ApplicationConfig, MetadataScanner, ModulesContainer, Reflector } from '@nestjs/core'
import { RoutePathFactory } from '@nestjs/core/router/route-path-factory.js'
import { type Observable, finalize } from 'rxjs'
import { type Keys, type Sender, keysFor } from './keys.js'
import type { RateLimiter } from './limiter.js'
import type { Denial, Limit as AnyLimit } from './limits.js'
import { type Endpoint, type Exchange, Limits, type Verdict, endpointName, isPreflightOf } from './middleware.js'
import { addFields, answer, headerOf, onResponseEnd } from './node-http.js'
import { checkOptions } from './options.js'

/** Of the platform: Express's or Fastify's. */
type Native = any
/** `context`: what else is asked for, such as the arguments of a resolver and the data of a message. */
export type Args = [request: Native, response: Native, context: ExecutionContext]
export type Limit = Omit<AnyLimit<Args>, 'respond'> & {
  /** answers a request that does not go on, instead of the usual 429 and 503; of HTTP only */
  readonly respond?: ((request: Native, response: Native, denial: Denial) => unknown) | undefined
}
export type LimitInput = string | Limit
export { type Denial, type KeyValue, NOT_LIMITED } from './limits.js'

const LIMITS = 'ratelimitd:limits'
const SKIP = 'ratelimitd:skip'
const ASKS = 'RateLimitModule.forRoot()' // a token: Nest's error names it where the module is missing

export interface RateLimitModuleOptions {
  readonly limiter: RateLimiter
  /** for every handler that the guard protects, together with its own; default: none */
  readonly limits?: readonly LimitInput[] | undefined
  /** the request of a call that is not HTTP, or not where this module looks for it */
  readonly getRequest?: ((context: ExecutionContext) => Native) | undefined
}

/** On a handler or on a controller; limits of both apply, also of several decorators. */
export function RateLimit(...inputs: LimitInput[]): ClassDecorator & MethodDecorator {
  return (target: object, name?: string | symbol, descriptor?: PropertyDescriptor): void => {
    const subject = (descriptor?.value ?? target) as object
    const before = (Reflect.getOwnMetadata(LIMITS, subject) ?? []) as LimitInput[]
    Reflect.defineMetadata(LIMITS, [...inputs, ...before], subject)
    if (before.length > 0) return

    const asks = UseInterceptors(RateLimitInterceptor)
    if (descriptor) asks(target, name!, descriptor)
    else asks(target as new () => unknown)
  }
}

/** No limit applies here, the module's included. */
export function SkipRateLimit(): ClassDecorator & MethodDecorator {
  return SetMetadata(SKIP, true)
}

function rawRequest(request: Native): IncomingMessage {
  return (request.raw ?? request) as IncomingMessage
}

function rawResponse(response: Native): ServerResponse {
  return (response.raw ?? response) as ServerResponse
}

function senderOf(request: Native): Sender {
  const raw = rawRequest(request)
  const peer = raw.socket?.remoteAddress

  return {
    peer,
    address: (request.ip as string | undefined) ?? peer,
    believesAll: request.app?.get?.('trust proxy') === true || request.server?.initialConfig?.trustProxy === true,
    header: (name) => (raw.headers ? headerOf(raw, name) : undefined),
  }
}

const keys = keysFor<[request: Native, response?: Native, context?: ExecutionContext]>(senderOf)
/** The client's address; without options the address that the platform gives. */
export const ip = keys.ip
/** The user, or the address of one who has no name. */
export const user: Keys<[request: Native, response?: Native, context?: ExecutionContext]>['user'] = keys.user

/** For `skip`, if CORS is behind the limit. Safe only where no handler answers OPTIONS. */
export function isPreflight(request: Native): boolean {
  return isPreflightOf(request.method as string, senderOf(request).header)
}

/** What a limit throws. The module's filter answers it; a filter of your own may catch it too. */
export class RateLimitException extends HttpException {
  constructor(readonly verdict: Verdict & { passes: false }) {
    const { denial } = verdict
    super(denial.contentType.includes('json') ? (JSON.parse(denial.body) as object) : denial.body.trim(), denial.status)
  }
}

@Catch(RateLimitException)
export class RateLimitFilter implements ExceptionFilter<RateLimitException> {
  async catch(exception: RateLimitException, host: ArgumentsHost): Promise<unknown> {
    if (host.getType() !== 'http') return exception // GraphQL has its own form of errors

    const response = host.switchToHttp().getResponse<Native>()
    if (!exception.verdict.respond) response.hijack?.() // Fastify: the answer is written here
    return answer(rawResponse(response), exception.verdict)
  }
}

// ---- calls ---------------------------------------------------------------------------------------------------------

/** Where a call of this type keeps its request; of the platforms and libraries that Nest has modules for. */
function requestIn(context: ExecutionContext): Native {
  const args = context.getArgs<Native[]>()
  switch (context.getType<string>()) {
    case 'graphql':
      return args[2]?.req ?? args[2]?.request ?? args[2]?.reply?.request ?? args[2]?.extra?.request ?? args[2] ?? {}
    case 'ws':
      return args[0]?.request ?? { socket: args[0]?._socket ?? {}, headers: {} }
    case 'rpc':
      return { socket: {}, headers: {} }
    default:
      return args[0]
  }
}

function responseIn(context: ExecutionContext): Native {
  const args = context.getArgs<Native[]>()

  switch (context.getType<string>()) {
    case 'graphql':
      return args[2]?.res ?? args[2]?.req?.res ?? args[2]?.reply
    case 'http':
      return args[1]
    default:
      return undefined
  }
}

/** What the guard and the interceptor of one call have in common. */
function callOf(context: ExecutionContext): object {
  const args = context.getArgs<object[]>()

  return context.getType() === 'http' ? args[0]! : args
}

/** In the form that its kind of call has for errors. */
async function errorFor(context: ExecutionContext, verdict: Verdict & { passes: false }): Promise<Error> {
  const error = new RateLimitException(verdict)
  const [, retryAfter] = verdict.denial.fields.find(([name]) => name === 'Retry-After') ?? []
  const shown = {
    ...(error.getResponse() as object),
    ...(retryAfter !== undefined && { 'retry-after': Number(retryAfter) }),
  }

  switch (context.getType<string>()) {
    case 'ws':
      return new (await import('@nestjs/websockets')).WsException(shown)
    case 'rpc':
      return new (await import('@nestjs/microservices')).RpcException(shown)
    default:
      return error
  }
}

/** Of a handler of a class. */
interface Plan {
  /** several, where its module is mounted at several places */
  readonly endpoints: readonly (Endpoint & { readonly paths: readonly string[] })[]
  /** what the guard asks, and what the interceptor asks behind other guards */
  readonly first: Limits<Args> | null
  readonly later: Limits<Args> | null
}

/** By the pattern that the platform shows, where there are several. */
function endpointOf({ endpoints }: Plan, request: Native): Endpoint {
  const pattern = (request.route?.path ?? request.routeOptions?.url) as string | undefined

  return endpoints.find(({ paths }) => paths.includes(pattern!)) ?? endpoints[0]!
}

const withContext = (input: LimitInput): string | AnyLimit<Args> => {
  if (typeof input === 'string' || input === null || typeof input !== 'object') return input
  const { respond, ...limit } = input

  return respond
    ? {
        ...limit,
        respond: (request: Native, response: Native, _context: ExecutionContext, denial: Denial) =>
          respond(request, response, denial),
      }
    : limit
}

/** One for the application: the limits of all handlers. */
@Injectable()
export class RateLimits implements OnModuleInit {
  readonly #plans = new Map<unknown, Map<unknown, Plan>>() // by handler, by class
  readonly #guarded = new WeakMap<object, { request: Native; ends: ((isAnswered: boolean) => void)[] }>() // by call
  readonly #routes: RoutePathFactory

  constructor(
    private readonly options: RateLimitModuleOptions,
    private readonly reflector: Reflector,
    private readonly config: ApplicationConfig,
    private readonly modules: ModulesContainer,
  ) {
    this.#routes = new RoutePathFactory(config)
  }

  /** Before the handler, by the guard. */
  async guard(context: ExecutionContext, request: Native): Promise<void> {
    const plan = this.#planOf(context.getHandler(), context.getClass())
    this.#guarded.set(callOf(context), { request, ends: [] })
    if (plan.first) await this.#ask(context, plan, plan.first)
  }

  /** Behind all guards. */
  async intercept(context: ExecutionContext): Promise<(() => void) | null> {
    const plan = this.#planOf(context.getHandler(), context.getClass())
    const call = callOf(context)
    if (!this.#guarded.has(call)) {
      // guards of the application are not those of its gateways and microservices
      this.#guarded.set(call, { request: this.getRequest(context), ends: [] })
      if (plan.first) await this.#ask(context, plan, plan.first)
    }
    if (plan.later) await this.#ask(context, plan, plan.later)

    const { ends } = this.#guarded.get(call)!
    return ends.length === 0 ? null : () => ends.splice(0).forEach((ended) => ended(true))
  }

  getRequest(context: ExecutionContext): Native {
    return this.options.getRequest?.(context) ?? requestIn(context)
  }

  async #ask(context: ExecutionContext, plan: Plan, limits: Limits<Args>): Promise<void> {
    const type = context.getType<string>()
    const { request, ends } = this.#guarded.get(callOf(context))!
    const response = responseIn(context)
    const isOverHttp = type === 'http' || (type === 'graphql' && response !== undefined)
    const exchange: Exchange = {
      ...senderOf(request),
      request: isOverHttp
        ? rawRequest(request)
        : type === 'graphql'
          ? context.getArgByIndex<object>(2)
          : callOf(context),
      method: (request.method as string | undefined) ?? '',
      endpoint: () => endpointOf(plan, request),
      repeats: type === 'graphql',
      onEnd: (ended) => void (response === undefined ? ends.push(ended) : onResponseEnd(rawResponse(response), ended)),
    }

    const verdict = await limits.admit(exchange, [request, response, context])
    if (response !== undefined) addFields(rawResponse(response), verdict) // also if another filter answers
    request.rateLimit = verdict.passes ? verdict.decision : verdict.denial.decision
    if (!verdict.passes) throw await errorFor(context, verdict)
  }

  // ---- plans -------------------------------------------------------------------------------------------------------

  #planOf(handler: Function, type: Function): Plan {
    const known = this.#plans.get(handler)?.get(type)
    if (known !== undefined) return known

    const ofModule = (this.options.limits ?? []).map(withContext)
    const own = [type, handler]
      .flatMap((target) => this.reflector.get<LimitInput[] | undefined>(LIMITS, target) ?? [])
      .map(withContext)
    const isSkipped = this.reflector.getAllAndOverride<boolean | undefined>(SKIP, [handler, type]) === true
    const endpoints = this.#endpointsOf(handler, type)
    const made = (inputs: readonly (string | AnyLimit<Args>)[], once: number): Limits<Args> | null =>
      isSkipped || inputs.length === 0 ? null : new Limits<Args>(this.options.limiter, inputs, once)
    const plan = this.#isBehindGuards(handler, type)
      ? { endpoints, first: made(ofModule, ofModule.length), later: made(own, 0) }
      : { endpoints, first: made([...ofModule, ...own], ofModule.length), later: null }

    const ofHandler = this.#plans.get(handler) ?? new Map<unknown, Plan>()
    this.#plans.set(handler, ofHandler.set(type, plan))
    return plan
  }

  #guardsOf(handler: Function, type: Function): unknown[] {
    const written = [type, handler].flatMap((target) => (Reflect.getMetadata('__guards__', target) ?? []) as unknown[])

    return [
      ...this.config.getGlobalGuards(),
      ...this.config.getGlobalRequestGuards().map(({ metatype }) => metatype),
      ...written,
    ]
  }

  /** Does another guard stand between ours and the handler? */
  #isBehindGuards(handler: Function, type: Function): boolean {
    const guards = this.#guardsOf(handler, type)

    return guards.slice(Math.max(0, guards.findIndex(isOurs))).some((guard) => !isOurs(guard))
  }

  /** `GET /search`; where there is no route, the handler's own name. */
  #endpointsOf(handler: Function, type: Function): Plan['endpoints'] {
    const methodPath: unknown = Reflect.getMetadata('path', handler)
    const ctrlPath: unknown = Reflect.getMetadata('path', type)
    if (methodPath === undefined || ctrlPath === undefined)
      return [{ name: `${type.name}.${handler.name}`, owner: {}, paths: [] }]

    const method = Reflect.getMetadata('method', handler) as RequestMethod
    const versions: unknown = Reflect.getMetadata('__version__', handler) ?? Reflect.getMetadata('__version__', type)
    const host: unknown = Reflect.getMetadata('host', type)
    const versioning = this.config.getVersioning()
    const isInPath = versions === undefined || versioning?.type === VersioningType.URI
    const more = `${isInPath ? '' : ` version=${textOf(versions)}`}${host === undefined ? '' : ` host=${textOf(host)}`}`
    return this.#modulePathsOf(type).map((modulePath) => {
      const route = { modulePath, ctrlPath, methodPath, controllerVersion: versions, versioningOptions: versioning }
      const metadata = { ...route, globalPrefix: this.config.getGlobalPrefix() }
      const paths = [...new Set(this.#routes.create(metadata as Parameters<RoutePathFactory['create']>[0], method))]
      return { name: endpointName([RequestMethod[method]], paths.join('|')) + more, owner: {}, paths }
    })
  }

  #modulePathsOf(type: Function): (string | undefined)[] {
    const own = [...this.modules.values()].filter(({ controllers }) => controllers.has(type as never))
    const paths = own.map(
      ({ metatype }) =>
        (Reflect.getMetadata(`__module_path__${this.modules.applicationId}`, metatype) ??
          Reflect.getMetadata('__module_path__', metatype)) as string | undefined,
    )
    return paths.length > 0 ? paths : [undefined]
  }

  // ---- the start ---------------------------------------------------------------------------------------------------

  /** Every limit that is declared is asked, or the application does not start. */
  onModuleInit(): void {
    const { limiter } = this.options
    const scanner = new MetadataScanner()
    for (const module of this.modules.values())
      for (const { metatype, isAlias } of [...module.controllers.values(), ...module.providers.values()]) {
        if (isAlias || typeof metatype !== 'function' || !metatype.prototype) continue
        const isController = module.controllers.has(metatype as never)
        const isClassLimited = Reflect.hasMetadata(LIMITS, metatype)
        const handlers = scanner
          .getAllMethodNames(metatype.prototype as object)
          .map((name) => (metatype.prototype as Record<string, Function>)[name]!)
        if (isClassLimited && !handlers.some((handler) => isCalled(handler, isController)))
          throw new Error(`@RateLimit of ${metatype.name}: it has no handlers, so this limit would never be asked`)
        for (const handler of handlers) {
          const isLimited = Reflect.hasMetadata(LIMITS, handler)
          if (!isLimited && !(isClassLimited && isCalled(handler, isController))) continue

          this.#check(handler, metatype, isController)
          const { endpoints, first, later } = this.#planOf(handler, metatype)
          if (limiter.enabled && (first?.needsEndpoint || later?.needsEndpoint))
            for (const { name, owner } of endpoints) limiter.claimEndpoint(name, owner!)
        }
      }
  }

  #check(handler: Function, type: Function, isController: boolean): void {
    const what = `@RateLimit of ${type.name}.${handler.name}`
    if (!isCalled(handler, isController))
      throw new Error(`${what}: Nest calls no guards and interceptors there, so this limit would never be asked`)
    if (!this.#guardsOf(handler, type).some(isOurs))
      throw new Error(
        `${what}: RateLimitGuard is not registered there, so this limit would never be asked. ` +
          'Write @UseGuards(RateLimitGuard) at the class, or {provide: APP_GUARD, useExisting: RateLimitGuard} in a module',
      )
    if (Reflect.getMetadata('graphql:resolve_property', handler) && !this.#asksFields())
      throw new Error(
        `${what}: Nest asks for fields only with fieldResolverEnhancers: ['guards', 'interceptors'] in the options of GraphQLModule`,
      )
  }

  #asksFields(): boolean {
    const wrappers = [...this.modules.values()].flatMap(({ providers }) => providers.get('GqlModuleOptions') ?? [])
    const enhancers = wrappers.flatMap(
      ({ instance }) => (instance as { fieldResolverEnhancers?: string[] } | null)?.fieldResolverEnhancers ?? [],
    )
    return ['guards', 'interceptors'].every((one) => enhancers.includes(one))
  }
}

function isOurs(guard: unknown): boolean {
  const type = typeof guard === 'function' ? guard : (guard as object | null)?.constructor

  return type === RateLimitGuard || type?.prototype instanceof RateLimitGuard
}

const HANDLER_KEYS = [
  'method', // a route of HTTP
  'graphql:resolver_type',
  'graphql:resolve_property',
  'graphql:resolve_reference',
  'websockets:message_mapping',
  'microservices:handler_type',
]

/** Is it called from outside? A library may have a kind of handlers of its own: then it has left a mark. */
function isCalled(handler: Function, isController: boolean): boolean {
  if (HANDLER_KEYS.some((key) => Reflect.hasMetadata(key, handler))) return true
  const marks = Reflect.getMetadataKeys(handler).filter((key) => !OTHER_KEYS.test(String(key)))

  return !isController && marks.length > 0
}

const OTHER_KEYS =
  /^(design:.*|ratelimitd:.*|__guards__|__interceptors__|__pipes__|__exceptionFilters__|__headers__|__httpCode__)$/

function textOf(value: unknown): string {
  return [value].flat().map(String).join(',')
}

// ---- what Nest calls -----------------------------------------------------------------------------------------------

@Injectable()
export class RateLimitGuard implements CanActivate {
  readonly #asked = new WeakSet<object>()

  constructor(@Inject(ASKS) private readonly limits: RateLimits) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (this.#asked.has(context)) return true // the guard is registered twice
    this.#asked.add(context)
    await this.limits.guard(context, this.getRequest(context))
    return true
  }

  /** The request of a call. Guards of your own may find it in another place. */
  getRequest(context: ExecutionContext): Native {
    return this.limits.getRequest(context)
  }
}

@Injectable()
export class RateLimitInterceptor implements NestInterceptor {
  readonly #asked = new WeakSet<object>()

  constructor(@Inject(ASKS) private readonly limits: RateLimits) {}

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (this.#asked.has(context)) return next.handle() // at the class and at the handler
    this.#asked.add(context)
    const ended = await this.limits.intercept(context)

    return ended === null ? next.handle() : next.handle().pipe(finalize(ended))
  }
}

@Module({})
export class RateLimitModule {
  static forRoot(options: RateLimitModuleOptions): DynamicModule {
    checkOptions('RateLimitModule.forRoot', options, ['limiter', 'limits', 'getRequest'])
    if (options.limits?.length) new Limits<Args>(options.limiter, options.limits.map(withContext)) // a mistake shows here

    return {
      module: RateLimitModule,
      global: true,
      providers: [
        {
          provide: ASKS,
          useFactory: (...parts: [Reflector, ApplicationConfig, ModulesContainer]) => new RateLimits(options, ...parts),
          inject: [Reflector, ApplicationConfig, ModulesContainer],
        },
        RateLimitGuard,
        { provide: APP_FILTER, useClass: RateLimitFilter },
      ],
      exports: [ASKS, RateLimitGuard],
    }
  }
}
